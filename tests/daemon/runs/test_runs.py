"""A run's task in a daemon without processes: what it starts, what it waits for, and how it ends."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from substrat.core.agents.records import Completion
from substrat.core.families.plans import Member, OnFail, Plan
from substrat.daemon.runs.runs import Runs
from substrat.errors import InvalidParams, LimitReached, SandboxFailed
from tests.daemon.runs.members import FakeMembers

SUCCEEDED = Completion.SUCCEEDED
NO_LANDINGS: Any = None
"""No agent here has a clone, so nothing is asked to land."""
JUDGE = {"needs": ("a",), "returns_to": "a", "rounds": 2, "result_schema": json.dumps({
    "properties": {"agrees": {"type": "boolean"}}, "required": ["agrees"],
})}  # fmt: skip


@pytest.fixture
async def scene(agents, nursery):
    """The runs of a daemon, whose task runs."""
    starts: Any = FakeMembers(agents)
    runs = Runs(agents.supervisor, agents.families, starts, NO_LANDINGS)
    nursery.start_soon(runs.run)
    await trio.testing.wait_all_tasks_blocked()
    return SimpleNamespace(agents=agents, starts=starts, runs=runs, clock=agents.clock)


def plan(*members, **more):
    return Plan("f", tuple(Member(name, "x", **given) for name, given in members), **more)


async def begun(scene, plan):
    run = scene.runs.begin(plan, "f.toml", "/w", "ctl")
    await trio.testing.wait_all_tasks_blocked()
    return run.name


def told(scene, name="f"):
    """The outcome of a run, the standings of its members, and the sentence about it."""
    found: Any = scene.runs.status(scene.runs.find(name))
    return found.outcome, {name: standing.value for name, standing in found.standings.items()}, found.why


async def done(scene, *names):
    for name in names:
        scene.agents.begin(name)
        scene.agents.finish(name)
    await trio.testing.wait_all_tasks_blocked()


async def test_one_that_cannot_be_started_lets_the_others_end_first(scene):
    scene.starts.failing = []
    await begun(scene, plan(("a", {}), ("c", {"needs": ("a",)}), ("b", {})))
    scene.starts.failing = [InvalidParams("no such thing")]
    await done(scene, "f.a")
    assert told(scene) == (None, {"a": "succeeded", "c": "failed", "b": "working"}, "f.c can't be started: no such thing")
    await done(scene, "f.b")
    run = scene.runs.find("f")
    assert (run.outcome, run.why) == ("failed", "f.c can't be started: no such thing")
    assert run.result == "f.a: done\n\nf.b: done"


async def test_what_may_pass_is_tried_three_times_with_pauses_whatever_happens_meanwhile(scene):
    scene.starts.failing = [SandboxFailed("slow")] * 3
    await begun(scene, plan(("a", {})))
    for _ in range(3):
        scene.runs.look()
        await trio.testing.wait_all_tasks_blocked()
    assert (scene.starts.asked, told(scene)) == (["a"], (None, {}, "f.a can't be started yet: slow"))
    for _ in range(2):
        scene.clock.time += 6
        scene.runs.look()
        await trio.testing.wait_all_tasks_blocked()
    assert len(scene.starts.asked) == 3
    assert scene.runs.find("f").why == "f.a can't be started: slow"


async def test_want_of_room_needs_a_person_and_is_no_failure(scene):
    scene.starts.failing = [LimitReached("end your turn")] * 9
    await begun(scene, plan(("a", {})))
    why = "f.a can't be started yet: limits.agents, limits.children, limits.family or limits.depth leaves it no room"
    assert told(scene) == ("needs-you", {}, why)
    scene.starts.failing = []
    scene.clock.time += 6
    scene.runs.look()
    await trio.testing.wait_all_tasks_blocked()
    assert told(scene) == (None, {"a": "working"}, None)


async def test_its_time_suspends_what_works_also_on_a_full_disk(scene, autojump_clock):
    await begun(scene, plan(("a", {}), timeout=10.0))
    scene.agents.begin("f.a")
    scene.clock.time += 11
    scene.agents.store.failing = True
    scene.runs.look()
    await trio.testing.wait_all_tasks_blocked()
    assert (scene.agents.state("f.a"), scene.runs.find("f").ended_at) == ("running", None)
    scene.agents.store.failing = False
    await trio.sleep(2)
    assert [reason.kind for _, reason in scene.agents.runner.stopped] == ["suspended"]
    assert (scene.runs.find("f").outcome, told(scene)[1]) == ("timeout", {"a": "needs-you"})


async def test_the_end_of_a_run_and_of_its_agents_is_one_commit(scene):
    await begun(scene, plan(("a", {}), ("b", {"needs": ("a",)}), lead="a"))
    scene.agents.begin("f.a")
    scene.agents.spawn("kid", "work", parent="f.a")
    ending = scene.runs.end("f", "ctl")
    assert {agent.name for agent in ending} == {"f.a", "kid"}
    assert {reason.kind for _, reason in scene.agents.runner.stopped} == {"ended"}
    assert told(scene) == ("failed", {"a": "failed"}, "it was ended by the operator")
    for name in ("f.a", "kid"):
        scene.agents.fall(name)
    await trio.testing.wait_all_tasks_blocked()
    assert scene.starts.asked == ["a"], "b isn't started any more"


async def judged(scene, agrees):
    """End the judge's turn with its result."""
    scene.agents.begin("f.j")
    scene.agents.supervisor.complete("f.j", json.dumps({"agrees": agrees}), json.dumps({"agrees": agrees}), SUCCEEDED)
    scene.agents.finish("f.j")
    await trio.testing.wait_all_tasks_blocked()


