"""Opening without following links: nothing blocks, and no descriptor stays open."""

import os

import pytest

from substrat.daemon.kernel import nofollow
from substrat.daemon.state.layout import TurnDir


def test_nothing_is_followed_and_nothing_blocks(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dir").mkdir()
    (tmp_path / "way").symlink_to("dir")
    (tmp_path / "dir" / "inner").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    assert nofollow.read_small(str(tmp_path / "file"), 4) == b"text"
    assert nofollow.read_small(str(tmp_path / "file"), 3) is None
    for name in ("link", "fifo", "dir", "gone", "way/inner", "/dev/zero"):
        assert nofollow.read_small(os.path.join(tmp_path, name), 100) is None
    with pytest.raises(OSError, match="link"):
        nofollow.open_path(str(tmp_path / "way" / "inner"))
    with pytest.raises(OSError, match="upwards"):
        nofollow.open_path(f"{tmp_path}/../x")


def a_link(path):
    os.symlink("/etc/passwd", path)


def nothing(_):
    pass


@pytest.mark.parametrize("kind", [os.mkdir, os.mkfifo, a_link, nothing], ids=lambda kind: kind.__name__)
def test_nothing_that_is_no_file_leaves_a_descriptor_open(tmp_path, kind):
    before = os.listdir("/proc/self/fd")
    kind(tmp_path / "thing")
    place = TurnDir(str(tmp_path))
    kind(place.protected)
    kind(place.network_mode)
    assert nofollow.read_small(str(tmp_path / "thing"), 100) is None
    assert not place.read_protected()
    assert place.read_network_mode() is None
    assert os.listdir("/proc/self/fd") == before
