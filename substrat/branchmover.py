"""Moves a branch where it is checked out, wholly or not at all: a program of its own, run by path; imports nothing of ours.

`branchmover.py move FILE NUMBER TOP OWN BRANCH OLD NEW` moves BRANCH, checked out in TOP, whose git directory is OWN, from
the commit OLD (empty: the branch has none yet) to NEW, for the landing NUMBER. `settle` with the same words ends what a
killed one has begun; there may be nothing. It prints one line of JSON, `Answer`. FILE is a descriptor that git inherits:
who finds it locked knows that a git of this landing lives. The environment has the settings that keep git tame.

git writes files, then the index, then the branch, and a git that is killed, or finds the disk full, stays where it is.
Hence it works here on a copy of the index, while `index.lock` is held as git holds it, with the landing's number. When
git has ended *the branch decides*: if it has moved, the copy becomes the index, and else each file that is as the move
makes it goes back. That is a move of git's own to OLD, by an index that has NEW's entry where the file is NEW's and OLD's
elsewhere; so git itself guards what a person has changed meanwhile, and such a file stays and is named. The lock goes last,
so one with a landing's number means that this landing isn't over.

For example git is killed when it has written `a` of `a` and `b`: the copy goes, `a` is put back, and the lock is removed.
"""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from typing import NamedTuple, TypedDict

_LOCK, _COPY = "index.lock", "index.substrat"
"""In the worktree's git directory: git's own lock (gitrepository-layout(5)), and the index that git works on meanwhile."""
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
_REFUSED = "Aborting"
"""git's last word where it refuses a move before it writes anything (unpack-trees.c)."""
_HELD = "{} is there: a git works there, or one that was killed left it; then remove it"
_NOTED = b"\n"
"""Follows the landing's number in its lock once git may begin, before the names of a person's own files."""
_GITLINK = "160000"
_NOTHING = "0" * 6
"""The mode of what isn't there (git-diff-tree(1))."""


class Move(NamedTuple):
    """What moves; the fields are the program's arguments."""

    file: int
    number: str
    top: str
    own: str
    branch: str
    old: str
    new: str

    def path(self, name: str) -> str:
        """Return the path of a file in the worktree's git directory."""
        return os.path.join(self.own, name)


class Answer(TypedDict):
    """What the program prints.

    Args:
        moved: whether the branch is at the new commit.
        words: why not, in git's words.
        left: paths in the checkout that were neither as before nor as after the move: they stay as they are.
    """

    moved: bool
    words: str
    left: list[str]


class Change(NamedTuple):
    """A path that differs between two commits, with its mode and object on each side."""

    path: str
    modes: tuple[str, str]
    blobs: tuple[str, str]


class Failed(Exception):
    """Something can't be done; the message says why."""


def main(arguments: list[str]) -> int:
    """Move, or settle, and print the answer."""
    # Whoever ends all processes ends git too, and what git leaves is taken back here.
    signal.signal(signal.SIGTERM, lambda *_: None)
    how, file, *words = arguments
    move = Move(int(file), *words)
    try:
        answer = moved(move) if how == "move" else settled(move)
    except (Failed, OSError) as problem:
        answer = Answer(moved=False, words=sentence_of(problem, move), left=[])
        with suppress(Failed, OSError):
            answer["moved"] = has_moved(move)  # whatever went wrong after it has is no refusal
    print(json.dumps(answer))
    return 0


def moved(move: Move) -> Answer:
    """Move the branch."""
    lock = locked(move)
    try:
        copied(move)
        mine = persons(move)
        noted(lock, mine)
        done = git(move, *_FAST_FORWARD, move.new, seconds=_MOVE_SECONDS)
        if not done.returncode:
            os.replace(move.path(_COPY), move.path("index"))
    except (Failed, OSError):
        unlocked(move, lock)
        raise
    words = words_of(done)
    if not done.returncode or done.stderr.decode("utf-8", "replace").rstrip().endswith(_REFUSED):
        unlocked(move, lock)
        return Answer(moved=not done.returncode, words=words, left=[])
    try:
        return Answer(**{**ended(move, lock, mine, is_fresh=True), "words": words})
    except (Failed, OSError) as problem:
        raise Failed(f"{words}; what git has written can't be taken back: {sentence_of(problem, move)}") from None


