"""Messages between agents and with the operator, through real sandboxes: who gets which, in which turn, how often."""

import json

HOLD = "/shell touch {mark}; while [ ! -e go-{mark} ]; do sleep 0.02; done"


def tool(called, /, **arguments):
    """A line that makes the stand-in call a tool."""
    return f"/tool {called} {json.dumps(arguments)}"


def send(daemon, name, *lines):
    """Give an agent a script and wait for the turn; returns the answers of its tools in it."""
    before = len(daemon.tool(name))
    done = daemon.ctl("send", name, "--wait", "--prompt-file", "-", stdin="\n".join(lines).encode())
    assert done.code in {0, 5, 6}, done
    return daemon.tool(name)[before:]


def begin(daemon, name, *lines):
    """Give an agent a script and don't wait."""
    daemon.ok("send", name, "--prompt-file", "-", stdin="\n".join(lines).encode())


def prompts(daemon, name):
    return [event["text"] for event in daemon.events(name, "user")]


def settled(daemon, name, turn):
    """Whether an agent has ended a turn of at least this number and has nothing left to do."""
    agent = daemon.show(name)
    return agent["state"] == "idle" and agent["turn"] is not None and agent["turn"]["number"] >= turn


def states(daemon, name, **wanted):
    """The states of an agent's messages that have these members, oldest first."""
    rows = daemon.ok("inbox", name)
    return [row["state"] for row in rows if all(row[key] == value for key, value in wanted.items())]


def turns(daemon, name):
    """How many turns an agent of a pair has begun besides its first."""
    return daemon.show(name)["turn"]["number"] - 1


def pair(daemon, *others):
    """Agents of one family, each of which has ended its first turn."""
    work, names = daemon.workspace(), ("anna", "bert", *others)
    kids = [tool("spawn_agent", name=name, prompt="/say here") for name in names]
    daemon.spawn("lead", work, "\n".join([*kids, tool("wait_agents")]))
    for name in (*names, "lead"):
        daemon.wait(name)
    return work


def test_a_group_has_one_message_each_and_a_line_for_each_also_where_one_takes_no_more(daemon):
    daemon.start(config="[limits]\nwaiting_items = 3\n")
    children = [tool("spawn_agent", name=name, prompt="hello") for name in ("a", "b", "c")]
    daemon.spawn("lead", daemon.workspace(), "\n".join([*children, tool("wait_agents")]))
    daemon.wait("lead")
    daemon.spawn("stranger", daemon.directory / "work")
    daemon.ok("suspend", "b")
    for number in range(3):
        daemon.ok("send", "b", f"prompt {number}")
    (said,) = send(daemon, "lead", tool("send_message", to="children", text="to all", intent="inform"))
    lines = said.removeprefix("!").splitlines()
    assert len(lines) == 3
    assert [[name for name in "abc" if name in line.split()] for line in lines] == [["a"], ["b"], ["c"]], lines
    assert ["not accepted" in line for line in lines] == [False, True, False]
    assert sorted(states(daemon, "lead", text="to all")) == ["accepted", "accepted", "refused"]
    assert daemon.ok("inbox", "stranger") == []
    assert states(daemon, "b", text="to all") == ["refused"]
    assert len(daemon.events("lead", "message:refused")) == 1
    siblings, family = send(
        daemon, "a", tool("send_message", to="siblings", text="brothers", intent="inform"),
        tool("send_message", to="family", text="everybody", intent="inform"),
    )  # fmt: skip
    assert len(siblings.splitlines()) == 2
    assert len(family.splitlines()) == 3, "its parent and its siblings, not itself"
    assert states(daemon, "a", intent="inform", to="a") == ["delivered"]
    assert states(daemon, "c", intent="inform", to="c") == ["accepted"] * 3
    assert send(daemon, "stranger", tool("send_message", to="siblings", text="x"))[0].startswith("!")
    for word in ("children", "siblings", "family", "operator", "parent"):
        refused = daemon.ctl("spawn", word, "-w", daemon.directory / "work")
        assert refused.code == 2, (word, refused)
        assert word in refused.error


