"""`substratctl`: its objects, its states, its exit statuses and its `--json` rule."""

import json
import re
import uuid

import pytest

AGENT = [
    "id",
    "name",
    "state",
    "session_id",
    "workspace",
    "model",
    "network",
    "parent",
    "created_at",
    "unread",
    "turn",
    "attention",
    "reason",
    "family",
    "priority",
    "status",
    "activity",
    "worktree",
    "waits",
    "last",
    "tokens",
]
TURN = ["id", "number", "outcome", "started_at", "ended_at", "exit_code", "result", "usage", "error"]
EVENT = ["cursor", "agent", "turn", "time", "kind", "text", "raw", "data", "cause"]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.fixture
def daemon(shared):
    """One for all of these tests, started anew after those that stop it."""
    return shared


def test_an_agent_without_a_prompt_is_idle_and_has_no_turn(daemon):
    work = daemon.workspace()
    agent = daemon.spawn("anna", work)
    assert list(agent) == AGENT
    assert agent == {
        "id": str(uuid.UUID(agent["id"])), "name": "anna", "state": "idle", "session_id": None, "workspace": str(work),
        "model": agent["model"], "network": "filtered", "parent": None, "created_at": agent["created_at"], "unread": 0,
        "turn": None, "attention": agent["attention"], "reason": None, "family": agent["id"],
        "priority": "normal", "status": None, "activity": None, "worktree": None, "waits": 0, "last": None,
        "tokens": {"input": 0, "output": 0},
    }  # fmt: skip
    assert agent["attention"] == {
        "kind": "idle", "level": "info", "text": "has nothing to do", "since": agent["created_at"],
    }  # fmt: skip
    assert TIME.fullmatch(agent["created_at"])
    assert daemon.show("anna") == {**agent, "time_limit": 0, "silence_limit": 900}
    assert daemon.show(agent["id"]) == daemon.show("anna")
    assert daemon.ok("ls") == [agent]


def test_a_turn_has_its_contract_fields(daemon):
    agent = daemon.spawn("anna", daemon.workspace(), "hello there")
    assert list(agent) == AGENT
    assert list(agent["turn"]) == TURN
    turn = agent["turn"]
    assert (agent["state"], turn["outcome"], turn["number"], turn["exit_code"]) == ("idle", "success", 1, 0)
    assert turn["result"] == "hello there"
    assert turn["error"] is None
    assert set(turn["usage"]) == {"inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"}
    assert TIME.fullmatch(turn["started_at"])
    assert TIME.fullmatch(turn["ended_at"])
    assert uuid.UUID(agent["session_id"])


def test_json_may_stand_anywhere_and_is_one_document(daemon):
    daemon.spawn("anna", daemon.workspace())
    for words in (("--json", "show", "anna"), ("show", "--json", "anna"), ("show", "anna", "--json")):
        done = daemon.ctl(*words)
        assert (done.code, done.err) == (0, "")
        assert done.out.count("\n") == 1
        assert done.json["name"] == "anna"


def test_the_first_turn_runs_while_spawn_has_returned(daemon, until):
    work = daemon.workspace()
    agent = daemon.held("anna", work)
    assert agent["state"] == "running"
    assert (agent["turn"]["outcome"], agent["turn"]["ended_at"], agent["turn"]["exit_code"]) == (None, None, None)
    (work / "go").touch()
    agent = daemon.wait("anna")
    assert (agent["state"], agent["turn"]["outcome"]) == ("idle", "success")


def test_wait_passes_the_verdict_on(daemon):
    work = daemon.workspace()
    done = daemon.ctl("spawn", "good", "-w", work, "--wait", "fine")
    assert (done.code, done.out.strip(), done.err) == (0, "fine", "")
    done = daemon.ctl("spawn", "bad", "-w", work, "--wait", "/exit 3")
    assert done.code == 5
    assert "bad" in done.error
    agent = daemon.show("bad")
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["exit_code"]) == ("failed", "error", 3)
    assert agent["turn"]["error"]
    done = daemon.ctl("spawn", "zero", "-w", work, "--wait", "/exit 0")
    assert done.code == 5, "no result is a failure whatever the exit code"
    assert daemon.ctl("send", "good", "--wait", "/exit 1").code == 5
    # A failed agent takes another prompt, and is well again.
    assert daemon.ctl("send", "bad", "--wait", "again").code == 0
    assert daemon.show("bad")["state"] == "idle"
    done = daemon.ctl("send", "good", "--wait", "--json", "/exit 7")
    assert (done.code, list(done.json), done.json["turn"]["exit_code"]) == (5, AGENT, 7)


