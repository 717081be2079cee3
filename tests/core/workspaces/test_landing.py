"""Which files of a landing a person must look at, each beside a harmless neighbour."""

from substrat.core.workspaces import diffs, landing
from substrat.core.workspaces.diffs import LINK, SUBMODULE, ChangedFile
from substrat.core.workspaces.landing import Landing, LandingMode, Surroundings, suspects
from tests.support.cases import each

LINKS = {
    ".vscode": "tools/editor",
    "sub/.envrc": "../tools/env.sh",
    ".husky": "first",
    "first": "second",
    "second": "tools/hooks",
    "deep/up": "..",
    "loop": "loop",
    "vendor": "/opt/vendor",
    "libx.so": "libx.so.1",
}
AROUND = Surroundings(LINKS, heads=("HEAD", "fixtures/repo.git/HEAD"), programs=("tools/clean.sh", "hooks"))


def held(path, *, status="added", mode="100644", around=AROUND):
    file = ChangedFile(path, None, status, 1, 0, mode, "0" * 40)
    return [one.path for one in suspects([file], around)] == [path]


@each("path", [
    ".envrc", ".EnvRC", "a/b/.vscode/tasks.json", ".v\u017fcode/tasks.json", ".en\u200bvrc", ".hus\u212ay/pre-commit",
    "x.CODE-workspace", ".gitmodules", "sub/.GitAttributes", ".git\ufe0fattributes", ".worktreeinclude",
    ".cursor/worktrees.json", "sub/.SL/config", "mise.prod.toml", ".amp/settings.json",
    ".lfsconfig", "sub/.LFSConfig", ".cursor/rules/substrat.mdc", "sub/.cursor/.gitignore",
    "x/HEAD", "x/head", "fixtures/repo.git/config", "fixtures/repo.git/hooks/post-checkout",
    "tools/clean.sh", "hooks/post-merge", "tools/editor/tasks.json", "tools/env.sh", "tools/hooks/pre-commit", "first",
])  # fmt: skip
def test_files_that_the_host_may_obey(path):
    assert held(path)


@each("path", [
    "README.md", "envrc", ".env", "vscode/tasks.json", ".v\u0161code/x", ".envrc.md", "gitattributes", ".gitignore",
    "x/HEADER", "sl/config", "mise.prod.json",
    "fixtures/config", "tools/clean.sh.md", "hook", "tools/editors/x", "tools/env", "Makefile", "top-level",
])  # fmt: skip
def test_files_that_nothing_obeys(path):
    assert not held(path)


def test_substrats_own_files_are_named_so():
    for path in (".cursor/mcp.json", "sub/.cursor/rules/substrat-instructions.mdc"):
        (one,) = suspects([ChangedFile(path, None, "added", 1, 0, "100644", "0" * 40)], AROUND)
        assert one.reason.startswith("Substrat's own")
    (changed,) = suspects([ChangedFile(".cursor/mcp.json", None, "modified", 1, 0, "100644", "0" * 40)], AROUND)
    assert changed.reason == "the host may run or obey .cursor unasked", "the project has one"


def test_names_that_no_disk_takes():
    fine = [ChangedFile(path, None, "added", 1, 0, "100644", "0" * 40) for path in ("a" * 255, "\u00e4" * 127, "d/" * 2047)]
    assert landing.unwritable(fine) is None
    for path in ("a" * 256, "sub/" + "\u00e4" * 128, "d/" * 2048):
        file = ChangedFile(path, None, "added", 1, 0, "100644", "0" * 40)
        assert "it has a file " in str(landing.unwritable([*fine, file]))
        assert landing.unwritable([file._replace(status="deleted")]) is None


def test_what_is_told_beside_a_landing():
    files = [ChangedFile(path, None, "added", 1, 0, "100644", "0" * 40) for path in ("a", "AGENTS.md", "x/claude.md")]
    assert landing.told(files, ["Me <m@x>", "Ev\til <e@x>", "Ev\til <e@x>"], {"Me <m@x>"}) == (
        "AGENTS.md, x/claude.md change what agents are told",
        "some of its commits are by Ev?il <e@x>, not by you or your agents: agents can write any name",
    )
    assert landing.told(files[:1], ["Me <m@x>"], {"Me <m@x>"}) == ()


