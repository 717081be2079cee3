"""A clone with real git in a directory of the test's, without a daemon and without a sandbox, and its keeps."""

import os
import shutil
import subprocess
from types import SimpleNamespace
from typing import Any

from substrat.daemon.sandboxes import tame_git
from substrat.inside.clone.git import OUT, TREE, Git
from substrat.inside.clone.keep import QUICK, Commits, keep
from substrat.inside.clone.status import STATUS

SETTINGS = {**tame_git.variables(tame_git.AGENTS), "GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_GLOBAL": os.devnull}


class Clone:
    """A clone with files `a`, `b` and a submodule `lib` that isn't cloned.

    Args:
        place: a directory that is there.
    """

    def __init__(self, place):
        self.place, self.tree, self.out = place, place / "tree", place / "out"
        self.repository = Git({**SETTINGS, "GIT_DIR": f"{self.tree}/.git", "GIT_WORK_TREE": str(self.tree)}, str(self.tree))
        self._own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self._last = Commits(None, None, None)
        self.out.mkdir()
        (self.tree / "lib").mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        for name in ("a", "b"):
            self.write(name, f"{name}\n")
        self.write(".gitignore", "*.tmp\n")
        self.git("add", "-A")
        self.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib")
        self.git("commit", "-qm", "one")

    def git(self, *words, at=None, fails=False):
        """Run the agent's git, which has none of the settings; return what it prints. `fails`: it may."""
        who = ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
        line = ["git", "-C", at or self.tree, *who, *words]
        return subprocess.run(line, env=self._own, check=not fails, capture_output=True, text=True).stdout

    def write(self, name, text):
        """Write a file, None: make a link, whatever stands there or above."""
        path = self.tree / name
        for parent in (*path.relative_to(self.tree).parents,):
            if (self.tree / parent).is_file() or (self.tree / parent).is_symlink():
                (self.tree / parent).unlink()
        self.remove(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.symlink_to("a")
        else:
            path.write_text(text)

    def remove(self, name):
        """Remove a file or a directory that may be there."""
        path = self.tree / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)

    def keep(self):
        """Keep the work; return the report, with the paths that are kept."""
        report: Any = keep(self._request(self._last), self.repository, str(self.out))
        self._last = Commits(report["head"], report["wip"], report["asides"])
        return SimpleNamespace(**report, paths=set(self.git("ls-tree", "-r", "--name-only", report["wip"]).split()))

    def keep_anew(self):
        """Keep the work as a first keep would; return the report."""
        out = self.place / "anew"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        return SimpleNamespace(**keep(self._request(Commits(None, None, None)), self.repository, str(out)))

    def _request(self, last):
        commits = {f"last_{name}": commit for name, commit in last._asdict().items()}
        return {**commits, "known": [], "asides": True, "refused": []}

    def is_known(self):
        """Say whether a keep would give its last answer, as the shell's program of `keeping` asks."""
        script = QUICK
        scratch = {f"/tmp/{name}": self.place / name for name in ("status", "asides")}
        for place, path in {TREE: self.tree, OUT: self.out, **scratch}.items():
            script = script.replace(place, str(path))
        anew = ["sh", "-c", "env | grep -c '^GIT_DIR=\\|^GIT_WORK_TREE='; echo anew"]
        words = ["sh", "-c", script, "sh", " ".join(map(str, self._last)), " ".join(STATUS), *anew]
        environment = {**os.environ, **SETTINGS}
        said = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout
        assert not said.endswith("anew\n") or said == "0\nanew\n", "a keep gets nothing from the quick look"
        return not said.endswith("anew\n")