def test_wait_gives_up_with_124_and_the_turn_goes_on(daemon):
    work = daemon.workspace()
    done = daemon.ctl("spawn", "anna", "-w", work, "--wait", "--timeout", "0.2", "/sleep 1000")
    assert done.code == 124
    assert "anna" in done.error
    assert daemon.show("anna")["state"] == "running"
    assert daemon.ctl("wait", "anna", "--timeout", "0.1").code == 124
    assert daemon.ctl("wait", "anna", "--until", "idle", "--timeout", "0.1").code == 124
    assert daemon.ctl("wait", "anna", "--until", "running,idle", "--timeout", "5").code == 0
    assert daemon.ctl("send", "anna", "--wait", "--timeout", "0.1", "later").code == 124


def test_wait_returns_the_agents_in_a_list(daemon):
    work = daemon.workspace()
    for name in ("anna", "bert"):
        daemon.ok("spawn", name, "-w", work, "hello")
    agents = daemon.ok("wait", "anna", "bert", "--timeout", "20")
    assert [(agent["name"], agent["state"]) for agent in agents] == [("anna", "idle"), ("bert", "idle")]
    assert daemon.ctl("wait", "anna", "nobody", "--timeout", "20").code == 4
    assert daemon.ctl("wait", "anna", "--until", "asleep").code == 2


def test_a_wait_sees_the_end_of_what_it_waits_for(daemon):
    daemon.spawn("anna", daemon.workspace())
    waiting = daemon.follow("wait", "anna", "--until", "ended")
    daemon.ok("end", "anna")
    assert waiting.wait(20) == 0
    daemon.spawn("bert", daemon.workspace("other"))
    waiting = daemon.follow("wait", "bert", "--until", "suspended")
    daemon.ok("rm", "bert")
    assert waiting.wait(20) == 4, "a removed agent never gets there"


def test_prompts_come_from_files_and_standard_input(daemon):
    work = daemon.workspace()
    prompt = daemon.directory / "prompt"
    prompt.write_text("from a file\nof two lines\n")
    done = daemon.ctl("spawn", "anna", "-w", work, "--wait", "--prompt-file", prompt)
    assert (done.code, done.out.rstrip("\n").split("\n")[0]) == (0, "from a file")
    done = daemon.ctl("send", "anna", "--wait", "--prompt-file", "-", stdin=b"from a pipe")
    assert (done.code, done.out.strip()) == (0, "from a pipe")
    done = daemon.ctl("spawn", "bert", "-w", work, "--prompt-file", daemon.directory / "nowhere")
    assert done.code in {1, 2}
    assert "nowhere" in done.error
    assert daemon.ctl("show", "bert").code == 4, "nothing half made"


def test_events_are_numbered_and_complete(daemon):
    work = daemon.workspace()
    daemon.spawn("anna", work, "/think hm\n/shell echo out\n/say bye")
    agent = daemon.show("anna")
    events = daemon.events("anna")
    assert all(list(event) == EVENT for event in events)
    kinds = [event["kind"] for event in events]
    order = ["turn:started", "system:init", "user", "thinking:delta", "thinking:completed", "tool-call-started",
             "tool-call-completed", "assistant", "result:success", "turn:ended"]  # fmt: skip
    assert set(order) <= set(kinds)
    assert (
        kinds.index("turn:started") < kinds.index("system:init") < kinds.index("result:success") < kinds.index("turn:ended")
    )
    cursors = [event["cursor"] for event in events]
    assert cursors == sorted(set(cursors))
    for event in events:
        assert event["agent"] == agent["id"]
        assert TIME.fullmatch(event["time"])
        assert isinstance(event["text"], str | None)
    own = [event for event in events if event["raw"] is not None]
    raw = [json.loads(line) for line in daemon.ctl("logs", "anna", "--raw").out.splitlines()]
    assert [event["raw"] for event in own] == raw
    assert {event["turn"] for event in own} == {agent["turn"]["id"]}


