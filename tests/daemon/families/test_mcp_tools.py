"""The agents' tools: for the caller that the socket names, once for each call, with words that a model can use."""

import json
from contextlib import contextmanager

import pytest

from sandbox.spec import Network
from substrat.core.agents.prompts import timestamp
from substrat.daemon.agents.inbox import Inbox
from substrat.daemon.agents.reminders import Reminders
from substrat.daemon.families.mcp_tools import ToolCalls, for_model


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work"
    (path / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (path / "link").symlink_to(tmp_path / "elsewhere")
    return path


@pytest.fixture
def call(agents, work):
    """Call a tool as an agent."""

    calls = ToolCalls(agents.supervisor, agents.families, Reminders(agents.registry), Inbox(agents.registry))

    def go(name, tool, arguments=None, identity=None):
        agent = agents.agent(name)
        return calls.perform(agent.id, agent.turn.id if agent.turn else "t", tool, arguments, identity)

    agents.spawn("bob", "work", workspace=str(work), network=Network.NONE)
    agents.spawn("eve", workspace=str(work))
    return go


def good(answer):
    text, is_error = answer
    assert not is_error, text
    return text


def bad(answer):
    text, is_error = answer
    assert is_error, text
    return text


def test_who_one_is(call, agents, work):
    good(call("bob", "spawn_agent", {"prompt": "task", "name": "kid"}))
    told = json.loads(good(call("bob", "whoami")))
    assert (told["name"], told["workspace"], told["parent"]) == ("bob", str(work), "operator")
    assert (told["network"], told["limits"]["children_left"]) == ({"kind": "none", "allows": []}, 15)
    assert (told["role"], told["children"], told["waits"]) == ("root", ["kid"], [])
    good(call("bob", "wait_agents", {"note": "then merge", "timeout_s": 60}))
    (wait,) = json.loads(good(call("bob", "whoami")))["waits"]
    assert (wait["names"], wait["mode"], wait["note"]) == (["kid"], "all", "then merge")
    assert wait["until"] == timestamp(agents.families.waits.listed()[0].deadline)
    kid = json.loads(good(call("kid", "whoami")))
    assert (kid["role"], kid["parent"], kid["shared"]) == ("child", "bob", told["shared"])


def test_what_waits_for_one_and_what_one_asks(call, agents):
    good(call("eve", "send_message", {"to": "bob", "text": "hi"}))
    good(call("bob", "ask_operator", {"question": "which way?"}))
    told = good(call("bob", "whoami"))
    assert "\n" not in told
    (question,) = json.loads(told)["questions"]
    assert (json.loads(told)["unread"], question["text"]) == ({"eve": 1}, "which way?")
    refused = bad(call("bob", "cancel_question", {"question": 99}))
    assert refused == f"no question 99 of yours waits; there are: {question['id']}"
    bad(call("eve", "cancel_question", {"question": question["id"]}))
    assert good(call("bob", "cancel_question")) == f"question {question['id']} is taken back"
    assert json.loads(good(call("bob", "whoami")))["questions"] == []
    assert agents.store.askers([agents.agent("bob").id]) == set()


def test_a_default_is_one_of_the_options(call):
    wish = {"question": "now?", "options": ["now", "later"], "deadline_s": 60}
    refused = bad(call("bob", "ask_operator", {**wish, "default": "latter"}))
    assert refused == "there is no option for the default 'latter' (did you mean later?); there are: now, later"
    good(call("bob", "ask_operator", {**wish, "default": "later"}))


def test_a_result_in_a_form_may_be_an_object_or_stand_in_a_fence(call, agents):
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}}
    good(call("bob", "spawn_agent", {"prompt": "task", "name": "kid", "result_schema": schema}))
    for result in ({"score": 1}, '```json\n{"score": 1}\n```'):
        good(call("kid", "complete", {"result": result}))
        assert agents.turn("kid").report == '{"score": 1}'
    assert "'score' of the result must be of type integer" in bad(call("kid", "complete", {"result": {"score": "1"}}))


