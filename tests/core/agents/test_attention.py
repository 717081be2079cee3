"""Attention: each kind alone, and the weightier one where several apply."""

import itertools
from dataclasses import replace

import pytest

from sandbox.spec import Network
from substrat.core.agents import attention
from substrat.core.agents.attention import AttentionKind, Facts, Level, StuckAfter
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Agent, Finding, Item, ItemKind, Outcome, Turn
from substrat.core.agents.rights import Policy
from substrat.core.families.waits import Wait, WaitMode
from substrat.core.workspaces.clones import Clone, Kept, PastLandings, Stage
from tests.support.cases import each

STUCK_AFTER = StuckAfter(300.0, 3600.0)
FREE = Agent("a", "a", Phase.IDLE, "/w", "auto", Policy(Network.NONE), 1.0, since=50.0)
RUNNING = Turn("t", "a", 3, started_at=9_000.0)
FAILED = replace(RUNNING, outcome=Outcome.ERROR, ended_at=9_500.0, error="it broke\nbadly")
QUESTION = Item(1, None, ItemKind.QUESTION, "a", "a", "shall I?\nreally?", 7_000.0)
FINDING = Finding(4, "a", "t", 6_000.0, "/w/sub/.git", "made by the agent")

BUSY = replace(FREE, phase=Phase.RUNNING, turn=RUNNING)
UNLANDED = Clone(
    "a", "a", "/trees/a", "/w", "/w/.git", "/w", "substrat/a", "main", "b" * 40, Stage.READY,
    kept=Kept(1, 70.0, "c" * 40, "d" * 40, ahead=2, landed=False),
)  # fmt: skip

CASES = {
    AttentionKind.ANSWER: (BUSY, Facts((QUESTION, 1), 9_000.0), 7_000.0, "shall I? really?"),
    AttentionKind.UNSAFE: (replace(FREE, findings=(FINDING,)), Facts(), 6_000.0, "made by the agent"),
    AttentionKind.UNKEPT: (
        replace(FREE, clone=replace(UNLANDED, unkept="its .git is no directory")),
        Facts(),
        FREE.since,
        "its work couldn't be kept: its .git is no directory",
    ),
    AttentionKind.FAILED: (replace(FREE, phase=Phase.FAILED, turn=FAILED), Facts(), 9_500.0, "it broke badly"),
    AttentionKind.STUCK: (BUSY, Facts(heard_at=9_100.0, silent=900.0), 9_100.0, "no progress for 15 min"),
    AttentionKind.BUDGET: (
        BUSY,
        Facts(budget=("5 of 5 turns: budget a --add turns=1", 9.0)),
        9.0,
        "5 of 5 turns: budget a --add turns=1",
    ),
    AttentionKind.MERGE: (replace(FREE, phase=Phase.SUSPENDED, clone=UNLANDED), Facts(), 70.0, "2 commits to land in main"),
    AttentionKind.HELD: (
        replace(FREE, phase=Phase.QUEUED),
        Facts(held="the disk is full", waiting_since=60.0),
        60.0,
        "the disk is full",
    ),
    AttentionKind.SUSPENDED: (
        replace(FREE, phase=Phase.SUSPENDED, waiting=2),
        Facts(),
        50.0,
        "2 prompts or messages wait",
    ),
    AttentionKind.WORKING: (BUSY, Facts(heard_at=9_100.0, silent=100.0), 9_000.0, "turn 3 is running"),
    AttentionKind.WAITING: (
        FREE,
        Facts(waits=[Wait(1, "a", ("b", "c"), ("bert", "carl"), WaitMode.ALL, 70.0)]),
        70.0,
        "waits for bert, carl",
    ),
    AttentionKind.CHECKING: (
        replace(FREE, phase=Phase.CHECKING),
        Facts(queue="its check `make` runs"),
        50.0,
        "its check `make` runs",
    ),
    AttentionKind.QUEUED: (replace(FREE, phase=Phase.QUEUED), Facts(queue="tried again later"), 50.0, "tried again later"),
    AttentionKind.IDLE: (FREE, Facts(), 1.0, "has nothing to do"),
    AttentionKind.DONE: (replace(FREE, phase=Phase.ENDED), Facts(), 50.0, "ended"),
}


