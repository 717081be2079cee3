"""Chats, transcripts, tokens and the agent program's version, from the command line to the real sandbox and back."""

import json
import os
import subprocess

from substrat.daemon.sandboxes import program

SLASH = "hello\n/shell echo out; exit 3\n/say bye"


def sessions(daemon, workspace):
    return {session["session"]: session for session in daemon.ok("sessions", "-w", workspace)}


def by_hand(daemon, workspace, prompt, **environment):
    """A chat that the user begins with cursor-agent itself; returns its id."""
    done = subprocess.run(
        [daemon.agent, "-p", "--trust", "--force", "--model", "gpt-5", "--output-format", "json", "--workspace", workspace],
        input=prompt.encode(), env=daemon.environment(**environment), capture_output=True, cwd=workspace, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)["session_id"]


def test_a_chat_begun_by_hand_is_taken_over(running):
    workspace = running.workspace()
    session = by_hand(running, workspace, "the first question")
    (listed,) = sessions(running, workspace).values()
    assert (listed["session"], listed["agent"], listed["damage"]) == (session, None, None)
    agent = running.spawn("anna", workspace, "/recall", "--adopt", session)
    assert agent["session_id"] == session
    assert agent["model"] == listed["model"]
    assert agent["turn"]["result"].startswith("I remember 1 earlier turn:\n1. the first question")
    assert sessions(running, workspace)[session]["agent"] == "anna"


def test_chats_are_found_where_a_variable_has_moved_them(daemon):
    moved = {"XDG_CONFIG_HOME": str(daemon.directory / "cfg")}
    daemon.start(environment=moved)
    workspace = daemon.workspace()
    session = by_hand(daemon, workspace, "the first question", **moved)
    assert list(sessions(daemon, workspace)) == [session]
    agent = daemon.spawn("anna", workspace, "/recall", "--adopt", session)
    assert agent["turn"]["result"].startswith("I remember 1 earlier turn:\n1. the first question")
    other = daemon.spawn("bert", workspace, "/say hi")
    assert {*sessions(daemon, workspace)} == {session, other["session_id"]}
    assert len(list((daemon.directory / "cfg").glob("cursor/chats/*/*/store.db"))) == 2
    assert not (daemon.home / ".cursor" / "chats").exists()


def test_a_session_has_one_holder(running):
    workspace = running.workspace()
    agent = running.spawn("anna", workspace, "/say hi")
    refused = running.ctl("spawn", "bert", "-w", workspace, "--adopt", agent["session_id"])
    assert refused.code == 1
    assert "is anna's" in refused.error
    assert "send anna" in refused.error
    running.ok("end", "anna")
    assert "rm anna" in running.ctl("spawn", "bert", "-w", workspace, "--adopt", agent["session_id"]).error
    running.ok("rm", "anna")
    assert running.spawn("bert", workspace, None, "--adopt", agent["session_id"])["session_id"] == agent["session_id"]


def test_a_session_that_is_not_there_cannot_be_taken_over(running):
    workspace = running.workspace()
    for session in ("00000000-0000-4000-8000-000000000000", "nonsense", "../../x"):
        refused = running.ctl("spawn", "anna", "-w", workspace, "--adopt", session)
        assert refused.code == 1, session
        assert "substratctl sessions" in refused.error, session
    assert running.ok("ls") == []


def test_a_damaged_session_is_reported_and_not_taken_over(running):
    workspace = running.workspace()
    agent = running.spawn("anna", workspace, "/say hi")
    running.ok("rm", "anna")
    store = running.chat(agent) / "store.db"
    store.write_bytes(b"x" * 5000)
    assert sessions(running, workspace)[agent["session_id"]]["damage"]
    assert "damaged" in running.ctl("sessions", "-w", workspace).out
    for words in (("spawn", "bert", "-w", workspace, "--adopt"), ("export", "-w", workspace)):
        refused = running.ctl(*words, agent["session_id"])
        assert refused.code == 1
        assert "nothing was changed" in refused.error
    assert store.read_bytes() == b"x" * 5000


def test_a_session_is_exported_as_markdown(running):
    workspace = running.workspace()
    agent = running.spawn("anna", workspace, "a question\n/say an answer")
    by_name, by_id = running.ctl("export", "anna"), running.ctl("export", agent["session_id"], "-w", workspace)
    assert by_name.out == by_id.out
    assert by_name.out.startswith("# a question /say an answer\n\nSession `")
    assert "\n## User\n\na question" in by_name.out
    assert "\n## Assistant\n\na question" in by_name.out
    document = running.ok("export", "anna")
    assert [message["role"] for message in document["messages"]] == ["user", "assistant"]
    assert running.ctl("export", "nobody").code == 4


def test_sessions_of_a_directory_without_any(running):
    done = running.ctl("sessions", "-w", running.workspace())
    assert (done.code, done.out) == (0, "")
    assert "no chats" in done.error


