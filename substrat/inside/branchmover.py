"""Moves a branch where it is checked out, wholly or not at all: a program of its own, which imports nothing of ours.

Its standard input has `move`, which moves a branch that is checked out, or `settle`, which ends a move that a killed
program has begun, if there is any; then a `Job` but for its first field, and the environment, with the settings that keep
git tame. It prints an `Answer`.

git writes files, then the index, then the branch, and a git that is killed, or finds the disk full, leaves them half done.
Hence git works on a copy of the index here, and the program holds `index.lock` as git does, with the landing's number in
it. When git has ended *the branch decides*: if it has moved, the copy becomes the index, and else each file that is as the
move makes it goes back. A move of git's own to OLD brings it back, by an index that has NEW's entry where the file is NEW's
and OLD's elsewhere. So git itself guards the files that a person has changed meanwhile; they stay and are named. The lock
goes last: while one with a landing's number is there, that landing isn't over.

For example git is killed when it has written `a` of `a` and `b`: the copy goes, `a` is put back, and the lock is removed.
"""

import errno
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from typing import NamedTuple

_INDEX, _LOCK, _COPY = "index", "index.lock", "index.substrat"
"""In the worktree's git directory: git's index and its lock (gitrepository-layout(5)), and the index of git meanwhile."""
_LOOK = "index.substrat-look"
"""An index of the files that a move changes and no others, by which git compares them."""
_FAST_FORWARD = (
    "merge", "--ff-only", "--quiet", "--commit", "--no-squash", "--no-autostash", "--no-verify-signatures", "--no-edit",
    "--no-overwrite-ignore",
)  # fmt: skip
"""A move to the commit that was previewed, also where the user's settings (`merge.*`) say otherwise (git-merge(1)). By
default git takes an ignored file, such as `.env`, for one that it may overwrite."""
_MOVE_SECONDS = 600.0
"""git writes some tens of gigabytes of files in that time."""
_SECONDS = 120.0
_GRACE_SECONDS = 10.0
"""Between SIGTERM, after which git removes its locks, and SIGKILL."""
_ROOM = 1 << 16
"""Bytes beside another index that taking a move back needs on a full disk."""
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REFUSED = b"Aborting"
"""git's last word where it refuses a move before it writes anything (unpack-trees.c)."""
_HELD = "{} is there: a git works there, or one that was killed left it; then remove it"
_NOTED = b"\n"
"""Follows the landing's number in its lock once git may begin, before the names of a person's own files."""
WHOLE = b"whole\0"
"""Ends a job: a daemon that is killed may leave a part of one."""
_GITLINK = "160000"
_NOTHING = "0" * 6
"""The mode of a missing file (git-diff-tree(1))."""
_NO_COMMIT = "(initial)"
_BEFORE_PATH = {"1": 7, "u": 9}
"""How many words stand before the path of a changed file, and of one in conflict, besides the kind (git-status(1))."""


class Job(NamedTuple):
    """A move and its landing.

    Args:
        lasting: a descriptor that git inherits: while it is locked a git of this landing lives.
        number: the landing's number.
        top: the checkout.
        own: its git directory.
        branch: the branch that is checked out there.
        old: its commit; empty: it has none yet.
        new: the commit that it moves to.
    """

    lasting: int
    number: str
    top: str
    own: str
    branch: str
    old: str
    new: str

    def path(self, name: str) -> str:
        """Return the path of a file in the worktree's git directory."""
        return os.path.join(self.own, name)


class Answer(NamedTuple):
    """The program's answer.

    Args:
        moved: whether the branch is at the new commit.
        reason: why not, in git's words; of a branch that has moved, why the index hasn't followed; else empty.
        left: paths in the checkout that were neither as before nor as after the move: they stay as they are.
        elsewhere: whether HEAD or the index was another by then, so that nothing was begun.
    """

    moved: bool
    reason: str = ""
    left: tuple[str, ...] = ()
    elsewhere: bool = False

    def write(self) -> bytes:
        """Return it as the program prints it."""
        how = "moved" if self.moved else "elsewhere" if self.elsewhere else ""
        return os.fsencode("\0".join((how, self.reason, *self.left)))


class Change(NamedTuple):
    """A path that differs between two commits, with its mode and object on each side; `stays`: it can't go back."""

    path: str
    modes: tuple[str, str]
    blobs: tuple[str, str]
    stays: bool = False


