"""Suspend stops the turn and keeps the session; resume continues exactly that session."""

import json
import shutil
import signal

import pytest

# Ignores what its prompt names, and says with a file which signals it got.
STUBBORN = """
begin()
number = int(prompt.split()[0])
ignored = {signal.SIGINT, signal.SIGTERM} if number == 2 else {signal.SIGINT} if number == 1 else set()


def note(signal_number, frame):
    mark(f"got-{number}-{signal_number}")
    if signal_number not in ignored:
        sys.exit(128 + signal_number)


for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, note)
mark(f"ready-{number}")
while True:
    os.kill(os.getpid(), signal.SIGSTOP) if number == 3 else signal.pause()
"""


def check_suspended(daemon, name="anna"):
    agent = daemon.ok("suspend", name)
    assert (agent["state"], agent["turn"]["outcome"]) == ("suspended", "interrupted")
    assert agent["turn"]["ended_at"]
    assert daemon.sandboxed() == set(), "when suspend has answered the process tree is gone"
    return agent


def test_the_rungs_are_sigint_sigterm_and_the_kill_also_of_a_stopped_agent(daemon, until):
    daemon.start(agent=daemon.program(STUBBORN), config="[turns]\nstop_grace = 0.3\n")
    work = daemon.workspace()
    got = {0: {signal.SIGINT}, 1: {signal.SIGINT, signal.SIGTERM}, 2: {signal.SIGINT, signal.SIGTERM}, 3: set()}
    for number, signals in got.items():
        daemon.ok("spawn", f"a{number}", "-w", work, str(number))
        until((work / f"ready-{number}").exists, "the agent's start")
        until(lambda number=number: daemon.show(f"a{number}")["session_id"], "the session")
        assert daemon.sandboxed()
        agent = check_suspended(daemon, f"a{number}")
        if number != 3:
            found = {int(path.name.rpartition("-")[2]) for path in work.glob(f"got-{number}-*")}
            assert found == signals, number
        if number < 2:
            assert agent["turn"]["exit_code"] == [130, 143][number]


def test_send_with_wait_to_a_suspended_agent_ends_with_its_turn(running, until):
    running.spawn("anna", running.workspace(), "one")
    running.ok("suspend", "anna")
    waiting = running.follow("send", "anna", "--wait", "two")
    until(lambda: running.show("anna")["unread"] == 1, "the prompt")
    running.ok("resume", "anna")
    assert waiting.wait(20) == 0
    assert running.show("anna")["turn"]["result"] == "two"


def test_resume_with_wait_ends_with_the_prompt_that_waited(running):
    running.spawn("anna", running.workspace(), "one")
    running.ok("suspend", "anna")
    running.ok("send", "anna", "/exit 3")
    done = running.ctl("resume", "anna", "--wait", "--timeout", "20", "--json")
    assert done.code == 5, done
    assert running.show("anna")["turn"]["exit_code"] == 3


RESUMED = """
begin()
count = len([name for name in os.listdir() if name.startswith("turn-")]) + 1
mark(f"turn-{count}", json.dumps({"argv": sys.argv, "prompt": prompt}))
if count == 1:
    signal.pause()
finish(f"turn {count}")
"""


def turn(work, number):
    return json.loads((work / f"turn-{number}").read_text())


def test_a_first_turn_that_left_no_chat_behind_gets_its_task_again(running):
    """An interrupted first turn isn't kept by the program: to go on in an empty chat, the agent needs the task."""
    work = running.workspace()
    running.held("anna", work, before="the very first task\n")
    agent = running.ok("suspend", "anna")
    assert not (running.chat(agent) / "store.db").exists(), "the stand-in drops a chat without a finished turn"
    (work / "go").touch()
    done = running.ctl("resume", "anna", "--wait", "--timeout", "20")
    assert done.code == 0, done
    assert "the very first task" in running.events("anna", "user")[-1]["text"]


