"""/proc as it is read: lines of mountinfo, and processes that are gone."""

import os

import pytest

from substrat.daemon.kernel import procfs
from substrat.daemon.kernel.procfs import Mount

OF_NONE = procfs.MAX_PID + 1


@pytest.mark.parametrize(
    ("line", "mount"),
    [
        ("36 35 8:1 / /mnt rw,noatime master:1 - ext4 /dev/sda1 rw\n", Mount("/mnt", "8:1", "ext4")),
        ("36 35 0:28 / /a\\040b\\134\\011 rw - tmpfs none rw\n", Mount("/a b\\\t", "0:28", "tmpfs")),
        ("36 35 0:28 / /a\rb\u2028 rw - tmpfs none rw\n", Mount("/a\rb\u2028", "0:28", "tmpfs")),
    ],
)
def test_a_line_of_mountinfo(line, mount):
    assert procfs.read_mount(line) == mount


def test_a_process_that_is_gone_has_nothing():
    assert (procfs.stat(OF_NONE), procfs.start_time(OF_NONE), procfs.parent(OF_NONE)) == (None, None, None)
    assert (procfs.status(OF_NONE, "Pid"), procfs.tasks(OF_NONE)) == ([], [])
    assert (procfs.children(OF_NONE), procfs.first_child(OF_NONE), procfs.io_counts(OF_NONE)) == ([], None, {})


def test_this_process():
    own = procfs.stat(os.getpid())
    assert (own.state, own.parent) == ("R", os.getppid())
    assert procfs.status(os.getpid(), "Pid") == [str(os.getpid())]
    assert "/" in {mount.point for mount in procfs.mounts(os.getpid())}
