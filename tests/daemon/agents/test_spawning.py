"""Spawning: limits, families, names and rights, the events told, and the order of turns; no process runs here."""

import pytest

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import OPERATOR, SYSTEM, ItemKind
from substrat.errors import LimitReached, NameTaken, NotFound, PolicyDenied, Refused

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


# Spawning


def test_names_are_made_up(agents):
    agents.spawn("agent-2")
    for _ in range(3):
        agents.spawn()
    assert len({agent.name for agent in agents.registry.agents}) == 4


def test_a_child_cannot_have_a_name_like_anothers(agents):
    agents.spawn("Anna")
    agents.spawn("anna")
    agents.spawn("bob")
    with pytest.raises(NameTaken, match="the name 'BOB' can be taken for 'bob'"):
        agents.spawn("BOB", "task", parent="anna")


def test_a_name_can_be_used_once(agents):
    agents.spawn("bob")
    with pytest.raises(NameTaken, match="'bob'"):
        agents.spawn("bob", "prompt")
    assert agents.state("bob") == "idle"
    agents.supervisor.remove("bob")
    agents.spawn("bob")


def test_the_wish_beats_the_configuration(new_agents):
    agents = new_agents(sandbox={"network": "none"}, agent={"model": "sonnet"})
    assert agents.spawn().policy.network is Network.NONE
    assert agents.spawn().model == "sonnet"
    wished = agents.spawn(model="gpt", network=Network.HOST)
    assert (wished.model, wished.policy.network) == ("gpt", Network.HOST)


# Children


def test_a_child_is_like_its_parent_unless_told(agents):
    agents.spawn("boss", model="gpt", network=Network.NONE)
    child = agents.spawn("kid", "task", parent="boss")
    assert (child.model, child.policy.network, child.parent) == ("gpt", Network.NONE, agents.agent("boss").id)


@pytest.mark.parametrize("parent", list(Network))
@pytest.mark.parametrize("child", list(Network))
def test_a_child_gets_no_more_than_its_parent_has(agents, parent, child):
    agents.spawn("boss", network=parent)
    if child.reach > parent.reach:
        with pytest.raises(PolicyDenied):
            agents.spawn("kid", "task", parent="boss", network=child)
        with pytest.raises(NotFound):
            agents.agent("kid")
    else:
        assert agents.spawn("kid", "task", parent="boss", network=child).policy.network is child


def test_the_number_of_children_at_work_is_bounded(new_agents):
    agents = new_agents(limits={"children": 2})
    agents.spawn("boss")
    agents.spawn("a", "task", parent="boss")
    agents.spawn("b", "task", parent="boss")
    with pytest.raises(LimitReached, match="2 children of yours are at work"):
        agents.spawn("c", parent="boss")
    agents.finish("a")
    agents.spawn("c", "task", parent="boss")


def test_generations_are_bounded(new_agents):
    agents = new_agents(limits={"depth": 2})
    agents.spawn("a")
    agents.spawn("b", parent="a")
    agents.spawn("c", parent="b")
    with pytest.raises(LimitReached, match="generation"):
        agents.spawn("d", parent="c")


def test_agents_are_bounded(new_agents):
    agents = new_agents(limits={"agents": 2})
    agents.spawn(), agents.spawn("x")
    with pytest.raises(LimitReached):
        agents.spawn()
    agents.supervisor.remove("x")
    agents.spawn()


def test_only_the_prompt_the_parent_gave_is_reported(agents):
    agents.spawn("boss")
    agents.spawn("kid", "task", parent="boss")
    agents.finish("kid")
    agents.finish("boss")
    agents.supervisor.send("kid", "from the operator")
    agents.finish("kid")
    assert agents.state("boss") == "idle"


def test_a_suspended_child_reports_when_it_is_done_after_all(agents):
    agents.spawn("boss")
    agents.spawn("kid", "task", parent="boss")
    agents.begin("kid")
    agents.supervisor.suspend("kid")
    agents.fall("kid")
    assert agents.state("boss") == "idle"
    agents.supervisor.resume("kid", None)
    agents.finish("kid", "late answer")
    assert "late answer" in agents.prompt("boss")


def test_a_parent_that_has_ended_is_told_nothing(agents):
    agents.spawn("boss")
    agents.spawn("kid", "task", parent="boss")
    agents.supervisor.end("boss")
    agents.finish("kid")
    assert agents.state("kid") == "idle"
    assert agents.agent("boss").waiting == 0


def test_a_report_is_hardly_longer_than_a_message(new_agents):
    agents = new_agents(limits={"message_bytes": 100})
    agents.spawn("boss")
    agents.spawn("kid", "task", parent="boss")
    agents.finish("kid", "ü" * 1000)
    (item,) = agents.store.items_of_turn(agents.turn("boss").id)
    assert len(item.text.encode()) < 130


