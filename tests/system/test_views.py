"""What a person with many agents sees: lists that fit, what runs, whose silence lasts, several agents' logs."""

import os
import re

import pytest

from tests.support.terminal import Screen
from tests.support.waiting import wait_until


@pytest.fixture
def busy(shared):
    """Agents that run a command, failed, are frozen and have nothing to do."""
    work = shared.workspace()
    shared.spawn("idle", work, "/shell echo once")
    shared.spawn("broken-agent-with-a-long-name-that-would-wrap-a-row-of-eighty", work, "/exit 3")
    agent = shared.held("busy", work)
    wait_until(lambda: shared.show("busy")["activity"], "the tool call")
    yield shared, agent
    (work / "go").touch()
    shared.wait("busy")


def on_terminal(daemon, columns, *words, lines=50):
    """Run a command whose standard output is a terminal of so many columns and lines; returns its lines."""
    with Screen(daemon, *words, size=(lines, columns)) as screen:
        assert screen.end() == 0, screen.shown
    return screen.shown.split("\r\n")[:-1]


def test_a_list_shows_who_needs_a_person_and_what_runs_and_fits(busy):
    daemon, _ = busy
    for columns in (80, 200):
        raw = on_terminal(daemon, columns, "ls")
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in raw]
        assert max(map(len, lines)) <= columns
        assert "\x1b[31mfailed" in raw[1], "states have colours"
        rows = [line for line in lines[1:-1] if not line.startswith(" ")]
        assert [row.split()[0][:6] for row in rows] == ["broken", "busy", "idle"]
        assert "shell: touch ready" in rows[1]
        assert re.search(r" \d+s ", rows[1])
        assert lines[-1] == "3 agents: 1 failed, 1 working, 1 idle"
    assert daemon.ctl("ls", "-q", "--state", "running").out == "busy\n"


def test_show_says_what_runs_since_when_it_is_silent_and_that_it_is_frozen(busy):
    daemon, agent = busy
    activity = daemon.show("busy")["activity"]
    assert activity["text"].startswith("shell: touch ready-busy;")
    assert activity == next(one for one in daemon.ok("ls") if one["id"] == agent["id"])["activity"]
    assert "shell: echo once → exit 0" in daemon.show("idle")["activity"]["text"]
    shown = daemon.ctl("show", "busy", "idle").out
    assert re.search(r"doing +shell: touch ready-busy", shown)
    assert re.search(r"silent for +\d+s \(since ", shown)
    assert re.search(r"did last +shell: echo once", shown)
    assert "frozen" not in shown
    daemon.ok("suspend", "busy", "--freeze")
    shown = daemon.ctl("show", "busy").out
    assert re.search(r"state +suspended \(frozen: ", shown)
    assert re.search(r"doing +shell: touch ready-busy", shown)
    daemon.ok("resume", "busy")


def test_show_ends_with_what_is_to_be_done_where_its_head_scrolls_away(busy):
    daemon, _ = busy
    name = "broken-agent-with-a-long-name-that-would-wrap-a-row-of-eighty"
    last = on_terminal(daemon, 400, "show", name, lines=16)[-1]
    assert last.startswith(f"{name} needs you: ")
    assert last.endswith(f"or accept {name}")
    assert "needs you" not in on_terminal(daemon, 400, "show", name)[-1]


def test_activity_outlives_the_daemon(running):
    work = running.workspace()
    running.spawn("anna", work, "/shell echo one\n/shell echo two")
    running.held("bert", work)
    wait_until(lambda: running.show("bert")["activity"], "the tool call")
    before = {agent["name"]: agent["activity"] for agent in running.ok("ls")}
    assert "echo two" in before["anna"]["text"]
    running.kill()
    running.start()
    assert {agent["name"]: agent["activity"] for agent in running.ok("ls")} == before
    (work / "go").touch()
    running.wait("bert")


def test_logs_show_a_running_command_as_running_and_a_failed_ones_output(busy):
    daemon, _ = busy
    last = daemon.ctl("logs", "busy").out.splitlines()[-1]
    assert last.startswith("  shell: touch ready-busy")
    assert last.endswith("… running")
    work = daemon.directory / "work"
    daemon.spawn("carl", work, "/shell seq 30; echo why >&2; exit 4\n/shell echo fine")
    lines = daemon.ctl("logs", "carl").out.splitlines()
    place = next(number for number, line in enumerate(lines) if "✗ exit 4" in line)
    assert lines[place + 1] == "    … 21 more lines, 'substratctl transcript NAME --whole' shows them"
    assert lines[place + 2 : place + 12] == [f"    {number}" for number in range(22, 31)] + ["    why"]
    assert "    fine" not in lines