def test_an_inform_starts_no_turn_and_comes_once_with_the_next_one_in_order(shared):
    pair(shared)
    said = send(
        shared, "anna", tool("send_message", to="bert", text="first news", intent="inform"),
        tool("send_message", to="bert", text="second news", intent="inform"),
    )  # fmt: skip
    assert not any(text.startswith("!") for text in said)
    assert (shared.show("bert")["state"], turns(shared, "bert")) == ("idle", 0)
    assert states(shared, "anna", to="bert") == ["accepted"] * 2
    (who, peeked) = send(shared, "bert", "/say my work", tool("whoami"), tool("check_inbox", peek=True))
    _, prompt = prompts(shared, "bert")
    assert prompt.index("first news") < prompt.index("second news")
    assert prompt.count("news") == 2
    assert "my work" in shared.show("bert")["turn"]["result"], "the prompt came too"
    assert (json.loads(who)["unread"], json.loads(peeked)["messages"]) == ({}, [])
    rows = shared.ok("inbox", "anna")
    found = [(row["intent"], row["state"], row["turn"]) for row in rows if row["to"] == "bert"]
    assert found == [("inform", "delivered", 2)] * 2
    send(shared, "bert", "/say more")
    assert "news" not in prompts(shared, "bert")[2]
    # An inform wakes no agent afterwards: its turn's result isn't an answer.
    assert turns(shared, "anna") == 1
    assert shared.show("anna")["unread"] == 0


def test_a_request_is_answered_by_the_turns_result_once(shared, until):
    pair(shared)
    send(shared, "anna", tool("send_message", to="bert", text="/shell true\n/say forty-two"))
    until(lambda: settled(shared, "anna", 3), "the answer's turn")
    assert prompts(shared, "anna")[2].count("> forty-two") == 1
    (row,) = [row for row in shared.ok("inbox", "anna") if row["to"] == "bert"]
    assert (row["intent"], row["state"], row["turn"]) == ("request", "answered", 2)
    send(shared, "bert", "/say something else")
    assert turns(shared, "anna") == 2


def test_a_reply_is_the_answer_and_the_turns_result_is_not_one_too(shared, until):
    pair(shared)
    reply = tool("send_message", to="anna", text="the reply itself", intent="reply")
    send(shared, "anna", tool("send_message", to="bert", text=f"{reply}\n/say the last words"))
    until(lambda: settled(shared, "anna", 3) and settled(shared, "bert", 2), "the reply's turn")
    assert "the reply itself" in prompts(shared, "anna")[2]
    assert "the last words" not in prompts(shared, "anna")[2]
    rows = shared.ok("inbox", "anna")
    (request,) = [row for row in rows if row["intent"] == "request"]
    (answer,) = [row for row in rows if row["intent"] == "reply"]
    assert (request["state"], answer["reply_to"]) == ("answered", request["id"])
    assert (turns(shared, "anna"), turns(shared, "bert")) == (2, 1), "a reply asks for none"


def test_a_request_read_in_the_middle_of_a_turn_is_answered_by_that_turn_once(shared, until):
    work = pair(shared)
    reply = tool("send_message", to="anna", text="by hand", intent="reply")
    wanted = [("by the turn", "by hand"), ("by hand", "by the turn")]
    for number, replies in enumerate(([], [reply])):
        begin(shared, "bert", HOLD.format(mark=f"b{number}"), tool("check_inbox"), *replies, "/say by the turn")
        until((work / f"b{number}").exists, "the turn")
        send(shared, "anna", tool("send_message", to="bert", text=f"please {number}"))
        assert turns(shared, "anna") == 2 * number + 1
        (work / f"go-b{number}").touch()
        until(lambda number=number: settled(shared, "anna", 2 * number + 3) and settled(shared, "bert", number + 2), "both")
        assert any(f"please {number}" in text for text in shared.tool("bert"))
        answer = prompts(shared, "anna")[-1]
        assert [text in answer for text in wanted[number]] == [True, False]
        assert states(shared, "anna", to="bert") == ["answered"] * (number + 1)
        assert turns(shared, "bert") == number + 1, "it was read: it starts no turn"


def test_a_request_outlives_its_receivers_suspension(shared, until):
    """The turn that is cut short is not the answer; the one that goes on with it is."""
    work = pair(shared)
    send(shared, "anna", tool("send_message", to="bert", text=HOLD.format(mark="b") + "\n/say done at last"))
    until((work / "b").exists, "the turn")
    shared.ok("suspend", "bert")
    assert states(shared, "anna", to="bert") == ["delivered"]
    (work / "go-b").touch()
    shared.ok("resume", "bert")
    until(lambda: settled(shared, "anna", 3), "the answer")
    until(lambda: shared.show("bert")["state"] == "idle", "the end of bert's turns")
    assert "interrupted" not in prompts(shared, "anna")[2]
    assert states(shared, "anna", to="bert") == ["answered"]
    assert len(prompts(shared, "anna")) == 3