def test_reading_again_from_a_cursor_gives_what_came_after(daemon):
    work = daemon.workspace()
    daemon.spawn("anna", work, "one")
    daemon.spawn("bert", work, "two")
    for words in (("logs", "anna"), ("events",)):
        everything = daemon.ctl(*words, "--json", "--since", "0").lines
        assert everything
        for cut in (0, 1, len(everything) // 2, len(everything) - 1):
            after = daemon.ctl(*words, "--json", "--since", str(everything[cut]["cursor"])).lines
            assert after == everything[cut + 1 :]
    names = {event["agent"] for event in daemon.ctl("events", "--json", "--since", "0").lines if event["turn"]}
    assert names == {agent["id"] for agent in daemon.ok("ls")}


def test_following_shows_events_as_they_happen(daemon, until):
    work = daemon.workspace()
    agent = daemon.held("anna", work)
    follower = daemon.follow("logs", "anna", "-f", "--json", "--since", "0")
    kinds = []
    while "tool-call-started" not in kinds:
        kinds.append(json.loads(follower.stdout.readline())["kind"])
    assert agent["turn"]["outcome"] is None
    (work / "go").touch()
    while "turn:ended" not in kinds:
        kinds.append(json.loads(follower.stdout.readline())["kind"])
    daemon.ok("end", "anna")
    assert follower.wait(20) == 0, "-f goes on until the agent is ended"
    follower.stdout.close()
    follower.stderr.close()


def test_events_of_all_agents_can_be_followed(daemon):
    work = daemon.workspace()
    follower = daemon.follow("events", "-f", "--json", "--since", "0")
    daemon.spawn("anna", work, "one")
    daemon.spawn("bert", work, "two")
    seen: list[dict] = []
    while [event["kind"] for event in seen].count("turn:ended") < 2:
        seen.append(json.loads(follower.stdout.readline()))
    cursors = [event["cursor"] for event in seen]
    assert cursors == sorted(set(cursors))
    assert seen == [
        event for event in daemon.ctl("events", "--json", "--since", "0").lines if event["cursor"] <= cursors[-1]
    ]


def test_readable_logs_show_a_tool_call_on_one_line(daemon):
    daemon.spawn("anna", daemon.workspace(), "/shell echo out; exit 3\n/say some words")
    out = daemon.ctl("logs", "anna").out
    (call,) = [line for line in out.splitlines() if "echo out" in line and "exit 3" in line and not line.startswith(">")]
    assert re.search(r"\b3\b.*\d", call)
    assert "some words" in out
    assert "\x1b" not in out, "colour is for terminals"


def test_control_characters_of_an_agent_do_not_reach_a_terminal(daemon):
    daemon.spawn("anna", daemon.workspace(), "/say before\x1b[2Jafter \x9b31m")
    out = daemon.ctl("logs", "anna").out
    assert "before" in out
    assert "\x1b" not in out
    assert "\x9b" not in out


def test_no_daemon_is_exit_3(house):
    for words in (("ls",), ("show", "x"), ("spawn", "x", "-w", "."), ("send", "x", "hi"), ("logs", "x"), ("events", "-f"),
                  ("wait", "x"), ("suspend", "--all"), ("resume", "--all"), ("interrupt", "x"), ("end", "x"), ("rm", "x"),
                  ("shutdown",)):  # fmt: skip
        done = house.ctl(*words, "--json")
        assert (done.code, done.out) == (3, ""), words
        assert "substratd" in done.error or "daemon" in done.error


def test_the_socket_is_found_through_the_runtime_directory(daemon):
    environment = daemon.environment(SUBSTRAT_RUNTIME_DIR=str(daemon.runtime))
    assert daemon.ctl("ls", "--json", environment=environment).json == []


def test_an_unknown_agent_is_exit_4(daemon):
    for verb in ("show", "send", "logs", "wait", "suspend", "resume", "interrupt", "end", "rm"):
        done = daemon.ctl(verb, "nobody", *(["hello"] if verb == "send" else []))
        assert (done.code, done.out) == (4, ""), verb
        assert "nobody" in done.error


WRONG = (
    ("frobnicate",), ("spawn", "x"), ("spawn", "x", "-w", ".", "--colour"), ("send",), ("show",), ("wait",), ("suspend",),
    ("inbox", "extra"), ("spawn", "x", "-w", ".", "--network", "moon"), ("wait", "x", "--timeout", "soon"),
    ("completion", "no-shell"), ("logs", "x", "--since", "yesterday"),
)  # fmt: skip


def test_a_wrong_command_line_is_exit_2(daemon):
    for words in WRONG:
        done = daemon.ctl(*words)
        assert (done.code, done.out) == (2, ""), words
        assert done.error
    assert daemon.ok("ls") == []


def test_a_bad_name_is_refused(daemon):
    work = daemon.workspace()
    with daemon.wire() as wire:
        for name in ("bad name", "../up", ".hidden", "", "a" * 65, "a/b", "new\nline", "-x", "a\x00"):
            assert wire.refuse("agent.spawn", workspace=str(work), name=name)["message"], name
            if "\x00" not in name:
                done = daemon.ctl("spawn", "-w", work, "--", name, "prompt")
                assert done.code in {1, 2}, name
                assert done.error
    assert daemon.ok("ls") == []


def test_a_name_that_looks_like_another_agents_id_cannot_shadow_it(daemon):
    work = daemon.workspace()
    anna = daemon.spawn("anna", work)
    daemon.ctl("spawn", anna["id"], "-w", work)
    assert daemon.show(anna["id"])["name"] == "anna"


def test_operator_is_no_name_for_an_agent(daemon):
    """Messages name their sender; nobody may look like the person in charge or like a parent."""
    work = daemon.workspace()
    for name in ("operator", "parent"):
        done = daemon.ctl("spawn", name, "-w", work)
        assert done.code in {1, 2}, name
        assert name in done.error


def test_a_taken_name_is_refused(daemon):
    work = daemon.workspace()
    agent = daemon.spawn("anna", work)
    done = daemon.ctl("spawn", "anna", "-w", work, "hello")
    assert done.code == 1
    assert "anna" in done.error
    assert daemon.ok("ls") == [agent]


def test_an_agent_gets_a_name_when_it_has_none(daemon):
    work = daemon.workspace()
    first = daemon.ok("spawn", "-w", work, "a prompt of several words", "--wait")
    second = daemon.ok("spawn", "-w", work)
    assert first["turn"]["result"] == "a prompt of several words"
    assert first["name"] != second["name"]
    assert daemon.show(second["name"])["id"] == second["id"]


def test_send_returns_the_agent_and_queues(daemon, until):
    work = daemon.workspace()
    daemon.held("anna", work)
    agent = daemon.ok("send", "anna", "second")
    assert (list(agent), agent["unread"]) == (AGENT, 1)
    assert daemon.ok("send", "anna", "third")["unread"] == 2
    (work / "go").touch()
    agent = until(lambda: (now := daemon.wait("anna")) and now["turn"]["number"] == 3 and now, "the third turn")
    assert (agent["turn"]["result"], agent["unread"]) == ("third", 0)
    results = [event["raw"]["result"] for event in daemon.events("anna", "result:success")]
    assert results[1:] == ["second", "third"]


def test_interrupt_ends_the_turn_and_keeps_the_session(daemon):
    work = daemon.workspace()
    session = daemon.held("anna", work)["session_id"]
    done = daemon.ctl("interrupt", "anna", "--json")
    assert done.code == 0
    agent = daemon.wait("anna")
    assert (agent["state"], agent["turn"]["outcome"], agent["session_id"]) == ("idle", "interrupted", session)
    assert not daemon.sandboxed()
    done = daemon.ctl("interrupt", "anna")
    assert done.code == 1
    assert "anna" in done.error
    assert daemon.ctl("send", "anna", "--wait", "again").code == 0
    assert daemon.show("anna")["session_id"] == session


def test_a_waiting_prompt_runs_after_an_interrupt(daemon, until):
    work = daemon.workspace()
    daemon.held("anna", work)
    daemon.ok("send", "anna", "next")
    daemon.ok("interrupt", "anna")
    agent = until(lambda: (now := daemon.wait("anna"))["turn"]["number"] == 2 and now, "the second turn")
    assert agent["turn"]["result"] == "next"


def test_an_interrupted_turn_fails_who_waited_for_it(daemon):
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work)
    waiting = daemon.follow("send", "anna", "--wait", "/sleep 1000")
    daemon.wait("anna", "running")
    daemon.ok("interrupt", "anna")
    assert waiting.wait(20) == 5


