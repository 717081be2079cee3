"""A member that stands for several agents, the most turns, and prompts with what others have done."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.families import plans, run_prompts
from substrat.core.families.plans import Member, Plan
from substrat.core.families.run_prompts import Done
from substrat.core.families.runs import Run
from substrat.errors import InvalidParams

MAP = Member("map", "{{n}}: {{item}} for {{agent.reduce}}", each="ls")
REDUCE = Member("reduce", "of {{agent.map}}", needs=("map",))
PLAN = Plan("f", (MAP, REDUCE))
SCHEMA = '{"properties": {"agrees": {"type": "boolean"}}, "required": ["agrees"]}'


def task(plan, member, needed=()):
    run = Run("f-2", "f.toml", "/w", plan, "ctl", 1.0)
    return run_prompts.task(run, member, needed, lambda name: f"f-2.{name}")


def test_an_agent_for_each_line_takes_the_place_of_the_member():
    plan = plans.with_group(PLAN, "map", ["a b", "{{n}}"])
    assert [(one.name, one.needs) for one in plan.members] == [
        ("map.1", ()), ("map.2", ()), ("reduce", ("map.1", "map.2")),
    ]  # fmt: skip
    assert [task(plan, one) for one in plan.members] == [
        "1: a b for f-2.reduce", "2: {{n}} for f-2.reduce", "of f-2.map.1, f-2.map.2",
    ]  # fmt: skip
    assert plans.environment_of(plan, plan.members[0]) == (("ITEM", "a b"), ("N", "1"))
    assert plans.environment_of(plan, plan.members[2]) == ()


def test_no_line_is_no_agent_and_too_many_are_refused():
    plan = plans.with_group(PLAN, "map", [])
    assert [(one.name, one.needs) for one in plan.members] == [("reduce", ())]
    assert task(plan, plan.members[0]) == "of nobody"
    with pytest.raises(InvalidParams, match="agents: a family has 1 to 256, not 1001"):
        plans.with_group(PLAN, "map", ["x"] * 1000)
    with pytest.raises(InvalidParams, match="the value of ITEM has more than 32768 bytes"):
        plans.with_group(PLAN, "map", ["x" * 40000])
    with pytest.raises(InvalidParams, match="two agents have this name"):
        plans.with_group(replace(PLAN, members=(MAP, Member("map.1", "x"))), "map", ["x"])


def test_a_count_needs_no_command():
    plan = plans.counted(Plan("f", (replace(MAP, each=None, count=2), REDUCE)))
    assert [(one.name, one.number, one.item) for one in plan.members[:2]] == [("map.1", 1, None), ("map.2", 2, None)]
    assert plans.counted(PLAN) == PLAN, "what has each waits for its command"


def test_the_most_turns():
    judge = Member("judge", "x", needs=("author",), returns_to="author", rounds=3, result_schema=SCHEMA)
    author = Member("author", "x", check="make", retries=1)
    assert plans.most_turns(Plan("f", (author, judge))) == 3 * 2 + 3
    assert plans.most_turns(Plan("f", (author, judge), lead="author")) == 9, "no report of what goes by rounds"
    assert plans.most_turns(PLAN) == 255 + 1
    assert plans.most_turns(replace(PLAN, lead="reduce", members=(MAP, Member("reduce", "x")))) == 255 + 1 + 255
    assert plans.most_turns(replace(PLAN, lead="reduce")) == 255 + 1, "its task has the results"


def test_a_task_says_what_those_have_done_that_it_needs():
    needed = [Done("f.a", "success", "+2 commits, a1b2c3d", "done\nwell"), Done("f.b", "timed_out", "", "")]
    assert task(PLAN, Member("c", "Go."), needed) == (
        "Go.\n\nf.a: success. Its work, and what it said:\n\n> +2 commits, a1b2c3d\n> \n> done\n> well\n\nf.b: timed_out."
    )
    many = [Done(f"f.{number}", "success", "", "x" * 9999) for number in range(256)]
    assert len(task(PLAN, Member("c", "Go."), many)) < 64 * 1024


def test_a_result_that_goes_back_is_quoted():
    text = run_prompts.returned(Done("f.judge", "success", "", '{"agrees": false}\n/shell x'), 1, 3)
    assert text == (
        "f.judge doesn't agree with your work yet, in round 1 of 3: do what is left to do. "
        "It said:\n\n"
        '> {"agrees": false}\n> /shell x'
    )


@given(st.lists(st.text(min_size=1), max_size=9))
def test_no_line_changes_another_part_of_a_prompt(items):
    """Whatever a file is called, it stands in its prompt once and as it is."""
    try:
        plan = plans.with_group(PLAN, "map", items)
    except InvalidParams:
        assert any("\0" in item for item in items)
        return
    for number, item in enumerate(items, 1):
        assert task(plan, plan.members[number - 1]) == f"{number}: {item} for f-2.reduce"
