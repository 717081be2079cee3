"""Which refs of agents that are over go, and how it is said."""

from dataclasses import replace

import pytest

from substrat.core.workspaces import left_refs
from substrat.core.workspaces.clones import Clone, PastLandings
from substrat.core.workspaces.left_refs import LeftRefs, RefsLook

AT = "refs/substrat/fix"
WORK = ("base", "head", "wip")
REFS = {f"{AT}/{name}": name for name in (*WORK, "turns/1", "turns/2", "turns/10", "before-restore/1", "before-restore/x")}
LEFT = LeftRefs("/app/.git", "fix", "/app", "main")
LANDED = RefsLook(True, "c", "t", 0, 0, 0, frozenset())
OPEN = RefsLook(False, "c", "t", 2, 1, 0, frozenset())
TURN_2 = LANDED._replace(holding=frozenset({f"{AT}/turns/2"}))
TURNS = ("turns/1", "turns/2", "turns/10")


@pytest.mark.parametrize(
    ("look", "has_clone", "unlanded", "gone"),
    [
        (LANDED, False, False, (*TURNS, "before-restore/1", *WORK)),
        (LANDED, True, False, (*TURNS, "before-restore/1")),
        (OPEN, False, False, ("before-restore/1",)),
        (OPEN, True, True, (*TURNS, "before-restore/1")),
        (OPEN, False, True, (*TURNS, "before-restore/1", *WORK)),
        # A state before a restore is work by itself.
        (LANDED._replace(holding=frozenset({f"{AT}/before-restore/1"})), False, False, (*TURNS, *WORK)),
        (TURN_2, False, False, ("turns/1", "turns/10", "before-restore/1", *WORK)),
        # `diff --turn 10` would take turn 2 for it.
        (TURN_2, True, False, ("turns/1", "before-restore/1")),
    ],
)  # fmt: skip
def test_refs_go_whose_work_has_landed_and_an_agents_last_work_goes_with_its_clone(look, has_clone, unlanded, gone):
    found = left_refs.going(REFS, look, has_clone=has_clone, unlanded=unlanded)
    assert {*found} == {f"{AT}/{name}" for name in gone}
    names = [ref.removeprefix(f"{AT}/") for ref in found]
    assert names[len(names) - len({*WORK} & {*names}) :] == [name for name in names if name in WORK], "they go last"


def test_days_are_counted_from_when_the_work_was_found_in_a_branch():
    noted = left_refs.noted(LEFT, LANDED, 1000.0)
    assert (noted.since, noted.head, noted.tip) == (1000.0, "c", "t")
    assert left_refs.noted(noted, LANDED, 2000.0) == noted
    assert left_refs.noted(noted, LANDED._replace(head="d"), 2000.0).since == 2000.0, "other work"
    assert left_refs.noted(noted, OPEN, 2000.0).since is None, "it was taken back"
    week = 7 * 86400.0
    assert [left_refs.is_due(noted, 7.0, 1000.0 + after) for after in (week - 1, week)] == [False, True]
    assert not left_refs.is_due(noted, 0.0, 1000.0 + week)
    assert not left_refs.is_due(replace(noted, since=None), 7.0, 1000.0 + week)


def test_a_note_begins_with_what_the_record_of_the_clone_knows():
    clone = Clone("id", "fix", "/trees/id", "/app", "/app/.git", "/app/sub", "substrat/fix", "main")
    assert LeftRefs.of(replace(clone, landings=PastLandings(landed_head="c", landed_commit="t"))) == replace(
        LEFT, head="c", tip="t"
    )


def test_the_sentences_name_what_goes_and_what_stays():
    turns = {f"{AT}/{name}": name for name in TURNS}
    said = left_refs.prospect_text(LEFT, turns, LANDED, others=0)
    assert said == "3 refs in refs/substrat/fix of /app, its work has landed"
    held = LANDED._replace(holding=frozenset({f"{AT}/turns/1"}))
    assert left_refs.prospect_text(LEFT, turns, held, others=0) == (
        "3 refs in refs/substrat/fix of /app, with 1 turn with files of its own in no branch"
    )
    assert left_refs.prospect_text(LEFT, {f"{AT}/turns/2": ""}, held, others=1) == (
        "1 ref in refs/substrat/fix of /app, its work has landed; 1 ref stays, with files that are in no branch"
    )
    assert left_refs.prospect_text(LEFT, turns, OPEN, others=0) == (
        "3 refs in refs/substrat/fix of /app, its last work stays"
    )
    assert left_refs.prospect_text(LEFT, {f"{AT}/wip": "", f"{AT}/head": ""}, OPEN, others=0) == (
        "2 refs in refs/substrat/fix of /app, with 2 commits and 1 uncommitted file in no branch"
    )
    assert left_refs.refusal_text(LEFT, REFS, OPEN._replace(asides=1), has_clone=True) == (
        "refs/substrat/fix of /app has 2 commits, 1 uncommitted file and 1 commit on other branches or in stashes in no "
        "branch: `substratctl clones prune fix --refs --unlanded` removes its refs all the same"
    )
    for look in (LANDED, OPEN):
        assert left_refs.refusal_text(LEFT, {f"{AT}/wip": ""}, look, has_clone=True) == (
            "only its last work is left in refs/substrat/fix of /app; `substratctl rm fix` and `substratctl clones prune "
            "fix` come first"
        )
