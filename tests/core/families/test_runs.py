"""A run's next step, and how it stands."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.families import plans, runs
from substrat.core.families.plans import Member, OnFail, Plan
from substrat.core.families.runs import End, Next, Returned, Run, RunOutcome, Stand, Standing, Step

FIRST, SECOND, THIRD = Member("a", "x"), Member("b", "x", needs=("a",)), Member("c", "x", needs=("a", "b"))
PLAN = Plan("f", (THIRD, SECOND, FIRST))


def run(*started, plan=PLAN):
    return Run("f", "f.toml", "/w", plan, "operator", 100.0, {name: f"id-{name}" for name in started})


def step(run, now=101.0, **standings):
    return runs.next_step(run, Stand({name: Standing(word) for name, word in standings.items()}, {}), now)


def start(member):
    return Next(Step.START, member)


def test_each_starts_when_those_that_it_needs_have_succeeded():
    assert step(run()) == start(FIRST)
    assert step(run("a"), a="working") is None
    assert step(run("a"), a="succeeded") == start(SECOND)
    assert step(run("a", "b"), a="succeeded", b="working") is None
    assert step(run("a", "b"), a="succeeded", b="succeeded") == start(THIRD)
    assert step(run("a", "b", "c"), a="succeeded", b="succeeded", c="succeeded") == End(RunOutcome.SUCCEEDED)


def test_the_lead_is_first_and_the_others_wait_for_no_more_than_its_start():
    plan = Plan("f", (FIRST, Member("lead", "x")), lead="lead")
    assert step(run(plan=plan)) == start(plan.members[1])
    assert step(run("lead", plan=plan), lead="working") == start(FIRST)


def test_a_lead_that_needs_others_is_made_first_and_has_its_task_last():
    lead = Member("lead", "x", needs=("a",))
    plan = Plan("f", (FIRST, lead), lead="lead")
    assert step(run(plan=plan)) == Next(Step.MAKE, lead)
    made = replace(run(plan=plan), root="id-lead")
    assert step(made) == start(FIRST)
    made = replace(made, agents={"a": "id-a"})
    assert (step(made, a="working"), made.ids) == (None, ["id-lead", "id-a"])
    assert step(made, a="failed") == End(RunOutcome.FAILED), "the lead never has its task"
    assert step(made, a="succeeded") == start(lead)


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


JUDGED = Plan("f", (FIRST, Member("j", "x", needs=("a",), returns_to="a", rounds=3)))


def judged(a, times, turn, last=None, *, on_fail=OnFail.STOP):
    """The step and j's standing where a stands so, and j's turn doesn't agree; `last` went back last."""
    plan = replace(JUDGED, members=(FIRST, replace(JUDGED.members[1], on_fail=on_fail)))
    now = replace(run("a", "j", plan=plan), returned={"j": Returned(times, last)} if times else {})
    standings = runs.with_rounds(now, {"a": Standing(a), "j": Standing.SUCCEEDED}, {"j": turn})
    return runs.next_step(now, Stand(standings, {"j": turn}), 101.0), standings["j"].value


def test_a_result_that_does_not_agree_goes_back_until_the_rounds_are_over():
    j = JUDGED.members[1]
    assert judged("succeeded", 0, "t1") == (Next(Step.RETURN, j), "working")
    assert judged("working", 1, "t1", "t1") == (None, "working"), "a does what was said"
    assert judged("succeeded", 1, "t1", "t1") == (Next(Step.ASK_AGAIN, j), "working")
    assert judged("succeeded", 1, "t2", "t1") == (Next(Step.RETURN, j), "working")
    assert judged("succeeded", 2, "t2", "t2") == (Next(Step.ASK_AGAIN, j), "working")
    why = "f.j doesn't agree after 3 rounds"
    assert judged("succeeded", 2, "t3", "t2") == (End(RunOutcome.FAILED, why), "failed")
    assert judged("succeeded", 2, "t3", "t2", on_fail=OnFail.CONTINUE) == (End(RunOutcome.SUCCEEDED), "succeeded")
    assert judged("succeeded", 2, "t3", "t2", on_fail=OnFail.ASK) == (None, "needs-you")
    assert judged("failed", 1, "t1", "t1") == (End(RunOutcome.FAILED), "failed"), "a failed at what was said"
    assert judged("needs-you", 1, "t1", "t1") == (None, "needs-you")


def test_what_needs_one_that_does_not_agree_yet_waits():
    plan = replace(JUDGED, members=(*JUDGED.members, Member("last", "x", needs=("j",))))
    now = replace(run("a", "j", plan=plan), returned={"j": Returned(1, "t1")})
    standings = runs.with_rounds(now, {"a": Standing.WORKING, "j": Standing.SUCCEEDED}, {"j": "t1"})
    assert runs.next_step(now, Stand(standings, {"j": "t1"}), 101.0) is None
    agreed = {"a": Standing.SUCCEEDED, "j": Standing.SUCCEEDED}
    assert runs.next_step(now, Stand(agreed, {}), 101.0) == start(plan.members[2])


def test_what_agrees():
    for words in ('{"agrees": true}', '```json\n{"agrees": true, "why": "x"}\n```', '{"agrees": true}\n\nFiles:\n- a'):
        assert runs.agrees(words)
    for words in ('{"agrees": false}', '{"agrees": 1}', "{}", "[true]", "yes", '{"agrees": true', "[" * 99999):
        assert not runs.agrees(words)


def test_what_has_each_is_listed_before_anything_starts():
    plan = Plan("f", (FIRST, Member("m", "x", each="ls")))
    assert step(run(plan=plan)) == Next(Step.LIST, plan.members[1])
    assert step(run(plan=plan), m="failed") == End(RunOutcome.FAILED)
    assert step(run(plan=plans.with_group(plan, "m", []))) == start(FIRST)
    assert step(run(plan=replace(plan, members=()))) == End(RunOutcome.SUCCEEDED), "each of its commands found nothing"


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
        found = runs.next_step(now, Stand(standings, {}), 101.0)
        if isinstance(found, Next):
            assert found.step is Step.START
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