def test_several_agents_logs_are_in_order_and_followed_to_their_ends(running):
    work = running.workspace()
    for name in ("anna", "bert", "carl"):
        running.spawn(name, work, f"I am {name}")
    both = running.ctl("logs", "bert", "anna", "--json").lines
    ids = {running.show(name)["id"] for name in ("anna", "bert")}
    everything = running.ctl("events", "--json").lines
    assert both == [event for event in everything if event["agent"] in ids]
    shown = running.ctl("logs", "bert", "nobody", "anna")
    assert (shown.code, "nobody" in shown.error) == (4, True), shown
    assert re.search(r"^\d\d:\d\d:\d\d anna  I am anna$", shown.out, re.MULTILINE)
    assert len(running.ctl("logs", "bert", "anna", "-n", "1", "--json").lines) == 2
    follower = running.follow("logs", "-f", "anna", "bert", "--json")
    heard = [follower.stdout.readline() for _ in both]
    running.ok("send", "bert", "--wait", "once more")
    running.ok("rm", "anna")
    running.ok("end", "bert")
    rest = follower.stdout.read()
    assert follower.wait(20) == 0, follower.stderr.read()
    kinds = [line for line in b"".join(heard).splitlines() + rest.splitlines() if b"once more" in line]
    assert kinds, "what came after is followed too"
    assert b'"agent:ended"' in rest
    follower.stdout.close()
    follower.stderr.close()


WORDS = """
begin()
emit("assistant", message={"role": "assistant", "content": [{"type": "text", "text": "half a li"}]}, timestamp_ms=1)
mark("said")
wait_for("go")
finish()
"""


def test_text_without_a_following_event_is_shown_at_once_elsewhere_than_on_a_terminal(daemon):
    daemon.start(agent=daemon.program(WORDS))
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "hi")
    wait_until((work / "said").exists, "the words")
    wait_until(lambda: daemon.events("anna", "assistant:delta"), "the fragment")
    for words in (("logs", "anna", "-f"), ("events", "-f")):
        follower = daemon.follow(*words)
        seen = b""
        while b"half a li" not in seen:
            seen += os.read(follower.stdout.fileno(), 4096)
        follower.terminate()
        follower.communicate()
    (work / "go").touch()
    assert daemon.wait("anna")["turn"]["outcome"] == "success"


def test_a_workspace_that_cannot_be_written_to_is_refused_for_what_it_is(shared):
    work = shared.workspace()
    work.chmod(0o555)
    done = shared.ctl("spawn", "anna", "-w", work)
    assert done.code == 1
    assert "has the mode 0555" in done.error
    assert "chmod u+rwx" in done.error
    work.chmod(0o755)
    done = shared.ctl("spawn", "anna", "-w", "/sys/fs/cgroup")
    assert (done.code, shared.ok("ls")) == (1, [])


def test_the_doctor_judges_the_running_daemons_path_and_disk(shared):
    environment = shared.environment(SUBSTRAT_SOCKET=str(shared.socket), PATH="/nonexistent")
    done = shared.ctl("doctor", "--json", environment=environment)
    checks = {check["name"]: check for check in done.json["checks"]}
    assert done.json["agents_can_run"], done
    assert "cursor-agent-standin" in checks["agent program"]["detail"]
    assert str(shared.directory) in checks["disk"]["detail"]


def test_chats_have_titles_and_the_beginning_of_an_id_does(running):
    work = running.workspace()
    agent = running.spawn("anna", work, "Make the tests pass\nand commit.")
    (chat,) = running.ok("sessions", "-w", work)
    assert chat["title"] == "Make the tests pass and commit."
    begin = agent["session_id"][:6]
    assert "Make the tests pass" in running.ctl("export", begin, "-w", work).out
    running.ok("rm", "anna")
    assert running.ok("spawn", "bert", "-w", work, "--adopt", begin)["session_id"] == agent["session_id"]
    done = running.ctl("spawn", "carl", "-w", work, "--adopt", "0123456")
    assert (done.code, "begins with '0123456'" in done.error) == (4, True), done


def test_a_shells_prompt_says_where_one_is(shared):
    work = shared.workspace()
    shared.spawn("anna", work)
    with Screen(shared, "exec", "anna") as screen:
        screen.until(f"[anna] {work} ")
        screen.type("exit\n")
        assert screen.end() == 0
