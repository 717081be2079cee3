"""What a hostile agent tries with files, in a fresh sandbox and after suspend and a new daemon, beside a control outside.

The control runs the same attempts as the same user without a sandbox, on files of its own, where each must succeed.
"""

import json
import os
import subprocess
import sys

import pytest

ATTACK = r"""
import errno, json, mmap, os, stat, sys

place = json.load(open(".attack.json"))
found = {}


def attempt(name, do):
    try:
        do()
        found[name] = "ok"
    except OSError as problem:
        found[name] = errno.errorcode[problem.errno]


def write(path, flags=os.O_WRONLY | os.O_CREAT):
    def do():
        descriptor = os.open(path, flags, 0o600)
        os.write(descriptor, b"x")
        os.close(descriptor)
    return do


def mapped(path):
    def do():
        descriptor = os.open(path, os.O_RDWR)
        mmap.mmap(descriptor, 1)[0] = 65
    return do


def read(path):
    return lambda: os.listdir(path) if os.path.isdir(path) else os.close(os.open(path, os.O_RDONLY))


def linked(target, name):
    def do():
        os.path.lexists(name) and os.unlink(name)
        os.symlink(target, name)
        read(name)()
    return do


def renamed_away(outer, inner):
    # Renames a directory and makes it anew with a file of ours in it.
    def do():
        os.rename(outer, outer + ".old")
        os.makedirs(os.path.dirname(inner), exist_ok=True)
        write(inner)()
    return do


outside = place["outside"]
attempt("1 write", write(outside + "/file", os.O_WRONLY))
attempt("1 create", write(outside + "/new"))
attempt("1 chmod", lambda: os.chmod(outside + "/file", 0o777))
attempt("1 mmap", mapped(outside + "/file"))
attempt("1 truncate", lambda: os.truncate(outside + "/file", 0))
for name in place["secrets"]:
    attempt("2 read " + name, read(name))
attempt("3 absolute", linked(outside + "/file", "l1"))
attempt("3 relative", linked("../" * 30 + outside[1:] + "/file", "l2"))
attempt("3 chained", linked("l1", "l3"))
attempt("4 hard link", lambda: os.link(outside + "/file", "hard"))
for name in place["existing"]:
    attempt("7 write " + name, write(name, os.O_WRONLY))
    attempt("7 remove " + name, lambda: os.unlink(name))
    attempt("7 replace " + name, lambda: (write("evil")(), os.replace("evil", name)))
for name in place["new"]:
    attempt("8 create " + name, lambda: (os.makedirs(os.path.dirname(name) or ".", exist_ok=True), write(name)()))
for outer, inner in place["renamed"]:
    attempt("7 rename " + outer, renamed_away(outer, inner))
attempt("10 mknod", lambda: os.mknod("device", stat.S_IFCHR | 0o600, os.makedev(1, 3)))
print(json.dumps(found))
"""
RUN = """
begin()
done = subprocess.run([sys.executable, "-I", "-S", ".attack.py"], capture_output=True, text=True)
finish(done.stdout or done.stderr)
"""
SHELL = """
begin()
done = subprocess.run(["/bin/sh", "-c", prompt], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
finish(done.stdout)
"""
EXISTING = [
    ".git/config", ".git/hooks/pre-commit", ".git/info/attributes", ".vscode/tasks.json", ".husky/pre-commit",
    "sub/.git/config", "sub/.git/hooks/post-checkout", "sub/deep/.envrc", "deep/er/bare.git/config",
    ".git/modules/mod/config", "mod/.git", ".git/worktrees/linked/commondir",
]  # fmt: skip
NEW = [
    ".cursor/mcp.json", ".cursor/hooks.json", ".idea/workspace.xml", ".envrc", ".bashrc", ".profile", ".zshrc",
    ".git/hooks/post-commit", ".git/commondir", ".git/config.worktree", "sub/.git/commondir", ".git/modules/mod/commondir",
    "sub/.git/hooks/pre-push",
]  # fmt: skip
RENAMED = [
    (".git/info", ".git/info/attributes"), (".git/modules/mod", ".git/modules/mod/config"),
    (".git/modules", ".git/modules/mod/config"), (".git/worktrees", ".git/worktrees/linked/commondir"),
    (".git", ".git/config"), ("sub/.git", "sub/.git/config"), ("sub", "sub/.git/config"),
    ("deep", "deep/er/bare.git/config"), (".vscode", ".vscode/x"),
]  # fmt: skip
REFUSALS = {"EROFS", "ENOENT", "EACCES", "EBUSY", "EISDIR", "EXDEV", "EPERM", "ELOOP", "ENOTDIR", "EEXIST", "ENOTEMPTY"}


