"""git in the checkout of a job, on an index of its own."""

import os
import signal
import subprocess
from contextlib import suppress
from typing import NamedTuple

from substrat.inside.branch.job import Failed, Job

INDEX, LOCK, COPY = "index", "index.lock", "index.substrat"
"""In the worktree's git directory: git's index and its lock (gitrepository-layout(5)), and the index of git meanwhile."""
LOOK = "index.substrat-look"
"""An index of the files that a move changes and no others, by which git compares them."""
_SECONDS = 120.0
_GRACE_SECONDS = 10.0
"""Between SIGTERM, after which git removes its locks, and SIGKILL."""
_BEFORE_PATH = {"1": 7, "u": 9}
"""How many words stand before the path of a changed file, and of one in conflict, besides the kind (git-status(1))."""


def git(
    job: Job, *arguments: str, given: str = "", index: str = COPY, seconds: float = _SECONDS
) -> subprocess.CompletedProcess[bytes]:
    """Run git in the checkout, on an index of its own; one that takes too long is ended, with all that it has started."""
    environment = {**os.environ, "GIT_INDEX_FILE": job.path(index)}
    # An index of a few files needs no second one (`core.splitIndex`), which would stay behind.
    tame = ("-c", "core.splitIndex=false") if index == LOOK else ()
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


def checked(job: Job, *arguments: str, given: str = "", index: str = COPY) -> str:
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


def tree(job: Job, commit: str) -> str:
    """Return a commit's tree; without a commit, an empty one."""
    return commit or checked(job, "mktree", given="").strip()


def tip(job: Job) -> str:
    """Return the branch's commit, or nothing."""
    done = git(job, "rev-parse", "--quiet", "--verify", f"refs/heads/{job.branch}^{{commit}}")
    if done.returncode not in {0, 1}:
        raise Failed(reason_of(done))
    return os.fsdecode(done.stdout).strip()


class Status(NamedTuple):
    """A checkout: HEAD's commit and branch, and the tracked files with changes, staged or not."""

    head: tuple[str, str]
    changed: set[str]


def status(job: Job) -> Status:
    """Return what git's own `status` says (git-status(1), porcelain version 2)."""
    shown = ("--branch", "--no-ahead-behind", "--untracked-files=no", "--no-renames", "--ignore-submodules=all")
    head: dict[str, str] = {}
    changed = set()
    for line in listed(checked(job, "status", "--porcelain=v2", "-z", *shown, index=INDEX)):
        kind, _, rest = line.partition(" ")
        if kind == "#":
            name, _, value = rest.partition(" ")
            head[name] = value
        else:
            changed.add(rest.split(" ", _BEFORE_PATH[kind])[-1])
    return Status((head["branch.oid"], head["branch.head"]), changed)
