"""bubblewrap's arguments: the order of mounts, every isolation option, nothing that ties a sandbox to the daemon."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import bwrap, launch
from sandbox.spec import Bind, Devices, Directory, Network, Processes, ReadOnly, Spec, Symlink, Tmpfs

SPEC = Spec(("/bin/true",), (("A", "secret-value"),), (), "/w")

parts = st.lists(st.sampled_from(["a", "b", "c"]), min_size=0, max_size=4)
places = parts.map(lambda names: "/" + "/".join(names))
mounts = st.one_of(
    st.builds(Bind, places, places, st.booleans(), st.booleans()),
    st.builds(Tmpfs, places, st.integers(0, 2**40), st.sampled_from([0o700, 0o755, 0o1777])),
    st.builds(Symlink, places, places),
    st.builds(Directory, places, st.just(0o755)),
    st.builds(Processes, places),
    st.builds(Devices, places),
)
mount_lists = st.lists(mounts | st.builds(ReadOnly, places), max_size=12).map(tuple)
specs = st.builds(
    Spec,
    command=st.lists(st.text(min_size=1), min_size=1, max_size=4).map(tuple),
    environment=st.just((("TOKEN", "secret-value"),)),
    mounts=mount_lists,
    workdir=places,
    hostname=st.sampled_from(["sandbox", "bob"]),
    network=st.sampled_from([Network.NONE, Network.HOST]),
)


def lies_in(inner, outer):
    return inner != outer and (inner + "/").startswith(outer.rstrip("/") + "/")


@given(mount_lists)
def test_a_parent_comes_before_what_lies_in_it(given_mounts):
    order = [mount for mount in bwrap.ordered(given_mounts) if not isinstance(mount, ReadOnly)]
    for at, first in enumerate(order):
        for later in order[at + 1 :]:
            assert not lies_in(first.target, later.target)


@given(mount_lists)
def test_later_mounts_cover_earlier_ones_at_the_same_place(given_mounts):
    order = list(bwrap.ordered(given_mounts))
    for place in {mount.target for mount in given_mounts}:
        for sealed in (False, True):
            here = [m for m in given_mounts if m.target == place and isinstance(m, ReadOnly) is sealed]
            assert [m for m in order if m.target == place and isinstance(m, ReadOnly) is sealed] == here


@given(mount_lists)
def test_nothing_is_lost_or_added_and_sealing_comes_last(given_mounts):
    order = bwrap.ordered(given_mounts)
    assert sorted(map(repr, order)) == sorted(map(repr, given_mounts))
    sealed = [isinstance(mount, ReadOnly) for mount in order]
    assert sealed == sorted(sealed)


@given(specs)
def test_every_sandbox_is_isolated(spec):
    arguments = bwrap.arguments(spec)
    options = arguments[: len(arguments) - len(spec.command) - 1]
    for option in bwrap.ISOLATION:
        assert option in options
    assert options[options.index("--cap-drop") + 1] == "ALL"
    assert ("--unshare-net" in options) == (spec.network is Network.NONE)
    assert options[options.index("--hostname") + 1] == spec.hostname


@given(specs)
def test_a_sandbox_that_is_watched_reports_and_holds_its_lock(spec):
    watched, bare = bwrap.options(spec), bwrap.options(spec, watched=False)
    watch = ["--json-status-fd", str(bwrap.STATUS_FD), "--sync-fd", str(bwrap.LOCK_FD), "--seccomp", str(bwrap.SECCOMP_FD)]
    assert watched == [*watch, *bare]
    assert (bwrap.STATUS_FD, bwrap.OPTIONS_FD, bwrap.LOCK_FD, bwrap.SECCOMP_FD) == (3, 4, 5, 6)


@given(specs)
def test_no_sandbox_dies_with_the_daemon(spec):
    assert "--die-with-parent" not in bwrap.arguments(spec)
    tied = bwrap.options(spec, tied=True)
    assert [option for option in tied if option != "--die-with-parent"] == bwrap.options(spec)
    assert "--die-with-parent" in tied


@given(specs)
def test_the_command_is_last_and_no_option_and_the_environment_isnt_there(spec):
    arguments = bwrap.arguments(spec)
    assert tuple(arguments[-len(spec.command) :]) == spec.command
    assert arguments[-len(spec.command) - 1] == "--"
    before = arguments[: -len(spec.command) - 1]
    assert before[-4:] == ["--remount-ro", "/", "--chdir", spec.workdir]
    assert "secret-value" not in " ".join(bwrap.arguments(spec))
    assert "--setenv" not in bwrap.arguments(spec)


MOUNTS = [
    (Bind("/a", "/b"), ["--ro-bind", "/a", "/b"]),
    (Bind("/a", "/b", writable=True), ["--bind", "/a", "/b"]),
    (Bind("/a", "/b", optional=True), ["--ro-bind-try", "/a", "/b"]),
    (Bind("/a", "/b", writable=True, optional=True), ["--bind-try", "/a", "/b"]),
    (Tmpfs("/t"), ["--perms", "755", "--tmpfs", "/t"]),
    (Tmpfs("/t", 4096, 0o1777), ["--perms", "1777", "--size", "4096", "--tmpfs", "/t"]),
    (Symlink("/bin", "usr/bin"), ["--symlink", "usr/bin", "/bin"]),
    (Directory("/d", 0o700), ["--perms", "700", "--dir", "/d"]),
    (Processes(), ["--proc", "/proc", "--remount-ro", "/proc"]),
    (Devices(), ["--dev", "/dev"]),
    (ReadOnly("/r"), ["--remount-ro", "/r"]),
]


@pytest.mark.parametrize(("mount", "arguments"), MOUNTS)
def test_each_mount(mount, arguments):
    spec = Spec(("x",), (), (mount,), "/")
    (head, tail) = bwrap.arguments(SPEC)[:-6], ["--remount-ro", "/", "--chdir", "/", "--", "x"]
    assert bwrap.arguments(spec) == head + arguments + tail
    assert re.fullmatch(rf".*{mount.target}.*", bwrap.describe(mount)), "in one line"


def test_a_whole_sandbox():
    spec = Spec(
        ("/p", "--flag"), (),
        (Bind("/w", "/home/w", writable=True), Tmpfs("/home"), Bind("/usr", "/usr"), ReadOnly("/home")),
        "/home/w", "bob", Network.NONE,
    )  # fmt: skip
    assert bwrap.arguments(spec) == [
        "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup",
        "--disable-userns", "--new-session", "--cap-drop", "ALL", "--hostname", "bob", "--unshare-net",
        "--perms", "755", "--tmpfs", "/home", "--ro-bind", "/usr", "/usr", "--bind", "/w", "/home/w",
        "--remount-ro", "/home", "--remount-ro", "/", "--chdir", "/home/w", "--", "/p", "--flag",
    ]  # fmt: skip


def test_the_filtered_network_has_a_launcher_in_front():
    spec = Spec(("x",), (), (), "/", network=Network.FILTERED, ports=(80, 443))
    for made, channel, rest in (
        (launch.command("/usr/bin/bwrap", spec), "-", bwrap.arguments(spec)),
        (launch.start("/usr/bin/bwrap", spec).command, str(bwrap.NETWORK_FD), ["--args", str(bwrap.OPTIONS_FD), "--", "x"]),
    ):
        assert made == (*launch.netlaunch(), "launch", channel, "80,443", "/usr/bin/bwrap", *rest)
    assert "--unshare-net" not in bwrap.options(spec)


def test_its_proxy_form_has_an_empty_network_and_a_relay_before_the_program():
    """Nothing in front of bubblewrap means that bubblewrap makes the network: never the machine's own."""
    relay = ("python3", "netrelay.py", "1", "/s")
    spec = Spec(("x", "y"), (), (), "/", network=Network.FILTERED, relay=relay, limits=(("core", 1),))
    assert launch.command("/usr/bin/bwrap", spec) == ("/usr/bin/bwrap", *bwrap.arguments(spec))
    assert "--unshare-net" in bwrap.options(spec)
    assert bwrap.program(spec) == ("/usr/bin/prlimit", "--core=1", "--", *relay, "x", "y")


