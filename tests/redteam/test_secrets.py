"""What a hostile program finds of secrets: its own login and nothing else; and where a secret given to an agent ends up."""

import json
import os
from pathlib import Path

import pytest

from tests.redteam.hostile import DOOR, PROGRAM

CANARY = "canary-5f3a1c77e0"
LOGIN = "login-9b1d2e44aa"
DAEMONS = "daemons-77aa01bc3d"

LOOK = """
def text(path):
    try:
        return open(path, "rb").read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""
found = {"environment": json.dumps(dict(os.environ))}
for process in os.listdir("/proc"):
    if process.isdigit():
        for name in ("environ", "cmdline", "status", "mountinfo"):
            found[f"{process}/{name}"] = text(f"/proc/{process}/{name}")
for top, directories, names in os.walk("/"):
    directories[:] = [one for one in directories if os.path.join(top, one) not in ("/proc", "/usr", "/sys", "/dev")]
    for name in names:
        path = os.path.join(top, name)
        if os.path.isfile(path) and name != "words":
            found[path] = text(path)
words = json.load(open("words"))
# Not by the words themselves: what is answered is stored.
answer = [sorted(name for name, content in found.items() if word in content) for word in words]
"""


def spied(daemon, name, work, code=LOOK):
    agent = daemon.spawn(name, work, DOOR + code)
    assert agent["turn"]["outcome"] == "success", agent["turn"]["error"]
    return json.loads(agent["turn"]["result"])


def with_secrets(daemon):
    """Start the daemon with a login of the agents' and with secrets of its own in its environment."""
    (daemon.home / ".secret").write_text(DAEMONS)
    more = {"CURSOR_API_KEY": LOGIN, "AWS_SECRET_ACCESS_KEY": DAEMONS, "GITHUB_TOKEN": DAEMONS, "PASSWORD": DAEMONS}
    return daemon.start(agent=daemon.program(PROGRAM), environment=more, executed=True)


def test_an_agent_sees_no_secret_but_its_own_login(daemon):
    with_secrets(daemon)
    assert DAEMONS in Path(f"/proc/{daemon.process.pid}/environ").read_text(), "the control: outside it is there"
    work = daemon.workspace()
    (work / "words").write_text(json.dumps([LOGIN, DAEMONS]))
    for _ in range(2):
        found = spied(daemon, "anna", work) if daemon.ok("ls") == [] else again(daemon)
        login, daemons = found
        assert daemons == []
        assert login, "the control: its own login is there"
        assert all(place == "environment" or place.endswith("/environ") for place in login), login


def again(daemon):
    daemon.ok("suspend", "anna")
    daemon.ctl("resume", "anna", "--wait", "--prompt-file", "-", stdin=(DOOR + LOOK).encode())
    return json.loads(daemon.wait("anna")["turn"]["result"])


def places_of(daemon, word, *but):
    """The files of the daemon that hold a word, and whether its answers and its log do."""
    found = set()
    for top, _, names in os.walk(daemon.state):
        for name in names:
            path = Path(top, name)
            if word.encode() in path.read_bytes():
                found.add(str(path.relative_to(daemon.state)))
    for command in (("ls", "--json"), ("events", "--json"), ("inbox", "--json"), ("ls", "--tree"), ("doctor",), *but):
        done = daemon.ctl(*command)
        if word.encode() in done.raw or word in done.err:
            found.add(command[0])
    if word in daemon.log:
        found.add("log")
    return found


@pytest.mark.slow
def test_a_login_is_written_nowhere(daemon):
    """Not in the state, the log, an event, an error, the command line that `show` and `explain` tell, or a backup of it."""
    with_secrets(daemon)
    agent = daemon.spawn("anna", daemon.workspace(), "raise SystemExit('no result')")
    assert agent["turn"]["outcome"] == "error"
    with daemon.wire() as wire:
        explained = json.dumps(wire.call("agent.explain", agent="anna"))
    assert places_of(daemon, LOGIN, ("show", "anna"), ("logs", "anna", "--json")) == set()
    assert LOGIN not in explained
    assert places_of(daemon, "anna"), "the control: other words are found"


@pytest.mark.slow
def test_what_one_agent_is_told_is_no_other_agents(daemon):
    """A prompt is the operator's to see: in its agent's own directory, inbox row and events, and nowhere else."""
    with_secrets(daemon)
    work, other = daemon.workspace(), daemon.workspace("other")
    daemon.spawn("anna", work, f"secret = {CANARY!r}\nanswer = 1")
    (other / "words").write_text(json.dumps([CANARY[:6] + "X", CANARY]))
    (other / "own").write_text(CANARY[:6] + "X")
    found = spied(daemon, "bert", other)
    control, canary = found
    assert control, "the control: what is there is found"
    assert canary == []
    code = """
door = Door()
answer = [door.call(tool) for tool in ("whoami", "list_agents", "check_inbox")]
answer.append(door.call("send_message", to="anna", text="tell me"))
"""
    assert CANARY not in json.dumps(spied(daemon, "carl", other, code))
    anna = daemon.show("anna")["id"]
    own = {place for place in places_of(daemon, CANARY) if not place.startswith((f"agents/{anna}/", "substrat.db"))}
    # `reserve` is the second name of the database's log.
    assert own <= {"events", "reserve"}, own
    assert CANARY not in daemon.log
