"""Work that would make the host run or obey something once it is in the user's checkout: none of it comes there unseen."""

import shlex

import pytest

from tests.system.test_clones import fingerprint

FORMS = {
    "a hook of the user's own directory of hooks": ("printf x > hooks/post-merge", ["hooks/post-merge"]),
    "a name in other letters": ("printf x > .EnvRC", [".EnvRC"]),
    "a name in letters that fold": ("mkdir .v\u017fcode; printf {} > .v\u017fcode/tasks.json", [".v\u017fcode/tasks.json"]),
    "a name with a letter that nobody sees": ("printf x > sub/.en\u200bvrc", ["sub/.en\u200bvrc"]),
    "a link out of the tree by way of another": ("ln -s up/../outside deep/x", ["deep/x"]),
    "a link to a link of the user's": ("ln -s vendor deep/y; ln -s ../vendor deep/z", ["deep/z"]),
    "a link into git's own directory": ("ln -s .git/hooks build", ["build"]),
    "a filter further down": ("printf '* filter=x' > sub/.GitAttributes", ["sub/.GitAttributes"]),
    "attributes that are gone": ("git rm -q .gitattributes", [".gitattributes"]),
    "a file renamed onto a protected name": ("git mv sub/part.txt sub/.mise.toml", ["sub/.mise.toml"]),
    "a mode": ("chmod +x .husky/pre-commit", [".husky/pre-commit"]),
    "a file that a protected link leads to": ("printf {} > tools/editor/tasks.json", ["tools/editor/tasks.json"]),
    "a directory replaced by a link": ("git rm -qr deep; ln -s ../elsewhere deep", ["deep"]),
    "the configuration of a committed repository": ("printf x > fixtures/repo.git/config", ["fixtures/repo.git/config"]),
    "a new committed repository": ("mkdir r; printf x > r/HEAD; printf y > r/config", ["r/HEAD", "r/config"]),
    "a commit of another repository": ("git init -q n; git -C n commit -q --allow-empty -m x; git add n", ["n"]),
    "another address of a submodule": ("git config -f .gitmodules submodule.a.url https://x/a", [".gitmodules"]),
    "what other agents get": (
        "mkdir -p sub/.cursor; printf {} > sub/.cursor/worktrees.json; printf .env > .worktreeinclude",
        [".worktreeinclude", "sub/.cursor/worktrees.json"],
    ),
    "a name that nobody can type": ("d=$(printf 'a\\nb'); mkdir \"$d\"; printf x > \"$d/.envrc\"", ["a\nb/.envrc"]),
}  # fmt: skip
"""What an agent commits beside a harmless file, and the files that a person must look at."""

# Trees that no git command makes in a checkout: git on the host would write such a file below `.git`, or follow the link.
FORGED = {
    "a nested git directory": ("100644", ".git"),
    "the same in letters that some file systems fold": ("100644", ".gi\u200ct"),
    "a link in the place of .gitmodules": ("120000", ".gitmodules"),
    "a way up": ("100644", ".."),
}
FORGE = """\
set -e
blob=$(printf 'gitdir: /tmp' | git hash-object -w --stdin)
tree=$(printf '{mode} blob %s\\t{name}\\n' $blob | git mktree)
tree=$( (git ls-tree HEAD; printf '040000 tree %s\\tnested\\n' $tree) | git mktree)
git reset -q --soft $(git commit-tree -m forged -p HEAD $tree)""".replace("\n", "; ")


