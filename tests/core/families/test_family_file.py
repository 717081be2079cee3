"""Families are read from files as people write them, and what can't be is named with its line."""

import pytest

from substrat.core.families import family_file, plans, run_prompts
from substrat.core.families.plans import OnFail, Plan
from substrat.core.families.runs import Run
from substrat.errors import InvalidParams

WHOLE = """\
[family]
name = "review"
lead = "author"
workspace = "clone"
budget = { turns = 40, minutes = 1.5 }
timeout = 60
[vars]
task = "Make the tests pass."
most = 3
[agents.author]
prompt = "{{task}} {{ most }} times, for {{agent.reviewer}}"
check = "make test # {{task}}"
on_fail = "retry 3"
[agents."reviewer"]
prompt = "Look."
role = "r.md"
needs = ["author"]
network = "none"
budget = { tool_calls = 9 }
result_schema = { type = "object" }
"""
ROLE = "---\nname: reviewer\nmodel: 'opus'\n---\n\nBe strict.\n"


def read(text, role=ROLE, **given):
    return family_file.read(text, given, lambda _: role)


def test_a_whole_file():
    plan = read(WHOLE, task="Fix it.")
    author, reviewer = plan.members
    assert (plan.name, plan.lead, plan.place, plan.timeout) == ("review", "author", "clone", 60)
    assert (plan.budget, plan.variables) == ({"turns": 40.0, "minutes": 1.5}, (("MOST", "3"), ("TASK", "Fix it.")))
    assert filled(author, plan) == "Fix it. 3 times, for review.reviewer"
    assert (author.check, author.retries, author.on_fail) == ("make test # {{task}}", 3, OnFail.STOP)
    assert (reviewer.instructions, reviewer.model, reviewer.needs) == ("Be strict.", "opus", ("author",))
    assert (reviewer.network, reviewer.budget) == ("none", {"tool_calls": 9.0})
    assert reviewer.result_schema == '{"type": "object"}'


def test_what_counts_where_the_file_says_nothing():
    (one,) = read('[agents.a]\nprompt = "x"\ncheck = "true"\n').members
    assert (one.retries, one.on_fail, one.model, one.network) == (2, OnFail.STOP, None, None)
    (one,) = read('[agents.a]\nprompt = "x"\ncheck = "true"\non_fail = "ask"\n').members
    assert (one.retries, one.on_fail) == (0, OnFail.ASK)


def test_roles_of_both_programs():
    roles = {
        ("---\nmodel: inherit\ndescription: d\n---\nText", False): ("Text", None),
        ("Only text\n---\n", False): ("Only text\n---", None),
        ('model = "gpt-5"\ndeveloper_instructions = "Text"', True): ("Text", "gpt-5"),
    }
    for (text, is_toml), (words, model) in roles.items():
        assert family_file.role_of(text, is_toml=is_toml) == (words, model)


