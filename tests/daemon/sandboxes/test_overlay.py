"""Which files of a hostile `.cursor` reach an agent."""

import errno
import os
import socket
import stat

import pytest

from sandbox.spec import Bind
from substrat.daemon.kernel import nofollow
from substrat.daemon.kernel.files import close_all
from substrat.daemon.sandboxes import overlay, sources
from substrat.daemon.workspaces import checking
from substrat.errors import WorkspaceUnusable

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


@pytest.fixture
def source(work):
    path = work / ".cursor"
    path.mkdir()
    return path


def copy(source, tmp_path):
    target = tmp_path / "copy"
    note = overlay.copy_cursor_directory(str(source), str(target))
    if note is not None:
        note.encode()
    files = {str(path.relative_to(target)): path for path in target.rglob("*")} if target.exists() else {}
    return files, note


def test_there_is_nothing_to_copy(work, tmp_path):
    assert copy(work / ".cursor", tmp_path) == ({}, None)


def test_files_and_directories_are_copied(source, tmp_path):
    (source / "rules" / "deep").mkdir(parents=True)
    (source / "rules" / "deep" / "a.mdc").write_bytes(b"\x00\xff" * 100_000)
    (source / "hook.sh").write_text("x")
    (source / "hook.sh").chmod(0o755)
    (source / "secret").write_text("x")
    (source / "secret").chmod(0o600)
    (source / "everybody").write_text("x")
    (source / "everybody").chmod(0o6777)
    files, note = copy(source, tmp_path)
    assert note is None
    assert set(files) == {"rules", "rules/deep", "rules/deep/a.mdc", "hook.sh", "secret", "everybody"}
    assert files["rules/deep/a.mdc"].read_bytes() == b"\x00\xff" * 100_000
    modes = {name: stat.S_IMODE(files[name].stat().st_mode) for name in ("hook.sh", "secret", "everybody")}
    assert modes == {"hook.sh": 0o755, "secret": 0o600, "everybody": 0o755}


def test_no_link_is_followed(source, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "inner").write_text("secret")
    (source / "file").symlink_to(tmp_path / "secret")
    (source / "directory").symlink_to(tmp_path / "secrets")
    (source / "loop").symlink_to(".")
    (source / "dangling").symlink_to("gone")
    (source / "real").write_text("x")
    files, note = copy(source, tmp_path)
    assert set(files) == {"real"}
    for name in ("file", "directory", "loop", "dangling"):
        assert name in note


def test_a_cursor_directory_that_is_a_link_is_not_followed(work, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").touch()
    (work / ".cursor").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r".*") as refused:
        copy(work / ".cursor", tmp_path)
    assert refused.value.errno in {errno.ELOOP, errno.ENOTDIR}


def test_a_link_on_the_way_to_a_cursor_directory_is_not_followed(work, source, tmp_path):
    """A directory above the workspace was swapped for a link to another one after the workspace was checked."""
    (source / "mcp.json").write_text("the workspace's")
    home = tmp_path / "elsewhere"
    (home / "work" / ".cursor").mkdir(parents=True)
    (home / "work" / ".cursor" / "mcp.json").write_text("canary")
    outer = work.parent / "outer"
    outer.mkdir()
    work.rename(outer / "work")
    assert set(copy(outer / "work" / ".cursor", tmp_path / "before")[0]) == {"mcp.json"}, "the control"
    outer.rename(tmp_path / "aside")
    outer.symlink_to(home)
    with pytest.raises(OSError, match=r".*") as refused:
        copy(outer / "work" / ".cursor", tmp_path)
    assert refused.value.errno in {errno.ELOOP, errno.ENOTDIR}
    assert not (tmp_path / "copy").exists()


def test_a_workspace_that_was_replaced_meanwhile_is_refused(work, source, tmp_path):
    """By a real directory this time, which no look for links would find."""
    before = checking.identify(str(work))
    assert overlay.copy_cursor_directory(str(source), str(tmp_path / "copy"), before) is None, "the control"
    work.rename(tmp_path / "aside")
    (work / ".cursor").mkdir(parents=True)
    with pytest.raises(WorkspaceUnusable, match="replaced"):
        overlay.copy_cursor_directory(str(source), str(tmp_path / "other"), before)


def test_all_of_a_workspace_is_opened_from_one_directory(work, tmp_path, monkeypatch):
    """Another directory takes the workspace's name between two of its mounts."""
    (work / ".git").mkdir()
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    real = nofollow.open_path

    def swap_afterwards(path, beneath=None):
        descriptor = real(path, beneath)
        if path == str(work):
            work.rename(tmp_path / "aside")
            other.rename(work)
        return descriptor

    inode = (work / ".git").stat().st_ino
    monkeypatch.setattr(nofollow, "open_path", swap_afterwards)
    opened = sources.open_all([Bind(str(path), str(path), held=True) for path in (work, work / ".git")])
    assert (work / ".git").stat().st_ino != inode, "the control: it was swapped"
    assert os.fstat(opened[1]).st_ino == inode
    close_all(opened)


def test_pipes_sockets_and_devices_do_not_hold_it_up(source, tmp_path):
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        descriptor = os.open(source, os.O_PATH)
        sock.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        (source / "real").write_text("x")
        files, note = copy(source, tmp_path)
    assert set(files) == {"real"}
    assert "pipe" in note
    assert "socket" in note


def test_too_many_files(source, tmp_path):
    for number in range(2100):
        (source / f"{number:05}").touch()
    files, note = copy(source, tmp_path)
    assert len(files) == 2000
    assert note is not None
    assert len(note) < 500


def test_too_many_bytes(source, tmp_path):
    for number in range(5):
        with (source / f"{number}").open("wb") as file:
            file.truncate(10 << 20)
    files, note = copy(source, tmp_path)
    assert set(files) == {"0", "1", "2"}
    assert note is not None


def test_a_file_that_does_not_fit_takes_nobody_elses_room(source, tmp_path):
    with (source / "a-big-one").open("wb") as file:
        file.truncate(40 << 20)
    (source / "mcp.json").write_text("{}")
    files, note = copy(source, tmp_path)
    assert set(files) == {"mcp.json"}
    assert "a-big-one" in note


def test_too_deep(source, tmp_path):
    path = source
    for _ in range(40):
        path = path / "d"
        path.mkdir()
        (path / "f").touch()
    files, note = copy(source, tmp_path)
    assert 10 < sum(name.endswith("f") for name in files) < 20
    assert note is not None


def test_names_in_no_encoding_can_be_told(source, tmp_path):
    os.symlink(b"gone", os.fsencode(source) + b"/\xff\xfe")
    with open(os.fsencode(source) + b"/\xfd", "wb") as file:
        file.write(b"x")
    files, note = copy(source, tmp_path)
    assert len(files) == 1
    assert note is not None
