"""The person's own git configuration in an agent's sandbox: what holds there, and what is told to be missing."""

import re

import pytest

COMMIT = "/shell touch a.key b.txt && git add -A && git commit -qm work"


def committed(daemon, work, commit="HEAD"):
    return set(daemon.git(work, "ls-tree", "-r", "--name-only", commit).split())


IGNORED = {
    "the default file": ("", ".config/git/ignore"),
    "a named file": ("[core]\n\texcludesFile = ~/mine\n", "mine"),
    "a relative include": ("[include]\n\tpath = more/gitconfig\n", "mine"),
    "a condition": ('[includeIf "gitdir:{work}/"]\n\tpath = ~/more/gitconfig\n', "mine"),
    "a condition from here": ('[includeIf "gitdir:./proj/"]\n\tpath = more/gitconfig\n', "mine"),
    "a link": ("[core]\n\texcludesFile = ~/link\n", "mine"),
}


def test_a_file_that_the_person_ignores_everywhere_is_not_committed(daemon):
    work = daemon.workspace("home/proj", git=True)
    (daemon.home / "more").mkdir()
    (daemon.home / "more" / "gitconfig").write_text("[core]\n\texcludesfile = ~/mine\n")
    (daemon.home / "link").symlink_to("more/../mine")
    daemon.start()
    daemon.spawn("anna", work)
    for kind, (settings, path) in IGNORED.items():
        (daemon.home / path).parent.mkdir(parents=True, exist_ok=True)
        (daemon.home / path).write_text("*.key")
        (daemon.home / ".gitconfig").write_text(settings.format(work=work))
        daemon.ok("send", "anna", COMMIT, "--wait")
        assert committed(daemon, work) == {"README.md", "b.txt"}, kind
        daemon.git(work, "reset", "-q", "--hard", "HEAD~1")
        (daemon.home / path).unlink()


def test_a_clone_commits_and_keeps_by_the_persons_rules(daemon):
    work = daemon.workspace(git=True)
    (daemon.home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n\tautocrlf = true\n")
    (daemon.home / "mine").write_text("*.key\n")
    daemon.start()
    crlf = "rm README.md && git checkout -q README.md && od -c README.md"
    daemon.spawn("anna", work, f"{COMMIT} && touch later.key && {crlf}", "--clone")
    assert "\\r  \\n" in daemon.shell("anna")
    assert daemon.show("anna")["clone"]["files"] == 0
    assert committed(daemon, work, "refs/substrat/anna/wip") == {"README.md", "b.txt"}


LFS = '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\trequired = true\n'
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n"


@pytest.fixture
def tools(daemon):
    """A directory with a `git-lfs` that makes a pointer of the content that it is given, and leaves pointers alone."""
    directory = daemon.directory / "tools"
    directory.mkdir()
    program = directory / "git-lfs"
    pointer = POINTER.format('$(printf %s "$x" | sha256sum | cut -c-64)').replace("\n", "\\n")
    program.write_text(
        f'#!/bin/sh\nx=$(cat)\ncase "$x" in version*) printf "%s\\n" "$x"; exit;; esac\n'
        f'[ $1 = smudge ] && printf %s "$x" || printf "{pointer}"\n'
    )
    program.chmod(0o755)
    return directory


def in_place(daemon, name):
    return daemon.workspace(name, git=True)


def linked(daemon, name):
    work = daemon.directory / f"tree-{name}"
    daemon.git(daemon.workspace(name, git=True), "worktree", "add", "-q", "-b", "side", work)
    return work


def submodule(daemon, name):
    library, main = daemon.workspace("library", git=True), daemon.workspace(name, git=True)
    daemon.git(main, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "sub")
    return main / "sub"


def below(daemon, name):
    work = daemon.workspace(name, git=True) / "below"
    work.mkdir()
    return work


PLACES = {
    "in-place": (in_place, ()),
    "clone": (in_place, ("--clone",)),
    "linked": (linked, ()),
    "linked-clone": (linked, ("--clone",)),
    "submodule": (submodule, ()),
    "clone-below": (below, ("--clone",)),
}


def begin(daemon, settings, files, script, **how):
    """Commit files in each place and give it an agent, whose turn ends; returns the places."""
    works = {}
    for name, (place, _) in PLACES.items():
        works[name] = work = place(daemon, name)
        for path, text in {".gitattributes": "*.bin filter=lfs\n", **files}.items():
            (work / path).write_text(text)
        daemon.git(work, "add", ".")
        daemon.git(work, "commit", "-qm", "files")
    (daemon.home / ".gitconfig").write_text(settings)
    daemon.start(**how)
    for name, (_, options) in PLACES.items():
        daemon.ok("spawn", name, "-w", works[name], *options, f"/shell {script}")
    daemon.ok("wait", *PLACES)
    return works


@pytest.mark.slow
def test_a_filter_of_the_persons_holds_where_its_program_is_shown(daemon, tools):
    script = "printf large > a.bin && git add -A && git commit -qm a && printf other > b.bin"
    works = begin(daemon, LFS, {}, script, config=f'[agent]\npath = ["{tools}"]\n')
    for name, work in works.items():
        is_clone = "clone" in name
        if is_clone:
            assert daemon.show(name)["clone"]["files"] == 1, name
            assert daemon.git(work, "show", f"refs/substrat/{name}/wip:./b.bin").startswith("version"), name
        head = f"refs/substrat/{name}/head" if is_clone else "HEAD"
        assert daemon.git(work, "show", f"{head}:./a.bin").startswith("version"), name
        assert "without" not in daemon.show(name), name


@pytest.mark.slow
def test_a_pointer_that_becomes_content_for_want_of_a_filter_is_told(daemon):
    change = "printf content > a.bin; sed -i s/5/6/ sub.bin; printf text > b.txt"
    pointers = dict.fromkeys(("a.bin", "sub.bin", "other.bin"), POINTER.format("0" * 64))
    works = begin(
        daemon, LFS.replace("git-lfs", "/nowhere/git-lfs"), pointers, f"{change}; git add -A && git commit -qm changed"
    )
    for name, work in works.items():
        (finding,) = daemon.show(name)["findings"]
        assert re.search(r"git's filter lfs: (below/)?a\.bin; `git add --renormalize \.`", finding["text"]), name
        assert finding["path"] == str(work / "a.bin")
        assert len(daemon.events(name, "workspace:unfiltered")) == 1, name
        daemon.ok("accept", name)
        daemon.ok("send", name, "/shell git status")
    daemon.ok("wait", *PLACES)
    assert [name for name in PLACES if "findings" in daemon.show(name)] == []


def test_a_filter_whose_program_is_not_shown_is_named_at_the_spawn_and_in_show(daemon):
    work = daemon.workspace(git=True)
    (daemon.home / ".gitconfig").write_text(LFS.replace("git-lfs", "/nowhere/git-lfs"))
    daemon.start()
    spawned = daemon.ctl("spawn", "anna", "-w", work)
    assert "anna is without git's filter lfs" in spawned.err
    assert "without     git's filter lfs" in daemon.ctl("show", "anna").out
    (daemon.home / ".gitconfig").unlink()
    assert "without" not in daemon.show("anna")