class Status(NamedTuple):
    """A checkout: HEAD's commit and branch, and the tracked files with changes, staged or not."""

    head: tuple[str, str]
    changed: set[str]


class Begun(NamedTuple):
    """A move that git has begun.

    Args:
        lock: the descriptor of `index.lock`, which was written last before git began.
        mine: the files of the move that a person had changed before it; None: they aren't known, so no file is touched.
        is_fresh: whether git has ended just now, so that no other program has written in the checkout since.
    """

    lock: int
    mine: set[str] | None
    is_fresh: bool


class Failed(Exception):
    """Something can't be done; the message says why."""


def main(lasting: int, given: bytes) -> int:
    """Move, or settle, and print the answer; without a whole job do nothing."""
    # A signal to all processes ends git too, whose files this program then takes back.
    signal.signal(signal.SIGTERM, lambda *_: None)
    if not given.endswith(WHOLE):
        return 1
    how, number, top, own, branch, old, new, *variables = listed(os.fsdecode(given.removesuffix(WHOLE)))
    job = Job(lasting, number, top, own, branch, old, new)
    os.environ.clear()
    os.environ.update(variable.partition("=")[::2] for variable in variables)
    try:
        answer = move_branch(job) if how == "move" else settle(job)
    except (Failed, OSError) as problem:
        answer = Answer(moved=False, reason=sentence_of(problem, job))
        with suppress(Failed, OSError):
            answer = answer._replace(moved=tip(job) == job.new)  # a fault after the branch has moved is no refusal
    sys.stdout.buffer.write(answer.write())
    return 0


def move_branch(job: Job) -> Answer:
    """Move the branch. Nothing is written before git has agreed to work here, and has said what is checked out."""
    index = stamp(job)
    found = status(job)
    if found.head != (job.old or _NO_COMMIT, job.branch):
        return Answer(moved=False, elsewhere=True)
    lock = take_lock(job)
    try:
        if stamp(job) != index:  # a git of the person's has ended only now
            release(job, lock)
            return Answer(moved=False, elsewhere=True)
        copy_index(job)
        mine = persons(job, found.changed)
        # The next daemon's program reads here which files were the person's; git begins after this.
        os.write(lock, _NOTED + b"".join(os.fsencode(path) + b"\0" for path in sorted(mine)))
        os.fsync(lock)
        done = git(job, *_FAST_FORWARD, job.new, seconds=_MOVE_SECONDS)
    except (Failed, OSError):
        release(job, lock)
        raise
    reason = reason_of(done)
    if not done.returncode:
        with suppress(OSError):  # else the index is made to follow as after a kill
            os.replace(job.path(_COPY), job.path(_INDEX))
            release(job, lock)
            return Answer(moved=True)
    elif done.stderr.rstrip().endswith(_REFUSED):
        release(job, lock)
        return Answer(moved=False, reason=reason)
    try:
        answer = finish(job, Begun(lock, mine, is_fresh=True))
    except (Failed, OSError) as problem:
        back = f"git's files can't be taken back: {sentence_of(problem, job)}"
        raise Failed("; ".join(filter(None, (reason, back)))) from None
    return answer if answer.moved else answer._replace(reason=reason)