async def test_a_result_that_does_not_agree_goes_back_and_is_judged_again(scene):
    await begun(scene, plan(("a", {}), ("j", JUDGE), lead="a"))
    await done(scene, "f.a")
    await judged(scene, agrees=False)
    assert told(scene) == (None, {"a": "working", "j": "working"}, None)
    assert scene.agents.state("f.j") == "idle", "it is asked again when a has done what it said"
    await done(scene, "f.a")
    await judged(scene, agrees=True)
    assert scene.runs.find("f").outcome == "succeeded"
    assert [scene.agents.agent(name).turn.number for name in ("f.a", "f.j")] == [2, 2], "no report woke the lead"


async def test_one_that_never_agrees_has_failed(scene):
    await begun(scene, plan(("a", {}), ("j", JUDGE)))
    for _ in range(2):
        await done(scene, "f.a")
        await judged(scene, agrees=False)
    run = scene.runs.find("f")
    assert (run.outcome, run.why, run.standings) == (
        "failed", "f.j doesn't agree after 2 rounds", {"a": "succeeded", "j": "failed"},
    )  # fmt: skip


async def test_a_lead_that_needs_others_works_last_with_them_as_its_children(scene):
    await begun(scene, plan(("a", {"each": "ls"}), ("lead", {"needs": ("a",)}), lead="lead"))
    assert (scene.starts.asked, scene.agents.state("f.lead")) == (["lead", "a.1", "a.2"], "idle")
    assert {scene.agents.agent(name).parent for name in ("f.a.1", "f.a.2")} == {scene.agents.agent("f.lead").id}
    await done(scene, "f.a.1", "f.a.2")
    assert told(scene)[1] == {"a.1": "succeeded", "a.2": "succeeded", "lead": "working"}
    await done(scene, "f.lead")
    assert (scene.runs.find("f").outcome, scene.agents.agent("f.lead").turn.number) == ("succeeded", 1)


async def test_a_child_waits_for_its_leads_clone_however_long_that_takes(scene):
    scene.starts.is_lead_ready = False
    await begun(scene, plan(("a", {}), ("lead", {"needs": ("a",)}), lead="lead"))
    assert (scene.starts.asked, told(scene)) == (["lead"], (None, {}, "the clone of f.lead isn't ready yet"))
    scene.starts.is_lead_ready = True
    scene.runs.look()
    await trio.testing.wait_all_tasks_blocked()
    assert (scene.starts.asked, told(scene)[2]) == (["lead", "a"], None)


async def test_a_failed_child_wakes_no_lead_that_has_its_task_still_to_come(scene):
    await begun(scene, plan(("a", {"on_fail": OnFail.CONTINUE}), ("lead", {"needs": ("a",)}), lead="lead"))
    scene.agents.begin("f.a")
    scene.agents.fall("f.a")
    await trio.testing.wait_all_tasks_blocked()
    assert scene.agents.prompt("f.lead") == "x", "its task is its first turn"
    await done(scene, "f.lead")
    assert (scene.runs.find("f").outcome, scene.agents.turn("f.lead").number) == ("succeeded", 1)


