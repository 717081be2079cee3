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
    ".cursor/mcp.json", ".cursor/hooks.json", ".idea/workspace.xml", ".envrc", ".vimrc", ".exrc", ".dir-locals.el",
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


def repository(daemon, path, *, bare=False):
    path.mkdir(parents=True, exist_ok=True)
    daemon.git(path, "init", "-q", "-b", "main", *(["--bare"] if bare else []))
    (path / "hooks" if bare else path / ".git" / "hooks").mkdir(exist_ok=True)


def prepare(daemon, work, outside, secrets):
    """Make a workspace with everything in it that is protected, and the attack on it."""
    repository(daemon, work)
    (work / "README").write_text("hello\n")
    repository(daemon, work / "sub")
    repository(daemon, work / "deep" / "er" / "bare.git", bare=True)
    repository(daemon, outside.parent / f"{work.name}-mod")
    daemon.git(outside.parent / f"{work.name}-mod", "commit", "-q", "--allow-empty", "-m", "x")
    daemon.git(
        work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", outside.parent / f"{work.name}-mod", "mod"
    )
    daemon.git(work, "add", "README")
    daemon.git(work, "commit", "-q", "-m", "first")
    daemon.git(work, "worktree", "add", "-q", outside.parent / f"{work.name}-linked" / "linked")
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
    from tests.support.daemon import DaemonFixture

    with DaemonFixture(tmp_path_factory.mktemp("files")) as daemon:
        work, control = daemon.workspace(), daemon.workspace("control")
        (daemon.home / ".ssh").mkdir()
        (daemon.home / ".ssh" / "id").write_text("key")
        other = daemon.workspace("other")
        (other / "file").write_text("other's")
        program = daemon.program(RUN)
        daemon.start(agent=program)
        anna = daemon.spawn("bob", other, "nothing")
        chats = str(daemon.chat(anna))
        secrets = [str(daemon.home / ".ssh" / "id"), str(other / "file"), chats, str(daemon.state / "substrat.db"),
                   str(daemon.runtime), str(daemon.state / "agents" / anna["id"])]  # fmt: skip
        if os.geteuid() == 0:
            secrets.append("/etc/shadow")
        prepare(daemon, work, daemon.directory / "outside", secrets)
        prepare(daemon, control, daemon.directory / "outside-control", secrets)
        before = state_of(work)
        outside = (daemon.directory / "outside" / "file").stat()
        command = [sys.executable, "-I", "-S", ".attack.py"]
        fresh = daemon.spawn("anna", work, "go")
        after_one = state_of(work)
        daemon.ok("suspend", "anna")
        daemon.kill()
        daemon.start(agent=daemon.agent)
        daemon.ok("resume", "anna", "again", "--wait")
        resumed = daemon.show("anna")
        after_two = state_of(work)
        now = (daemon.directory / "outside" / "file").stat()
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


# Links, FIFOs, repositories of its own


def test_a_link_in_the_place_of_something_the_daemon_reads_is_not_followed(daemon):
    """Items 5 and 10: where it may put them at all, in its chats, its home and its workspace."""
    (daemon.home / ".bash_history").write_text("canary-secret")
    work = daemon.workspace()
    daemon.start(agent=daemon.program(SHELL))
    secret = daemon.home / ".bash_history"
    one, two = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
    script = (
        f"chats=$(dirname $(ls -d ~/.cursor/chats/*/*/)); ln -s {secret} $chats/l1; mkfifo $chats/f1;"
        f"mkdir $chats/{one} $chats/{two}; ln -s {secret} $chats/{one}/store.db; mkfifo $chats/{two}/store.db;"
        f"ln -s {secret} ~/.cursor/mcp.json; mkfifo ~/.cursor/cli-config.json;"
        "mkdir sub; mkfifo sub/.git; ln -s / sub/.vscode"
    )
    daemon.spawn("anna", work, script)
    listed = daemon.ctl("sessions", "-w", work, "--json")
    assert listed.code == 0
    assert "canary" not in listed.out
    refused = daemon.ctl("export", one, "-w", work)
    assert refused.code != 0
    assert "canary" not in refused.out + refused.err
    again = daemon.ok("send", "anna", "echo fine", "--wait", "--timeout", "30")
    assert again["turn"]["result"].strip() == "fine"
    assert "canary" not in daemon.log
    assert secret.read_text() == "canary-secret"


def test_what_became_a_link_while_suspended_is_refused(daemon):
    """Item 6."""
    daemon.start(agent=daemon.program(SHELL))
    for number, kind in enumerate(("workspace", ".cursor", ".git", ".git/hooks", ".vscode", "bind")):
        name = f"a{number}"
        work, extra = daemon.workspace(f"work-{number}", git=True), daemon.workspace(f"extra-{number}")
        (work / ".vscode").mkdir()
        (work / ".git" / "hooks").mkdir(exist_ok=True)
        first = daemon.spawn(name, work, f"ls {extra}", "--bind", extra)
        assert first["turn"]["outcome"] == "success"
        daemon.ok("suspend", name)
        path, moved = {"workspace": work, "bind": extra}.get(kind, work / kind), daemon.directory / f"moved-{number}"
        if path.exists():
            path.rename(moved)
        path.symlink_to(daemon.home)
        done = daemon.ctl("resume", name, "ls -a; touch was-here", "--wait", "--json")
        assert done.code == 5, kind
        error = daemon.show(name)["turn"]["error"]
        assert "link" in error, kind
        assert "\n" not in error
        assert not (daemon.home / "was-here").exists(), kind
        assert not daemon.sandboxed()
        # The control: put back, it goes on.
        path.unlink()
        if moved.exists():
            moved.rename(path)
        daemon.ok("resume", name, "echo fine", "--wait")
        assert daemon.show(name)["turn"]["result"].strip() == "fine", kind


