"""Files of git-lfs whose content the repository lacks land as pointers, and are named."""

import os

from tests.support import git_lfs
from tests.system.test_clones import app, git
from tests.system.test_landing import me

__all__ = ["app"]


def test_files_that_stay_pointers_are_named_with_the_command_that_fetches_them(daemon, app):
    me(daemon, app)
    tools = daemon.directory / "tools"
    git_lfs.install(tools)
    git_lfs.store(app / ".git", b"here\n")
    for key, command in git_lfs.FILTERS.items():
        git(daemon, app, "config", key, command)
    (app / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "lfs")
    daemon.start(environment={"PATH": f"{tools}:{os.environ['PATH']}"})
    pointers = {"a.bin": git_lfs.pointer(b"here\n"), "b.bin": git_lfs.pointer(b"far\n")}
    deeds = "; ".join("printf '" + text.replace("\n", "\\n") + f"' > {name}" for name, text in pointers.items())
    daemon.spawn("fix", app, f"/shell {deeds}; git add -A; git commit -qm bin", "--clone")
    where = daemon.directory / "copy"
    for place, done in ((where, daemon.ctl("checkout", "fix", where)), (app, daemon.ctl("merge", "fix"))):
        said = f"b.bin is a pointer, because the repository lacks its content: `git -C {place} lfs pull`"
        assert (done.code, said in done.out + done.err) == (0, True), done
        assert [(place / name).read_text() for name in pointers] == ["here\n", pointers["b.bin"]]