JUDGE = "[agents.a]\nprompt='x'\n[agents.j]\nprompt='x'\nneeds=['a']\nreturns_to='a'\n"
SCHEMA = "result_schema={properties={agrees={type='boolean'}},required=['agrees']}\n"
WRONG = {
    "x = 1": "line 1: x: is unknown; there are family, vars, agents",
    "[family]\n\nfoo = 1\n[agents.a]\nprompt='x'": "line 3: family.foo: is unknown",
    "[family]\nlead = 'q'\n[agents.a]\nprompt='x'": "line 2: family.lead: there is no agent 'q'; there are a",
    "[family]\nworkspace='tree'\n[agents.a]\nprompt='x'": "line 2: family.workspace: can be clone, in-place",
    "[family]\nbudget={turns=1}\n[agents.a]\nprompt='x'": "line 2: family.budget: a family's is its lead's",
    "[family]\nlead='a'\nbudget={eur=1}\n[agents.a]\nprompt='x'": "line 3: family.budget: a budget has no 'eur'",
    "[family]\nname='a b'\n[agents.a]\nprompt='x'": "line 2: family.name: 'a b' can't be a",
    "[agents.'a b']\nprompt='x'": "line 1: agents.a b: 'family-999.a b' can't be a name",
    "[family]\ntimeout = 0\n[agents.a]\nprompt='x'": "line 2: family.timeout: is a number above 0",
    "[vars]\nx = []\n[agents.a]\nprompt='x'": "line 2: vars.x: is a text or a number",
    "[vars]\nPath = 'x'\n[agents.a]\nprompt='x'": "line 2: vars.Path: would take the place of $PATH",
    "[vars]\nhome = 'x'\n[agents.a]\nprompt='x'": "line 1: vars: HOME is set by Substrat itself",
    "[family]\nname='a'": "line 1: agents: there is no agent",
    "agents.a = 1": "line 1: agents.a: is a table of its own",
    "[agents.a]\nrole='r'": "line 1: agents.a.prompt: is missing",
    "[agents.a]\nprompt = 7": "line 2: agents.a.prompt: is a text",
    "[agents.a]\nprompt = '''\n{{task}}'''": "line 2: agents.a.prompt: {{task}} is unknown: set it below [vars]",
    "[agents.a]\nprompt = '{{agent.b}}'": "line 2: agents.a.prompt: {{agent.b}} is unknown",
    "[agents.a]\nprompt='x'\non_fail='retry 2'": "line 3: agents.a.on_fail: 'retry N' sends the agent back for its check",
    "[agents.a]\nprompt='x'\non_fail='loop'": "line 3: agents.a.on_fail: can be 'retry N', ask, continue or stop",
    "[agents.a]\nprompt='x'\nnetwork='some'": "line 3: agents.a.network: can be none, filtered, host",
    "[agents.a]\nprompt='x'\nneeds=['a']": "line 3: agents.a.needs: there is no other agent 'a'",
    "[agents.a]\nprompt='x'\nneeds=['b']\n[agents.b]\nprompt='x'\nneeds=['a']": "line 3: agents.a.needs: a and b need each",
    "[agents.a]\nprompt='x'\ntime_limit=1e15": "line 3: agents.a.time_limit: can be a number up to 1000000000",
    "[agents.a]\nprompt='x'\nprogram='vi'": "line 3: agents.a.program: ",
    "[agents.a]\nprompt='x'\nresult_schema={type='objekt'}": "line 3: agents.a.result_schema: ",
    "[agents.a]\nprompt='x'\nnetwork='none'\nallow=['a.example']": "line 4: agents.a.allow: the network none has no list",
    "[agents.a]\nprompt='x'\nallow=['*']": "line 3: agents.a.allow: ",
    "[agents.a]\nprompt='x'\n[agents.A]\nprompt='x'": "line 1: agents.a: two agents have this name",
    "[agents.'x.lock']\nprompt='x'": "line 1: agents.x.lock: ",
    "[vars]\na='1'\nA='2'\n[agents.a]\nprompt='x'": "line 2: vars.a: and another variable are both $A in checks",
    "[agents.a]\nprompt='{{n}}'": "line 2: agents.a.prompt: {{n}} is unknown",
    "[agents.a]\nprompt='{{item}}'\ncount=2": "line 2: agents.a.prompt: {{item}} is unknown",
    "[agents.a]\nprompt='x'\ncount=2.5": "line 3: agents.a.count: is a whole number",
    "[agents.a]\nprompt='x'\ncount=257": "line 1: agents: a family has 1 to 256, not 257",
    "[agents.a]\nprompt='x'\ncount=2\neach='ls'": "line 3: agents.a.count: with each there is an agent a line",
    "[agents.a]\nprompt='x'\neach=''": "line 3: agents.a.each: can have 1 to",
    "[family]\nlead='a'\n[agents.a]\nprompt='x'\ncount=2": "line 3: agents.a: the lead is one agent: leave count out",
    "[vars]\nitem='x'\n[agents.a]\nprompt='x'": "line 2: vars.item: would take the place of $ITEM",
    "[agents.a]\nprompt='x'\nreturns_to='b'": "line 3: agents.a.returns_to: 'b' must be among its needs",
    f"{JUDGE}{SCHEMA}[agents.b]\nprompt='x'\n".replace("[agents.j]", "count=2\n[agents.j]"): (
        "line 7: agents.j.returns_to: 'a' are several agents: name one"
    ),
    f"{JUDGE}": "line 3: agents.j.result_schema: returns_to goes by 'agrees' in the result: write {",
    f"{JUDGE}[agents.j.result_schema]\ntype='object'\nproperties={{agrees={{type='boolean'}}}}": (
        "line 7: agents.j.result_schema: returns_to goes by 'agrees'"
    ),
    f"{JUDGE}{SCHEMA}on_fail='ask'": "line 8: agents.j.on_fail: with returns_to it can be stop or continue",
    f"{JUDGE}{SCHEMA}count=2": "line 6: agents.j.returns_to: one agent judges 'a', not several",
    f"{JUDGE}{SCHEMA}[agents.k]\nprompt='x'\nneeds=['a']\nreturns_to='a'\n{SCHEMA}": (
        "line 6: agents.j.returns_to: one agent judges 'a', not several"
    ),
    "[family]\nland='now'\n[agents.a]\nprompt='x'": "line 2: family.land: can be ask, merge, never, not 'now'",
    "[family]\nland='merge'\n[agents.a]\nprompt='x'": "line 2: family.land: merge lands what a check has passed on",
    "[family]\nland='merge'\nworkspace='scratch'\n[agents.a]\nprompt='x'\ncheck='true'": (
        "line 2: family.land: only commits in clones can land, and the workspace is scratch"
    ),
    "[family]\nland='merge'\nlead='b'\n[agents.a]\nprompt='x'\ncheck='true'\n[agents.b]\nprompt='x'": (
        "line 2: family.land: merge lands what a check has passed on: give b a check"
    ),
    "[agents.a]\nprompt='x'\ncount=2\n[agents.'a.1']\nprompt='x'": "line 1: agents.a.1: two agents have this name",
    "[agents.a]\nprompt='x'\nrounds=0": "line 3: agents.a.rounds: can be 1 to 100",
    '[agents.a]\nprompt="""\n[agents.b]\nrole = 1\n"""\nrole = 7': "line 6: agents.a.role: is a text",
    "[family]\nlead='b'\nbudget={turns=4}\n[agents.a]\nprompt='x'\nbudget={turns=5}\n[agents.b]\nprompt='x'": (
        "line 6: agents.a.budget: turns can be 4 at most, as the family's"
    ),
    "[agents.a]\nprompt='x'\nmodel='{{agent.a}}'": "line 3: agents.a.model: {{agent.a}} is unknown",
    "\n".join(f"[agents.a{number}]\nprompt='x'" for number in range(300)): "line 1: agents: a family has 1 to 256, not 300",
    "[agents.a": "this is no TOML: ",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_no_family_can_be(text):
    with pytest.raises(InvalidParams) as found:
        read(text)
    assert found.value.message.startswith(WRONG[text])


def test_words_in_braces_that_stand_for_themselves():
    (one,) = read("[agents.a]\nprompt = 'use \\{{ x }} as it is'\n").members
    assert filled(one) == "use {{ x }} as it is"
    (one,) = read("[agents.a]\nprompt = '\\{{agent.a}} is {{agent.a}}'\n").members
    assert filled(one) == "{{agent.a}} is f.a"
    plan = read("[vars]\nx = '{{agent.a}} {{y}} \\{{item}}'\n[agents.a]\nprompt = 'it is {{x}}'\n")
    assert filled(plan.members[0], plan) == "it is {{agent.a}} {{y}} \\{{item}}", "values stay as they are"


def filled(member, plan=None):
    run = Run("f", "f.toml", "/w", plan or Plan("f", (member,)), "ctl", 1.0)
    return run_prompts.task(run, member, (), lambda name: f"{run.plan.name}.{name}")


def test_variables_that_the_file_lacks_and_roles_without_words():
    with pytest.raises(InvalidParams, match="--set tsk: the file has no such variable"):
        read(WHOLE, tsk="x")
    with pytest.raises(InvalidParams, match=r"line 16: agents\.reviewer\.role: r\.md: it has no instructions"):
        read(WHOLE, role="---\nname: x\n---\n")


def test_the_most_turns_by_the_file():
    assert plans.most_turns(read(WHOLE)) == 1 + 3 + 1 + 1, "tasks, retries, and a report to the lead"
    assert plans.most_turns(read(WHOLE.replace("turns = 40", "turns = 2"))) == 2
