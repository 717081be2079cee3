"""Which further places an agent may be shown."""

import os

import pytest

from sandbox.spec import Network
from substrat.core.records import Policy, Shown
from substrat.daemon import binds
from substrat.daemon.workspace import User
from substrat.errors import InvalidParams, PolicyDenied


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
    assert check(user, "data") == (Shown(f"{user.home}/data", writable=False),)
    assert check(user, "data", writable=["data"]) == (Shown(f"{user.home}/data", writable=True),)
    os.symlink("data", f"{user.home}/link")
    assert check(user, "link") == (Shown(f"{user.home}/data", writable=False),)


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/etc/passwd", "/proc/self", "/sys", "/dev/shm", "/run", "/var/run", "/usr/share", "/tmp", "", ".ssh",
     "state", "ssh-link", "above", "etc-link", "/var"],
)  # fmt: skip
def test_what_no_agent_is_shown(user, path):
    os.symlink(".ssh", f"{user.home}/ssh-link")
    os.symlink("..", f"{user.home}/above")
    os.symlink("/etc", f"{user.home}/etc-link")
    for writable, read_only in (([path], []), ([], [path])):
        with pytest.raises(PolicyDenied) as refused:
            check(user, *read_only, writable=writable)
        assert "\n" not in str(refused.value)


def test_the_workspace_and_what_is_in_it(user):
    os.mkdir(f"{user.home}/work/data")
    assert check(user, "work/data") == (Shown(f"{user.home}/work/data", writable=False),)
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
        return Policy(Network.NONE, binds=tuple(Shown(*one) for one in shown))

    parent = policy(("/a", False), ("/b", True))
    for child in (policy(), policy(("/a", False)), policy(("/a/x", False), ("/b/y", True)), policy(("/b", False))):
        assert parent.allows(child)
    for child in (policy(("/a", True)), policy(("/c", False)), policy(("/ab", False)), policy(("/", False))):
        assert not parent.allows(child)
    assert not Policy(Network.FILTERED).allows(Policy(Network.FILTERED, binds=(Shown("/a", writable=False),)))