def test_children_that_have_finished_count_no_more(call, agents):
    for number in range(16):
        good(call("bob", "spawn_agent", {"prompt": "task", "name": f"kid{number}"}))
    agents.finish("kid3")
    good(call("bob", "spawn_agent", {"prompt": "task", "name": "more"}))
    agents.finish("more")
    good(call("more", "ask_operator", {"question": "may I?"}))
    refused = bad(call("bob", "spawn_agent", {"prompt": "task"}))
    assert "16 children of yours are at work" in refused
    assert all(word in refused for word in ("wait_agents", "send_message", "kid3"))


def test_no_error_tells_an_agent_of_the_operators_commands():
    told = "there are 9 agents already (limits.agents): `substratctl rm` some"
    assert for_model(told) == "there are 9 agents already; ask_operator if you need it"
    told = "there is an agent 'bob' already: choose another name, or `substratctl rm bob` it"
    assert for_model(told) == "there is an agent 'bob' already: choose another name; ask_operator if you need it"
    assert for_model("to: not accepted") == "to: not accepted"


def test_an_agent_that_has_asked_the_operator_waits_for_it(call):
    good(call("bob", "ask_operator", {"question": "which way?"}))
    (bob,) = json.loads(good(call("eve", "list_agents", {"scope": "all"})))["agents"]
    assert bob["waits_for"] == ["operator"]


def test_who_else_there_is(call, agents):
    agents.supervisor.report_status("eve", "thinking")
    agents.spawn("old")
    agents.supervisor.end("old")
    listed = json.loads(good(call("bob", "list_agents", {"scope": "all"})))["agents"]
    since = timestamp(agents.agent("eve").since)
    eve = {"name": "eve", "state": "idle", "since": since, "parent": "operator", "status": "thinking", "tokens": 0}
    assert listed == [eve]
    for name in ("kid", "other"):
        good(call("bob", "spawn_agent", {"prompt": "task", "name": name}))
    named = {
        scope: [one["name"] for one in json.loads(good(call("kid", "list_agents", {"scope": scope})))["agents"]]
        for scope in ("family", "siblings", "children")
    }
    assert named == {"family": ["bob", "other"], "siblings": ["other"], "children": []}
    assert (
        json.loads(good(call("kid", "list_agents")))["agents"]
        == json.loads(good(call("kid", "list_agents", {"scope": "family"})))["agents"]
    )


def test_several_children_are_started_by_one_call_and_what_is_refused_is_told_beside_them(call, agents):
    one, two, taken = {"prompt": "x", "name": "one"}, {"prompt": "y", "name": "two", "needs": ["one"]}, {"prompt": "z"}
    told = good(call("bob", "spawn_agent", {"agents": [one, two, {**taken, "name": "eve"}]})).splitlines()
    assert told[0] == "agent one is started; it works in your workspace (workspace: share)"
    assert told[1].startswith("agent two is queued until one succeeded; ")
    assert told[2].startswith("eve: refused: there is an agent 'eve' already")
    assert told[2].endswith("; wait_agents once and end your turn")
    assert [agent.name for agent in agents.registry.children(agents.agent("bob").id)] == ["one", "two"]
    for wrong, words in (
        ({}, "prompt is missing"),
        ({"agents": []}, "names one child or more"),
        ({"agents": [one], "model": "auto"}, "agents stands alone"),
        ({"agents": [{"name": "three"}]}, "child 1 of agents needs a prompt"),
        ({"agents": [{"prompt": "x", "what": 1}]}, "there is no argument 'what'"),
        ({"agents": [{"prompt": "x", "name": "one"}]}, "there is an agent 'one' already"),
    ):
        assert words in bad(call("bob", "spawn_agent", wrong)), wrong
    assert len(agents.registry.children(agents.agent("bob").id)) == 2


