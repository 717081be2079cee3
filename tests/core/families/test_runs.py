"""A run's next step, and how it stands."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.families import runs
from substrat.core.families.plans import Member, OnFail, Plan
from substrat.core.families.runs import End, Run, RunOutcome, Standing, Start

FIRST, SECOND, THIRD = Member("a", "x"), Member("b", "x", needs=("a",)), Member("c", "x", needs=("a", "b"))
PLAN = Plan("f", (THIRD, SECOND, FIRST))


def run(*started, plan=PLAN):
    return Run("f", "f.toml", "/w", plan, "operator", 100.0, {name: f"id-{name}" for name in started})


def step(run, now=101.0, **standings):
    return runs.next_step(run, {name: Standing(word) for name, word in standings.items()}, now)


def test_each_starts_when_those_that_it_needs_have_succeeded():
    assert step(run()) == Start(FIRST)
    assert step(run("a"), a="working") is None
    assert step(run("a"), a="succeeded") == Start(SECOND)
    assert step(run("a", "b"), a="succeeded", b="working") is None
    assert step(run("a", "b"), a="succeeded", b="succeeded") == Start(THIRD)
    assert step(run("a", "b", "c"), a="succeeded", b="succeeded", c="succeeded") == End(RunOutcome.SUCCEEDED)


def test_the_lead_is_first_and_the_others_wait_for_no_more_than_its_start():
    plan = Plan("f", (FIRST, Member("lead", "x")), lead="lead")
    assert step(run(plan=plan)) == Start(plan.members[1])
    assert step(run("lead", plan=plan), lead="working") == Start(FIRST)


def test_a_failure_ends_the_run_when_nobody_works_any_more():
    both = Plan("f", (FIRST, Member("d", "x"), SECOND))
    assert step(run("a", "d", plan=both), a="failed", d="working") is None
    assert step(run("a", "d", plan=both), a="failed", d="succeeded") == End(RunOutcome.FAILED)


def test_a_person_is_needed_or_a_budget_and_the_run_is_not_over():
    for word, outcome in (("needs-you", RunOutcome.NEEDS_YOU), ("out-of-budget", RunOutcome.OUT_OF_BUDGET)):
        assert step(run("a"), a=word) is None
        assert runs.outcome_of(run("a"), {"a": Standing(word)}) is outcome
    assert runs.outcome_of(run("a"), {"a": Standing.WORKING}) is None


def test_the_time_is_over():
    timed = run("a", plan=replace(PLAN, timeout=10.0))
    assert step(timed, 109.0, a="working") is None
    why = "it wasn't done after 10 s, so its agents were suspended"
    assert step(timed, 110.0, a="working") == End(RunOutcome.TIMEOUT, why)
    assert step(timed, 110.0, a="failed") == End(RunOutcome.FAILED), "it was over before"


def test_what_a_failure_means():
    def told(met, on_fail, *, is_accepted=False):
        return runs.standing_of(met, on_fail, is_accepted=is_accepted).value

    assert [told(False, one) for one in OnFail] == ["failed", "succeeded", "needs-you"]
    assert told(False, OnFail.ASK, is_accepted=True) == "succeeded"
    assert [told(None, one) for one in OnFail] == ["needs-you"] * 3
    assert [told(True, one) for one in OnFail] == ["succeeded"] * 3


def test_a_name_that_is_taken_gets_a_number():
    assert runs.name_after("f", {"g"}) == "f"
    assert runs.name_after("F", {"f", "f-2"}) == "F-3", "capitals don't tell names apart"


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=8), st.data())
def test_any_family_comes_to_an_end(needs, data):
    """Whichever way its agents end, in whichever order, no run waits for ever, and none starts twice or too early."""
    members = tuple(
        Member(f"m{number}", "x", needs=tuple({f"m{one}" for one in those if one < number}))
        for number, those in enumerate(needs)
    )
    now = run(plan=Plan("f", members))
    standings: dict[str, Standing] = {}
    for _ in range(3 * len(members) + 1):
        found = runs.next_step(now, standings, 101.0)
        if isinstance(found, Start):
            assert found.member.name not in now.agents
            assert all(standings[name] is Standing.SUCCEEDED for name in found.member.needs)
            now = replace(now, agents={**now.agents, found.member.name: "id"})
            standings[found.member.name] = Standing.WORKING
        elif found is None:
            working = [name for name, standing in standings.items() if standing is Standing.WORKING]
            ended = data.draw(st.sampled_from(working))
            standings[ended] = data.draw(st.sampled_from((Standing.SUCCEEDED, Standing.FAILED)))
        else:
            has_failed = Standing.FAILED in standings.values()
            assert found.outcome is (RunOutcome.FAILED if has_failed else RunOutcome.SUCCEEDED)
            assert has_failed or len(standings) == len(members)
            return
    raise AssertionError("the run goes on for ever")
