"""Measures speed and size; `make bench`, or `run.py GROUP...` for some of it.

Each figure is a line, printed as it is taken: `NAME  VALUE  (floor F, goal G) ok|missed`. The floor was measured in the
same run, in turns with the value where that can be done, because other load on the machine moves both. A figure that
couldn't be taken is a line `NAME  not taken: SENTENCE`. `measures/` describes each figure. Example (invented numbers):
`idle agent: daemon memory  2.00 KiB  (floor empty daemon 50 MiB, goal < 3 KiB)  ok`.

The exit status is 0 when every figure was taken, also when goals were missed, and 1 when one wasn't. Every wait is bounded:
each group of figures has a time limit, and all of them together have less than four minutes. Processes that still run
then are killed.

Not measured here are the times of `make test` and `.ci/run`, which take longer than the four minutes.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

from harness import Figure, FigureFailed, adopt_orphans, kill_descendants, within
from measures import clones, companion, events, families, landings, many, sizes, turns, web

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WHOLE_SECONDS = 225.0
"""The limit of all figures together: four minutes less the time that the last clean-up takes."""
_LEAST_SECONDS = 0.1  # a group without time left fails at once; an alarm after 0 s would mean none (setitimer(2))


class FigureGroup(NamedTuple):
    """Figures that are taken together.

    Args:
        name: the argument of `run.py` that takes only these.
        figures: their names, in the order in which they are taken.
        seconds: how long they may take.
        measure: takes them.
    """

    name: str
    figures: Sequence[str]
    seconds: float
    measure: Callable[[], Iterator[Figure]]


GROUPS = (
    FigureGroup("companion", companion.NAMES, companion.SECONDS, companion.measure),
    FigureGroup("spawn", turns.SPAWN_NAMES, turns.SPAWN_SECONDS, turns.measure_spawn),
    FigureGroup("turn", turns.TURN_NAMES, turns.TURN_SECONDS, turns.measure_turn),
    FigureGroup("ls", sizes.LS_NAMES, sizes.LS_SECONDS, sizes.measure_ls),
    FigureGroup("event", events.LIVE_NAMES, events.LIVE_SECONDS, events.measure_live),
    FigureGroup("followers", events.FOLLOWERS_NAMES, events.FOLLOWERS_SECONDS, events.measure_followers),
    FigureGroup("back", events.BACK_NAMES, events.BACK_SECONDS, events.measure_back),
    FigureGroup("hundred", turns.HUNDRED_NAMES, turns.HUNDRED_SECONDS, turns.measure_hundred),
    FigureGroup("families", families.NAMES, families.SECONDS, families.measure),
    FigureGroup("clones", clones.NAMES, clones.SECONDS, clones.measure),
    FigureGroup("landings", landings.NAMES, landings.SECONDS, landings.measure),
    FigureGroup("web", web.NAMES, web.SECONDS, web.measure),
    FigureGroup("many", many.NAMES, many.SECONDS, many.measure),
    FigureGroup("idle", sizes.IDLE_NAMES, sizes.IDLE_SECONDS, sizes.measure_idle),
)
WHOLE = "make bench: all figures"


def take(group: FigureGroup, seconds: float) -> bool:
    """Take a group's figures and print them; says whether all could be taken.

    Args:
        group: the figures.
        seconds: how long they may take at the most.
    """
    missing = list(group.figures)
    try:
        # When the figures before have used up all the time, this is given up at once.
        with within(min(max(seconds, _LEAST_SECONDS), group.seconds), f"the group {group.name}"):
            for figure in group.measure():
                missing.remove(figure.name)
                print(figure.line(), flush=True)
    except FigureFailed as problem:
        failed = str(problem)
    except Exception as problem:  # any failure: the other groups are still to be measured
        failed = f"{type(problem).__name__}: {problem}"
    else:
        failed = f"the group {group.name} has left it out" if missing else ""
    kill_descendants()
    # When all figures were taken, the failure is the daemon's end, and the last figure is named.
    for name in (missing or list(group.figures)[-1:]) if failed else ():
        print(f"{name}  not taken: {failed}", flush=True)
    return not failed


def run(groups: Sequence[FigureGroup], seconds: float = WHOLE_SECONDS) -> int:
    """Take all figures of some groups; returns the exit status."""
    began = time.monotonic()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        tempfile.tempdir = directory  # files of interrupted groups are removed with it
        try:
            good = [take(group, seconds - (time.monotonic() - began)) for group in groups]
        finally:
            tempfile.tempdir = None
            kill_descendants()
    took = time.monotonic() - began
    print(Figure(WHOLE, f"{took:.0f} s", "-", "< 240 s", met=took < 240).line(), flush=True)
    return 0 if all(good) else 1


def main(names: Sequence[str]) -> int:
    """Take the figures of the groups that are named, of all by default."""
    known = {group.name: group for group in GROUPS}
    if odd := [name for name in names if name not in known]:
        print(f"run.py: there is no group {odd[0]!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    # A `kill` must not leave sandboxes behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return run([known[name] for name in names] or GROUPS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