# Prompts and messages


def test_prompts_are_worked_on_one_by_one_in_their_order(agents):
    agents.spawn("bob", "first")
    for text in ("second", "third"):
        agents.supervisor.send("bob", text)
    found = []
    while agents.state("bob") == "running":
        found.append(agents.prompt("bob"))
        agents.finish("bob")
    assert found == ["first", "second", "third"]
    assert agents.state("bob") == "idle"
    assert agents.turn("bob").number == 3


def test_messages_that_wait_are_delivered_together(agents):
    agents.spawn("eve")
    agents.spawn("bob", "busy", parent="eve")
    for text in ("one", "two"):
        agents.supervisor.message(agents.agent("eve"), "bob", text)
    agents.supervisor.send("bob", "a prompt")
    agents.supervisor.message(agents.agent("eve"), "bob", "three")
    assert agents.agent("bob").waiting == 4
    agents.finish("bob")
    assert "one" in agents.prompt("bob")
    assert "two" in agents.prompt("bob")
    assert "three" not in agents.prompt("bob")
    agents.finish("bob")
    assert agents.prompt("bob") == "a prompt"
    agents.finish("bob")
    assert "three" in agents.prompt("bob")
    agents.finish("bob")
    assert agents.state("bob") == "idle"


def test_a_message_to_the_operator(agents):
    agents.spawn("bob")
    agents.supervisor.message(agents.agent("bob"), OPERATOR, "done, boss")
    (item,) = agents.store.waiting_items(None)
    assert (item.text, item.sender_name) == ("done, boss", "bob")
    assert agents.told("bob", "message:sent")


def test_both_sides_of_a_message_are_told(agents):
    agents.spawn("eve"), agents.spawn("bob")
    agents.supervisor.message(agents.agent("eve"), "bob", "hi")
    assert agents.told("eve", "message:sent") == [("message:sent", "to bob: hi")]
    assert agents.told("bob", "message:received") == [("message:received", "from eve: hi")]


def test_messages_that_are_refused(new_agents):
    agents = new_agents(limits={"message_bytes": 10, "waiting_items": 2})
    agents.spawn("eve"), agents.spawn("bob", "busy", parent="eve"), agents.spawn("old")
    agents.supervisor.end("old")
    eve = agents.agent("eve")
    with pytest.raises(LimitReached, match="bytes"):
        agents.supervisor.message(eve, "bob", "ü" * 6)
    with pytest.raises(Refused, match="itself"):
        agents.supervisor.message(eve, "eve", "hi")
    with pytest.raises(NotFound):
        agents.supervisor.message(eve, "nobody", "hi")
    with pytest.raises(Refused, match="ended"):
        agents.supervisor.message(eve, "old", "hi")
    for _ in range(2):
        agents.supervisor.message(eve, "bob", "ü" * 5)
    with pytest.raises(LimitReached, match="waiting"):
        agents.supervisor.message(eve, "bob", "hi")
    with pytest.raises(LimitReached, match="waiting"):
        agents.supervisor.send("bob", "hi")
    assert agents.agent("bob").waiting == len(agents.store.waiting_items(agents.agent("bob").id)) == 2


def test_an_agent_whose_last_message_a_command_of_a_person_reads_waits_for_nothing(new_agents):
    agents = new_agents(turns={"max_running": 1})
    agents.spawn("bob"), agents.spawn("eve", "busy", parent="bob")
    agents.supervisor.message(agents.agent("eve"), "bob", "hi")
    assert agents.agent("bob").phase == Phase.QUEUED
    assert [item.text for item in agents.supervisor.take_inbox("bob")] == ["hi"]
    assert agents.agent("bob").phase == Phase.IDLE
    agents.supervisor.message(agents.agent("eve"), "bob", "another")
    agents.finish("eve")
    assert "another" in agents.prompt("bob")


def test_messages_are_handed_out_once_and_prompts_are_not(agents):
    agents.spawn("eve"), agents.spawn("bob", "busy")
    agents.supervisor.message(agents.agent("eve"), "bob", "hi")
    agents.supervisor.send("bob", "a prompt")
    assert [item.text for item in agents.supervisor.take_inbox("bob")] == ["hi"]
    assert agents.supervisor.take_inbox("bob") == []
    assert agents.agent("bob").waiting == 1
    agents.finish("bob")
    assert agents.prompt("bob") == "a prompt"


def test_what_an_agent_says_it_does(agents):
    agents.spawn("bob", "busy")
    agents.supervisor.report_status("bob", "x" * 10_000)
    assert agents.agent("bob").status == "x" * 500
    assert agents.told("bob", "agent:status")


# Slots


