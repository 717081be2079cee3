"""A hostile program's leftovers, as the daemon deletes them, a person looks at them, and git obeys them."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

from tests.redteam.hostile import PROGRAM, TRIED, said
from tests.support.terminal import Screen

# The daemon deletes

DEEP = """
os.chdir({place})
os.mkdir("locked")
open("locked/file", "w").close()
os.chmod("locked", 0)
for _ in range({depth}):
    os.mkdir("deeper")
    os.chdir("deeper")
os.chdir("/")
"""


@pytest.mark.slow
def test_a_tree_deeper_than_anything_can_follow_is_deleted(hostile, until):
    """In its own home, which goes with it; while it couldn't be deleted, nothing else would be."""
    try:
        deep = DEEP.format(place='os.path.expanduser("~/.cursor")', depth=3000)
        hostile.spawn("anna", hostile.workspace(), deep + "answer = 1")
        home = hostile.agents_directory(hostile.show("anna")) / "dot-cursor"
        with pytest.raises(OSError, match="too long"):  # the control
            os.stat(f"{home}{'/deeper' * 3000}")
        assert stat.S_IMODE((home / "locked").stat().st_mode) == 0, "the control"
        assert hostile.ok("send", "anna", "answer = 2", "--wait")["turn"]["result"] == "2"
        hostile.spawn("bert", hostile.workspace("other"))
        for name in ("anna", "bert"):
            assert hostile.ctl("rm", name).code == 0
        until(lambda: not any((hostile.state / "trash").iterdir()), "the emptying of the trash")
        assert "sweep broke" not in hostile.log
    finally:
        subprocess.run(["rm", "-rf", hostile.state], check=True)  # pytest's own deletion can't follow it either


# Other users execute, and git obeys


def test_no_program_that_it_leaves_runs_as_its_user_for_others(hostile, tmp_path):
    """A workspace that other users of the machine may enter, and a copy of a shell in it that runs as the daemon's user."""
    shutil.copy("/usr/bin/id", tmp_path / "id")
    (tmp_path / "id").chmod(0o6755)
    assert (tmp_path / "id").stat().st_mode & 0o6000 == 0o6000, "the control"
    work = hostile.workspace()
    code = """
import shutil
shutil.copy("/usr/bin/id", "copied")
os.mkdir("directory")
answer = [
    tried(lambda: os.chmod("copied", 0o6755)),
    tried(lambda: os.chmod("directory", 0o2755)),
    tried(lambda: os.open("made", os.O_CREAT | os.O_WRONLY, 0o6755)),
    tried(lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755)),
    tried(lambda: os.mknod("node", 0o106755)),
    tried(lambda: os.mkdir("another", 0o6755)),
    tried(lambda: os.chmod("copied", 0o755)),
]
"""
    assert said(hostile.spawn("anna", work, TRIED + code)) == ["EPERM"] * 5 + [None] * 2
    assert [name for name in os.listdir(work) if (work / name).stat().st_mode & 0o6000] == []


LINK = (
    TRIED
    + """
answer = {}
for name in (".git/config", ".git/hooks/pre-commit", ".envrc", "sub/.git/config"):
    answer[name] = tried(lambda: os.link(name, "linked-" + name.replace("/", "-")))
"""
)


def test_what_is_protected_gets_no_second_name(hostile):
    """A second name would be written to like any other file."""
    work, control = hostile.workspace(git=True), hostile.workspace("control", git=True)
    for place in (work, control):
        hostile.git(place, "init", "-q", "sub")
        (place / ".envrc").write_text("")
        (place / ".git" / "hooks").mkdir(exist_ok=True)
        (place / ".git" / "hooks" / "pre-commit").write_text("")
    command = [sys.executable, "-I", "-S", "-c", f"import json, os\n{LINK}\nprint(json.dumps(answer))"]
    outside = json.loads(subprocess.run(command, cwd=control, capture_output=True, check=True).stdout)
    assert set(outside.values()) == {None}, "the control"
    fresh = said(hostile.spawn("anna", work, LINK))
    hostile.ok("suspend", "anna")
    hostile.ok("resume", "anna", LINK, "--wait")
    for found in (fresh, said(hostile.wait("anna"))):
        assert set(found.values()) == {"EXDEV"}, found


def test_a_name_given_before_it_was_protected_is_told(hostile):
    """A repository that the agent makes is protected from the next turn on; a hard link made before leads into it still."""
    work = hostile.workspace()
    first = """
subprocess.run(["git", "init", "-q", "sub"], check=True)
open("sub/.git/hooks/post-checkout", "w").close()
os.link("sub/.git/config", "other")
os.link("sub/.git/hooks/post-checkout", "hook")
answer = 1
"""
    hostile.spawn("anna", work, first)
    assert not any("another name" in event["text"] for event in hostile.events("anna", "workspace:unprotected"))
    script = """
answer = [tried(lambda: open(f"sub/.git/{name}", "a").close()) for name in ("config", "hooks/post-checkout")]
open("other", "a").write("[core]\\n\\tfsmonitor = ./evil\\n")
"""
    assert said(hostile.ok("send", "anna", TRIED + script, "--wait")) == ["EROFS", "EROFS"], "the control: by its own name"
    assert "evil" in (work / "sub" / ".git" / "config").read_text()
    texts = [event["text"] for event in hostile.events("anna", "workspace:unprotected")]
    told = next(text for text in texts if "another name" in text)
    assert f"{work}/sub/.git/config" in told
    assert f"{work}/sub/.git/hooks/post-checkout" in told


