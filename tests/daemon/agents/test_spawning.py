"""Spawning: limits, families, names and rights, the events told, and the order of turns; no process runs here."""

import pytest

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import OPERATOR, SYSTEM, ItemKind
from substrat.errors import InvalidParams, LimitReached, NameTaken, NotFound, PolicyDenied, Refused

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


# Spawning


def test_a_new_agent_without_a_prompt_is_idle(house):
    agent = house.spawn("bob")
    assert house.state("bob") == "idle"
    assert (agent.name, agent.workspace, agent.model, agent.policy.network) == ("bob", "/w", "auto", Network.FILTERED)
    assert house.runner.started == []
    assert [kind for kind, _ in house.told("bob")] == ["agent:spawned"]


def test_a_new_agent_with_a_prompt_runs(house):
    house.spawn("bob", "do it")
    assert house.state("bob") == "running"
    assert house.runner.started == [("bob", house.turn("bob").id)]
    assert house.prompt("bob") == "do it"
    assert house.turn("bob").number == 1


def test_an_agent_is_found_by_name_and_by_id(house):
    agent = house.spawn("bob")
    assert house.agent("bob") is house.agent(agent.id)
    with pytest.raises(NotFound, match="'eve'"):
        house.agent("eve")


def test_names_are_made_up(house):
    house.spawn("agent-2")
    for _ in range(3):
        house.spawn()
    assert len({agent.name for agent in house.registry.agents}) == 4


@pytest.mark.parametrize("name", ["", "-x", ".x", "_x", "a b", "a/b", "a\n", "ü", "x" * 65, "a'b"])
def test_what_cannot_be_a_name(house, name):
    with pytest.raises(InvalidParams):
        house.spawn(name)
    assert not house.registry.agents


@pytest.mark.parametrize(
    "name", ["operator", "Operator", "sub-strat", "System", "all", "me", "parent", SESSION, SESSION.upper()]
)
def test_reserved_names(house, name):
    with pytest.raises(InvalidParams, match="reserved"):
        house.spawn(name)


def test_a_child_cannot_have_a_name_like_anothers(house):
    house.spawn("Anna")
    house.spawn("anna")
    house.spawn("bob")
    with pytest.raises(NameTaken, match="the name 'BOB' can be taken for 'bob'"):
        house.spawn("BOB", "task", parent="anna")


def test_a_name_can_be_used_once(house):
    house.spawn("bob")
    with pytest.raises(NameTaken, match="'bob'"):
        house.spawn("bob", "prompt")
    assert house.state("bob") == "idle"
    house.supervisor.remove("bob")
    house.spawn("bob")


def test_the_wish_beats_the_configuration(new_house):
    house = new_house(sandbox={"network": "none"}, agent={"model": "sonnet"})
    assert house.spawn().policy.network is Network.NONE
    assert house.spawn().model == "sonnet"
    wished = house.spawn(model="gpt", network=Network.HOST)
    assert (wished.model, wished.policy.network) == ("gpt", Network.HOST)


# Children


def test_a_child_is_like_its_parent_unless_told(house):
    house.spawn("boss", model="gpt", network=Network.NONE)
    child = house.spawn("kid", "task", parent="boss")
    assert (child.model, child.policy.network, child.parent) == ("gpt", Network.NONE, house.agent("boss").id)


@pytest.mark.parametrize("parent", list(Network))
@pytest.mark.parametrize("child", list(Network))
def test_a_child_gets_no_more_than_its_parent_has(house, parent, child):
    house.spawn("boss", network=parent)
    if child.reach > parent.reach:
        with pytest.raises(PolicyDenied):
            house.spawn("kid", "task", parent="boss", network=child)
        with pytest.raises(NotFound):
            house.agent("kid")
    else:
        assert house.spawn("kid", "task", parent="boss", network=child).policy.network is child


