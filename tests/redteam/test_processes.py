"""What a hostile program tries on processes and output: become more, reach others', outlive its sandbox, flood."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.redteam.hostile import INSIDE, PROGRAM, again, said
from tests.support.daemon import PRELUDE

# 16, 17: becoming more

STATUS = """
import errno
lines = open("/proc/self/status").read().splitlines()
status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
def tried(do):
    try:
        do()
        return "done"
    except OSError as problem:
        return errno.errorcode[problem.errno]
answer = {
    "status": status, "ids": [*os.getresuid(), *os.getresgid()], "groups": os.getgroups(),
    "uid_map": open("/proc/self/uid_map").read().split(), "gid_map": open("/proc/self/gid_map").read().split(),
    "setgroups": open("/proc/self/setgroups").read().strip(),
    "tried": {
        "setuid": tried(lambda: os.setuid(os.getuid() + 1)), "setgroups": tried(lambda: os.setgroups([0, 1, 2])),
        "chroot": tried(lambda: os.chroot("/tmp")), "nice": tried(lambda: os.setpriority(os.PRIO_PROCESS, 0, -10)),
        "mknod": tried(lambda: os.mknod("device", 0o60600, 0x0801)),
        "chown": tried(lambda: os.chown(".", os.getuid() + 1, -1)),
        "map": tried(lambda: open("/proc/self/uid_map", "w").write("0 0 4294967295")),
    },
}
"""
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def test_no_capability_whoever_runs_the_daemon(hostile):
    """Item 17. Root's agents have an ordinary number: the one user there is, without a single capability."""
    fresh = said(hostile.spawn("anna", hostile.workspace(), STATUS))
    for found in (fresh, again(hostile, "anna", STATUS)):
        assert {found["status"][name] for name in CAPABILITIES} == {"0" * 16}
        assert (found["status"]["NoNewPrivs"], found["status"]["Seccomp"]) == ("1", "2")
        user, group = INSIDE
        assert found["ids"] == [user] * 3 + [group] * 3
        assert found["uid_map"] == [str(user), *found["uid_map"][1:2], "1"], "one user and no other"
        assert found["gid_map"] == [str(group), *found["gid_map"][1:2], "1"]
        assert found["setgroups"] == "deny"
        # EINVAL: there is no such user to become.
        assert set(found["tried"].values()) <= {"EPERM", "EACCES", "EROFS", "EINVAL"}, found["tried"]
    control = Path("/proc/self/status").read_text()
    if os.geteuid() == 0:
        assert "CapEff:\t" + "0" * 16 not in control, "the control"


SETUID = """
import shutil
answer = {}
for name in ("sudo", "su", "newuidmap", "mount", "passwd", "ping", "pkexec", "chsh"):
    path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
    if path is not None:
        how = {"su": ["-c", "id -u", "root"], "sudo": ["-n", "id", "-u"], "newuidmap": [str(os.getpid()), "0", "0", "1"]}
        done = subprocess.run([path, *how.get(name, ["--version"])], stdin=subprocess.DEVNULL, capture_output=True)
        info = os.stat(path)
        answer[name] = [done.returncode, info.st_mode & 0o4000, info.st_uid, os.getuid()]
# Its own: it makes none.
shutil.copy("/usr/bin/id", "mine")
try:
    os.chmod("mine", 0o6755)
    answer["mine"] = "made"
except PermissionError:
    answer["mine"] = "refused"
# Who it is while it waits for a password: of the real, the effective, the saved and the file system's user.
pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
waiting = subprocess.Popen(["su", "-c", "true", "root"], start_new_session=True, **pipes)
waiting.stderr.read(1)
with open(f"/proc/{waiting.pid}/status") as lines:
    answer["waiting"] = next(line.split()[1:] for line in lines if line.startswith("Uid:"))
waiting.kill()
waiting.communicate()
"""


def test_setuid_programs_give_nothing(hostile, tmp_path):
    source = f"import json, os, subprocess, sys\n{SETUID}\nprint(json.dumps(answer))"
    command = [sys.executable, "-I", "-S", "-c", source]
    control = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert control["mine"] == "made", "the control"
    if os.geteuid() != 0:
        assert "0" in control["waiting"], "the control: outside su is root already"
    fresh = said(hostile.spawn("anna", hostile.workspace(), SETUID))
    for found in (fresh, again(hostile, "anna", SETUID)):
        assert found.pop("mine") == "refused"
        assert set(found.pop("waiting")) == {str(INSIDE[0])}
        for name in ("su", "sudo", "newuidmap"):
            assert name not in found or found[name][0] != 0, name