def test_end_is_final(daemon):
    work = daemon.workspace()
    daemon.held("anna", work)
    agent = daemon.ok("end", "anna")
    assert (agent["state"], agent["turn"]["outcome"]) == ("ended", "interrupted")
    assert not daemon.sandboxed()
    for words in (("send", "anna", "hello"), ("resume", "anna"), ("suspend", "anna"), ("interrupt", "anna")):
        done = daemon.ctl(*words)
        assert done.code == 1, words
        assert "ended" in done.error
    assert daemon.events("anna"), "its log stays"


def test_rm_forgets_the_agent_and_its_files(daemon):
    work = daemon.workspace()
    agent = daemon.spawn("anna", work, "hello")
    chat = daemon.chat(agent)
    assert daemon.agents_directory(agent).is_dir()
    assert (daemon.runtime / "agents" / agent["id"]).exists()
    done = daemon.ctl("rm", "anna", "--json")
    assert done.code == 0
    assert daemon.ok("ls") == []
    assert not daemon.agents_directory(agent).exists()
    assert not (daemon.runtime / "agents" / agent["id"]).exists()
    assert chat.is_dir(), "the chat is the user's"
    assert work.is_dir()
    left = [event for event in daemon.ctl("events", "--json", "--since", "0").lines if event["turn"] or event["raw"]]
    assert left == [], "nothing of what it did"
    assert daemon.ctl("logs", "anna").code == 4
    again = daemon.spawn("anna", work)
    assert again["id"] != agent["id"]
    assert again["session_id"] is None