def test_a_sender_is_told_when_its_request_will_have_no_answer(shared, until):
    """Before it was read, and while its receiver worked at it."""
    work = pair(shared, "carl")
    shared.ok("suspend", "bert")
    for number, (name, state) in enumerate((("bert", "dropped"), ("carl", "answered"))):
        send(shared, "anna", tool("send_message", to=name, text=HOLD.format(mark=name)))
        if state == "answered":
            until((work / name).exists, "the turn")
        shared.ok("end", name)
        until(lambda number=number: settled(shared, "anna", 2 * number + 3), "the word to the sender")
        assert name in prompts(shared, "anna")[-1]
        assert "ended" in prompts(shared, "anna")[-1]
        assert states(shared, "anna", to=name) == [state]
        shared.ok("rm", name)
        assert turns(shared, "anna") == 2 * number + 2, "told once"


def test_only_its_addressee_replies_to_a_message_and_only_to_one_that_is_there(shared, until):
    pair(shared, "carl")
    shared.ok("suspend", "bert")
    send(shared, "anna", tool("send_message", to="bert", text="for bert alone"))
    (number,) = [row["id"] for row in shared.ok("inbox", "anna") if row["to"] == "bert"]
    forged = send(
        shared, "carl", tool("send_message", to="anna", text="I am bert", intent="reply", reply_to=number),
        tool("send_message", to="anna", text="I am bert", intent="reply", reply_to=99999),
        tool("send_message", to="anna", text="I am bert", intent="reply"),
    )  # fmt: skip
    assert all(text.startswith("!") for text in forged)
    assert forged[0].replace(str(number), "N") == forged[1].replace("99999", "N"), "nothing of others' messages shows"
    # Taken back before bert saw it: he can't reply to it either, and anna knows.
    shared.ok("inbox", "bert", "--drop", str(number))
    until(lambda: settled(shared, "anna", 3), "the word to the sender")
    shared.ok("resume", "bert")
    (late,) = send(shared, "bert", tool("send_message", to="anna", text="late", intent="reply", reply_to=number))
    assert late.startswith("!")
    assert [text.count("I am bert") + text.count("late") for text in prompts(shared, "anna")] == [0, 0, 0]


def test_an_answer_to_an_agent_that_is_gone_is_dropped_without_trouble(shared, until):
    work = pair(shared)
    reply = tool("send_message", to="anna", text="too late", intent="reply")
    send(shared, "anna", tool("send_message", to="bert", text=f"{HOLD.format(mark='b')}\n{reply}\n/say all the same"))
    until((work / "b").exists, "the turn")
    shared.ok("end", "anna")
    (work / "go-b").touch()
    until(lambda: settled(shared, "bert", 2), "the end of the turn")
    assert shared.show("bert")["turn"]["outcome"] == "success"
    (said,) = shared.tool("bert")
    assert said.startswith("!")
    assert "ended" in said
    shared.ok("rm", "anna")
    assert [row["from"] for row in shared.ok("inbox", "bert")] == ["lead", "anna"], "its own words stay, with its name"
    assert "Traceback" not in shared.log


def test_messages_of_an_agent_show_both_directions_and_what_became_of_them(shared, until):
    pair(shared, "over")
    shared.ok("suspend", "over")
    send(
        shared, "anna", tool("send_message", to="over", text="unheard"),
        tool("send_message", to="operator", text="a note for the person"),
        tool("send_message", to="bert", text="/say an answer\nof two lines"),
    )  # fmt: skip
    until(lambda: settled(shared, "anna", 3), "the answer")
    shared.ok("end", "over")
    until(lambda: settled(shared, "anna", 4), "the word of the end")
    rows = shared.ok("inbox", "anna")
    keys = {"id", "from", "to", "intent", "state", "time", "reply_to", "turn", "text"}
    assert all(set(row) == keys for row in rows)
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    by_text = {row["text"].partition("\n")[0]: (row["from"], row["to"], row["state"]) for row in rows}
    assert by_text["unheard"] == ("anna", "over", "dropped")
    assert by_text["a note for the person"][:2] == ("anna", "operator")
    assert by_text["/say an answer"] == ("anna", "bert", "answered")
    printed = shared.ctl("inbox", "anna")
    assert printed.code == 0
    for word in ("unheard", "dropped", "answered", "over", "bert", "operator"):
        assert word in printed.out
    # A closed message can't be taken back, nor one that was read; each refusal says why.
    numbers = {row["text"].partition("\n")[0]: str(row["id"]) for row in rows}
    tries = (("over", numbers["unheard"], 1), ("bert", numbers["/say an answer"], 1), ("bert", "99999", 4))
    for name, number, code in tries:
        refused = shared.ctl("inbox", name, "--drop", number)
        assert refused.code == code, refused
        assert number in refused.error
    both = shared.ctl("inbox", "anna", "nobody", "bert", "--json")
    assert (both.code, both.json) == (4, [rows, shared.ok("inbox", "bert")])
    assert "nobody" in both.error