def settle(job: Job) -> Answer:
    """End a move that a killed program has begun."""
    is_begun = os.path.lexists(job.path(_COPY))
    nothing = Answer(moved=tip(job) == job.new)
    try:
        lock = os.open(job.path(_LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if not is_begun:
            return nothing
        return finish(job, Begun(take_lock(job), None, is_fresh=False))  # a person has removed the lock
    about, whole = os.fstat(lock), lock_line(job)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1 or os.read(lock, len(whole)) != whole:
        os.close(lock)
        if not is_begun:
            return nothing
        raise Failed(_HELD.format(job.path(_LOCK)))
    rest = os.read(lock, about.st_size)
    if not rest.startswith(_NOTED):
        release(job, lock)  # git had not begun
        return nothing
    return finish(job, Begun(lock, set(listed(os.fsdecode(rest.removeprefix(_NOTED)))), is_fresh=False))


def finish(job: Job, begun: Begun) -> Answer:
    """Let the branch decide which way files and index go, and give the lock away."""
    try:
        answer = Answer(moved=tip(job) == job.new)
        head = git(job, "symbolic-ref", "--quiet", "HEAD")
        if os.fsdecode(head.stdout).strip() == f"refs/heads/{job.branch}":
            remove(job, _LOOK)  # its room is needed now
            if answer.moved:  # the index follows; a person's other staged changes stay
                copy_index(job)
                checked(job, "read-tree", "-i", "-m", tree(job, job.old), job.new)
                git(job, "update-index", "-q", "--refresh")
                os.replace(job.path(_COPY), job.path(_INDEX))
            elif tip(job) == job.old:
                answer = answer._replace(left=tuple(back(job, begun)))
    finally:
        release(job, begun.lock)
    return answer


def status(job: Job) -> Status:
    """Return what git's own `status` says (git-status(1), porcelain version 2)."""
    shown = ("--branch", "--no-ahead-behind", "--untracked-files=no", "--no-renames", "--ignore-submodules=all")
    head: dict[str, str] = {}
    changed = set()
    for line in listed(checked(job, "status", "--porcelain=v2", "-z", *shown, index=_INDEX)):
        kind, _, rest = line.partition(" ")
        if kind == "#":
            name, _, value = rest.partition(" ")
            head[name] = value
        else:
            changed.add(rest.split(" ", _BEFORE_PATH[kind])[-1])
    return Status((head["branch.oid"], head["branch.head"]), changed)


def stamp(job: Job) -> tuple[int, ...] | None:
    """Return numbers that are others when the index has been written; None: there is none."""
    try:
        about = os.lstat(job.path(_INDEX))
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def persons(job: Job, changed: set[str]) -> set[str]:
    """Return the files of a move that aren't as the branch has them: a person has changed, staged or made them.

    git refuses most of them. Those that are already as the move makes them it takes, or refuses too, and they would be
    taken for its own.
    """
    return {
        one.path
        for one in changes_between(job, tree(job, job.old))
        if one.path in changed or (one.modes[0] == _NOTHING and is_file(job, one.path))
    }


def is_file(job: Job, path: str) -> bool:
    """Say whether something else than a directory is at a path of the checkout, behind no link."""
    whole = os.path.join(job.top, path)
    is_direct = os.path.realpath(os.path.dirname(whole)) == os.path.dirname(whole)
    return is_direct and os.path.lexists(whole) and not stat.S_ISDIR(os.lstat(whole).st_mode)


def back(job: Job, begun: Begun) -> list[str]:
    """Put back each file that is as the move makes it, and return the paths of those that are neither way."""
    copy_index(job)
    old = tree(job, job.old)
    found = sort(job, changes_to_take_back(job, old, begun.mine), begun)
    for one in found[CUT]:
        os.unlink(os.path.join(job.top, one.path))
    # A file can take the place of a directory only when the directory's files are gone.
    made = sorted(found[MADE], key=lambda one: one.modes[1] != _NOTHING)
    missing = [*found[GONE], *(one for one in found[CUT] if one.modes[0] != _NOTHING)]
    if not put_back(job, old, made):
        return [one.path for one in (*found[LEFT], *made, *missing)]
    given = "".join(f"{one.path}\0" for one in missing)
    git(job, "checkout-index", "--quiet", "--index", "-z", "--stdin", given=given)  # writes over nothing
    os.replace(job.path(_COPY), job.path(_INDEX))
    return [one.path for one in found[LEFT]]


def changes_to_take_back(job: Job, old: str, mine: set[str] | None) -> list[Change]:
    """Return the files that a move changes in the checkout, without a person's own; `mine` as of `Begun`."""
    tags = {entry[2:]: entry[0] for entry in listed(checked(job, "ls-files", "-v", "-z"))}
    return [
        # git looks at no file that it was told not to look at (a small letter), so such a file can't go back.
        one._replace(stays=mine is None or tags.get(one.path, "H").islower())
        for one in changes_between(job, old)
        if _GITLINK not in one.modes and tags.get(one.path, "H") not in "Ss" and one.path not in (mine or ())
    ]


def put_back(job: Job, old: str, made: list[Change]) -> bool:
    """Put files back that are as the move makes them; False: a person has changed one meanwhile, and all of them stay."""
    paths = "".join(f"{one.path}\0" for one in made)
    if git(job, "update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=paths).returncode:
        return False
    # A tree of the files before, with some as the move makes them; those that it deletes come first.
    checked(job, "read-tree", old, index=_LOOK)
    entries = "".join(f"{one.modes[1]} {one.blobs[1]}\t{one.path}\0" for one in made)
    checked(job, "update-index", "-z", "--index-info", given=entries, index=_LOOK)
    half = checked(job, "write-tree", index=_LOOK).strip()
    return not git(job, "read-tree", "-m", "-u", half, old).returncode


Sorted = dict[str, list[Change]]
MADE, GONE, CUT, LEFT = "made", "gone", "cut", "left"
"""Kinds of files: as the move makes them, removed by git to be written anew, cut off, and all others, which stay."""


def sort(job: Job, changes: list[Change], begun: Begun) -> Sorted:
    """Sort the files of a move; those that are as before are left out."""
    found: Sorted = {MADE: [], GONE: [], CUT: [], LEFT: []}
    differ_old, differ_new = (differing(job, changes, side) for side in (0, 1))
    for one in changes:
        is_absent = "D" in {differ_old.get(one.path), differ_new.get(one.path)}
        if is_absent if one.modes[0] == _NOTHING else one.path not in differ_old:
            continue
        if one.stays:
            found[LEFT].append(one)
        elif is_absent if one.modes[1] == _NOTHING else one.path not in differ_new:
            found[MADE].append(one)
        elif is_absent:
            found[GONE].append(one)
        # Later a file that the move changes may be a person's; only one that the move adds can be told from it.
        elif (begun.is_fresh or one.modes[0] == _NOTHING) and is_beginning(job, one, begun):
            found[CUT].append(one)
        else:
            found[LEFT].append(one)
    return unblocked(found)


def unblocked(found: Sorted) -> Sorted:
    """Let those stay too that can't come back for others that stay: `e`, where a person's `e/new` is now."""
    odd = {one.path for one in found[LEFT]}
    above = {place for path in odd for place in places_of(path)}
    moved = [one for kind in (MADE, GONE, CUT) for one in found[kind]]
    blocked = {one for one in moved if one.path in above or not odd.isdisjoint(places_of(one.path))}
    free = {kind: [one for one in part if one not in blocked] for kind, part in found.items()}
    return {**free, LEFT: [*found[LEFT], *sorted(blocked)]}


def places_of(path: str) -> list[str]:
    """Return the directories that a path lies in."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def differing(job: Job, changes: list[Change], side: int) -> dict[str, str]:
    """Return how files of a move differ from one of its commits: `D` for a file that is absent, else `M` or `T`."""
    entries = [f"{one.modes[side]} {one.blobs[side]}\t{one.path}\0" for one in changes if one.modes[side] != _NOTHING]
    remove(job, _LOOK)
    checked(job, "update-index", "-z", "--index-info", given="".join(entries), index=_LOOK)
    git(job, "update-index", "-q", "--refresh", index=_LOOK)  # compares contents, through filters
    found = listed(checked(job, "diff-files", "--name-status", "-z", index=_LOOK))
    return dict(zip(found[1::2], found[::2], strict=True))


def is_beginning(job: Job, change: Change, begun: Begun) -> bool:
    """Say whether a file, written since git began, holds a beginning of its new content: git was killed in it."""
    if not is_file(job, change.path):
        return False
    with open(os.open(os.path.join(job.top, change.path), _PLAIN), "rb") as file:
        about = os.fstat(file.fileno())
        # The file system's clock stands still for some milliseconds, in which git may have begun and been killed.
        if not stat.S_ISREG(about.st_mode) or about.st_ctime_ns < os.fstat(begun.lock).st_mtime_ns:
            return False
        whole = git(job, "cat-file", "--filters", f"{job.new}:{change.path}")
        return not whole.returncode and whole.stdout.startswith(file.read(len(whole.stdout) + 1))


def changes_between(job: Job, old: str) -> list[Change]:
    """Return the paths that differ between two commits."""
    parts = listed(checked(job, "diff-tree", "-r", "-z", "--no-renames", old, job.new))
    found = []
    for about, path in zip(parts[::2], parts[1::2], strict=True):
        before, after, from_blob, to_blob, _ = about.removeprefix(":").split()
        found.append(Change(path, (before, after), (from_blob, to_blob)))
    return found


def take_lock(job: Job) -> int:
    """Make `index.lock` with the landing's number; return it, open."""
    path = job.path(_LOCK)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Failed(_HELD.format(path)) from None
    try:
        os.write(lock, lock_line(job))
        reserve(job)
    except OSError:
        release(job, lock)
        raise
    return lock


def reserve(job: Job) -> None:
    """Take the room that taking the move back needs on a full disk: that of another index, and of some trees."""
    remove(job, _LOOK)
    size = os.stat(job.path(_INDEX)).st_size if os.path.exists(job.path(_INDEX)) else 0
    file = os.open(job.path(_LOOK), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, size + _ROOM)
    except OSError as problem:
        if problem.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:  # else the file system has nothing like it
            raise
    finally:
        os.close(file)


def remove(job: Job, *names: str) -> None:
    """Remove files of the git directory that are there."""
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(job.path(name))


def release(job: Job, lock: int) -> None:
    """Remove the files of a move that is over, the lock last and in any case."""
    for name in (_LOOK, f"{_LOOK}.lock", f"{_COPY}.lock", _COPY):
        with suppress(OSError):
            remove(job, name)
    with suppress(FileNotFoundError):  # a person has removed it, and may have made another
        if os.path.samestat(os.fstat(lock), os.lstat(job.path(_LOCK))):
            os.unlink(job.path(_LOCK))
    os.close(lock)


def lock_line(job: Job) -> bytes:
    """Return the first line of a landing's lock; git's own lock is empty at first, and begins with `DIRC` like an index."""
    return f"landing {job.number} {job.new}\n".encode()


def copy_index(job: Job) -> None:
    """Make the copy of the index anew; a branch without a commit may have no index."""
    remove(job, _COPY, f"{_COPY}.lock")
    with suppress(FileNotFoundError), open(os.open(job.path(_INDEX), _PLAIN), "rb") as source:
        about = os.fstat(source.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Failed(f"{job.path('index')} is no plain file: put one in its place")
        opened = os.open(job.path(_COPY), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(opened, "wb") as copy:
            os.fchmod(opened, stat.S_IMODE(about.st_mode))
            while piece := source.read(1 << 20):
                copy.write(piece)
        # git takes a file that is as old as the index for one that may have changed since.
        os.utime(job.path(_COPY), ns=(about.st_atime_ns, about.st_mtime_ns))


def tree(job: Job, commit: str) -> str:
    """Return a commit's tree; without a commit, an empty one."""
    return commit or checked(job, "mktree", given="").strip()


def tip(job: Job) -> str:
    """Return the branch's commit, or nothing."""
    done = git(job, "rev-parse", "--quiet", "--verify", f"refs/heads/{job.branch}^{{commit}}")
    if done.returncode not in {0, 1}:
        raise Failed(reason_of(done))
    return os.fsdecode(done.stdout).strip()


def git(
    job: Job, *arguments: str, given: str = "", index: str = _COPY, seconds: float = _SECONDS
) -> subprocess.CompletedProcess[bytes]:
    """Run git in the checkout, on an index of its own; one that takes too long is ended, with all that it has started."""
    environment = {**os.environ, "GIT_INDEX_FILE": job.path(index)}
    # An index of a few files needs no second one (`core.splitIndex`), which would stay behind.
    tame = ("-c", "core.splitIndex=false") if index == _LOOK else ()
    child = subprocess.Popen(
        ("git", "-C", job.top, *tame, *arguments), env=environment, pass_fds=(job.lasting,), process_group=0,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    late = b""
    try:
        output, errors = child.communicate(os.fsencode(given), seconds)
    except subprocess.TimeoutExpired:
        late = f"git took more than {seconds:g} s".encode()
        os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        output, errors = child.communicate()
    return subprocess.CompletedProcess(child.args, child.returncode, output, late or errors)


def checked(job: Job, *arguments: str, given: str = "", index: str = _COPY) -> str:
    """Return git's output; raises `Failed` if git fails."""
    done = git(job, *arguments, given=given, index=index)
    if done.returncode:
        raise Failed(reason_of(done))
    return os.fsdecode(done.stdout)


def listed(printed: str) -> list[str]:
    """Return the parts of a list that git prints with `-z`."""
    return printed.split("\0")[:-1]


def reason_of(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return why git failed: the first lines of what it says."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    killed = f"git was killed by signal {-done.returncode}" if done.returncode < 0 else ""
    return " ".join(filter(None, (killed, *(one.strip() for one in lines[:6]))))


def sentence_of(problem: Failed | OSError, job: Job) -> str:
    """Return why something failed."""
    if isinstance(problem, Failed):
        return str(problem)
    if problem.filename == "git":
        return f"git can't be started: {problem.strerror}: install git"
    return f"{problem.filename or job.own}: {problem.strerror}"