def settled(move: Move) -> Answer:
    """End what a killed program has begun."""
    is_begun = os.path.lexists(move.path(_COPY))
    nothing = Answer(moved=has_moved(move), words="", left=[])
    try:
        lock = os.open(move.path(_LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if not is_begun:
            return nothing
        return ended(move, locked(move), None, is_fresh=False)  # a person has removed the lock
    about, whole = os.fstat(lock), line(move)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1 or os.read(lock, len(whole)) != whole:
        os.close(lock)
        if not is_begun:
            return nothing
        raise Failed(_HELD.format(move.path(_LOCK)))
    rest = os.read(lock, about.st_size)
    if not rest.startswith(_NOTED):
        unlocked(move, lock)  # git had not begun
        return nothing
    return ended(move, lock, set(listed(os.fsdecode(rest.removeprefix(_NOTED)))), is_fresh=False)


def ended(move: Move, lock: int, mine: set[str] | None, *, is_fresh: bool) -> Answer:
    """Let the branch decide which way files and index go, and give the lock away.

    Args:
        move: the move.
        lock: the lock, open.
        mine: the files of the move that a person had changed before it; None: that isn't known, so nothing is touched.
        is_fresh: whether git has ended just now, so nobody else has written there.
    """
    answer = Answer(moved=False, words="", left=[])
    try:
        answer["moved"] = has_moved(move)
        if asked(move, "symbolic-ref", "--quiet", "HEAD") == f"refs/heads/{move.branch}":
            begun = os.fstat(lock).st_mtime_ns
            removed(move, _LOOK)  # its room is needed now
            if answer["moved"]:
                forward(move)
            elif tip(move) == move.old:
                answer["left"] = back(move, mine, begun, is_fresh=is_fresh)
    finally:
        unlocked(move, lock)
    return answer


def persons(move: Move) -> set[str]:
    """Return the files of a move that aren't as the branch has them: a person has changed, staged or made them.

    git refuses most of them. Those that are already as the move makes them it takes, or refuses too, and they would be
    taken for its own.
    """
    old = tree(move, move.old)
    git(move, "update-index", "-q", "--refresh")
    changed = {*listed(checked(git(move, "diff-files", "--name-only", "-z")))}
    changed |= {*listed(checked(git(move, "diff-index", "--cached", "--name-only", "--no-renames", "-z", old)))}
    return {
        one.path
        for one in changes_between(move, old)
        if one.path in changed or (one.modes[0] == _NOTHING and is_file(move, one.path))
    }


def is_file(move: Move, path: str) -> bool:
    """Say whether something else than a directory is at a path of the checkout, behind no link."""
    whole = os.path.join(move.top, path)
    directory = os.path.dirname(whole)
    if os.path.realpath(directory) != directory or not os.path.lexists(whole):
        return False
    return not stat.S_ISDIR(os.lstat(whole).st_mode)


def forward(move: Move) -> None:
    """Bring the index to the new commit, where files and branch are; what a person has staged beside it stays.

    One in which a person has staged some of the same files, after he has removed the lock, stays as he has made it.
    """
    copied(move)
    if not git(move, "read-tree", "-i", "-m", tree(move, move.old), move.new).returncode:
        git(move, "update-index", "-q", "--refresh")
        os.replace(move.path(_COPY), move.path("index"))


def back(move: Move, mine: set[str] | None, begun: int, *, is_fresh: bool) -> list[str]:
    """Put back each file that is as the move makes it, and return the paths of those that are neither way."""
    copied(move)
    old = tree(move, move.old)
    tags = {entry[2:]: entry[0] for entry in listed(checked(git(move, "ls-files", "-v", "-z")))}
    changes = [
        one
        for one in changes_between(move, old)
        if _GITLINK not in one.modes and tags.get(one.path, "H") not in "Ss" and one.path not in (mine or ())
    ]
    # git looks at no file that it was told not to look at, so such a file can't go back.
    stay = {one.path for one in changes if mine is None or tags.get(one.path, "H").islower()}
    made, gone, left = sorted_out(move, changes, stay, begun, is_fresh=is_fresh)
    # A file can take the place of a directory only when what was in there is gone.
    ordered = sorted(made, key=lambda one: one.modes[1] != _NOTHING)
    if not put(move, old, ordered):
        return [one.path for one in (*left, *made, *gone)]
    git(move, "checkout-index", "--quiet", "--index", "-z", "--stdin", given=lines(gone))  # writes over nothing
    os.replace(move.path(_COPY), move.path("index"))
    return [one.path for one in left]


def put(move: Move, old: str, made: list[Change]) -> bool:
    """Put files back that are as the move makes them, or say that a person has changed one meanwhile, and put none."""
    given = git(move, "update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=lines(made))
    return not given.returncode and not git(move, "read-tree", "-m", "-u", half(move, old, made), old).returncode


def half(move: Move, old: str, made: list[Change]) -> str:
    """Return a tree of what was before, with some files as the move makes them; those that it deletes come first."""
    checked(git(move, "read-tree", old, index=_LOOK))
    given = "".join(f"{one.modes[1]} {one.blobs[1]}\t{one.path}\0" for one in made)
    checked(git(move, "update-index", "-z", "--index-info", given=given, index=_LOOK))
    return checked(git(move, "write-tree", index=_LOOK)).strip()


def sorted_out(
    move: Move, changes: list[Change], stay: set[str], begun: int, *, is_fresh: bool
) -> tuple[list[Change], list[Change], list[Change]]:
    """Return the files that are as the move makes them, those that git had removed to write them anew, and odd ones.

    Odd are also files that are to stay, and those that can't come back for others that stay: `e`, where a person's `e/new`
    is now. A file that git was killed in goes: one that the move adds, and right after git's end also one that it changes,
    if it has changed since the move has begun (in nanoseconds of the file system's clock).
    """
    made, gone, left = [], [], []
    differ_old, differ_new = (differing(move, changes, side) for side in (0, 1))
    for one in changes:
        is_absent = "D" in {differ_old.get(one.path), differ_new.get(one.path)}
        is_old, is_new = (
            is_absent if mode == _NOTHING else one.path not in differ
            for mode, differ in zip(one.modes, (differ_old, differ_new), strict=True)
        )
        is_added = one.modes[0] == _NOTHING
        if is_old:
            continue
        if one.path in stay:
            left.append(one)
        elif is_new:
            made.append(one)
        elif is_absent:
            gone.append(one)
        elif (is_added or is_fresh) and is_beginning(move, one, begun):
            os.unlink(os.path.join(move.top, one.path))
            if not is_added:
                gone.append(one)
        else:
            left.append(one)
    odd = {one.path for one in left}
    odd_places = {place for path in odd for place in places_of(path)}
    blocked = {one for one in (*made, *gone) if one.path in odd_places or not odd.isdisjoint(places_of(one.path))}
    left += sorted(blocked)
    return [one for one in made if one not in blocked], [one for one in gone if one not in blocked], left


def places_of(path: str) -> list[str]:
    """Return the directories that a path lies in."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def differing(move: Move, changes: list[Change], side: int) -> dict[str, str]:
    """Return how files of a move differ from what one of its commits has: `D` for one that is absent, else `M` or `T`."""
    entries = [f"{one.modes[side]} {one.blobs[side]}\t{one.path}\0" for one in changes if one.modes[side] != _NOTHING]
    removed(move, _LOOK)
    checked(git(move, "update-index", "-z", "--index-info", given="".join(entries), index=_LOOK))
    git(move, "update-index", "-q", "--refresh", index=_LOOK)  # compares contents, through filters
    found = listed(checked(git(move, "diff-files", "--name-status", "-z", index=_LOOK)))
    return dict(zip(found[1::2], found[::2], strict=True))


def is_beginning(move: Move, change: Change, begun: int) -> bool:
    """Say whether a file holds, since a time, a beginning of what it is to hold, as one does that git was killed in."""
    path = os.path.join(move.top, change.path)
    directory = os.path.dirname(path)
    if os.path.realpath(directory) != directory:
        return False
    try:
        opened = os.open(path, _PLAIN)
    except OSError:
        return False
    with open(opened, "rb") as file:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode) or about.st_ctime_ns <= begun:
            return False
        whole = git(move, "cat-file", "--filters", f"{move.new}:{change.path}")
        return not whole.returncode and whole.stdout.startswith(file.read(len(whole.stdout) + 1))


def changes_between(move: Move, old: str) -> list[Change]:
    """Return what differs between two commits."""
    parts = listed(checked(git(move, "diff-tree", "-r", "-z", "--no-renames", old, move.new)))
    found = []
    for about, path in zip(parts[::2], parts[1::2], strict=True):
        before, after, from_blob, to_blob, _ = about.removeprefix(":").split()
        found.append(Change(path, (before, after), (from_blob, to_blob)))
    return found


def locked(move: Move) -> int:
    """Make `index.lock` with the landing's number; return it, open."""
    path = move.path(_LOCK)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Failed(_HELD.format(path)) from None
    try:
        os.write(lock, line(move))
        reserved(move)
    except OSError:
        unlocked(move, lock)
        raise
    return lock


def noted(lock: int, mine: set[str]) -> None:
    """Note in the lock, for whoever settles, which files a person had changed before; git begins after this."""
    os.write(lock, _NOTED + b"".join(os.fsencode(path) + b"\0" for path in sorted(mine)))
    os.fsync(lock)


def reserved(move: Move) -> None:
    """Take the room that taking the move back needs on a full disk: that of another index, and of some trees."""
    removed(move, _LOOK)
    size = os.stat(move.path("index")).st_size if os.path.exists(move.path("index")) else 0
    file = os.open(move.path(_LOOK), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, size + _ROOM)
    except OSError as problem:
        if problem.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:  # else the file system has nothing like it
            raise
    finally:
        os.close(file)


def removed(move: Move, *names: str) -> None:
    """Remove files of the git directory that are there."""
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(move.path(name))


def unlocked(move: Move, lock: int) -> None:
    """Remove what isn't needed any more, the lock last and in any case."""
    for name in (_LOOK, f"{_LOOK}.lock", f"{_COPY}.lock", _COPY):
        with suppress(OSError):
            removed(move, name)
    with suppress(FileNotFoundError):  # a person has removed it, and may have made another
        if os.path.samestat(os.fstat(lock), os.lstat(move.path(_LOCK))):
            os.unlink(move.path(_LOCK))
    os.close(lock)


def line(move: Move) -> bytes:
    """Return what a landing's lock begins with; an index begins with `DIRC`, an index that git has just locked is empty."""
    return f"landing {move.number} {move.new}\n".encode()


def copied(move: Move) -> None:
    """Make the copy of the index anew; a branch without a commit may have none."""
    removed(move, _COPY, f"{_COPY}.lock")
    with suppress(FileNotFoundError), open(os.open(move.path("index"), _PLAIN), "rb") as source:
        about = os.fstat(source.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Failed(f"{move.path('index')} is no plain file: put one in its place")
        opened = os.open(move.path(_COPY), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(opened, "wb") as copy:
            os.fchmod(opened, stat.S_IMODE(about.st_mode))
            while part := source.read(1 << 20):
                copy.write(part)
        # git takes a file that is as old as the index for one that may have changed since.
        os.utime(move.path(_COPY), ns=(about.st_atime_ns, about.st_mtime_ns))


def tree(move: Move, commit: str) -> str:
    """Return what a commit holds; that of none is empty."""
    return commit or checked(git(move, "mktree", given="")).strip()


def tip(move: Move) -> str:
    """Return the branch's commit, or nothing."""
    done = git(move, "rev-parse", "--quiet", "--verify", f"refs/heads/{move.branch}^{{commit}}")
    if done.returncode not in {0, 1}:
        raise Failed(words_of(done))
    return os.fsdecode(done.stdout).strip()


def has_moved(move: Move) -> bool:
    """Say whether the branch is at the new commit."""
    return tip(move) == move.new


def asked(move: Move, *words: str) -> str:
    """Return git's answer in one word, nothing where there is none."""
    return os.fsdecode(git(move, *words).stdout).strip()


def git(
    move: Move, *words: str, given: str = "", index: str = _COPY, seconds: float = _SECONDS
) -> subprocess.CompletedProcess[bytes]:
    """Run git in the checkout, on an index of its own; one that takes too long is ended, with all that it has started."""
    environment = {**os.environ, "GIT_INDEX_FILE": move.path(index)}
    # An index of a few files needs no second one (`core.splitIndex`), which nobody would remove.
    tame = ("-c", "core.splitIndex=false") if index == _LOOK else ()
    line = ("git", "-C", move.top, *tame, *words)
    child = subprocess.Popen(
        line, env=environment, pass_fds=(move.file,), process_group=0,
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
    return subprocess.CompletedProcess(line, child.returncode, output, late or errors)


def checked(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return what git has printed; raises `Failed` if it failed."""
    if done.returncode:
        raise Failed(words_of(done))
    return os.fsdecode(done.stdout)


def lines(changes: list[Change]) -> str:
    """Return paths as git reads them with `-z`."""
    return "".join(f"{one.path}\0" for one in changes)


def listed(printed: str) -> list[str]:
    """Return the parts of a list that git prints with `-z`."""
    return printed.split("\0")[:-1]


def words_of(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return why git failed: the first lines of what it says."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    killed = f"git was killed by signal {-done.returncode}" if done.returncode < 0 else ""
    return " ".join(filter(None, (killed, *(one.strip() for one in lines[:6]))))


def sentence_of(problem: Failed | OSError, move: Move) -> str:
    """Return why something failed."""
    return f"{problem.filename or move.own}: {problem.strerror}" if isinstance(problem, OSError) else str(problem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