def test_a_child_has_limits_of_its_own_within_its_parents(call, agents):
    agents.spawn("lead", "work", network=Network.FILTERED, allow=("a.test", "b.test"), time_limit=600.0)
    wish = {"prompt": "x", "name": "kid", "time_limit_s": 60, "priority": "low", "allow": ["b.test"], "check": "make"}
    good(call("lead", "spawn_agent", wish))
    kid = agents.agent("kid")
    assert (kid.settings.time_limit, kid.settings.priority, kid.policy.allow) == (60, "low", ("b.test",))
    assert (kid.settings.check, kid.settings.retries) == ("make", 2)
    for more, words in (
        ({"time_limit_s": 601}, "its time limit can be 600 s at most, as lead's, not 601 s"),
        ({"priority": "high"}, "priority can be normal at most, as for you, not high"),
        ({"allow": ["c.test"]}, "a child can't have the network 'filtered', with more allowed,"),
        ({"allow": ["b.test"], "network": "none"}, "the network 'none' has no list of what it allows"),
        ({"check": "a\0b"}, "check has a NUL"),
    ):
        assert words in bad(call("lead", "spawn_agent", {"prompt": "x", **more})), more


def test_a_queued_agent_is_listed_with_its_reason(call, agents):
    good(call("bob", "spawn_agent", {"prompt": "task", "name": "first"}))
    good(call("bob", "spawn_agent", {"prompt": "task", "name": "then", "needs": ["first"]}))
    first, then = json.loads(good(call("bob", "list_agents", {"scope": "children"})))["agents"]
    assert ("reason" in first, then["state"], "first" in then["reason"]) == (False, "queued", True), first
    assert json.loads(good(call("bob", "get_agent", {"name": "then"})))["reason"] == then["reason"]


def test_messages_reach_whom_they_are_for(call, agents):
    told = good(call("bob", "send_message", {"to": "eve", "text": "hi eve"}))
    assert told == "message 2 to eve is accepted: eve is of another family, so it starts no turn and comes with eve's next"
    agents.supervisor.send("eve", "work")
    assert "hi eve" in agents.prompt("eve")
    good(call("bob", "send_message", {"to": "operator", "text": "hi you"}))
    good(call("bob", "send_message", {"to": "parent", "text": "hi parent"}))
    assert [item.text for item in agents.store.waiting_items(None)] == ["hi you", "hi parent"]
    good(call("bob", "spawn_agent", {"prompt": "task", "name": "kid"}))
    good(call("kid", "send_message", {"to": "parent", "text": "hi boss"}))
    (message,) = json.loads(good(call("bob", "check_inbox")))["messages"]
    assert json.loads(good(call("bob", "check_inbox")))["messages"] == [], "it is read once"
    answer = "reply_to 7, or this turn's last words are the answer"
    assert message == {"id": 7, "head": f"message 7 from your child kid: a request, 0 s ago; {answer}", "text": "hi boss"}


def test_the_status_is_noted(call, agents):
    good(call("bob", "report_status", {"text": "half done"}))
    assert agents.agent("bob").status == "half done"


BAD = [
    ("send_message", {"to": "nobody", "text": "x"}, "list_agents"),
    ("send_message", {"to": "bobb", "text": "x"}, "there is no agent 'bobb' (did you mean bob?)"),
    ("get_agent", {"name": "bobby"}, "there is no agent 'bobby' (did you mean bob?)"),
    ("spawn_agent", {"prompt": "x", "needs": ["Bob"]}, "there is no agent 'Bob' (did you mean bob?)"),
    ("send_message", {"to": "bob", "text": "x"}, "itself"),
    ("send_message", {"to": "eve"}, "text"),
    ("spawn_agent", {"prompt": "x", "network": "host"}, "network"),
    ("spawn_agent", {"prompt": "x", "network": "filtered"}, "filtered"),
    ("spawn_agent", {"prompt": "x", "name": "eve"}, "eve"),
    ("spawn_agent", {"prompt": "x", "program": "claude"}, "programs.claude.children = true"),
    ("spawn_agent", {"prompt": "x", "program": "vi"}, "choose cursor, claude or codex"),
    ("spawn_agent", {"prompt": "x", "name": "operator"}, "reserved"),
    ("spawn_agent", {"prompt": "x", "directory": "sub"}, "directory"),
    ("shell", {}, "whoami"),
]


