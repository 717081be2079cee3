"""Git on an errand in a workspace: it executes no program of the repository, and is not waited for long."""

import contextlib
import os
import subprocess

import pytest

from sandbox import host
from substrat.daemon.sandboxes import oneshot
from substrat.daemon.sandboxes.git import forget_size
from substrat.daemon.workspaces import placeholders
from substrat.daemon.workspaces.workspace_scan import scan
from tests.daemon.workspaces.repositories import git


async def test_git_on_an_errand_executes_nothing_that_a_repository_names(repository, files, bubblewrap):
    """Its configuration is as hostile as it can be; any program that it names leaves a mark."""
    (repository / ".cursor").mkdir()
    (repository / ".cursor" / "mcp.json").write_text("{}")
    git(repository, "add", ".")
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    evil = repository / ".git" / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {repository}/.git/MARK\n")
    evil.chmod(0o755)
    for name in ("post-index-change", "fsmonitor-watchman"):
        (repository / ".git" / "hooks" / name).symlink_to(evil)
    keys = ("core.fsmonitor", "core.sshCommand", "core.pager", "filter.evil.clean", "filter.evil.process",
            "diff.evil.textconv", "credential.helper", "core.alternateRefsCommand")  # fmt: skip
    config = repository / ".git" / "config"
    for key in keys:
        git(repository, "config", key, str(evil))
    (repository / ".git" / "more").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    git(repository, "config", "include.path", "more")
    seen = scan(str(repository))
    placeholders.make_all(seen.missing)
    before = config.read_bytes()
    await forget_size(files, bubblewrap, str(repository), ".cursor/mcp.json", seen, host.system_mounts())
    assert not (repository / ".git" / "MARK").exists()
    assert config.read_bytes() == before
    # The control: git on the host runs the program, which doesn't answer, so git fails.
    with contextlib.suppress(subprocess.CalledProcessError):
        git(repository, "status")
    assert (repository / ".git" / "MARK").exists()


@pytest.fixture
def remembered(repository, monkeypatch):
    """A repository with a tracked `mcp.json`, its protected paths, and the helpers that were run for it."""
    (repository / ".cursor").mkdir()
    (repository / ".cursor" / "mcp.json").write_text("{}")
    git(repository, "add", ".")
    runs, run = [], oneshot.run

    async def counted(*arguments, **more):
        runs.append(more)
        return await run(*arguments, **more)

    monkeypatch.setattr(oneshot, "run", counted)
    return repository, scan(str(repository)), runs


def a_fifo(path):
    path.unlink()
    os.mkfifo(path)


def a_link_to_a_fifo(path):
    os.mkfifo(path.with_name("elsewhere"))
    path.unlink()
    path.symlink_to("elsewhere")


def a_directory(path):
    path.unlink()
    path.mkdir()


def too_large(path):
    os.truncate(path, 65 << 20)


@pytest.mark.parametrize("name", ["index", "HEAD"])
@pytest.mark.parametrize(
    "spoil", [a_fifo, a_link_to_a_fifo, a_directory, too_large, os.unlink], ids=lambda kind: kind.__name__
)
async def test_git_is_not_asked_where_the_index_or_head_is_no_file_of_bearable_size(remembered, files, spoil, name):
    repository, seen, runs = remembered
    spoil(repository / ".git" / name)
    nowhere = host.Bubblewrap("/nonexistent", (0, 8, 0))
    await forget_size(files, nowhere, str(repository), ".cursor/mcp.json", seen, host.system_mounts())
    assert runs == []


@pytest.mark.parametrize("name", ["packed-refs", "objects/info/alternates"])
async def test_git_that_is_held_up_elsewhere_is_not_waited_for_long(remembered, files, bubblewrap, monkeypatch, name):
    repository, seen, runs = remembered
    monkeypatch.setattr("substrat.daemon.sandboxes.git._INDEX_PATIENCE_S", 0.3)
    place = repository / ".git" / name
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    os.mkfifo(place)
    placeholders.make_all(seen.missing)
    await forget_size(files, bubblewrap, str(repository), ".cursor/mcp.json", seen, host.system_mounts())
    assert [run["seconds"] for run in runs] == [0.3]
