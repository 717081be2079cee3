"""The tools that people use, in private clones: each works there, and what it leaves is kept or counted."""

import sys
from typing import NamedTuple

import pytest

from tests.real.conftest import find
from tests.real.test_repositories import sh, turn
from tests.system.test_clones import fingerprint

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(600)]

WHEEL = """
import zipfile
with zipfile.ZipFile("wheels/hi_there-1-py3-none-any.whl", "w") as wheel:
    wheel.writestr("hi_there.py", "")
    wheel.writestr("hi_there-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: hi-there\\nVersion: 1\\n")
    wheel.writestr("hi_there-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("hi_there-1.dist-info/RECORD", "")
"""
NODE = '{"name": "%s", "version": "1.0.0"%s}'
PRE_COMMIT = """
repos: [{repo: local, hooks: [{id: no-evil, name: no evil, language: pygrep, entry: evil, files: txt}]}]
"""


class Tool(NamedTuple):
    """A tool: its programs, what a person has committed, what an agent does, what that prints, which files it leaves."""

    programs: tuple[str, ...]
    files: dict[str, str]
    deed: str
    said: str
    left: set[str] = set()  # noqa: RUF012 - nobody changes it


TOOLS = {
    "npm": Tool(
        ("npm", "node"),
        {"dep/package.json": NODE % ("dep", ""), "dep/index.js": "", "t.test.js": 'require("dep")',
         "package.json": NODE % ("p", ', "dependencies": {"dep": "file:dep"}'), ".gitignore": "node_modules/"},
        "npm install --offline --no-audit --silent; node --test >/dev/null; npm ls | grep -o dep@1.0.0", "dep@1.0.0\n",
        {"package-lock.json"},
    ),
    "pip": Tool(
        ("python3",), {".gitignore": "v/", "wheel.py": WHEEL, "wheels/.keep": ""},
        "python3 wheel.py; python3 -m venv v; v/bin/pip install -q --no-index --find-links wheels hi-there; "
        "v/bin/python -c 'import hi_there; print(hi_there.__name__)'", "hi_there\n", {"wheels/hi_there-1-py3-none-any.whl"},
    ),
    "uv": Tool(
        ("uv", "python3"), {".gitignore": ".venv/", "wheel.py": WHEEL, "wheels/.keep": ""},
        "python3 wheel.py; uv venv -q -p python3; uv pip install -q --no-index --find-links wheels hi-there; "
        "uv run -q --no-project python -c 'import hi_there; print(hi_there.__name__)'", "hi_there\n",
        {"wheels/hi_there-1-py3-none-any.whl"},
    ),
    "cargo": Tool(
        ("cargo", "rustc"),
        {"Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ndep = {path = "dep"}\n',
         "src/main.rs": "fn main() { println!(\"{}\", dep::hi()); }", ".gitignore": "target/",
         "dep/Cargo.toml": '[package]\nname = "dep"\nversion = "0.1.0"\nedition = "2021"\n',
         "dep/src/lib.rs": 'pub fn hi() -> &\'static str { "hi" }\n#[test]\nfn t() { assert_eq!(hi(), "hi"); }\n'},
        "cargo test -q --offline --workspace >/dev/null 2>&1; cargo run -q --offline", "hi\n", {"Cargo.lock"},
    ),
    "pre-commit": Tool(
        ("pre-commit",), {".pre-commit-config.yaml": PRE_COMMIT},
        "pre-commit install >/dev/null; echo evil > a.txt; git add a.txt; git commit -qm evil 2>/dev/null || echo held; "
        "echo good > a.txt; git commit -qam good >/dev/null 2>&1; git log -1 --format=%s", "held\ngood\n",
    ),
    "hooks of git's": Tool(
        (), {"hooks/pre-commit": "#!/bin/sh\necho ran > ran\n"},
        "chmod +x hooks/pre-commit; git config core.hooksPath hooks; git commit -q --allow-empty -m x; cat ran", "ran\n",
        {"hooks/pre-commit", "ran"},
    ),
    "worktrees of git's": Tool(
        (), {".gitignore": "/other/"},
        "git worktree add -q -b side other; cd other; echo side > side; git add side; git commit -qm side; cd ..; "
        "git merge -q side; git worktree remove other; git worktree list | wc -l", "1\n",
    ),
}  # fmt: skip


def configuration(programs):
    """Return the daemon's configuration that shows agents these programs, and what they need of a Python's installation."""
    elsewhere = [path for path in programs if not path.is_relative_to("/usr")]
    places = {str(path.parent) for path in elsewhere}
    shown = {str(path.parent.parent) for path in elsewhere} | ({sys.base_prefix} if elsewhere else set())
    return f"[agent]\npath = {sorted(places)}\nbind_ro = {sorted(shown)}\n"


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_works_in_a_clone(daemon, name):
    tool = TOOLS[name]
    config = configuration(find(*tool.programs))
    work = daemon.workspace("app", git=True)
    for path, text in tool.files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    sh(daemon, work, "git add -A; git commit -qm files")
    before = fingerprint(work)
    daemon.start(config=config)
    assert turn(daemon, "spawn", "fix", "-w", work, "--clone", stdin=f"set -e; {tool.deed}") == tool.said
    assert fingerprint(work) == before
    clone = daemon.show("fix")["clone"]
    changed = sh(daemon, work, f"git diff --name-only {clone['head']} refs/substrat/fix/wip").split()
    assert set(changed) == tool.left


@pytest.mark.parametrize("install", ["git lfs install --skip-repo", "git lfs install --local"])
def test_git_lfs_works_in_a_clone_and_its_objects_come_with_the_landing(daemon, monkeypatch, install):
    """A clone has pointers, as after `git lfs install --skip-smudge`; a person's own objects aren't shown to an agent."""
    (lfs,) = find("git-lfs")
    monkeypatch.setenv("PATH", f"{lfs.parent}:/usr/bin:/bin")
    work = daemon.workspace("app", git=True)
    sh(daemon, work, f"{install}; git lfs track '*.bin'; echo old > old.bin; git add -A; git commit -qm lfs")
    daemon.start(config=configuration([lfs]))
    said = turn(daemon, "spawn", "fix", "-w", work, "--clone", stdin="""
        set -e; grep -c oid old.bin; echo new > new.bin; git add new.bin; git commit -qm new
        git cat-file -p HEAD:new.bin | grep -c oid; echo more > more.bin; git status -s
    """)  # fmt: skip
    assert said == "1\n1\n?? more.bin\n"
    assert "oid" in sh(daemon, work, "git show refs/substrat/fix/wip:more.bin")
    daemon.ok("merge", "fix")
    assert (work / "new.bin").read_text() == "new\n"
    assert sh(daemon, work, "git lfs fsck; git status -s") == "Git LFS fsck OK\n"
