"""Moves a branch where it is checked out, wholly or not at all: a program that outlives the daemon.

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

import os
import signal
import stat
import sys
from contextlib import suppress

from substrat.inside.branch.back import back
from substrat.inside.branch.changes import Begun, persons
from substrat.inside.branch.git import COPY, INDEX, LOCK, LOOK, checked, git, listed, reason_of, status, tip, tree
from substrat.inside.branch.index import HELD, copy_index, lock_line, release, remove, stamp, take_lock
from substrat.inside.branch.job import WHOLE, Answer, Failed, Job

_FAST_FORWARD = (
    "merge", "--ff-only", "--quiet", "--commit", "--no-squash", "--no-autostash", "--no-verify-signatures", "--no-edit",
    "--no-overwrite-ignore",
)  # fmt: skip
"""A move to the commit that was previewed, also where the user's settings (`merge.*`) say otherwise (git-merge(1)). By
default git takes an ignored file, such as `.env`, for one that it may overwrite."""
_MOVE_SECONDS = 600.0
"""git writes some tens of gigabytes of files in that time."""
_REFUSED = b"Aborting"
"""git's last word where it refuses a move before it writes anything (unpack-trees.c)."""
_NOTED = b"\n"
"""Follows the landing's number in its lock once git may begin, before the names of a person's own files."""
NO_COMMIT = "(initial)"


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
    if found.head != (job.old or NO_COMMIT, job.branch):
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
            os.replace(job.path(COPY), job.path(INDEX))
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
    is_begun = os.path.lexists(job.path(COPY))
    nothing = Answer(moved=tip(job) == job.new)
    try:
        lock = os.open(job.path(LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if not is_begun:
            return nothing
        return finish(job, Begun(take_lock(job), None, is_fresh=False))  # a person has removed the lock
    about, whole = os.fstat(lock), lock_line(job)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1 or os.read(lock, len(whole)) != whole:
        os.close(lock)
        if not is_begun:
            return nothing
        raise Failed(HELD.format(job.path(LOCK)))
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
            remove(job, LOOK)  # its room is needed now
            if answer.moved:  # the index follows; a person's other staged changes stay
                copy_index(job)
                checked(job, "read-tree", "-i", "-m", tree(job, job.old), job.new)
                git(job, "update-index", "-q", "--refresh")
                os.replace(job.path(COPY), job.path(INDEX))
            elif tip(job) == job.old:
                answer = answer._replace(left=tuple(back(job, begun)))
    finally:
        release(job, begun.lock)
    return answer


def sentence_of(problem: Failed | OSError, job: Job) -> str:
    """Return why something failed."""
    if isinstance(problem, Failed):
        return str(problem)
    if problem.filename == "git":
        return f"git can't be started: {problem.strerror}: install git"
    return f"{problem.filename or job.own}: {problem.strerror}"