def test_the_number_of_living_children_is_bounded(new_house):
    house = new_house(limits={"children": 2})
    house.spawn("boss")
    house.spawn("a", parent="boss")
    house.spawn("b", parent="boss")
    with pytest.raises(LimitReached, match="children"):
        house.spawn("c", parent="boss")
    house.supervisor.end("a")
    house.spawn("c", parent="boss")


def test_generations_are_bounded(new_house):
    house = new_house(limits={"depth": 2})
    house.spawn("a")
    house.spawn("b", parent="a")
    house.spawn("c", parent="b")
    with pytest.raises(LimitReached, match="generation"):
        house.spawn("d", parent="c")


def test_agents_are_bounded(new_house):
    house = new_house(limits={"agents": 2})
    house.spawn(), house.spawn("x")
    with pytest.raises(LimitReached):
        house.spawn()
    house.supervisor.remove("x")
    house.spawn()


def test_a_parent_is_told_when_its_child_has_finished(house):
    house.spawn("boss", "lead")
    house.finish("boss")
    house.spawn("kid", "task", parent="boss")
    house.finish("kid", "the answer")
    assert house.state("boss") == "running"
    assert "the answer" in house.prompt("boss")
    assert "kid" in house.prompt("boss")
    assert "from Substrat" in house.prompt("boss")


def test_a_parent_is_told_of_a_failure_too(house):
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.fall("kid", errors="it exploded")
    assert "it exploded" in house.prompt("boss")


def test_only_the_prompt_the_parent_gave_is_reported(house):
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.finish("kid")
    house.finish("boss")
    house.supervisor.send("kid", "from the operator")
    house.finish("kid")
    assert house.state("boss") == "idle"


def test_a_suspended_child_reports_when_it_is_done_after_all(house):
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.begin("kid")
    house.supervisor.suspend("kid")
    house.fall("kid")
    assert house.state("boss") == "idle"
    house.supervisor.resume("kid", None)
    house.finish("kid", "late answer")
    assert "late answer" in house.prompt("boss")


def test_a_parent_that_has_ended_is_told_nothing(house):
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.supervisor.end("boss")
    house.finish("kid")
    assert house.state("kid") == "idle"
    assert house.agent("boss").waiting == 0


def test_a_report_is_hardly_longer_than_a_message(new_house):
    house = new_house(limits={"message_bytes": 100})
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.finish("kid", "ü" * 1000)
    (item,) = house.store.items_of_turn(house.turn("boss").id)
    assert len(item.text.encode()) < 130


# Prompts and messages


def test_prompts_are_worked_on_one_by_one_in_their_order(house):
    house.spawn("bob", "first")
    for text in ("second", "third"):
        house.supervisor.send("bob", text)
    found = []
    while house.state("bob") == "running":
        found.append(house.prompt("bob"))
        house.finish("bob")
    assert found == ["first", "second", "third"]
    assert house.state("bob") == "idle"
    assert house.turn("bob").number == 3


def test_messages_that_wait_are_delivered_together(house):
    house.spawn("eve")
    house.spawn("bob", "busy")
    for text in ("one", "two"):
        house.supervisor.message(house.agent("eve"), "bob", text)
    house.supervisor.send("bob", "a prompt")
    house.supervisor.message(house.agent("eve"), "bob", "three")
    assert house.agent("bob").waiting == 4
    house.finish("bob")
    assert "one" in house.prompt("bob")
    assert "two" in house.prompt("bob")
    assert "three" not in house.prompt("bob")
    house.finish("bob")
    assert house.prompt("bob") == "a prompt"
    house.finish("bob")
    assert "three" in house.prompt("bob")
    house.finish("bob")
    assert house.state("bob") == "idle"


def test_a_message_wakes_an_idle_agent_and_leaves_a_failed_one_alone(house):
    house.spawn("eve")
    house.spawn("bob")
    house.supervisor.message(house.agent("eve"), "bob", "hi")
    assert house.state("bob") == "running"
    house.fall("bob")
    house.supervisor.message(house.agent("eve"), "bob", "hi again")
    assert house.state("bob") == "failed"
    assert house.agent("bob").waiting == 1
    house.supervisor.send("bob", "go on")
    assert "hi again" in house.prompt("bob")