@given(specs)
def test_a_started_sandbox_is_the_same_with_its_options_apart(spec):
    started = launch.start("/usr/bin/bwrap", spec)
    assert started.command == ("/usr/bin/bwrap", "--args", str(bwrap.OPTIONS_FD), "--", *spec.command)
    *options, end = started.options.split(b"\0")
    assert end == b""
    assert [os.fsdecode(option) for option in options] == bwrap.options(spec)
    assert launch.command("/usr/bin/bwrap", spec) == ("/usr/bin/bwrap", *bwrap.arguments(spec))


def test_options_in_no_encoding_are_passed_on():
    spec = Spec(("x",), (), (Bind("/w/\udcff", "/w/\udcff"),), "/")
    assert b"\0/w/\xff\0/w/\xff\0" in launch.start("bwrap", spec).options


def test_limits_stand_before_the_command_and_give_way_to_it():
    spec = Spec(("-x", "y"), (), (), "/", limits=(("core", 1), ("nofile", 256)))
    limited = ("/usr/bin/prlimit", "--core=1", "--nofile=256", "--", "-x", "y")
    assert tuple(bwrap.arguments(spec)[-7:]) == ("--", *limited)
    assert launch.start("bwrap", spec).command[-7:] == ("--", *limited)


def test_networks_are_ordered_by_what_they_reach():
    assert sorted(Network, key=lambda network: network.reach) == [Network.NONE, Network.FILTERED, Network.HOST]