def test_no_more_turns_run_than_allowed(new_agents):
    agents = new_agents(turns={"max_running": 2})
    for name in "abcd":
        agents.spawn(name, "work")
    assert [agents.state(name) for name in "abcd"] == ["running", "running", "queued", "queued"]
    agents.finish("a")
    assert agents.state("c") == "running"
    agents.fall("b")
    assert agents.state("d") == "running"


def test_who_has_waited_longest_starts_first(new_agents):
    agents = new_agents(turns={"max_running": 1})
    for name in ("old", "young", "busy"):
        agents.spawn(name)
    agents.supervisor.send("busy", "work")
    agents.supervisor.send("young", "first in the queue")
    agents.supervisor.send("old", "second in the queue")
    agents.finish("busy")
    assert [agents.state(name) for name in ("old", "young")] == ["queued", "running"]


def test_nobody_is_passed_over_for_ever(new_agents):
    agents = new_agents(turns={"max_running": 1})
    agents.spawn("first", "work"), agents.spawn("second", "work")
    for _ in range(5):
        agents.supervisor.send("first", "more work")
        if agents.state("second") == "running":
            return
        agents.finish("first")
    pytest.fail("the second agent never came to its turn")


def test_a_suspended_agent_in_the_queue_gives_its_place_up(new_agents):
    agents = new_agents(turns={"max_running": 1})
    for name in "abc":
        agents.spawn(name, "work")
    agents.supervisor.suspend("b")
    agents.finish("a")
    assert [agents.state(name) for name in "abc"] == ["idle", "suspended", "running"]


def test_the_kinds_of_items(agents):
    agents.spawn("boss"), agents.spawn("kid", "task", parent="boss")
    (item,) = agents.store.items_of_turn(agents.turn("kid").id)
    assert (item.kind, item.sender) == (ItemKind.PROMPT, agents.agent("boss").id)
    agents.finish("kid")
    (item,) = agents.store.items_of_turn(agents.turn("boss").id)
    assert (item.kind, item.sender) == (ItemKind.MESSAGE, SYSTEM)


# Shared directories


HAS_LESS = {"network": Network.NONE}
HAS_MORE = {"network": Network.HOST}


def test_who_shares_a_directory_is_told(agents):
    agents.spawn("bob", **HAS_MORE)
    assert agents.told("bob", "workspace:shared") == []
    anna = agents.spawn("anna", **HAS_LESS)
    ((_, text),) = agents.told("anna", "workspace:shared")
    assert text.startswith("shares /w with bob (the network host): ")
    assert [(found.other.name, found.path) for found in agents.registry.index.shared(anna)] == [("bob", "/w")]
    agents.spawn("carl", **HAS_LESS, workspace="/elsewhere")
    assert agents.told("carl", "workspace:shared") == []


def test_a_child_shares_with_its_parent_and_only_a_difference_is_told(agents):
    agents.spawn("bob", "x", **HAS_MORE)
    agents.spawn("same", parent="bob")
    assert agents.told("same", "workspace:shared") == []
    agents.spawn("less", parent="bob", **HAS_LESS)
    ((_, text),) = agents.told("less", "workspace:shared")
    assert "bob (the network host)" in text


@pytest.mark.parametrize("parent", [None, "bob"])
def test_different_networks_can_be_forbidden(new_agents, parent):
    agents = new_agents(sandbox={"shared_networks": False})
    agents.spawn("bob", "x", **HAS_MORE)
    with pytest.raises(PolicyDenied, match=r"sandbox\.shared_networks is false"):
        agents.spawn("anna", parent=parent, **HAS_LESS)
    agents.spawn("carl", parent=parent, **HAS_MORE)
    assert {agent.name for agent in agents.registry.agents} == {"bob", "carl"}


@pytest.mark.parametrize(("first", "second"), [("/w", "/w/sub"), ("/w/sub", "/w")])
@pytest.mark.parametrize("less_first", [True, False])
def test_who_has_less_is_not_beside_the_rules_of_who_has_more(agents, first, second, less_first):
    rights = [HAS_LESS, HAS_MORE] if less_first else [HAS_MORE, HAS_LESS]
    agents.spawn("bob", workspace=first, **rights[0])
    with pytest.raises(PolicyDenied, match="which has less than"):
        agents.spawn("anna", workspace=second, **rights[1])
    agents.supervisor.end("bob")
    agents.spawn("anna", workspace=second, **rights[1])
    assert agents.told("anna", "workspace:shared") == []


def test_nested_workspaces_with_the_same_rights_are_told(agents):
    agents.spawn("bob", workspace="/w", **HAS_LESS)
    agents.spawn("anna", workspace="/w/sub", **HAS_LESS)
    assert agents.told("anna", "workspace:shared") == [
        ("workspace:shared", "shares /w/sub with bob: each can change the other's files")
    ]