def test_a_message_to_the_operator(house):
    house.spawn("bob")
    house.supervisor.message(house.agent("bob"), OPERATOR, "done, boss")
    (item,) = house.store.waiting_items(None)
    assert (item.text, item.sender_name) == ("done, boss", "bob")
    assert house.told("bob", "message:sent")


def test_both_sides_of_a_message_are_told(house):
    house.spawn("eve"), house.spawn("bob")
    house.supervisor.message(house.agent("eve"), "bob", "hi")
    assert house.told("eve", "message:sent") == [("message:sent", "to bob: hi")]
    assert house.told("bob", "message:received") == [("message:received", "from eve: hi")]


def test_messages_that_are_refused(new_house):
    house = new_house(limits={"message_bytes": 10, "waiting_items": 2})
    house.spawn("eve"), house.spawn("bob", "busy"), house.spawn("old")
    house.supervisor.end("old")
    eve = house.agent("eve")
    with pytest.raises(LimitReached, match="bytes"):
        house.supervisor.message(eve, "bob", "ü" * 6)
    with pytest.raises(Refused, match="itself"):
        house.supervisor.message(eve, "eve", "hi")
    with pytest.raises(NotFound):
        house.supervisor.message(eve, "nobody", "hi")
    with pytest.raises(Refused, match="ended"):
        house.supervisor.message(eve, "old", "hi")
    for _ in range(2):
        house.supervisor.message(eve, "bob", "ü" * 5)
    with pytest.raises(LimitReached, match="waiting"):
        house.supervisor.message(eve, "bob", "hi")
    with pytest.raises(LimitReached, match="waiting"):
        house.supervisor.send("bob", "hi")
    assert house.agent("bob").waiting == len(house.store.waiting_items(house.agent("bob").id)) == 2


def test_an_agent_whose_last_message_a_command_of_a_person_reads_waits_for_nothing(new_house):
    house = new_house(turns={"max_running": 1})
    house.spawn("bob"), house.spawn("eve", "busy")
    house.supervisor.message(house.agent("eve"), "bob", "hi")
    assert house.agent("bob").phase == Phase.QUEUED
    assert [item.text for item in house.supervisor.take_inbox("bob")] == ["hi"]
    assert house.agent("bob").phase == Phase.IDLE
    house.supervisor.message(house.agent("eve"), "bob", "another")
    house.finish("eve")
    assert "another" in house.prompt("bob")


def test_messages_are_handed_out_once_and_prompts_are_not(house):
    house.spawn("eve"), house.spawn("bob", "busy")
    house.supervisor.message(house.agent("eve"), "bob", "hi")
    house.supervisor.send("bob", "a prompt")
    assert [item.text for item in house.supervisor.take_inbox("bob")] == ["hi"]
    assert house.supervisor.take_inbox("bob") == []
    assert house.agent("bob").waiting == 1
    house.finish("bob")
    assert house.prompt("bob") == "a prompt"


def test_what_an_agent_says_it_does(house):
    house.spawn("bob", "busy")
    house.supervisor.report_status("bob", "x" * 10_000)
    assert house.agent("bob").status == "x" * 500
    assert house.told("bob", "agent:status")


# Slots


def test_no_more_turns_run_than_allowed(new_house):
    house = new_house(turns={"max_running": 2})
    for name in "abcd":
        house.spawn(name, "work")
    assert [house.state(name) for name in "abcd"] == ["running", "running", "queued", "queued"]
    house.finish("a")
    assert house.state("c") == "running"
    house.fall("b")
    assert house.state("d") == "running"


def test_who_has_waited_longest_starts_first(new_house):
    house = new_house(turns={"max_running": 1})
    for name in ("old", "young", "busy"):
        house.spawn(name)
    house.supervisor.send("busy", "work")
    house.supervisor.send("young", "first in the queue")
    house.supervisor.send("old", "second in the queue")
    house.finish("busy")
    assert [house.state(name) for name in ("old", "young")] == ["queued", "running"]


