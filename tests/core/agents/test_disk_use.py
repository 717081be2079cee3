"""Which turns are stopped for their use of the disk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents.disk_use import (
    FILE_BYTES,
    LEAST,
    DiskLimits,
    DiskNearlyFull,
    DiskUse,
    HomeTooBig,
    decide,
    most_files,
)

MIB = 1024 * 1024
LIMITS = DiskLimits(home=100 * MIB, free=512 * MIB)
LITTLE = 255 * MIB


def use(turn="t", home=0, files=10, wrote=0, *, unmeasured=False, stopping=False):
    return DiskUse(turn, home, files, unmeasured, wrote, stopping)


ROWS = [
    ("nothing runs", [], 0, []),
    ("all is well", [use(home=100 * MIB)], 256 * MIB, []),
    ("a byte too much", [use(home=100 * MIB + 1)], 256 * MIB, [HomeTooBig("t", 100 * MIB)]),
    ("too many files", [use(files=100 * MIB // FILE_BYTES + 1)], 256 * MIB, [HomeTooBig("t", 100 * MIB)]),
    ("as many files as may be", [use(files=100 * MIB // FILE_BYTES)], 256 * MIB, []),
    ("hidden", [use(unmeasured=True)], 256 * MIB, [HomeTooBig("t", 100 * MIB)]),
    ("both are too big", [use("a", 101 * MIB), use("b", 102 * MIB)], 256 * MIB,
     [HomeTooBig("a", 100 * MIB), HomeTooBig("b", 100 * MIB)]),
    ("stopped already", [use(home=101 * MIB, stopping=True)], 256 * MIB, []),
    ("nearly full and nobody wrote", [use("a"), use("b")], 0, []),
    ("nearly full and one talks", [use(wrote=LEAST - 1)], 0, []),
    ("nearly full and one writes", [use("a"), use("b", wrote=LEAST)], LITTLE, [DiskNearlyFull("b", LEAST, LITTLE)]),
    ("half of it is enough", [use(wrote=MIB)], 256 * MIB, []),
    ("one at a time", [use("a", wrote=MIB, stopping=True), use("b", wrote=MIB)], 0, []),
    ("too big goes first", [use("a", 101 * MIB), use("b", wrote=MIB)], 0, [HomeTooBig("a", 100 * MIB)]),
]  # fmt: skip


@pytest.mark.parametrize(("uses", "free", "stops"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_what_is_stopped(uses, free, stops):
    assert decide(uses, free, LIMITS) == stops


def test_only_the_one_that_writes_the_most_is_stopped():
    uses = [use("a", wrote=80 * MIB), use("b", wrote=3000 * MIB), use("c", wrote=20 * 1024)]
    assert decide(uses, LITTLE, LIMITS) == [DiskNearlyFull("b", 3000 * MIB, LITTLE)]
    assert decide([uses[0], uses[2]], LITTLE, LIMITS) == [DiskNearlyFull("a", 80 * MIB, LITTLE)]
    assert decide([uses[2]], LITTLE, LIMITS) == []


def test_without_limits_nothing_is_stopped():
    uses = [use("a", 1 << 60, files=1 << 40, wrote=1 << 60, unmeasured=True)]
    assert decide(uses, 0, DiskLimits(0, 0)) == []
    assert decide(uses, 0, DiskLimits(0, 1))
    assert decide(uses, 1 << 60, DiskLimits(1, 0))


def test_a_small_limit_allows_the_files_that_every_agent_has():
    assert most_files(1) >= 1000


USES = st.builds(
    DiskUse, st.uuids().map(str), st.integers(0, 200 * MIB), st.integers(0, 30_000), st.booleans(), st.integers(0, 9 * MIB),
    st.booleans(),
)  # fmt: skip


@given(st.lists(USES, max_size=8), st.integers(0, 600 * MIB))
def test_who_is_stopped_deserves_it(uses, free):
    stops = decide(uses, free, LIMITS)
    by_turn = {use.turn: use for use in uses}
    assert not any(by_turn[stop.turn].stopping for stop in stops)
    assert sum(isinstance(stop, DiskNearlyFull) for stop in stops) <= 1
    for stop in stops:
        if isinstance(stop, DiskNearlyFull):
            assert free < LIMITS.free / 2
            assert by_turn[stop.turn].wrote == max(use.wrote for use in uses) >= LEAST
        else:
            found = by_turn[stop.turn]
            assert found.unmeasured or found.home > LIMITS.home or found.files > most_files(LIMITS.home)