@pytest.mark.parametrize(("tool", "arguments", "word"), BAD)
def test_what_is_refused_is_said_and_changes_nothing(call, agents, tool, arguments, word):
    before = list(agents.registry.agents), agents.journal.last_cursor
    assert word in bad(call("bob", tool, arguments))
    assert (list(agents.registry.agents), agents.journal.last_cursor) == before


def test_a_repeated_call_has_one_effect_and_one_answer(call, agents):
    arguments = {"to": "operator", "text": "once"}
    first = call("bob", "send_message", arguments, "relay:1")
    assert call("bob", "send_message", arguments, "relay:1") == first
    assert len(agents.store.waiting_items(None)) == 1
    assert call("bob", "send_message", arguments, "relay:2") != first
    assert len(agents.store.waiting_items(None)) == 2
    assert good(call("bob", "spawn_agent", {"prompt": "x"}, "relay:3")) == good(call("bob", "spawn_agent", {}, "relay:3"))


def test_what_only_reads_is_answered_on_a_full_disk(call, agents):
    class Full:
        def keep(self):
            return False

    agents.store.reserve, reserve = Full(), agents.store.reserve
    assert json.loads(good(call("bob", "whoami", {}, "relay:1")))["name"] == "bob"
    good(call("bob", "list_agents", {}, "relay:2"))
    bad(call("bob", "report_status", {"text": "x"}, "relay:3"))
    agents.store.reserve = reserve


def test_inbox_and_answer_are_stored_together(call, agents):
    good(call("eve", "send_message", {"to": "bob", "text": "hi"}))
    agents.store.failing = True
    bad(call("bob", "check_inbox", {}, "relay:9"))
    agents.store.failing = False
    (message,) = json.loads(good(call("bob", "check_inbox", {}, "relay:9")))["messages"]
    assert message["text"] == "hi"
    assert json.loads(good(call("bob", "check_inbox", {}, "relay:9")))["messages"] == [message]


def test_what_breaks_inside_tells_no_secret(call, agents, capsys):
    @contextmanager
    def broken():
        raise RuntimeError("the secret is hunter2")
        yield

    agents.registry.change = broken
    text = bad(call("bob", "report_status", {"text": "x"}))
    assert "hunter2" not in text
    error_id = text.split()[-1]
    assert len(error_id) == 8
    assert error_id in "".join(capsys.readouterr())


def test_what_a_command_of_the_operators_calls_is_done_in_the_agents_name_until_its_end(call, agents):
    agent = agents.agent("bob").id
    calls = ToolCalls(agents.supervisor, agents.families, Reminders(agents.registry), Inbox(agents.registry))
    for _ in range(2):  # the same id means nothing without a turn
        good(calls.perform(agent, None, "send_message", {"to": "operator", "text": "hi"}, "r:1"))
    assert [item.text for item in agents.store.waiting_items(None)] == ["hi", "hi"]
    agents.supervisor.end("eve")
    assert "has ended" in bad(calls.perform(agents.agent("eve").id, None, "whoami", {}, "r:1"))


def test_an_agent_that_is_gone(call, agents):
    gone = agents.agent("eve").id
    agents.supervisor.remove("eve")
    calls = ToolCalls(agents.supervisor, agents.families, Reminders(agents.registry), Inbox(agents.registry))
    assert calls.perform(gone, "t", "whoami", {}, None)[1] is True


def test_a_result_that_was_given_holds_until_the_agent_has_another_task(call, agents):
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}}
    good(call("bob", "spawn_agent", {"prompt": "task", "name": "kid", "result_schema": schema}))
    agents.finish("bob")
    good(call("kid", "ask_operator", {"question": "may I keep it?"}))
    good(call("kid", "complete", {"result": '{"score": 7}'}))
    agents.finish("kid")
    agents.finish("bob")
    Inbox(agents.registry).answer(agents.store.waiting_items(None)[0].id, "yes")
    agents.finish("kid", "thank you")
    assert 'turn 2: success. It said:\n\n> {"score": 7}' in agents.prompt("bob")
    good(call("bob", "send_message", {"to": "kid", "text": "and now?"}))
    agents.finish("bob")
    agents.finish("kid", "nothing more")
    assert "the turn that read it has ended: its result doesn't fit" in agents.prompt("bob")
