"""The order of the queue: no family starves another, priorities go first, and each reason is a sentence."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Agent, Priority
from substrat.core.agents.rights import Policy
from substrat.core.families.scheduling import (
    Facts,
    Obstacle,
    ObstacleKind,
    Running,
    Waiting,
    check_waits,
    most_running,
    obstacle,
    order,
    places,
    starts,
)
from substrat.core.workspaces.clones import Clone, Stage
from tests.support.cases import each

FAMILIES = ("a", "b", "c", "d")
served = st.permutations(FAMILIES).map(lambda line: {family: place for place, family in enumerate(line[:3], 1)})


ANY = st.sampled_from(Priority)


@st.composite
def queues(draw, priorities=ANY):
    families = draw(st.lists(st.sampled_from(FAMILIES), max_size=12))
    numbers = draw(st.lists(st.integers(1, 1000), min_size=len(families), max_size=len(families), unique=True))
    return [
        Waiting(f"{family}-{number}", family, draw(priorities), number)
        for family, number in zip(families, numbers, strict=True)
    ]


@given(queues(), served)
def test_each_has_one_place_and_priorities_go_first(waiting, served):
    found = order(waiting, served)
    assert sorted(found) == sorted(waiting)
    ranks = [list(Priority).index(one.priority) for one in found]
    assert ranks == sorted(ranks)


@given(queues(), served)
def test_the_order_does_not_depend_on_how_the_agents_are_listed(waiting, served):
    assert order(waiting, served) == order(reversed(waiting), served)


@given(queues(st.just(Priority.NORMAL)), served)
def test_within_a_family_the_oldest_goes_first(waiting, served):
    for family in FAMILIES:
        numbers = [one.number for one in order(waiting, served) if one.family == family]
        assert numbers == sorted(numbers)


@given(queues(st.just(Priority.NORMAL)), served)
def test_no_family_starves_another(waiting, served):
    """Between two turns of a family, and before its first, each other one has one turn at most."""
    found = order(waiting, served)
    for family in {one.family for one in found}:
        since = dict.fromkeys(FAMILIES, 0)
        for one in found[: max(place for place, one in enumerate(found) if one.family == family)]:
            if one.family == family:
                since = dict.fromkeys(FAMILIES, 0)
            else:
                since[one.family] += 1
                assert since[one.family] == 1


@given(queues(st.just(Priority.NORMAL)), served)
def test_turn_by_turn_it_is_the_order_that_was_told(waiting, served):
    """What the queue shows is how it comes, if nobody joins it."""
    told, begun, left = order(waiting, served), [], list(waiting)
    for count in range(len(waiting)):
        first = order(left, served)[0]
        begun.append(first)
        left.remove(first)
        served = {**served, first.family: 100 + count}
    assert begun == told


def test_families_take_turns():
    waiting = [Waiting(f"{family}{number}", family, Priority.NORMAL, number) for number, family in enumerate("aaabbc", 1)]
    assert [one.agent for one in order(waiting, {})] == ["a1", "b4", "c6", "a2", "b5", "a3"]
    assert [family for family, _ in groupby(one.family for one in order(waiting, {"a": 3, "b": 1}))] == [*"cbaba"]


def test_those_begin_for_whom_there_is_room_and_one_alone_of_a_login_that_tries():
    waiting = [
        Waiting("a", "a", Priority.NORMAL, 1, trial="used up"), Waiting("b", "b", Priority.NORMAL, 2, trial="used up"),
        Waiting("c", "c", Priority.NORMAL, 3), Waiting("d", "d", Priority.NORMAL, 4, trial="another"),
        Waiting("e", "e", Priority.HIGH, 5), Waiting("f", "f", Priority.HIGH, 6, Obstacle(ObstacleKind.CLONE, "not ready")),
    ]  # fmt: skip
    assert starts(waiting, {}, 9) == ["e", "a", "c", "d"]
    blamed = [waiting[0]._replace(is_blamed=True), waiting[3]._replace(is_blamed=True)]
    assert starts([blamed[0], *waiting[1:3], blamed[1]], {}, 9) == ["b", "c", "d"], "who shut it tries where no other can"
    assert starts(waiting, {"a": 1}, 9) == ["e", "b", "c", "d"], "its family's turn came longest ago"
    assert starts(waiting, {}, 3) == ["e", "a", "c"], "a turn that doesn't begin takes no room"


def test_reasons_are_sentences_about_the_place():
    waiting = [
        Waiting("w", "lead", Priority.NORMAL, 1), Waiting("x", "lead", Priority.HIGH, 2),
        Waiting("y", "lead", Priority.NORMAL, 3, Obstacle(ObstacleKind.NEEDS, "it begins when w has succeeded")),
        Waiting("z", "anna", Priority.NORMAL, 4),
    ]  # fmt: skip
    found = places(waiting, {"lead": 1}, Running(3), most=4, closed=None)
    assert [(place.position, place.agent, place.reason) for place in found] == [
        (1, "x", "its turn is about to begin"),
        (2, "z", "place 2 in the queue: 3 turns run, as many as may at once (turns.max_running)"),
        (3, "w", "place 3 in the queue: 3 turns run, as many as may at once (turns.max_running)"),
        (4, "y", "it begins when w has succeeded"),
    ]
    closed = places(waiting, {}, Running(0), most=4, closed="5 MiB are free")
    assert [place.reason for place in closed] == ["5 MiB are free"] * 3 + ["it begins when w has succeeded"]
    full = places(waiting, {}, Running(turn=1, check=1), most=2, closed=None)
    assert full[0].reason == "place 1 in the queue: 1 turn and 1 check run, as many as may at once (turns.max_running)"
    assert check_waits(Running(0, check=1), None).startswith("its check waits: 1 check runs, as many")
    assert check_waits(Running(2), "5 MiB are free") == "its check waits: 5 MiB are free"


def agent(**changes):
    return Agent(
        **{"id": "x", "name": "x", "phase": Phase.QUEUED, "workspace": "/w", "model": "m", "created_at": 1.0,
           "policy": Policy(Network.HOST), **changes}
    )  # fmt: skip


def clone(stage, **changes):
    given = {"base": "c" * 40, **changes}
    return Clone("x", "x", "/t/x", "/w", "/w/.git", "/w", "substrat/x", "main", stage=stage, **given)


ACCOUNT = Obstacle(ObstacleKind.ACCOUNT, "the account has used up what it may", 9.0)


@pytest.mark.parametrize(
    ("record", "facts", "kind", "words"),
    [
        ({}, Facts(), None, ""),
        ({}, Facts(held="x is being removed"), ObstacleKind.TREE, "being removed"),
        ({"clone": clone(Stage.WANTED)}, Facts(), ObstacleKind.CLONE, "its clone of /w is being made"),
        ({"clone": clone(Stage.WANTED, base=None, source="y")}, Facts(), ObstacleKind.CLONE, "the work of its parent"),
        ({"clone": clone(Stage.MADE)}, Facts(), ObstacleKind.CLONE, "the set-up of its clone"),
        ({"clone": clone(Stage.RESTORING, restoring=3)}, Facts(), ObstacleKind.CLONE, "put back to turn 3"),
        ({"clone": clone(Stage.READY)}, Facts(), None, ""),
        ({"needs": ("y", "z")}, Facts(needs=("y", "z")), ObstacleKind.NEEDS, "when y and z have succeeded"),
        ({"retry_at": 50.0}, Facts(asleep_until=60.0), ObstacleKind.ASLEEP, "messages alone"),
        ({"retry_at": 50.0}, Facts(account=ACCOUNT), ObstacleKind.RETRY, "tried again at 1970-01-01T00:00:50.000Z"),
        ({"retry_at": 5.0}, Facts(account=ACCOUNT), ObstacleKind.ACCOUNT, "used up"),
    ],
)
def test_what_keeps_an_agent_from_beginning(record, facts, kind, words):
    found = obstacle(agent(**record), facts, now=10.0)
    assert (found.kind if found is not None else None) == kind
    assert words in (found.text if found is not None else "")


@each(
    ("wanted", "memory", "expected"),
    [(0, 16 << 30, 32), (0, 1 << 40, 256), (0, 1 << 30, 8), (3, 16 << 30, 3), (1000, 1 << 30, 1000)],
)
def test_as_many_turns_run_as_the_machine_has_memory_for(wanted, memory, expected):
    assert most_running(wanted, memory) == expected
