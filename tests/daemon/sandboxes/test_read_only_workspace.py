"""A workspace on a file system that is mounted read-only."""

import os

import pytest

from substrat.daemon.workspaces import checking
from substrat.daemon.workspaces.user import User
from substrat.errors import WorkspaceUnusable


def test_it_is_refused_with_its_reason(tmp_path, monkeypatch):
    user = User.current({"HOME": str(tmp_path / "home")})
    (tmp_path / "work").mkdir()
    assert checking.check_workspace(str(tmp_path / "work"), user, ()) == str(tmp_path / "work")
    real = os.fstatvfs

    class Mounted:
        def __init__(self, found):
            self.f_flag = found.f_flag | os.ST_RDONLY

    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: Mounted(real(descriptor)))
    with pytest.raises(WorkspaceUnusable, match="mounted read-only: mount it read-write"):
        checking.check_workspace(str(tmp_path / "work"), user, ())