def test_work_whose_branch_is_gone_names_the_way_into_another_also_after_a_failed_check():
    failed = replace(UNLANDED, landings=PastLandings(failed_head=UNLANDED.kept.head, failed_line="1 failed"))
    for clone in (UNLANDED, failed):
        found = attention.attention(replace(FREE, clone=clone), Facts(target_is_gone=True), STUCK_AFTER)
        assert found.kind is AttentionKind.MERGE
        assert found.text == "main is gone: `substratctl merge a --into BRANCH` lands 2 commits"


@pytest.mark.parametrize("kind", AttentionKind)
def test_each_kind_has_its_text_and_time(kind):
    agent, facts, since, text = CASES[kind]
    found = attention.attention(agent, facts, STUCK_AFTER)
    assert (found.kind, found.since, found.text) == (kind, since, text)


@pytest.mark.parametrize("kind", AttentionKind)
def test_of_an_agent_that_is_led_a_person_hears_what_only_a_person_can_settle(kind):
    agent, facts, since, text = CASES[kind]
    found = attention.attention(agent, facts._replace(is_led=True), STUCK_AFTER)
    shown = {"failed": "idle", "suspended": "idle", "merge": "idle"}.get(kind, kind)
    assert (found.kind, found.level is Level.URGENT) == (shown, kind in {"answer", "unsafe", "unkept", "stuck"})
    if kind is not AttentionKind.MERGE:
        named = f"{kind}: " if kind in {"failed", "suspended"} else ""
        assert (found.since, found.text) == (since, named + text), "it is still told why"


def test_an_agent_asks_for_the_commits_that_it_has_not_taken_of_its_descendants():
    later = replace(UNLANDED, kept=replace(UNLANDED.kept, time=80.0, ahead=1))
    for clone, untaken, text in (
        (None, (UNLANDED, later), "2 children have 3 commits that a hasn't taken"),
        (UNLANDED, (later,), "2 commits to land in main, 1 child has 1 commit that a hasn't taken"),
    ):
        found = attention.attention(replace(FREE, clone=clone), Facts(untaken=untaken), STUCK_AFTER)
        assert found == (AttentionKind.MERGE, text, 80.0, None, False)


def test_who_stands_still_can_take_up_nothing():
    able = {phase for phase in Phase if attention.can_act(replace(FREE, phase=phase, waiting=1), is_held=False)}
    assert able == {Phase.IDLE, Phase.QUEUED, Phase.CHECKING, Phase.RUNNING, Phase.INTERRUPTING, Phase.ENDING}
    assert not attention.can_act(replace(FREE, phase=Phase.QUEUED, waiting=1), is_held=True)
    assert not attention.can_act(FREE, is_held=False), "it has its task still to come"


def test_a_quiet_tool_call_has_more_time_and_is_named():
    facts = Facts(heard_at=9_100.0, silent=900.0, call="shell: make")
    assert attention.attention(BUSY, facts, STUCK_AFTER).kind is AttentionKind.WORKING
    found = attention.attention(BUSY, facts._replace(silent=3600.0), STUCK_AFTER)
    assert (found.kind, found.text) == (AttentionKind.STUCK, "no progress for 60 min during shell: make")


def test_levels_fall_with_the_weight():
    levels = [attention.Attention(kind, "", 0.0).level for kind in AttentionKind]
    order = [Level.URGENT, Level.ACTION, Level.INFO]
    assert levels == sorted(levels, key=order.index)
    assert levels[:4] == [Level.URGENT] * 4


