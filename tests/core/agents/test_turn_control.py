"""A running turn's control: each wish for a sandbox with each state that it is seen in, against a grid of its own."""

import itertools
import signal

from substrat.core.agents import stop_reason
from substrat.core.agents.turn_control import TABLE, Command, Seen, Wanted, ladder, wanted
from tests.support.cases import each

# The commands, by their first letters: Signal, Freeze, Thaw, Kill, arm tImer. The columns are those of `Seen`.
GRID = """
wanted               starting  running  halting  stopped  dying  gone
running              .         .        T        T        .      T
frozen               .         F        F        .        .      T
held                 .         F        F        .        .      T
stopping             I         SI       TSI      TSI      .      T
stopping-while-held  I         FSI      FSI      SI       .      T
killed               K         K        K        K        .      T
"""
LETTERS = {"S": Command.SIGNAL, "F": Command.FREEZE, "T": Command.THAW, "K": Command.KILL, "I": Command.ARM_TIMER}


def cells():
    header, *rows = [line.split() for line in GRID.strip().splitlines()]
    for name, *commands in rows:
        for seen, letters in zip(header[1:], commands, strict=True):
            yield Wanted(name.replace("-", " ")), Seen(seen), tuple(LETTERS[one] for one in letters if one != ".")


CELLS = list(cells())


@each(("asked", "seen", "commands"), CELLS)
def test_the_table_is_the_grid(asked, seen, commands):
    assert TABLE[asked][seen] == commands


def test_the_grid_is_whole():
    assert {(asked, seen) for asked, seen, _ in CELLS} == set(itertools.product(Wanted, Seen))
    assert {asked: set(row) for asked, row in TABLE.items()} == {asked: set(Seen) for asked in Wanted}


FLAGS = [dict(zip(("frozen", "held", "stopping", "killed"), values, strict=True))
         for values in itertools.product((False, True), repeat=4)]  # fmt: skip


@each("flags", FLAGS)
def test_the_strongest_wish_counts(flags):
    still = flags["frozen"] or flags["held"]
    found = wanted(**flags)
    assert (found is Wanted.KILLED) == flags["killed"]
    if not flags["killed"]:
        assert found.startswith("stopping") == flags["stopping"]
        # Only a sandbox that nobody wants to stand still is ever let go on.
        assert (Command.THAW in TABLE[found][Seen.STOPPED]) == (not still)


@each("flags", FLAGS)
@each("seen", [Seen.RUNNING, Seen.HALTING, Seen.STOPPED])
def test_every_wish_comes_to_its_end(flags, seen):
    """Each command changes what is seen, so that the control task needs no memory of those it has carried out."""
    asked = wanted(**flags)
    after = {Command.FREEZE: Seen.STOPPED, Command.THAW: Seen.RUNNING, Command.KILL: Seen.DYING}
    for command in TABLE[asked][seen]:
        seen = after.get(command, seen)
    assert set(TABLE[asked][seen]) <= {Command.SIGNAL, Command.ARM_TIMER}


def test_a_program_that_goes_on_after_its_result_is_not_interrupted():
    assert ladder(stop_reason.AFTER_RESULT) == (signal.SIGTERM,)
    assert ladder(stop_reason.SUSPENDED) == (signal.SIGINT, signal.SIGTERM)
