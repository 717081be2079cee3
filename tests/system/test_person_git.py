"""The person's own git configuration in an agent's sandbox: what holds there, and what is told to be missing."""

import re

import pytest

COMMIT = "/shell touch a.key b.txt && git add -A && git commit -qm work"


def committed(house, work, commit="HEAD"):
    return set(house.git(work, "ls-tree", "-r", "--name-only", commit).split())


IGNORED = {
    "the default file": ("", ".config/git/ignore"),
    "a named file": ("[core]\n\texcludesFile = ~/mine\n", "mine"),
    "a relative include": ("[include]\n\tpath = more/gitconfig\n", "mine"),
    "a condition": ('[includeIf "gitdir:{work}/"]\n\tpath = ~/more/gitconfig\n', "mine"),
    "a condition from here": ('[includeIf "gitdir:./proj/"]\n\tpath = more/gitconfig\n', "mine"),
    "a link": ("[core]\n\texcludesFile = ~/link\n", "mine"),
}


def test_a_file_that_the_person_ignores_everywhere_is_not_committed(house):
    work = house.workspace("home/proj", git=True)
    (house.home / "more").mkdir()
    (house.home / "more" / "gitconfig").write_text("[core]\n\texcludesfile = ~/mine\n")
    (house.home / "link").symlink_to("more/../mine")
    house.start()
    house.spawn("anna", work)
    for kind, (settings, path) in IGNORED.items():
        (house.home / path).parent.mkdir(parents=True, exist_ok=True)
        (house.home / path).write_text("*.key")
        (house.home / ".gitconfig").write_text(settings.format(work=work))
        house.ok("send", "anna", COMMIT, "--wait")
        assert committed(house, work) == {"README.md", "b.txt"}, kind
        house.git(work, "reset", "-q", "--hard", "HEAD~1")
        (house.home / path).unlink()


def test_a_clone_commits_and_keeps_by_the_persons_rules(house):
    work = house.workspace(git=True)
    (house.home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n\tautocrlf = true\n")
    (house.home / "mine").write_text("*.key\n")
    house.start()
    crlf = "rm README.md && git checkout -q README.md && od -c README.md"
    house.spawn("anna", work, f"{COMMIT} && touch later.key && {crlf}", "--clone")
    assert "\\r  \\n" in house.shell("anna")
    assert house.show("anna")["clone"]["files"] == 0
    assert committed(house, work, "refs/substrat/anna/wip") == {"README.md", "b.txt"}


LFS = '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\trequired = true\n'
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n"


@pytest.fixture
def tools(house):
    """A directory with a `git-lfs` that makes a pointer of the content that it is given, and leaves pointers alone."""
    directory = house.directory / "tools"
    directory.mkdir()
    program = directory / "git-lfs"
    pointer = POINTER.format('$(printf %s "$x" | sha256sum | cut -c-64)').replace("\n", "\\n")
    program.write_text(
        f'#!/bin/sh\nx=$(cat)\ncase "$x" in version*) printf "%s\\n" "$x"; exit;; esac\n'
        f'[ $1 = smudge ] && printf %s "$x" || printf "{pointer}"\n'
    )
    program.chmod(0o755)
    return directory


def in_place(house, name):
    return house.workspace(name, git=True)


def linked(house, name):
    work = house.directory / f"tree-{name}"
    house.git(house.workspace(name, git=True), "worktree", "add", "-q", "-b", "side", work)
    return work


def submodule(house, name):
    library, main = house.workspace("library", git=True), house.workspace(name, git=True)
    house.git(main, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "sub")
    return main / "sub"


def below(house, name):
    work = house.workspace(name, git=True) / "below"
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


def begin(house, settings, files, script, **how):
    """Commit files in each place and give it an agent, whose turn ends; returns the places."""
    works = {}
    for name, (place, _) in PLACES.items():
        works[name] = work = place(house, name)
        for path, text in {".gitattributes": "*.bin filter=lfs\n", **files}.items():
            (work / path).write_text(text)
        house.git(work, "add", ".")
        house.git(work, "commit", "-qm", "files")
    (house.home / ".gitconfig").write_text(settings)
    house.start(**how)
    for name, (_, options) in PLACES.items():
        house.ok("spawn", name, "-w", works[name], *options, f"/shell {script}")
    house.ok("wait", *PLACES)
    return works


@pytest.mark.slow
def test_a_filter_of_the_persons_holds_where_its_program_is_shown(house, tools):
    script = "printf large > a.bin && git add -A && git commit -qm a && printf other > b.bin"
    works = begin(house, LFS, {}, script, config=f'[agent]\npath = ["{tools}"]\n')
    for name, work in works.items():
        is_clone = "clone" in name
        if is_clone:
            assert house.show(name)["clone"]["files"] == 1, name
            assert house.git(work, "show", f"refs/substrat/{name}/wip:./b.bin").startswith("version"), name
        head = f"refs/substrat/{name}/head" if is_clone else "HEAD"
        assert house.git(work, "show", f"{head}:./a.bin").startswith("version"), name
        assert "without" not in house.show(name), name


@pytest.mark.slow
def test_a_pointer_that_becomes_content_for_want_of_a_filter_is_told(house):
    change = "printf content > a.bin; sed -i s/5/6/ sub.bin; printf text > b.txt"
    pointers = dict.fromkeys(("a.bin", "sub.bin", "other.bin"), POINTER.format("0" * 64))
    works = begin(
        house, LFS.replace("git-lfs", "/nowhere/git-lfs"), pointers, f"{change}; git add -A && git commit -qm changed"
    )
    for name, work in works.items():
        (finding,) = house.show(name)["findings"]
        assert re.search(r"git's filter lfs: (below/)?a\.bin; `git add --renormalize \.`", finding["text"]), name
        assert finding["path"] == str(work / "a.bin")
        assert len(house.events(name, "workspace:unfiltered")) == 1, name
        house.ok("accept", name)
        house.ok("send", name, "/shell git status")
    house.ok("wait", *PLACES)
    assert [name for name in PLACES if "findings" in house.show(name)] == []


def test_a_filter_whose_program_is_not_shown_is_named_at_the_spawn_and_in_show(house):
    work = house.workspace(git=True)
    (house.home / ".gitconfig").write_text(LFS.replace("git-lfs", "/nowhere/git-lfs"))
    house.start()
    spawned = house.ctl("spawn", "anna", "-w", work)
    assert "anna is without git's filter lfs" in spawned.err
    assert "without     git's filter lfs" in house.ctl("show", "anna").out
    (house.home / ".gitconfig").unlink()
    assert "without" not in house.show("anna")