def repository(house, path, *, bare=False):
    path.mkdir(parents=True, exist_ok=True)
    house.git(path, "init", "-q", "-b", "main", *(["--bare"] if bare else []))
    (path / "hooks" if bare else path / ".git" / "hooks").mkdir(exist_ok=True)


def prepare(house, work, outside, secrets):
    """Make a workspace with everything in it that is protected, and the attack on it."""
    repository(house, work)
    (work / "README").write_text("hello\n")
    repository(house, work / "sub")
    repository(house, work / "deep" / "er" / "bare.git", bare=True)
    repository(house, outside.parent / f"{work.name}-mod")
    house.git(outside.parent / f"{work.name}-mod", "commit", "-q", "--allow-empty", "-m", "x")
    house.git(
        work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", outside.parent / f"{work.name}-mod", "mod"
    )
    house.git(work, "add", "README")
    house.git(work, "commit", "-q", "-m", "first")
    house.git(work, "worktree", "add", "-q", outside.parent / f"{work.name}-linked" / "linked")
    for name in EXISTING:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        if not (work / name).exists():
            (work / name).write_text("")
    outside.mkdir(exist_ok=True)
    (outside / "file").write_text("secret")
    place = {"outside": str(outside), "secrets": secrets, "existing": EXISTING, "new": NEW, "renamed": RENAMED}
    (work / ".attack.json").write_text(json.dumps(place))
    (work / ".attack.py").write_text(ATTACK)


def state_of(directory):
    """Every file that is protected, with its content, and every name in the workspace's git directories."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b""
        for path in directory.rglob("*")
        if not path.name.startswith(("l1", "l2", "l3", "evil")) and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    from tests.system.conftest import House

    with House(tmp_path_factory.mktemp("files")) as house:
        work, control = house.workspace(), house.workspace("control")
        (house.home / ".ssh").mkdir()
        (house.home / ".ssh" / "id").write_text("key")
        other = house.workspace("other")
        (other / "file").write_text("other's")
        program = house.program(RUN)
        house.start(agent=program)
        anna = house.spawn("bob", other, "nothing")
        chats = str(house.chat(anna))
        secrets = [str(house.home / ".ssh" / "id"), str(other / "file"), chats, str(house.state / "substrat.db"),
                   str(house.runtime), str(house.state / "agents" / anna["id"])]  # fmt: skip
        if os.geteuid() == 0:
            secrets.append("/etc/shadow")
        prepare(house, work, house.directory / "outside", secrets)
        prepare(house, control, house.directory / "outside-control", secrets)
        before = state_of(work)
        outside = (house.directory / "outside" / "file").stat()
        command = [sys.executable, "-I", "-S", ".attack.py"]
        fresh = house.spawn("anna", work, "go")
        after_one = state_of(work)
        house.ok("suspend", "anna")
        house.kill()
        house.start(agent=house.agent)
        house.ok("resume", "anna", "again", "--wait")
        resumed = house.show("anna")
        after_two = state_of(work)
        now = (house.directory / "outside" / "file").stat()
        without = subprocess.run(command, cwd=control, capture_output=True, text=True, check=True).stdout
        yield {
            "fresh": json.loads(fresh["turn"]["result"]), "resumed": json.loads(resumed["turn"]["result"]),
            "control": json.loads(without), "before": before, "after": (after_one, after_two), "outside": (outside, now),
        }  # fmt: skip


def test_every_attempt_succeeds_outside(attacked):
    """The control; only what ordinary users may not, and what an attempt before it has taken away, is left out."""
    failed = {name: answer for name, answer in attacked["control"].items() if answer != "ok"}
    allowed = {"10 mknod"} if os.geteuid() else set()
    assert {name for name in failed if not name.startswith(("7 remove", "7 replace"))} <= allowed, failed


@pytest.mark.parametrize("when", ["fresh", "resumed"])
def test_every_attempt_is_refused(attacked, when):
    got = {name: answer for name, answer in attacked[when].items() if answer not in REFUSALS}
    assert got == {}


def test_nothing_has_changed_on_the_host(attacked):
    before, (fresh, resumed) = attacked["before"], attacked["after"]
    assert fresh == before
    assert resumed == before
    first, last = attacked["outside"]
    assert (first.st_size, first.st_mtime_ns, first.st_mode, first.st_nlink) == (
        last.st_size, last.st_mtime_ns, last.st_mode, last.st_nlink
    )  # fmt: skip
