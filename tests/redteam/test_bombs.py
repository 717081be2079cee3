"""Work of an agent's that is small and unfolds to much more, on its way into the person's repository."""

from substrat.daemon.failpoints import TRACE
from tests.support.waiting import wait_until
from tests.system.test_clones import app, git

__all__ = ["app"]

BOMB = (
    "for n in $(seq 60); do { head -c 1000000 /dev/zero; echo $n; } | git hash-object -w --stdin | "
    'sed "s/.*/100644 blob &\\t$n/"; done >list; bomb=$(git commit-tree -p HEAD -m bomb $(git mktree <list)); '
    "git reset -q --soft $(git commit-tree -p $bomb -m back HEAD^{tree}); rm list"
)
"""60 MB in two commits, of which the files of neither are in the work tree."""


def objects(top):
    """Return the sizes of all files in the repository's directory of objects."""
    found = top / ".git" / "objects"
    return {str(path.relative_to(found)): path.stat().st_size for path in found.rglob("*") if path.is_file()}


def test_a_pack_that_unfolds_to_more_than_the_limit_leaves_nothing_and_is_tried_once(daemon, app):
    trace = daemon.directory / "trace"
    daemon.start(config="[clone]\nbundle_bytes = 16777216\n", environment={TRACE: str(trace)})
    before = objects(app)
    daemon.spawn("fix", app, f"/shell {BOMB}; git log --format=%s -n 2", "--clone")
    assert daemon.shell("fix") == "back\nbomb\n"
    found = daemon.show("fix")["attention"]
    assert found["kind"] == "unkept"
    assert "unfold to more than `clone.bundle_bytes` lets through, 16 MiB: raise that" in found["text"]
    daemon.ok("send", "fix", "/say nothing changed", "--wait")
    assert daemon.show("fix")["attention"]["text"] == found["text"]
    assert objects(app) == before
    assert trace.read_text().splitlines().count("before: bundle imported") == 1
    assert git(daemon, app, "fsck", "--no-dangling") == ""

    daemon.ok("send", "fix", "/shell echo x > x", "--wait")
    assert trace.read_text().splitlines().count("before: bundle imported") == 2, "the files have changed"
    assert objects(app) == before
    daemon.stop()
    daemon.start(config="[clone]\nbundle_bytes = 67108864\n")
    daemon.ok("send", "fix", "/say the limit is higher", "--wait")
    assert git(daemon, app, "log", "--format=%s", "-n", "2", "refs/substrat/fix/head") == "back\nbomb"


def test_a_start_removes_what_an_import_has_left_that_was_killed(daemon, app):
    daemon.start()
    agent = daemon.spawn("fix", app, "/shell echo x > x", "--clone")
    daemon.stop()
    quarantine = app / ".git" / "objects" / f"tmp_objdir-substrat-{agent['id']}"
    (quarantine / "pack").mkdir(parents=True)
    (quarantine / "pack" / "tmp_pack_x").write_text("a part of a pack")
    daemon.start()
    wait_until(lambda: not quarantine.exists(), "it is removed")
