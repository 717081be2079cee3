"""The texts of cgroup files, for limits and from measurements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents import cgroup_limits
from substrat.core.agents.cgroup_limits import CgroupLimits, CgroupUse, RanOut

ALL = frozenset(cgroup_limits.CONTROLLERS)
MIB = 1 << 20
HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER = "30 23 0:26 /docker/ab /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
BLANK = "30 23 0:26 / /a\\040b rw - cgroup2 cgroup rw\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/user.slice/x.service/daemon\n", "/user.slice/x.service/daemon"),
        ("4:memory:/x\n0::/\n", "/"),
        ("4:memory:/x\n", None),
        ("0::\n", None),
        ("", None),
    ],
)
def test_where_a_process_is(text, path):
    assert cgroup_limits.own_path(text) == path


@pytest.mark.parametrize(
    ("mountinfo", "found"),
    [
        (HYBRID, ("/sys/fs/cgroup/unified", "/")),
        (UNIFIED, ("/sys/fs/cgroup", "/")),
        (CONTAINER, ("/sys/fs/cgroup", "/docker/ab")),
        (BLANK, ("/a b", "/")),
        (HYBRID.splitlines()[1], None),
        ("", None),
        (" - cgroup2 x", None),
    ],
)
def test_where_the_hierarchy_is_mounted(mountinfo, found):
    assert cgroup_limits.mount_point(mountinfo) == found


@pytest.mark.parametrize(
    ("own", "mount", "directory"),
    [
        ("/a/daemon", ("/sys/fs/cgroup", "/"), "/sys/fs/cgroup/a/daemon"),
        ("/", ("/sys/fs/cgroup", "/"), "/sys/fs/cgroup"),
        ("/docker/ab/daemon", ("/sys/fs/cgroup", "/docker/ab"), "/sys/fs/cgroup/daemon"),
        ("/docker/ab", ("/sys/fs/cgroup", "/docker/ab"), "/sys/fs/cgroup"),
        ("/docker/abc", ("/sys/fs/cgroup", "/docker/ab"), None),
    ],
)
def test_the_directory_of_a_cgroup(own, mount, directory):
    assert cgroup_limits.directory(own, mount) == directory


def test_what_is_enabled_is_what_is_there():
    assert cgroup_limits.enabling("cpuset cpu io memory hugetlb pids rdma misc\n") == "+cpu +memory +pids"
    assert cgroup_limits.enabling("memory pids") == "+memory +pids"
    assert cgroup_limits.enabling("hugetlb") == ""


def test_limits_are_written_as_far_as_controllers_go():
    limits = CgroupLimits(512 * MIB, 1.5, 100)
    assert dict(cgroup_limits.settings(limits, ALL)) == {
        "memory.max": str(512 * MIB), "memory.swap.max": "0", "pids.max": "100", "cpu.max": "150000 100000",
    }  # fmt: skip
    assert dict(cgroup_limits.settings(limits, frozenset({"pids"}))) == {"pids.max": "100"}
    assert cgroup_limits.settings(limits, frozenset()) == ()


def test_no_limit_takes_an_earlier_one_back():
    assert dict(cgroup_limits.settings(CgroupLimits(), ALL)) == {
        "memory.max": "max", "memory.swap.max": "max", "pids.max": "max", "cpu.max": "max 100000",
    }  # fmt: skip


def test_the_least_quota_is_one_the_kernel_takes():
    assert dict(cgroup_limits.settings(CgroupLimits(cpus=0.001), ALL))["cpu.max"] == "1000 100000"


def test_the_daemon_comes_before_agents():
    assert cgroup_limits.daemon_settings(ALL) == (("cpu.weight", "1000"),)
    assert cgroup_limits.daemon_settings(frozenset({"memory"})) == ()


EVENTS = "low 0\nhigh 0\nmax 31\noom 2\noom_kill 2\noom_group_kill 0\n"


@pytest.mark.parametrize(
    ("memory", "local", "pids", "found"),
    [
        ("", "", "", RanOut()),
        (EVENTS, EVENTS, "max 0\n", RanOut(2, own=True)),
        (EVENTS.replace("oom 2", "oom 0"), EVENTS.replace("oom 2", "oom 0"), "", RanOut(2, own=False)),
        (EVENTS.replace("oom_kill 2", "oom_kill 0"), EVENTS, "max 7\n", RanOut(0, own=True, forks=7)),
    ],
)
def test_what_ran_out(memory, local, pids, found):
    assert cgroup_limits.ran_out(memory, local, pids) == found


def test_what_ran_out_in_words():
    assert cgroup_limits.out_of_memory(RanOut()) is None
    assert cgroup_limits.out_of_memory(RanOut(own=True)) is None
    assert "killed a process of the agent" in cgroup_limits.out_of_memory(RanOut(1, own=True))
    assert "raise sandbox.memory" in cgroup_limits.out_of_memory(RanOut(1, own=True))
    assert "killed 3 processes" in cgroup_limits.out_of_memory(RanOut(3))
    assert "limits.memory" in cgroup_limits.out_of_memory(RanOut(3))
    assert cgroup_limits.refused_forks(RanOut(3)) is None
    assert "sandbox.processes" in cgroup_limits.refused_forks(RanOut(forks=2))


def test_what_is_used():
    assert cgroup_limits.use("1048576\n", "usage_usec 2500000\nuser_usec 1\n", "12\n") == CgroupUse(1048576, 2.5, 12)
    assert cgroup_limits.use("", "", "") == CgroupUse(None, None, None)
    assert cgroup_limits.use("max", "nr_periods 0", "x") == CgroupUse(None, None, None)


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    cgroup_limits.numbers(text)
    cgroup_limits.ran_out(text, text, text)
    cgroup_limits.own_path(text)
    cgroup_limits.mount_point(text)
    cgroup_limits.use(text, text, text)