def test_a_repository_of_its_own_is_told(daemon):
    work = daemon.workspace()
    daemon.start(agent=daemon.program(SHELL))
    daemon.spawn(
        "anna", work, "git init -q; git init -q sub; git config --file sub/.git/config core.fsmonitor ./evil; true"
    )
    (told,) = daemon.events("anna", "workspace:unprotected")
    assert f"{work}/.git" in told["text"]
    assert f"{work}/sub/.git" in told["text"]
    again = daemon.ok("send", "anna", "echo x >> .git/config; echo x >> sub/.git/config; mv sub other", "--wait")
    assert again["turn"]["result"].count("Read-only") == 2
    _, reminder, setting = [event["text"] for event in daemon.events("anna", "workspace:unprotected")]
    assert "not accepted yet" in reminder
    assert "core.fsmonitor" in setting
    assert daemon.show("anna")["attention"]["kind"] == "unsafe"
    assert (work / "sub").exists()


def test_git_works_where_nothing_of_it_can_be_changed(daemon):
    """Commits in a repository, in a linked worktree and in a submodule; the host's git obeys nothing new."""
    main, work = daemon.workspace("main", git=True), daemon.directory / "linked"
    daemon.git(main, "worktree", "add", "-q", work)
    daemon.start(agent=daemon.program(SHELL))
    commit = "echo x > new && git add new && git commit -qm new && git status --short"
    for name, place in (("anna", main), ("bob", work)):
        turn = daemon.spawn(name, place, commit)["turn"]
        assert turn["result"] == "", turn
        assert daemon.git(place, "log", "--format=%s").split() == ["new", "first"]
        assert daemon.git(place, "status", "--porcelain") == ""
    evil = f"echo x >> {main}/.git/config; echo x > {main}/.git/hooks/post-commit; echo x > {main}/.git/commondir"
    printed = daemon.ok("send", "bob", evil, "--wait")["turn"]["result"]
    assert printed.count("Read-only") == 3, printed
    assert not (main / ".git" / "commondir").exists()


def test_another_repository_is_not_opened_by_a_git_file(daemon):
    victim, work = daemon.workspace("victim", git=True), daemon.workspace()
    daemon.start(agent=daemon.program(SHELL))
    daemon.spawn("anna", work, f"echo gitdir: {victim}/.git > .git")
    again = daemon.ok("send", "anna", f"ls {victim}/.git; git log", "--wait")
    assert "first" not in again["turn"]["result"]
    assert "isn't shown" in daemon.events("anna", "workspace:unprotected")[-1]["text"]


@pytest.mark.parametrize("when", ["running", "after"])
def test_no_ghosts_stay_after_a_kill(daemon, when, until):
    """Item 8: what stands where nothing was goes when the turn does, whoever notices."""
    work = daemon.workspace(git=True)
    before = state_of(work)
    program = daemon.program("begin()\nmark('ready')\nwait_for('go')\nos.unlink('ready')\nos.unlink('go')\nfinish()\n")
    daemon.start(agent=program)
    daemon.ok("spawn", "anna", "-w", work, "go")
    until((work / "ready").exists, "the turn")
    assert (work / ".envrc").is_dir()
    assert daemon.git(work, "status", "--porcelain") == "?? ready\n"
    daemon.kill()
    if when == "after":
        daemon.kill_sandboxed()
        (work / "ready").unlink()
        daemon.start(agent=program)
        daemon.wait("anna")
    else:
        daemon.start(agent=program)
        (work / "go").touch()
        assert daemon.wait("anna")["turn"]["outcome"] == "success"
    until(lambda: not (work / ".envrc").exists(), "the end of the ghosts")
    assert state_of(work) == before
    daemon.ok("end", "anna")
    assert daemon.ctl("rm", "anna").code == 0
    assert state_of(work) == before


def test_further_places(daemon):
    work, data, out = daemon.workspace(), daemon.workspace("data"), daemon.workspace("out")
    daemon.git(out, "init", "-q")
    (data / "file").write_text("there")
    (daemon.home / ".ssh").mkdir()
    daemon.start(agent=daemon.program(SHELL))
    script = f"cat {data}/file; touch {data}/x; touch {out}/x; touch {out}/.git/config {out}/.envrc/x"
    printed = daemon.spawn("anna", work, script, "--bind-ro", data, "--bind", out)["turn"]["result"]
    assert printed.startswith("there")
    assert printed.count("Read-only") == 3, printed
    assert (out / "x").exists()
    assert not (out / ".envrc").exists()
    shown = daemon.show("anna")["binds"]
    assert shown == [{"path": str(data), "writable": False}, {"path": str(out), "writable": True}]
    assert f"{data} (read-only)" in daemon.ctl("show", "anna").out
    daemon.kill()
    daemon.start(agent=daemon.agent)
    assert daemon.show("anna")["binds"] == shown
    for path in (daemon.home, daemon.home / ".ssh", daemon.state, "/etc", "/", daemon.config.parent):
        refused = daemon.ctl("spawn", "-w", work, "--bind-ro", path)
        assert refused.code == 1
        assert "\n" not in refused.error