async def test_a_message_to_a_judge_is_no_round(scene):
    await begun(scene, plan(("a", {}), ("j", JUDGE), lead="a"))
    await done(scene, "f.a")
    await judged(scene, agrees=False)
    scene.agents.supervisor.message(scene.agents.agent("f.a"), "f.j", "which file?")
    await trio.testing.wait_all_tasks_blocked()
    await judged(scene, agrees=False)
    assert scene.runs.find("f").returned["j"].times == 1
    await done(scene, "f.a")
    await done(scene, "f.a")  # the answer to its message
    await judged(scene, agrees=True)
    assert scene.runs.find("f").outcome == "succeeded"


async def test_a_run_that_has_failed_waits_for_no_round(scene):
    await begun(scene, plan(("a", {}), ("j", JUDGE), ("other", {})))
    await done(scene, "f.a")
    scene.agents.begin("f.other")
    scene.agents.fall("f.other")
    await trio.testing.wait_all_tasks_blocked()
    await judged(scene, agrees=False)
    assert (scene.runs.find("f").outcome, scene.agents.turn("f.a").number) == ("failed", 1)


async def test_the_end_of_a_run_whose_lead_has_no_task_yet(scene):
    await begun(scene, plan(("a", {}), ("lead", {"needs": ("a",)}), lead="lead"))
    assert {agent.name for agent in scene.runs.end("f", "ctl")} == {"f.a", "f.lead"}


async def test_a_list_that_cannot_be_made_fails_its_run_before_anything_starts(scene):
    scene.starts.failing = [InvalidParams("no such file")]
    await begun(scene, plan(("a", {"each": "ls"}), ("b", {})))
    assert (scene.runs.find("f").why, scene.starts.asked) == ("f.a can't be listed: no such file", [])


async def test_an_error_of_ours_ends_its_run_alone(scene):
    scene.starts.failing = [ZeroDivisionError("ours")]
    await begun(scene, plan(("a", {})))
    assert scene.runs.find("f").why == "an internal error: substratd's log has it"
    assert await begun(scene, plan(("a", {}))) == "f-2"
    await done(scene, "f-2.a")
    assert scene.runs.find("f-2").outcome == "succeeded"


async def test_a_removed_agent_is_a_failure_that_may_not_matter(scene):
    await begun(scene, plan(("a", {"on_fail": OnFail.CONTINUE}), ("b", {"on_fail": OnFail.ASK})))
    await done(scene, "f.a", "f.b")
    assert scene.runs.find("f").outcome == "succeeded"
    await begun(scene, plan(("a", {"on_fail": OnFail.CONTINUE}), ("b", {"on_fail": OnFail.ASK}), ("c", {})))
    await done(scene, "f-2.a", "f-2.b")
    scene.agents.supervisor.remove("f-2.a")
    assert told(scene, "f-2")[1] == {"a": "succeeded", "b": "succeeded", "c": "working"}
    scene.agents.supervisor.remove("f-2.b")
    assert told(scene, "f-2")[1]["b"] == "failed"


async def test_lines_of_a_turn_that_runs_wake_nobody(scene):
    name, woken = await begun(scene, plan(("a", {}))), []

    async def follow():
        await scene.runs.moved(name)
        woken.append(True)

    scene.agents.begin("f.a")
    await trio.testing.wait_all_tasks_blocked()
    async with trio.open_nursery() as inner:
        inner.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        scene.agents.write("f.a", {"type": "assistant", "message": {"content": [{"type": "text", "text": "hello"}]}})
        await trio.testing.wait_all_tasks_blocked()
        assert not woken
        scene.agents.finish("f.a")
    assert woken


async def test_a_restarted_daemon_goes_on_and_starts_nothing_twice(agents, nursery):
    earlier: Any = FakeMembers(agents)
    first = Runs(agents.supervisor, agents.families, earlier, NO_LANDINGS)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            inner.start_soon(first.run)
            await trio.testing.wait_all_tasks_blocked()
            first.begin(plan(("a", {}), ("b", {"needs": ("a",)})), "f.toml", "/w", "ctl")
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    agents.restart()
    starts: Any = FakeMembers(agents)
    runs = Runs(agents.supervisor, agents.families, starts, NO_LANDINGS)
    nursery.start_soon(runs.run)
    await trio.testing.wait_all_tasks_blocked()
    assert starts.asked == []
    agents.begin("f.a")
    agents.finish("f.a")
    await trio.testing.wait_all_tasks_blocked()
    assert starts.asked == ["b"]
    assert {agent.name for agent in agents.registry.agents} == {"f.a", "f.b"}
