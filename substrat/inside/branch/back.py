"""Takes back the files of a move that git couldn't finish."""

import os

from substrat.inside.branch.changes import CUT, GITLINK, GONE, LEFT, MADE, NO_FILE, Begun, Change, changes_between, sort
from substrat.inside.branch.git import COPY, INDEX, LOOK, checked, git, listed, tree
from substrat.inside.branch.index import copy_index
from substrat.inside.branch.job import Job


def back(job: Job, begun: Begun) -> list[str]:
    """Put back each file that is as the move makes it, and return the paths of those that are neither way."""
    copy_index(job)
    old = tree(job, job.old)
    found = sort(job, changes_to_take_back(job, old, begun.mine), begun)
    for one in found[CUT]:
        os.unlink(os.path.join(job.top, one.path))
    # A file can take the place of a directory only when the directory's files are gone.
    made = sorted(found[MADE], key=lambda one: one.modes[1] != NO_FILE)
    missing = [*found[GONE], *(one for one in found[CUT] if one.modes[0] != NO_FILE)]
    if not put_back(job, old, made):
        return [one.path for one in (*found[LEFT], *made, *missing)]
    given = "".join(f"{one.path}\0" for one in missing)
    git(job, "checkout-index", "--quiet", "--index", "-z", "--stdin", given=given)  # writes over nothing
    os.replace(job.path(COPY), job.path(INDEX))
    return [one.path for one in found[LEFT]]


def changes_to_take_back(job: Job, old: str, mine: set[str] | None) -> list[Change]:
    """Return the files that a move changes in the checkout, without a person's own; `mine` as of `Begun`."""
    tags = {entry[2:]: entry[0] for entry in listed(checked(job, "ls-files", "-v", "-z"))}
    return [
        # git looks at no file that it was told not to look at (a small letter), so such a file can't go back.
        one._replace(stays=mine is None or tags.get(one.path, "H").islower())
        for one in changes_between(job, old)
        if GITLINK not in one.modes and tags.get(one.path, "H") not in "Ss" and one.path not in (mine or ())
    ]


def put_back(job: Job, old: str, made: list[Change]) -> bool:
    """Put files back that are as the move makes them; False: a person has changed one meanwhile, and all of them stay."""
    paths = "".join(f"{one.path}\0" for one in made)
    if git(job, "update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=paths).returncode:
        return False
    # A tree of the files before, with some as the move makes them; those that it deletes come first.
    checked(job, "read-tree", old, index=LOOK)
    entries = "".join(f"{one.modes[1]} {one.blobs[1]}\t{one.path}\0" for one in made)
    checked(job, "update-index", "-z", "--index-info", given=entries, index=LOOK)
    half = checked(job, "write-tree", index=LOOK).strip()
    return not git(job, "read-tree", "-m", "-u", half, old).returncode
