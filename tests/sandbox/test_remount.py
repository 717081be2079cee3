"""A sandbox waits for its late mounts, and its program begins only when all of them were made."""

import os
import select
import signal
import subprocess
from contextlib import contextmanager

import pytest

from sandbox import bwrap, launch, remount
from sandbox.spec import Bind, Spec, Tmpfs
from substrat.daemon.kernel import procfs
from tests.support.waiting import wait_until

INNER = Bind("/data/inner", "/data/inner", held=True, late=True)
SPEC = Spec(("echo", "begun"), (), (INNER, Bind("/data", "/data", writable=True, held=True), Tmpfs("/run/substrat")), "/")
STAGE = f"{bwrap.STAGE}/0"
BEGUN = b'{"mounted": 0}\n'


def test_bubblewrap_mounts_late_ones_apart_and_a_shell_mounts_them_in_their_places():
    started = launch.start("/usr/bin/bwrap", SPEC)
    options = started.options.decode().split("\0")
    assert options[options.index(STAGE) - 1] == "/data/inner"
    assert "/data/inner" not in options[options.index(STAGE) :]
    mover = ("launch", str(bwrap.GATE_FD), str(bwrap.STATUS_FD), STAGE, "/data/inner", "--", "/usr/bin/bwrap")
    assert started.command[4:11] == mover
    assert started.command[-len(bwrap.GATE) - 2 :] == (*bwrap.GATE, "echo", "begun")
    shell = bwrap.arguments(SPEC)
    assert shell[shell.index("/data/inner") + 1] == "/data/inner"
    assert shell.index("/data") < shell.index("/data/inner")


def test_a_sandbox_without_late_mounts_has_nothing_in_front_of_it():
    assert launch.start("/usr/bin/bwrap", Spec(("echo",), (), (), "/")).command[0] == "/usr/bin/bwrap"


@contextmanager
def waiting(*paths):
    """Start a program that comes to the gate in a mount namespace of its own when it is given a line.

    What is reported precedes its errors.
    """
    mounting = (*launch.remounter(), "launch", str(bwrap.GATE_FD), "2", *paths, "--")
    within = ("/usr/bin/unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'echo made; read go; exec "$@"', "sh")
    program = ("sh", "-c", f"echo begun; ls /proc/self/fd/{bwrap.GATE_FD} 2>/dev/null")
    pipe = subprocess.PIPE
    words = (*mounting, *within, *bwrap.GATE, *program)
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        assert process.stdout.readline() == b"made\n"
        yield process


def ended(process):
    """Let a program come to the gate; returns its output and errors."""
    output, errors = process.communicate(b"go\n", 10)
    assert errors.startswith(BEGUN)
    return output.decode(), errors.removeprefix(BEGUN).decode()


def test_the_program_begins_when_all_were_made_and_has_no_socket():
    with waiting() as process:
        assert ended(process) == ("begun\n", '{"mounted": 1}\n')


def test_where_a_late_mount_is_not_made_nothing_begins():
    with waiting("/nonexistent/late/0", "/nonexistent/data") as process:
        assert ended(process) == ("", "substrat: can't mount /nonexistent/late/0: No such file or directory\n")
    assert process.returncode == 1


def test_where_the_process_that_mounts_is_killed_nothing_begins():
    with waiting() as process:
        (mover,) = procfs.children(process.pid)
        os.kill(mover, signal.SIGKILL)
        assert ended(process) == ("", "substrat: can't mount: the process that mounts has ended\n")
    assert process.returncode == 1


def test_the_process_that_mounts_ends_with_its_sandbox_and_keeps_nothing_open():
    with waiting() as process:
        (mover,) = procfs.children(process.pid)
        pidfd = os.pidfd_open(mover)
        try:
            wait_until(lambda: len(os.listdir(f"/proc/{mover}/fd")) == 2, "it has closed what it was born with")
            socket = max(os.listdir(f"/proc/{mover}/fd"))
            assert os.readlink(f"/proc/{mover}/fd/{socket}").startswith("socket:")
            process.kill()
            assert select.select([pidfd], [], [], 10)[0]
        finally:
            os.close(pidfd)


def test_a_program_that_is_gone_is_named():
    words = (*launch.remounter(), "launch", str(bwrap.GATE_FD), "1", "--", "/nonexistent/bwrap")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (125, "substrat: can't start /nonexistent/bwrap: No such file or directory\n")


def test_a_file_that_is_replaced_while_it_is_mounted_over_is_opened_anew(monkeypatch, tmp_path):
    """The mounts themselves need a namespace of their own: here the kernel's answers are given."""
    target = tmp_path / "config"
    mounted: list[str] = []
    target.write_text("old")

    def replace_first(path, _tree, place):
        assert os.fstat(place).st_ino == target.stat().st_ino
        if len(mounted) < 3:
            mounted.append(path)
            raise FileNotFoundError(2, "No such file or directory", path)
        mounted.append("done")

    monkeypatch.setattr(remount, "_move", replace_first)
    remount.move(str(tmp_path), str(target))
    assert mounted[-1] == "done"
    monkeypatch.setattr(remount, "_TRIES", 2)
    mounted.clear()
    with pytest.raises(FileNotFoundError):
        remount.move(str(tmp_path), str(target))