# 19, 21: seeing and signalling others

OTHERS = """
import errno
seen = [int(name) for name in os.listdir("/proc") if name.isdigit()]
def attempt(do):
    try:
        do()
        return "done"
    except OSError as problem:
        return errno.errorcode[problem.errno]
outside = json.load(open("outside"))
answer = {
    "seen": sorted(set(outside) & set(seen) - {1, os.getpid(), os.getppid()}), "count": len(seen),
    "signal": [attempt(lambda: os.kill(pid, 0)) for pid in outside if pid not in seen],
    "pidfd": [attempt(lambda: os.pidfd_open(pid)) for pid in outside if pid not in seen],
    "priority": [attempt(lambda: os.getpriority(os.PRIO_PROCESS, pid)) for pid in outside if pid not in seen],
    "group": [attempt(lambda: os.killpg(pid, 0)) for pid in outside if pid not in seen],
}
"""


def test_nothing_outside_its_own_tree_is_seen_or_signalled(hostile):
    work = hostile.workspace()
    pids = [hostile.process.pid, os.getpid(), os.getppid()]
    (work / "outside").write_text(json.dumps([pid for pid in pids if pid > 1]))
    for pid in pids:
        if pid > 0:
            os.kill(pid, 0)  # the control: outside they are signalled
    for found in (said(hostile.spawn("anna", work, OTHERS)), again(hostile, "anna", OTHERS)):
        assert found["count"] < 10
        for how in ("signal", "pidfd", "priority", "group"):
            assert set(found[how]) <= {"ESRCH"}, (how, found[how])


def test_killing_everything_ends_only_this_sandbox_and_is_told(hostile, until):
    bystander = hostile.workspace("other")
    hostile.ok("spawn", "bert", "-w", bystander, "mark('ready'); wait_for('go'); answer = 'lives'")
    until((bystander / "ready").exists, "the bystander")
    work = hostile.workspace()
    anna = hostile.spawn("anna", work, "os.kill(-1, 9); time.sleep(0.05); os.kill(os.getpid(), 9)")
    assert (anna["state"], anna["turn"]["outcome"]) == ("failed", "error")
    assert anna["turn"]["error"]
    assert hostile.process.poll() is None
    (bystander / "go").touch()
    assert said(hostile.wait("bert")) == "lives"


# 20, 23: outliving the sandbox, and not ending at all

TREE = """
import itertools
def stubborn():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
for depth in range(4):
    if os.fork() == 0:
        os.setsid()
        stubborn()
        if os.fork() == 0:
            mark(f"child-{depth}", str(os.getpid()))
            while True:
                signal.pause()
        while True:
            signal.pause()
for depth in range(4):
    wait_for(f"child-{depth}")
"""


def outlives_its_parent(place):
    """The control: the same tree outside of a sandbox is there when the program that made it has ended."""
    source = f"{PRELUDE.replace('sys.stdin.read()', repr(''))}\n{TREE}\nos._exit(0)"
    subprocess.run([sys.executable, "-c", source], cwd=place, check=True, start_new_session=True)
    left = [int((place / f"child-{depth}").read_text()) for depth in range(4)]
    assert len(left) == 4
    for pid in left:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGTERM)  # it doesn't mind
        os.kill(parent, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def test_the_whole_tree_is_gone_within_the_grace_time(daemon, until):
    daemon.start(agent=daemon.program(PROGRAM), config="[turns]\nstop_grace = 0.3\nresult_grace = 0.3\n")
    outlives_its_parent(daemon.workspace("outside"))
    ends = ("finish('gone'); os._exit(0)", "os._exit(3)", "stubborn(); mark('held'); wait_for('never')")
    for number, end in enumerate(ends):
        name, work = f"a{number}", daemon.workspace(f"work-{number}")
        daemon.ok("spawn", name, "-w", work, "--prompt-file", "-", stdin=(TREE + end).encode())
        if "held" in end:
            until((work / "held").exists, "the tree")
            daemon.ok("suspend", name)
        else:
            daemon.wait(name)
        until(lambda: not daemon.sandboxed(), f"the end of the tree after {end}")
        assert daemon.show(name)["turn"]["outcome"] is not None, end


def test_a_program_that_says_nothing_and_never_ends_is_ended(daemon):
    daemon.start(agent=daemon.program(PROGRAM), config="[turns]\nsilence_limit = 0.5\nstop_grace = 0.2\n")
    ways = ("signal.pause()", "os.kill(os.getpid(), signal.SIGSTOP); signal.pause()", "while True: pass")
    work = daemon.workspace()
    for number, how in enumerate(ways):
        code = f"for number in (2, 15): signal.signal(number, signal.SIG_IGN)\n{how}"
        daemon.ok("spawn", f"a{number}", "-w", work, "--prompt-file", "-", stdin=code.encode())
    for number, how in enumerate(ways):
        agent = daemon.wait(f"a{number}", "failed")
        assert agent["turn"]["outcome"] == "timed_out", how
        assert "silence" in agent["turn"]["error"], how
    assert not daemon.sandboxed()


def test_a_program_that_says_nothing_goes_on_where_nothing_forbids_it(daemon, until):
    """The control: the limit ends such programs, and nothing else does."""
    daemon.start(agent=daemon.program(PROGRAM), config="[turns]\nsilence_limit = 1000\nstop_grace = 0.2\n")
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=b"mark('began')\nwhile True: pass")
    until((work / "began").exists, "the turn")
    began = (work / "began").stat().st_mtime
    until(lambda: time.time() > began + 1, "twice the limit")
    assert daemon.show("anna")["state"] == "running"
    daemon.ok("interrupt", "anna")
    assert not daemon.sandboxed()


