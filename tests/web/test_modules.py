"""The page's modules: all of them are served, and the functions of the pure ones are tried in Node."""

import json
import re
import shutil
import subprocess

import pytest

from substrat.protocol.attention import KINDS
from substrat.web.access import MODULES
from tests.support.waiting import PATIENCE
from tests.test_imports import ROOT

PAGE = ROOT / "substrat" / "web" / "page"
SINCE = "2026-01-01"
IDLE = {"kind": "idle", "since": SINCE}
LEAD = {"id": "1", "name": "lead", "parent": None, "family": "1", "state": "idle", "attention": IDLE}
CALM = {**LEAD, "id": "2", "name": "calm", "family": "2", "attention": {"kind": "done", "since": SINCE}}
CHILD = {**LEAD, "id": "3", "name": "child", "parent": "1", "attention": {"kind": "answer", "since": "2026-01-02"}}
GONE = {**LEAD, "id": "4", "name": "gone", "parent": "1", "state": "ended"}
CLONE = {"ahead": 2, "files": 3, "landed": False, "work": {"commits": 2, "landed": False, "branches": ["x"], "stashes": 1}}


@pytest.fixture
def run(tmp_path):
    """Return the value of an expression in Node that has `text`, `state` and its agents."""
    if shutil.which("node") is None:
        pytest.skip("there is no node")
    shutil.copytree(PAGE, tmp_path / "page")
    (tmp_path / "page" / "package.json").write_text('{"type": "module"}')

    def evaluate(expression, *agents):
        script = (
            'import * as text from "./text.js"; import * as state from "./state.js";'
            f"for (const agent of {json.dumps(agents)}) state.agents.set(agent.id, agent);"
            "const list = [...state.agents.values()];"
            f"console.log(JSON.stringify({expression}))"
        )
        command = ["node", "--input-type=module", "--eval", script]
        found = subprocess.run(
            command, cwd=tmp_path / "page", capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    return evaluate


def test_each_module_of_the_page_is_served_and_takes_only_what_others_give():
    assert {path.stem for path in PAGE.glob("*.js")} == set(MODULES)
    texts = {name: (PAGE / f"{name}.js").read_text() for name in MODULES}
    exported = {name: set(re.findall(r"^export (?:async )?\w+ (\w+)", text, re.M)) for name, text in texts.items()}
    taken = [
        (name, other, word)
        for name, text in texts.items()
        for words, other in re.findall(r'^import \{([^}]+)\} from "\./(\w+)\.js";', text, re.M)
        for word in re.findall(r"\w+", words)
    ]
    assert len(taken) > 50
    assert [one for one in taken if one[2] not in exported[one[1]]] == []


def test_what_acts_or_hides_in_a_text_is_written_out(run):
    said = run(r'["\x1b[31m", "a\u200bb", "\u202eexe", "日本\n"].map(text.visible)')
    assert said == ["\\x1b[31m", "a\\u200bb", "\\u202eexe", "日本\n"]
    assert run(r'text.oneLine("  two\n lines ")') == "two lines"
    assert run(r'text.cut("ab😀", 3)') == "ab…"


def test_numbers_are_told_in_units(run):
    assert run("[999, 12345, 2500000, 3e9].map(text.tokens)") == ["999", "12k", "2.5M", "3.0G"]
    assert run('[text.plural(1, "file"), text.plural(2, "file")]') == ["1 file", "2 files"]


def test_agents_stand_by_attention_and_a_family_where_its_weightiest_member_would(run):
    everyone = (CALM, LEAD, CHILD)
    assert run("list.sort(state.byAttention).map((agent) => agent.name)", *everyone) == ["child", "lead", "calm"]
    tree = run("state.branches(list).map(([agent, level]) => [agent.name, level])", *everyone)
    assert tree == [["lead", 0], ["child", 1], ["calm", 0]]


def test_a_family_has_one_row_until_it_is_unfolded_or_filtered(run):
    taken = {**GONE, "clone": {"work": {"in": "lead"}}}
    everyone = (CALM, LEAD, CHILD, taken)
    rows = "state.rowsOf(list).map(([agent, level, family]) => [agent.name, level, family?.map((one) => one.name) ?? null])"
    folded = [["lead", 0, ["child", "gone", "lead"]], ["calm", 0, ["calm"]]]
    assert run(rows, *everyone) == folded
    members = [["child", 1, None], ["gone", 1, None]]
    assert run(f'(state.unfolded.add("1"), {rows})', *everyone) == [folded[0], *members, folded[1]]
    single = [[name, 0, [name]] for name in ("child", "gone", "lead", "calm")]
    assert run(f'(state.state.filter = "l", {rows})', *everyone) == single
    said = "1 asks, 1 merged into lead; child: which?"
    asks = {**CHILD, "attention": {"kind": "answer", "since": SINCE, "level": "urgent", "text": "which?"}}
    doing = "state.doingOf(list.sort(state.byAttention), list.find((one) => one.name === 'lead'))"
    assert run(doing, LEAD, asks, taken) == said


def test_the_kinds_are_the_protocols_and_those_of_urgent_agents_are_marked(run):
    assert run("state.KINDS") == list(KINDS)
    stuck = {**LEAD, "attention": {"kind": "stuck", "level": "urgent"}}
    assert run("state.KINDS.filter(state.isUrgentKind)", stuck, CALM) == ["stuck"]


def test_a_filter_takes_a_kind_of_attention_or_words(run):
    for words, names in (("answer", ["child"]), ("LEA", ["lead"]), ("", ["lead", "child"])):
        wanted = f"(state.state.filter = {json.dumps(words)}, list.filter(state.matches).map((agent) => agent.name))"
        assert run(wanted, LEAD, CHILD) == names


def test_buttons_follow_from_the_agent_and_end_names_its_family(run):
    view = "{ merge_files: [], refused: new Set() }"
    actions = run(f"state.actionsOf({json.dumps({**LEAD, 'clone': CLONE})}, {view})", LEAD, CHILD, GONE)
    assert [action["label"] for action in actions] == ["Merge", "Suspend", "End"]
    assert actions[-1]["question"] == "End lead, child for good?"
    assert run(f"state.workOf({json.dumps({'clone': CLONE})})") == "+2 ~3 &2"


def test_a_frozen_turn_is_resumed_and_has_no_findings_to_accept(run):
    frozen = {"kind": "unsafe", "text": "frozen, because .envrc was replaced here: resume lead", "frozen": True}
    asking = {**LEAD, "attention": {key: frozen[key] for key in ("kind", "text")}}
    agent = {**LEAD, "state": "suspended", "attention": frozen, "findings": ()}
    refused = "{ merge_files: [], refused: new Set([undefined]) }"  # a refusal that no entry would help
    assert run(f"state.actionsOf(list[0], {refused}).map((action) => action.label)", agent) == ["Resume", "End"]
    assert run("list.map(state.isFrozen)", agent, {**asking, "id": "5"}) == [True, False]
    found = {**agent, "findings": [{"number": 7}]}
    assert run(f"state.actionsOf(list[0], {refused}).find((one) => one.verb === 'accept').body", found) == {"what": [7]}


def test_the_list_of_agents_begins_again_when_the_last_one_of_a_page_was_removed(run):
    page = """
        const asked = [], full = Array.from({ length: 1000 }, (_, number) => ({ id: `gone ${number}` }));
        const answers = [full, null, full.map((_, number) => ({ id: `${number}` })), [{ id: "last" }]];
        globalThis.window = { sessionStorage: {} };
        globalThis.document = { hidden: false };
        globalThis.fetch = async (path) => {
            asked.push(path.split("after=")[1] ?? null);
            const answer = answers.shift();
            return { ok: answer !== null, status: answer ? 200 : 404, json: async () => answer ?? { error: {} } };
        };
        const net = await import("./net.js");
        await new Promise((resolve) => {
            net.views.render = resolve;
            state.state.all_touched = true;
            net.refreshAgents();
        });
        return [asked, state.agents.size, state.agents.has("last")];
    """
    assert run(f"await (async () => {{{page}}})()") == [[None, "gone 999", None, "999"], 1001, True]
