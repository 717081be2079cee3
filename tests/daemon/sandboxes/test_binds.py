"""Checks of the paths that a new agent shares by `--bind`."""

import errno
import os

import pytest

from sandbox.spec import Network
from substrat.core.agents.rights import Policy, SharedPath
from substrat.daemon.sandboxes import binds
from substrat.daemon.workspaces.checking import check_workspace
from substrat.daemon.workspaces.user import User
from substrat.errors import InvalidParams, PolicyDenied, WorkspaceUnusable


@pytest.fixture
def user(tmp_path):
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (home / ".ssh").mkdir()
    (home / "data").mkdir()
    (home / "state").mkdir()
    return User("me", os.getuid(), os.getgid(), str(home))


def check(user, *read_only, writable=()):
    paths = [os.path.join(user.home, path) for path in read_only]
    writable = [os.path.join(user.home, path) for path in writable]
    return binds.check(writable, paths, f"{user.home}/work", user, (f"{user.home}/state",))


def test_a_place_of_the_users_own(user):
    assert check(user, "data") == (SharedPath(f"{user.home}/data", writable=False),)
    assert check(user, "data", writable=["data"]) == (SharedPath(f"{user.home}/data", writable=True),)
    os.symlink("data", f"{user.home}/link")
    assert check(user, "link") == (SharedPath(f"{user.home}/data", writable=False),)


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/etc/passwd", "/proc/self", "/sys", "/dev/shm", "/run", "/var/run", "/usr/share", "/tmp", "", ".ssh",
     "state", "ssh-link", "above", "etc-link", "/var", ".cursor", ".claude", ".codex/sessions"],
)  # fmt: skip
def test_paths_that_no_agent_may_share(user, path):
    os.symlink(".ssh", f"{user.home}/ssh-link")
    os.symlink("..", f"{user.home}/above")
    os.symlink("/etc", f"{user.home}/etc-link")
    for name in (".cursor", ".claude", ".codex/sessions"):
        os.makedirs(f"{user.home}/{name}")
    for writable, read_only in (([path], []), ([], [path])):
        with pytest.raises(PolicyDenied) as refused:
            check(user, *read_only, writable=writable)
        assert "\n" not in str(refused.value)


MAGIC = ["/proc/1/root", "/proc/1/root/tmp", "/proc/1/cwd", "/proc/self/root", "/proc/self/exe", "/proc/self/fd/0",
         "/proc/self/fd/99999", "/proc/self/ns/net", "/proc/thread-self/root", "/dev/fd/0", "/dev/stdin", "/sys/class",
         "/tmp/../proc/1/root", "//proc/1/root"]  # fmt: skip


@pytest.mark.parametrize("path", MAGIC)
def test_the_targets_of_the_kernels_own_links_are_refused_with_a_sentence(user, path):
    """Some of them this user may not even read, which is an error of its own."""
    with pytest.raises(PolicyDenied, match=r"overlaps|can't be bound"):
        check(user, path)
    with pytest.raises(WorkspaceUnusable):
        check_workspace(path, user, ())


def test_a_link_of_ones_own_to_what_cannot_be_read(user, monkeypatch):
    """As an ordinary user, and where root is confined, `/proc/1/root` can't be read."""
    os.symlink("/proc/1/root", f"{user.home}/rooted")
    readlink = os.readlink

    def confined(path, **how):
        if os.fspath(path) == "/proc/1/root":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return readlink(path, **how)

    monkeypatch.setattr(os, "readlink", confined)
    with pytest.raises(PolicyDenied, match="name the directory itself"):
        check(user, "rooted")
    with pytest.raises(WorkspaceUnusable, match=r"Permission denied|belongs to the system"):
        check_workspace(f"{user.home}/rooted", user, ())


def test_the_workspace_and_what_is_in_it(user):
    os.mkdir(f"{user.home}/work/data")
    assert check(user, "work/data") == (SharedPath(f"{user.home}/work/data", writable=False),)
    with pytest.raises(PolicyDenied, match="writable already"):
        check(user, writable=["work/data"])
    with pytest.raises(PolicyDenied):
        check(user, "work")


@pytest.mark.parametrize("path", ["data", "/nothing/there", "/a\0b"])
def test_what_is_no_place(user, path):
    with pytest.raises(InvalidParams):
        binds.check((), (path,), f"{user.home}/work", user, ())


def test_a_child_is_shown_no_more_than_its_parent():
    def policy(*shown):
        return Policy(Network.NONE, binds=tuple(SharedPath(*one) for one in shown))

    parent = policy(("/a", False), ("/b", True))
    for child in (policy(), policy(("/a", False)), policy(("/a/x", False), ("/b/y", True)), policy(("/b", False))):
        assert parent.allows(child)
    for child in (policy(("/a", True)), policy(("/c", False)), policy(("/ab", False)), policy(("/", False))):
        assert not parent.allows(child)
    assert not Policy(Network.FILTERED).allows(Policy(Network.FILTERED, binds=(SharedPath("/a", writable=False),)))