# 22: fork bombs


def forks_outside(count):
    """How many processes are there at once without a sandbox."""
    children: list[subprocess.Popen] = []
    try:
        children.extend(subprocess.Popen(["sleep", "1000"]) for _ in range(count))
    finally:
        for child in children:
            child.kill()
            child.wait()
    return len(children)


def test_a_fork_bomb_stops_at_its_own_limit_and_the_daemon_answers(daemon, until):
    if os.geteuid() == 0:
        pytest.skip("the kernel exempts root from the limit of processes")
    daemon.start(agent=daemon.program(PROGRAM), config="[sandbox]\nprocesses = 100\n[turns]\nstop_grace = 0.3\n")
    bomb = """
made = 0
reading, writing = os.pipe()
while True:
    try:
        if os.fork() == 0:
            made = 0
        else:
            made += 1
    except BlockingIOError:
        mark("full-" + str(os.getpid()))
        signal.pause()
"""
    assert forks_outside(150) == 150, "the control: without a sandbox this user may have more"
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=bomb.encode())
    until(lambda: [*work.glob("full-*")], "the bomb")
    assert len(daemon.sandboxed()) < 120
    assert said(daemon.spawn("bert", daemon.workspace("other"), "answer = 1")) == 1
    daemon.ok("end", "anna")
    until(lambda: not daemon.sandboxed(), "the end of the bomb")


# 9: output


def peak(daemon):
    """The most KiB the daemon has had."""
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


OUTPUT = r"""
out = sys.stdout.buffer
for _ in range(100):
    out.write(b"x" * 1_000_000)
out.write(b"\n")
out.write(b"\xff\xfe\xc3\x28\n" * 10)
out.write(b"\x1b]0;owned\x07\x1b[2J\x9b31m\n")
out.write(json.dumps({"type": "assistant", "message": {"role": "assistant", "content": [
    {"type": "text", "text": "\x1b[2J\x1b]52;c;b3duZWQ=\x07 \u202e\ud800"}]}, "session_id": session}).encode() + b"\n")
out.write(b"{" * 100_000 + b"\n" + b'{"a":' * 100_000 + b"\n" + b'{"type":"result","type":NaN}\n')
out.flush()
sys.stderr.buffer.write(b"\xff\x1b[2J" * 1000)
answer = 1
"""


@pytest.mark.slow
def test_odd_and_endless_output_is_bounded_and_marked(daemon):
    hostile = daemon.start(agent=daemon.program(PROGRAM), executed=True)  # its memory is its own
    before = peak(hostile)
    anna = hostile.spawn("anna", hostile.workspace(), OUTPUT)
    assert said(anna) == 1
    assert peak(hostile) - before < 100_000
    for command in (("logs", "anna"), ("logs", "anna", "--json"), ("show", "anna"), ("ls",), ("events",)):
        done = hostile.ctl(*command)
        assert done.code == 0, done
        assert b"\x1b" not in done.raw, command
        assert b"\x07" not in done.raw, command
    (stdout,) = hostile.agents_directory(anna).glob("turns/1/stdout")
    written = stdout.read_bytes()
    assert len(written) > 100_000_000, "the control: the agent wrote it"
    assert b"\x1b[2J" in written, "the control: the agent wrote it"
    with pytest.raises(UnicodeDecodeError):
        written.decode()
    assert "Traceback" not in hostile.log