@each(("path", "target"), [
    ("a", "/etc/passwd"), ("a", ".."), ("a/b", "../../x"), ("a", "sub/../../x"), ("a", "./.."), ("a/b", ".././../x"),
    ("deep/x", "up/../outside"), ("a", "deep/up/../outside"), ("a", "vendor/secret"), ("a", "vendor"), ("a", "loop"),
    ("a", "b/../c"), ("a", ".git/hooks"), ("a/b", "../.GIT/config"), ("a", "sub/.git"), ("a", "a"),
])  # fmt: skip
def test_links_out_of_the_tree(path, target):
    assert held(path, mode=LINK, around=AROUND._replace(links={**LINKS, path: target}))


@each(("path", "target"), [
    ("a", "sub/part.txt"), ("a/b", "../x"), ("a/b/c", "../../x"), ("a", "."), ("a/b", ".."), ("a", "nowhere/at/all"),
    ("deep/x", "up/README.md"), ("a", "deep/up/deep"), ("libx", "libx.so"), ("a", "..x"), ("a", "sub//part.txt"),
    ("a", "git"),
])  # fmt: skip
def test_links_within_the_tree(path, target):
    assert not held(path, mode=LINK, around=AROUND._replace(links={**LINKS, path: target}))


def test_a_link_whose_target_is_unknown_is_held():
    assert held("new", mode=LINK)


def test_a_commit_of_another_repository_is_held():
    assert held("library", status="modified", mode=SUBMODULE)
    assert not held("library", status="deleted", mode="000000")


@each(("path", "is_held"), [
    (".gitattributes", True), ("sub/.gitmodules", True), (".envrc", False), ("hooks/post-merge", False),
    ("README.md", False),
])  # fmt: skip
def test_deleted_files_need_a_look_where_they_decide_about_others(path, is_held):
    assert held(path, status="deleted", mode="000000") == is_held


@each(("accepted", "left"), [
    ((), 3), ((".envrc",), 2), (("sub",), 1), (("sub/",), 1), (("su",), 3), ((".",), 0), (("sub/.envrc", ".envrc"), 1),
])  # fmt: skip
def test_accepted_files_and_directories(accepted, left):
    found = [landing.Suspect(path, "x") for path in (".envrc", "sub/.envrc", "sub/.vscode/x")]
    assert len(landing.unaccepted(found, accepted)) == left


@each(("paths", "options"), [
    ((".envrc",), "--accept .envrc"),
    (("a b/.envrc", "c;d/.envrc"), "--accept 'a b/.envrc' --accept 'c;d/.envrc'"),
    (("a\n/.envrc",), "--accept ."),
    (("\udcff/.envrc",), "--accept ."),
    (("a\u202e/.envrc",), "--accept ."),
    (tuple(f"{n}/.envrc" for n in range(9)), "--accept ."),
])  # fmt: skip
def test_the_options_that_accept_files_can_be_typed(paths, options):
    assert landing.listed([landing.Suspect(path, "x") for path in paths])[1] == options


@each(("wish", "wanted"), [
    (Landing(0, "a", "main"), "merge fix --accept x"),
    (Landing(0, "a", "topic", LandingMode.SQUASH), "merge fix --accept x --into topic --squash"),
    (
        Landing(0, "a", "main", LandingMode.FF_ONLY, "a b", "make; true"),
        "merge fix --accept x --ff-only -m 'a b' --check 'make; true'",
    ),
])  # fmt: skip
def test_the_command_that_asks_again_asks_for_the_same(wish, wanted):
    assert landing.command("fix", wish, "main", "--accept x") == f"substratctl {wanted}"


def test_a_tree_is_read_with_its_links():
    entries = (b"120000 blob 1\ta\nb", b"100644 blob 2\tx/HEAD", b"120000 blob 3\tc\xff")
    output = b"\0".join(entries) + b"\0\0" + b"6\n../\n\0x\n1\n/\n"
    assert diffs.parse_tree(output) == ({"a\nb": "../\n", "c\udcff": "/"}, ("x/HEAD",))
    assert diffs.parse_tree(b"\0") == ({}, ())