def test_nobody_is_passed_over_for_ever(new_house):
    house = new_house(turns={"max_running": 1})
    house.spawn("first", "work"), house.spawn("second", "work")
    for _ in range(5):
        house.supervisor.send("first", "more work")
        if house.state("second") == "running":
            return
        house.finish("first")
    pytest.fail("the second agent never came to its turn")


def test_a_suspended_agent_in_the_queue_gives_its_place_up(new_house):
    house = new_house(turns={"max_running": 1})
    for name in "abc":
        house.spawn(name, "work")
    house.supervisor.suspend("b")
    house.finish("a")
    assert [house.state(name) for name in "abc"] == ["idle", "suspended", "running"]


def test_the_kinds_of_items(house):
    house.spawn("boss"), house.spawn("kid", "task", parent="boss")
    (item,) = house.store.items_of_turn(house.turn("kid").id)
    assert (item.kind, item.sender) == (ItemKind.PROMPT, house.agent("boss").id)
    house.finish("kid")
    (item,) = house.store.items_of_turn(house.turn("boss").id)
    assert (item.kind, item.sender) == (ItemKind.MESSAGE, SYSTEM)


# Shared directories


HAS_LESS = {"network": Network.NONE}
HAS_MORE = {"network": Network.HOST}


def test_who_shares_a_directory_is_told(house):
    house.spawn("bob", **HAS_MORE)
    assert house.told("bob", "workspace:shared") == []
    anna = house.spawn("anna", **HAS_LESS)
    ((_, text),) = house.told("anna", "workspace:shared")
    assert text.startswith("shares /w with bob (the network host): ")
    assert [(found.other.name, found.path) for found in house.supervisor.shared(anna)] == [("bob", "/w")]
    house.spawn("carl", **HAS_LESS, workspace="/elsewhere")
    assert house.told("carl", "workspace:shared") == []


def test_a_child_shares_with_its_parent_and_only_a_difference_is_told(house):
    house.spawn("bob", "x", **HAS_MORE)
    house.spawn("same", parent="bob")
    assert house.told("same", "workspace:shared") == []
    house.spawn("less", parent="bob", **HAS_LESS)
    ((_, text),) = house.told("less", "workspace:shared")
    assert "bob (the network host)" in text


@pytest.mark.parametrize("parent", [None, "bob"])
def test_different_networks_can_be_forbidden(new_house, parent):
    house = new_house(sandbox={"shared_networks": False})
    house.spawn("bob", "x", **HAS_MORE)
    with pytest.raises(PolicyDenied, match=r"sandbox\.shared_networks is false"):
        house.spawn("anna", parent=parent, **HAS_LESS)
    house.spawn("carl", parent=parent, **HAS_MORE)
    assert {agent.name for agent in house.registry.agents} == {"bob", "carl"}


@pytest.mark.parametrize(("first", "second"), [("/w", "/w/sub"), ("/w/sub", "/w")])
@pytest.mark.parametrize("less_first", [True, False])
def test_who_has_less_is_not_beside_the_rules_of_who_has_more(house, first, second, less_first):
    rights = [HAS_LESS, HAS_MORE] if less_first else [HAS_MORE, HAS_LESS]
    house.spawn("bob", workspace=first, **rights[0])
    with pytest.raises(PolicyDenied, match="which has less than"):
        house.spawn("anna", workspace=second, **rights[1])
    house.supervisor.end("bob")
    house.spawn("anna", workspace=second, **rights[1])
    assert house.told("anna", "workspace:shared") == []


def test_nested_workspaces_with_the_same_rights_are_told(house):
    house.spawn("bob", workspace="/w", **HAS_LESS)
    house.spawn("anna", workspace="/w/sub", **HAS_LESS)
    assert house.told("anna", "workspace:shared") == [
        ("workspace:shared", "shares /w/sub with bob: each can change the other's files")
    ]