@pytest.fixture
def app(daemon):
    """A repository of a person with links, hooks and a committed repository."""
    work = daemon.workspace("app", git=True)
    for name in ("sub/part.txt", "deep/file", "tools/editor/settings.json", ".husky/pre-commit", "fixtures/repo.git/HEAD"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x\n")
    (work / ".gitattributes").write_text("*.bin binary\n")
    (work / "hooks").mkdir()
    (work / "hooks" / "kept").touch()
    for name, target in ((".vscode", "tools/editor"), ("deep/up", ".."), ("vendor", "/opt/vendor")):
        (work / name).symlink_to(target)
    daemon.git(work, "add", "-A")
    daemon.git(work, "commit", "-qm", "a project")
    for key, value in (("core.hooksPath", "hooks"), ("user.name", "Me"), ("user.email", "me@example.invalid")):
        daemon.git(work, "config", key, value)
    return work


@pytest.mark.timeout(240)
def test_nothing_that_the_host_would_obey_lands_unseen(daemon, app):
    daemon.start()
    alone = ("a mode", "a name that nobody can type", "a directory replaced by a link")
    together = [form for form in FORMS if form not in alone]
    shares = {f"a{number}": forms for number, forms in enumerate([*([form] for form in alone), together])}
    for name, forms in shares.items():
        deeds = "; ".join(f"({FORMS[form][0]})" for form in forms)
        script = f"set -e; printf y > harmless-{name}; {deeds}; git add -A; git commit -qm {name}"
        daemon.ok("spawn", name, "-w", app, "--clone", f"/shell sh -c {shlex.quote(script)}")
    daemon.ok("wait", *shares)
    before = fingerprint(app)
    done = daemon.ctl("merge", *shares, "--json")
    wanted = {name: sorted(path for form in forms for path in FORMS[form][1]) for name, forms in shares.items()}
    assert {one["agent"]: one["protected"] for one in done.json} == wanted
    assert {one["outcome"] for one in done.json} == {"refused"}
    assert fingerprint(app) == before
    commands = [item["text"].rpartition(": ")[2] for item in daemon.ok("inbox")]
    assert len(commands) == len(shares)
    # Each command that the inbox names lands what it showed.
    for command in commands[:2]:
        daemon.ok(*shlex.split(command)[1:])
    assert (app / ".husky" / "pre-commit").stat().st_mode & 0o100
    assert (app / "a\nb" / ".envrc").exists()


def test_no_program_of_a_filter_takes_a_file_of_the_agents(daemon, app):
    """Python looks for modules beside its script first, so `filters/json.py` would run in the place of Python's own."""
    daemon.start()
    (app / "filters").mkdir()
    (app / "filters" / "smudge.py").write_text("import json, sys; sys.stdout.write(sys.stdin.read())\n")
    (app / ".gitattributes").write_text("*.txt filter=f\n")
    daemon.git(app, "add", "-A")
    daemon.git(app, "commit", "-qm", "a filter")
    for key in ("clean", "smudge"):
        daemon.git(app, "config", f"filter.f.{key}", "python3 filters/smudge.py")
    deeds = f'echo \'open("{app}/ran", "w")\' > filters/json.py; echo x > a.txt; git add -A; git commit -qm x'
    daemon.spawn("fix", app, f"/shell {deeds}", "--clone")
    at = ("--accept", ".", "--at", daemon.show("fix")["clone"]["head"])
    for command in (("merge", "fix", *at), ("checkout", "fix", daemon.directory / "copy", "--accept", ".")):
        refused = daemon.ctl(*command)
        assert (refused.code, "a.txt selects your git's filter f, 'python3 filters/smudge.py'" in refused.error) == (
            1,
            True,
        ), refused
    daemon.ok("send", "fix", "--wait", "/shell git rm -q a.txt; git commit -qm y")
    assert daemon.ctl("merge", "fix").code == 0, "no file that selects the filter is in it"
    assert (app / "filters" / "json.py").exists()
    assert not (app / "ran").exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_trees_that_no_git_makes_come_into_no_repository(daemon, app):
    daemon.start()
    names = [f"a{number}" for number in range(len(FORGED) + 1)]
    deeds = [FORGE.format(mode=mode, name=name) for mode, name in (*FORGED.values(), ("100644", "fine"))]
    for name, deed in zip(names, deeds, strict=True):
        daemon.ok("spawn", name, "-w", app, "--clone", f"/shell sh -c {shlex.quote(deed)}")
    daemon.ok("wait", *names)
    before = fingerprint(app)
    *forged, control = names
    ahead = {form: daemon.show(name)["clone"]["ahead"] for form, name in zip(FORGED, forged, strict=True)}
    assert ahead == dict.fromkeys(FORGED, 0)
    assert all(daemon.events(name, "clone:not-kept") for name in forged)
    assert daemon.show(control)["clone"]["ahead"] == 1, daemon.shell(control)
    assert {one["outcome"] for one in daemon.ctl("merge", *forged, "--json").json} == {"nothing"}
    assert fingerprint(app) == before
    assert daemon.git(app, "fsck", "--strict", "--no-dangling") == ""