# A person looks

BELL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"
ODD = re.compile("[^\n\t -~\xa0-\u2029\u202f-\U0010ffff]")
LOOKS = (
    ("ls",), ("show", "anna"), ("ls", "--tree"), ("logs", "anna"), ("events",), ("transcript", "anna"), ("inbox",),
    ("usage",), ("transcript", "anna", "--markdown"),
    ("sessions", "-w", "{work}"), ("export", "{session}", "-w", "{work}"), ("allow", "anna"), ("wait", "anna"),
)  # fmt: skip


def on_terminal(daemon, *words):
    """Give a command on a terminal, and return the terminal's text."""
    with Screen(daemon, *words, term="dumb") as screen:
        assert screen.end() in {0, 6}, (words, screen.shown)
    return screen.shown.replace("\r\n", "\n")


def test_no_look_at_what_an_agent_wrote_moves_the_cursor(daemon):
    """Names with newlines, and a status, messages, chats and results with escape sequences, as each command tells them."""
    daemon.start()
    work = daemon.workspace()
    arguments = [
        json.dumps({"text": BELL}), json.dumps({"text": BELL, "to": "operator"}), json.dumps({"question": BELL}),
    ]  # fmt: skip
    calls = [
        f"/tool {tool} {given}"
        for tool, given in zip(("report_status", "send_message", "ask_operator"), arguments, strict=True)
    ]
    names = 'mkdir "$(printf "a\\nb\\033]0;owned\\007")" && cd a* && git init -q . && git init -q "$(printf "x\\033[2Jy")"'
    anna = daemon.spawn("anna", work, "\n".join([*calls, f"/shell {names}", f"/shell printf '{BELL}'", f"/say {BELL}"]))
    assert anna["turn"]["outcome"] == "success"
    assert daemon.events("anna", "workspace:unprotected"), "the control: there are such names"
    assert len(daemon.ok("inbox")) == 2, "the control"
    (status,) = daemon.events("anna", "agent:status")
    assert status["text"].startswith("\x1b"), "the control: as it was said"
    assert "\x1b[2J" in daemon.show("anna")["turn"]["result"], "the control"
    assert "\x1b[2J" in daemon.ctl("export", "anna").out, "the control: a file gets it as it is"
    for look in LOOKS:
        seen = on_terminal(daemon, *(word.format(work=work, session=anna["session_id"]) for word in look))
        odd = {
            char for char in seen if (ord(char) < 32 or 127 <= ord(char) < 160 or char == "\u202e") and char not in "\n\t"
        }
        assert odd == set(), (look, seen)
        assert not any(line.startswith("b\\x1b") for line in seen.splitlines()), "a name doesn't begin a line of its own"


# A chat is read while it is swapped

SWAP = """
import ctypes
libc, number = ctypes.CDLL(None), 316 if os.uname().machine == "x86_64" else 276
chats = os.path.expanduser("~/.cursor/chats")
((place, one),) = [(top, name) for top, names, _ in os.walk(chats) for name in names if name == session]
os.chdir(os.path.join(place, one))
os.symlink(target, "other")
def swap():
    libc.syscall(number, -100, b"store.db", -100, b"other", 2)  # renameat2, AT_FDCWD, RENAME_EXCHANGE
"""


@pytest.mark.slow
def test_a_chat_that_is_swapped_for_a_link_while_it_is_read_shows_nothing_else(daemon, until):
    victim, work = daemon.workspace("victim"), daemon.workspace()
    bert = daemon.start().spawn("bert", victim, "canary-of-bert")
    secret = daemon.chat(bert) / "store.db"
    assert "canary" in daemon.ctl("export", bert["session_id"], "-w", victim).out, "the control: it can be exported"
    daemon.stop()
    hostile = daemon.start(agent=daemon.program(PROGRAM))
    (work / "target").write_text(str(secret))
    code = f"""
target = open("target").read()
back = os.getcwd()
{SWAP}
swapped = 0
while not os.path.exists(back + "/go"):
    for _ in range(20):
        swap()
    swapped += 20
    if swapped == 20:
        open(back + "/swapping.part", "w").write(session)
        os.rename(back + "/swapping.part", back + "/swapping")
answer = swapped
"""
    hostile.spawn("anna", work, "answer = 0")  # its chat is among the user's after the first turn
    hostile.ok("send", "anna", code)
    until((work / "swapping").exists, "the swapping")
    session = (work / "swapping").read_text()
    (chat,) = (hostile.home / ".cursor" / "chats").glob(f"*/{session}")
    until(lambda: b"canary-of-bert" in (chat / "store.db").read_bytes(), "the control: a reader that follows gets it")
    exported = [hostile.ctl(*words) for words in [("export", session, "-w", work), ("sessions", "-w", work)] * 15]
    assert not any("canary" in done.out + done.err for done in exported)
    (work / "go").touch()
    assert said(hostile.wait("anna")) > 20
    assert "canary" in hostile.ctl("export", bert["session_id"], "-w", victim).out