@pytest.mark.parametrize("how", ["store.db", "the chat", "all chats"])
def test_a_session_whose_store_is_missing_is_never_started_afresh(running, how):
    work = running.workspace()
    running.spawn("anna", work, "remember me")
    running.ok("send", "anna", "/sleep 1000")
    running.wait("anna", "running")
    running.ok("suspend", "anna")
    agent = running.show("anna")
    chat = running.chat(agent)
    path = {"store.db": chat / "store.db", "the chat": chat, "all chats": running.home / ".cursor" / "chats"}[how]
    away = running.directory / "away"
    shutil.move(path, away)
    done = running.ctl("resume", "anna", "/recall")
    assert (done.code, done.out) == (1, "")
    assert agent["session_id"] in done.error
    assert "store.db" in done.error or str(chat) in done.error
    assert running.show("anna") == agent, "still suspended, and nothing changed"
    assert not running.sandboxed()
    if path.exists():
        shutil.rmtree(path)
    shutil.move(away, path)
    done = running.ctl("resume", "anna", "/recall", "--wait", "--timeout", "20")
    assert done.code == 0, done
    assert "remember me" in done.out
    assert running.show("anna")["session_id"] == agent["session_id"]


def test_a_missing_session_also_stops_the_next_prompt(running):
    """An idle agent's next turn resumes its session too."""
    work = running.workspace()
    agent = running.spawn("anna", work, "remember me")
    chat = running.chat(agent)
    shutil.move(chat, running.directory / "away")
    done = running.ctl("send", "anna", "--wait", "--timeout", "20", "/recall")
    assert done.code in {1, 5}
    assert agent["session_id"] in done.err + json.dumps(running.show("anna")["turn"])
    assert "earlier turn" not in json.dumps(running.show("anna")["turn"]["result"])


def test_suspend_all_and_resume_all(running, until):
    work = running.workspace()
    running.held("anna", work)
    running.spawn("bert", work, "idle one")
    running.spawn("carl", work)
    running.spawn("dora", work)
    running.ok("end", "dora")
    since = {name: running.show(name)["attention"]["since"] for name in ("bert", "carl", "dora")}
    agents = running.ok("suspend", "--all")
    assert {agent["name"]: agent["state"] for agent in agents} == dict.fromkeys(["anna", "bert", "carl"], "suspended")
    assert not running.sandboxed()
    running.stop()
    running.start()
    states = {agent["name"]: agent["state"] for agent in running.ok("ls")}
    assert states == {"anna": "suspended", "bert": "suspended", "carl": "suspended", "dora": "ended"}
    (work / "go").touch()
    agents = running.ok("resume", "--all")
    assert {agent["name"] for agent in agents} == {"anna", "bert", "carl"}
    assert {name: running.show(name)["attention"]["since"] for name in since} == since, "they do what they did before"
    states = {agent["name"]: agent for agent in running.ok("wait", "anna", "bert", "carl", "--timeout", "20")}
    assert {name: agent["state"] for name, agent in states.items()} == dict.fromkeys(["anna", "bert", "carl"], "idle")
    assert states["anna"]["turn"]["number"] == 2


def test_resume_all_leaves_those_that_were_suspended_by_name(running):
    work = running.workspace()
    for name in ("anna", "bert", "carl"):
        running.spawn(name, work)
    running.ok("suspend", "anna")
    running.ok("suspend", "--all")
    running.stop()
    running.start()
    done = running.ctl("resume", "--all")
    assert (done.out, done.error) == ("2 agents resumed\n", "substratctl: suspended by name, and left so: anna")
    assert running.show("anna")["state"] == "suspended"
    assert running.ctl("resume", "--all").out == "1 agent resumed\n", "nobody else is left"
    running.ok("suspend", "--all")
    running.ok("resume", "bert")
    running.ok("suspend", "bert")
    assert running.ctl("resume", "--all").out == "2 agents resumed\n"


def test_resume_all_goes_on_after_one_that_cannot(running):
    work = running.workspace()
    agents = {}
    for name in ("anna", "bert"):
        running.spawn(name, work, f"I am {name}")
        running.ok("send", name, "/sleep 1000")
        running.wait(name, "running")
        agents[name] = running.ok("suspend", name)
    shutil.rmtree(running.chat(agents["anna"]))
    done = running.ctl("resume", "--all", "/recall")
    assert done.code == 1
    assert "anna" in done.err
    assert running.show("anna")["state"] == "suspended"
    assert "I am bert" in running.wait("bert")["turn"]["result"]