def test_rm_refuses_an_agent_that_runs(daemon):
    work = daemon.workspace()
    daemon.held("anna", work)
    done = daemon.ctl("rm", "anna")
    assert done.code == 1
    assert "anna" in done.error
    assert daemon.show("anna")["state"] == "running"


def test_the_model_is_passed_and_shown(daemon):
    work = daemon.workspace()
    agent = daemon.spawn("anna", work, "hello", "--model", "composer-2.5")
    assert agent["model"] == "composer-2.5"


def test_what_network_an_agent_has_is_shown(daemon):
    work = daemon.workspace()
    daemon.spawn("anna", work)
    assert "filtered" in daemon.ctl("show", "anna").out
    daemon.spawn("bert", work, None, "--network", "host")
    assert "host (shares this machine's network" in daemon.ctl("show", "bert").out
    done = daemon.ctl("spawn", "carl", "-w", work, "--network", "none", "--allow", "example.org")
    assert done.code != 0
    assert "--allow" in done.error


def test_version_names_both_ends(daemon, house):
    document = daemon.ok("version")
    assert isinstance(document, dict)
    assert "0." in json.dumps(document)
    daemon.stop()
    assert daemon.ctl("version").code == 0


def test_shutdown_stops_the_daemon_and_no_turn(daemon, until):
    work = daemon.workspace()
    daemon.held("anna", work)
    assert daemon.ctl("shutdown", "--json").code == 0
    assert daemon.daemon.wait(20) == 0
    assert daemon.sandboxed()
    assert daemon.ctl("ls").code == 3


def test_shutdown_can_suspend_everybody_first(daemon):
    work = daemon.workspace()
    daemon.held("anna", work)
    daemon.spawn("bert", work)
    assert daemon.ctl("shutdown", "--suspend").code == 0
    assert daemon.daemon.wait(20) == 0
    assert not daemon.sandboxed()
    daemon.start()
    assert {agent["name"]: agent["state"] for agent in daemon.ok("ls")} == {"anna": "suspended", "bert": "suspended"}
    assert daemon.show("anna")["turn"]["outcome"] == "interrupted"


def test_completion_scripts_are_printed_without_a_daemon(house):
    for shell in ("bash", "zsh", "fish"):
        done = house.ctl("completion", shell)
        assert done.code == 0, shell
        assert "substratctl" in done.out
        assert "spawn" in done.out


def test_a_reader_that_goes_away_is_no_error(daemon):
    daemon.spawn("anna", daemon.workspace(), "/emit 2000 50")
    follower = daemon.follow("logs", "anna", "--json")
    follower.stdout.readline()
    follower.stdout.close()
    follower.wait(20)
    assert b"Traceback" not in follower.stderr.read()