def test_a_transcript_in_its_three_forms(running):
    workspace = running.workspace()
    running.spawn("anna", workspace, SLASH)
    running.ok("send", "anna", "/say more", "--wait")
    text = running.ctl("transcript", "anna").out
    assert "── Turn 1 · success · " in text
    assert "> hello\n" in text
    assert "  shell: echo out; exit 3 → exit 3" in text
    assert "\n    out\n" in text
    markdown = running.ctl("transcript", "anna", "--markdown").out
    assert "\n## Turn 2 · success · " in markdown
    assert "**Tool** `shell: echo out; exit 3` → `exit 3`" in markdown
    document = running.ok("transcript", "anna")
    turns = [turn for turn in document["turns"] if turn["turn"] is not None]
    assert [turn["turn"]["number"] for turn in turns] == [1, 2]
    tool = next(step["tool"] for step in turns[0]["steps"] if step["kind"] == "tool")
    assert (tool["status"], tool["exit_code"], tool["output"]) == ("failed", 3, "out")
    only = running.ok("transcript", "anna", "--turn", "-1")["turns"]
    assert [turn["turn"]["number"] for turn in only] == [2]
    assert running.ctl("transcript", "anna", "--turn", "9").code == 4
    assert running.ctl("transcript", "anna", "--json", "--markdown").code == 2


def test_a_transcript_drives_no_terminal(running):
    workspace = running.workspace()
    running.spawn("anna", workspace, "/say \x1b[2J\x1b]0;owned\x07\n/shell printf '\\033[31mred'")
    done = running.ctl("transcript", "anna")
    assert "\x1b" not in done.out
    assert "\\x1b[2J" in done.out


def test_tokens_are_added_up_for_an_agent_and_its_family(running):
    workspace = running.workspace()
    running.spawn("anna", workspace, '/tool spawn_agent {"name": "kid", "prompt": "/say hi"}')
    running.wait("kid", "idle")
    running.wait("anna", "idle")  # the child's report was a turn of its own
    turns = {name: [turn for turn in running.turns(name) if turn["usage"]] for name in ("anna", "kid")}
    used = {name: sum(turn["usage"]["inputTokens"] for turn in turns[name]) for name in turns}
    found = running.ok("usage", "anna")
    assert (found["turns"], found["usage"]["inputTokens"]) == (len(turns["anna"]), used["anna"])
    assert found["family"]["agents"] == 2
    assert found["family"]["usage"]["inputTokens"] == used["anna"] + used["kid"]
    assert [row["name"] for row in running.ok("usage")] == ["anna", "kid"]
    assert "anna and its 1" in running.ctl("usage").out


def test_a_companion_that_is_never_called_is_reported(daemon):
    daemon.start(agent=daemon.program('begin()\nfinish("hello")\n'))
    daemon.spawn("anna", daemon.workspace(), "work")
    (event,) = daemon.events("anna", "mcp:not-contacted")
    assert "never called Substrat's companion" in event["text"]


OLD = """#!/bin/sh
for word; do
    case $word in --sandbox|--trust|--stream-partial-output) echo "error: unknown option '$word'" >&2; exit 1;; esac
done
exec "{standin}" "$@"
"""


def test_a_version_that_knows_fewer_options_is_started_without_them(daemon):
    workspace = daemon.workspace()
    standin = daemon.agent
    old = daemon.program(OLD.format(standin=standin))
    daemon.start(agent=old, config=f"[agent]\nbind_ro = {needs_of(standin)}\n")
    daemon.ok("spawn", "anna", "-w", workspace, "/say hi")
    agent = daemon.wait("anna", "idle", "failed")
    assert (agent["state"], agent["turn"]["number"], agent["turn"]["result"]) == ("idle", 4, "hi")
    assert len(daemon.events("anna", "turn:retry")) == 3
    with daemon.wire() as wire:
        command = wire.call("agent.explain", agent="anna")["command"]
    assert "--sandbox" not in command.rpartition(" -- ")[2]
    daemon.ok("send", "anna", "/say again", "--wait")
    assert daemon.show("anna")["turn"]["number"] == 5


def needs_of(standin):
    """What must be seen for the stand-in to run, as the configuration's list."""
    return json.dumps([path for path in program.find(str(standin)).visible if os.path.exists(path)])


def test_the_version_that_a_turn_ran_is_told(daemon):
    source = daemon.directory / "versions" / "2026.10.01-e373342"
    source.mkdir(parents=True)
    daemon.program('begin()\nfinish("hello")\n').rename(source / "cursor-agent")
    link = daemon.directory / "cursor-agent"
    link.symlink_to(source / "cursor-agent")
    daemon.start(agent=link)
    daemon.spawn("anna", daemon.workspace(), "work")
    (started,) = daemon.events("anna", "turn:started")
    assert started["text"] == "turn 1 started (cursor-agent 2026.10.01-e373342)"


def test_the_agent_program_cannot_change_itself(daemon):
    source = """begin()
try:
    open(sys.argv[0], "ab").close()
    finish("changed")
except OSError as problem:
    finish(f"refused: {problem.strerror}")
"""
    daemon.start(agent=daemon.program(source))
    assert daemon.spawn("anna", daemon.workspace(), "work")["turn"]["result"] == "refused: Read-only file system"


def test_a_program_whose_sessions_are_no_chats_says_so(daemon):
    daemon.start(config='[agent]\nprogram = "claude"')
    work = daemon.workspace()
    listed = daemon.ctl("sessions", "-w", work)
    assert "sessions of claude can't be listed: `substratctl transcript NAME` shows the turns of an agent" in listed.err
    taken = daemon.ctl("spawn", "anna", "-w", work, "--adopt", "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21")
    assert "claude can't take a chat over: leave the session out" in taken.err