@each(
    ("phase", "asks", "is_unsafe", "is_silent"), list(itertools.product(Phase, (False, True), (False, True), (False, True)))
)
def test_the_weightiest_counts(phase, asks, is_unsafe, is_silent):
    has_turn = phase not in {Phase.IDLE, Phase.ENDED}
    agent = replace(
        FREE, phase=phase, turn=(FAILED if phase == Phase.FAILED else RUNNING) if has_turn else None,
        findings=(FINDING,) if is_unsafe else (),
    )  # fmt: skip
    facts = Facts((QUESTION, 1) if asks else None, 100.0, 300.0 if is_silent else 0.0)
    found = attention.attention(agent, facts, STUCK_AFTER)
    if asks and phase != Phase.ENDED:
        assert found.kind is AttentionKind.ANSWER
    elif is_unsafe:
        assert found.kind is AttentionKind.UNSAFE
    elif phase == Phase.FAILED:
        assert found.kind is AttentionKind.FAILED
    elif is_silent and phase == Phase.RUNNING:
        assert found.kind is AttentionKind.STUCK
    else:
        assert found.level is not Level.URGENT
    assert (attention.reason(agent, facts) is not None) == (phase in {Phase.QUEUED, Phase.CHECKING})


def test_an_accepted_failure_asks_for_nothing():
    agent = replace(FREE, phase=Phase.FAILED, turn=FAILED, accepted_turn=FAILED.id)
    assert attention.attention(agent, Facts(), STUCK_AFTER).kind is AttentionKind.IDLE
    agent = replace(agent, accepted_turn="another")
    assert attention.attention(agent, Facts(), STUCK_AFTER).kind is AttentionKind.FAILED


def test_silence_counts_only_where_it_is_limited():
    agent = replace(FREE, phase=Phase.RUNNING, turn=RUNNING)
    facts = Facts(heard_at=0.0, silent=9_000.0)
    assert attention.attention(agent, facts, StuckAfter(0.0, 0.0)).kind is AttentionKind.WORKING


def test_a_long_text_is_one_short_line():
    agent = replace(FREE, phase=Phase.FAILED, turn=replace(FAILED, error="x" * 5000))
    assert len(attention.attention(agent, Facts(), STUCK_AFTER).text) == 200


@each(
    ("agent", "said"),
    [
        (BUSY, "turn 3 is running"),
        (replace(FREE, phase=Phase.FAILED, turn=FAILED), "it broke badly"),
        (replace(FREE, turn=replace(RUNNING, outcome=Outcome.SUCCESS)), "has nothing to do"),
        (replace(FREE, phase=Phase.FAILED, turn=replace(FAILED, error="x" * 5000)), "x" * 149 + "…"),
    ],
)
def test_a_refused_network_is_told_with_the_command_that_allows_it(agent, said):
    refused = replace(agent, turn=replace(agent.turn, refused="pypi.org"), policy=Policy(Network.FILTERED))
    assert attention.attention(agent, Facts(), STUCK_AFTER).text.startswith(said[:100])
    found = attention.attention(refused, Facts(), STUCK_AFTER).text
    assert found.startswith(said[:100])
    assert found.endswith("; refused pypi.org: allow a pypi.org")
    assert len(found) <= 200
    for followed in (Policy(Network.FILTERED, ("@python",)), Policy(Network.HOST)):
        assert attention.attention(replace(refused, policy=followed), Facts(), STUCK_AFTER).text.startswith(said[:100])
        assert "refused" not in attention.attention(replace(refused, policy=followed), Facts(), STUCK_AFTER).text


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (("/w/.git/config",), ".git/config was"),
        (("/other/.git/config",), "/other/.git/config was"),
        (("/w/.git/config", "/w/a/pkg/.envrc"), ".git/config and 1 more were"),
    ],
)
def test_a_turn_that_is_frozen_for_a_protected_path_comes_before_findings_until_it_goes_on(paths, shown):
    frozen = replace(FREE, phase=Phase.FROZEN, turn=replace(RUNNING, replaced=paths), findings=(FINDING,))
    found = attention.attention(frozen, Facts(), STUCK_AFTER)
    assert found == (AttentionKind.UNSAFE, f"frozen, because {shown} replaced here: resume a", frozen.since, None, True)
    found = attention.attention(replace(frozen, phase=Phase.RUNNING), Facts(), STUCK_AFTER)
    assert (found.text, found.is_frozen) == (FINDING.text, False)
