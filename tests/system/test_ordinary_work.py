"""The ordinary work of a Python, a node, a Rust and a C project goes through in a sandbox on the filtered network.

Each agent clones a project from a server, or works in a private clone of the user's checkout; it installs what it needs,
builds, tests, commits and pushes.
"""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.test_network import BOTH_FORMS, form, world  # noqa: F401 - fixtures

SITE = "https://www.allowed.test/site"
CRATE = {
    "Cargo.toml": '[package]\nname = "hello-there"\nversion = "1.0.0"\nedition = "2021"\n',
    "src/lib.rs": 'pub fn hello() -> &\'static str { "hello from cargo" }\n',
}


class Project(NamedTuple):
    """A project: its files, and what installs, builds and tests it."""

    needs: tuple[str, ...]
    files: dict[str, str]
    script: str


PROJECTS = {
    "python": Project(
        ("python3",),
        {
            "pyproject.toml": '[project]\nname = "p"\nversion = "1"\ndependencies = ["hi-there"]\n',
            "test_p.py": "import hi_there, unittest\nclass T(unittest.TestCase):\n  def test(self): pass\n",
            ".gitignore": "v/\n",
        },
        f"python3 -m venv v; v/bin/pip install -q -i {SITE}/simple/ hi-there; v/bin/python -m unittest -v",
    ),
    "node": Project(
        ("npm", "node"),
        {
            "package.json": '{"name": "p", "version": "1.0.0", "dependencies": {"hi": "1.0.0"}}\n',
            ".npmrc": f"registry={SITE}/npm/\nupdate-notifier=false\naudit=false\nfund=false\n",
            "p.test.js": 'require("node:test")("t", () => require("hi"));\n',
            ".gitignore": "node_modules/\n",
        },
        "npm install && node --test",
    ),
    "rust": Project(
        ("cargo", "rustc"),
        {
            "Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nhello-there = "1"\n',
            "src/lib.rs": '#[test]\nfn t() { assert_eq!(hello_there::hello(), "hello from cargo"); }\n',
            ".cargo/config.toml": (
                f'[source.crates-io]\nreplace-with = "ours"\n[source.ours]\nregistry = "sparse+{SITE}/cargo/"\n'
                "[net]\nretry = 0\n"
            ),
            ".gitignore": "target/\n",
        },
        "cargo build -q && cargo test -q",
    ),
    "c": Project(
        ("gcc", "make"),
        {
            "Makefile": "p: p.c\n\tgcc -O2 -Wall -o p p.c\ntest: p\n\t./p | grep 'hello from c'\n",
            "p.c": '#include <stdio.h>\nint main(void) { return puts("hello from c") < 0; }\n',
            ".gitignore": "p\n",
        },
        "make && make test",
    ),
}


def publish_crate(site):
    """Put a crate and its index where cargo looks for them (doc.rust-lang.org/cargo/reference/registry-index.html)."""
    place = site / "cargo"
    if place.exists():
        return
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in CRATE.items():
            entry = tarfile.TarInfo(f"hello-there-1.0.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    (place / "he" / "ll").mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({"dl": f"{SITE}/cargo/{{crate}}.crate"}))
    (place / "hello-there.crate").write_bytes(data.getvalue())
    index = {"name": "hello-there", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(data.getvalue()).hexdigest(),
             "features": {}, "yanked": False}  # fmt: skip
    (place / "he" / "ll" / "hello-there").write_text(json.dumps(index) + "\n")


def publish(daemon, directory, name, files):
    """Put a project's first commit into a bare repository that can be cloned from, and pushed to with the token."""
    source, bare = directory / "repositories" / f"{name}-source", directory / "repositories" / f"{name}.git"
    for path, text in files.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    daemon.git(source, "init", "-q", "-b", "main")
    daemon.git(source, "add", "-A")
    daemon.git(source, "commit", "-q", "-m", "first")
    daemon.git(source, "clone", "-q", "--bare", source, bare)
    return bare


def tools(names):
    """Where tools lie that aren't the system's, and what they need to see; None where one is missing."""
    found = [shutil.which(name) for name in names]
    if None in found:
        return None
    further = [Path(path) for path in found if not path.startswith(("/usr/", "/bin/"))]
    if not further:
        return [], []
    # rustup's programs choose a toolchain by themselves; the toolchain's own need nothing of a home.
    toolchain = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=False).stdout.strip()
    return ([f"{toolchain}/bin"], [toolchain]) if toolchain else None


@pytest.mark.slow
@BOTH_FORMS
@pytest.mark.parametrize("name", PROJECTS)
@pytest.mark.parametrize("place", ["in place", "in a clone"])
def test_a_project_is_cloned_built_tested_and_pushed(daemon, world, name, form, place):  # noqa: F811 - fixtures
    if place == "in a clone" and form == "proxy":
        pytest.skip("what the clone changes, the network's form doesn't")
    project, directory = PROJECTS[name], world[1]
    if (found := tools(project.needs)) is None:
        pytest.skip(f"there is no {' or '.join(project.needs)}")
    path, shown = found
    publish_crate(directory / "site")
    repository = f"{name}-{form}-{place.replace(' ', '-')}"
    bare = publish(daemon, directory, repository, project.files)
    daemon.prefix = world[0]
    daemon.start(
        config=f"[agent]\npath = {json.dumps(path)}\nbind_ro = {json.dumps(shown)}\n"
        f'[sandbox]\nfiltered = "{form}"\nca = "{directory / "only.pem"}"\n'
    )
    url = f"https://www.allowed.test/git/{repository}.git"
    helper = "!f() { echo username=x; echo password=$GIT_TOKEN; }; f"
    options = ["--network", "filtered", "--allow", "*.allowed.test", "--env", "GIT_TOKEN=token"]
    if place == "in a clone":
        work, get, branch = daemon.directory / "src", "pwd", "HEAD:main"
        daemon.git(daemon.directory, "clone", "-q", bare, work)
        daemon.git(work, "remote", "set-url", "origin", url)
        options.append("--clone")
    else:
        work, get, branch = daemon.workspace(), f"git clone -q {url} src; cd src", "main"
    script = (
        f"set -e; {get}; {project.script}; echo more >> README; git add -A; "
        f"git commit -q -m 'by an agent'; git -c credential.helper='{helper}' push -q origin {branch}; echo all of it"
    )
    daemon.spawn("anna", work, f"/shell {script}\n", *options)
    said = daemon.shell("anna")
    assert "all of it" in said, said
    pushed = daemon.git(bare, "show", "--stat", "--format=%an %s", "main")
    assert "by an agent" in pushed
    assert "README" in pushed
    assert daemon.git(bare, "rev-list", "--count", "main").strip() == "2"
