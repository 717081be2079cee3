"""`ls`: who comes first, what stands in a row, what is folded, and which agents it picks."""

import itertools

import pytest

from substrat.cli import agent_rows, attention, output
from substrat.cli.agent_rows import Place
from substrat.core.agents.attention import AttentionKind
from substrat.protocol.attention import KINDS
from tests.support.cases import each

LEVELS = {"answer": "urgent", "unsafe": "urgent", "unkept": "urgent", "failed": "urgent", "stuck": "urgent",
          "budget": "action", "merge": "action", "held": "action", "suspended": "action"}  # fmt: skip


@pytest.fixture
def listed(agent):
    """Make an agent as a list shows it."""

    def make(name, kind, text=None, **fields):
        level, text = LEVELS.get(kind, "info"), text or f"why {name}"
        found = {"kind": kind, "level": level, "text": text, "since": "2026-01-01T00:00:00Z"}
        clone = {"ahead": 1, "files": 0, "landed": False, "work": {"commits": 1, "landed": False}}
        fields = {"last": None, "tokens": {"input": 0, "output": 0}, "attention": found, "family": name, **fields}
        return agent(id=name, name=name, **({"clone": clone} if kind == "merge" else {}), **fields)

    return make


def test_those_who_need_a_person_come_first_and_counts_last(ctl, fake, listed):
    agents = [
        listed("calm", "idle", last="All\x1b is well.\nReally."),
        listed("busy", "working", activity={"text": "shell: make", "since": "2026-01-01T00:00:00Z"}),
        listed("broken", "failed"),
        listed("curious", "answer"),
        listed("later", "queued", state="queued", reason="why later"),
        listed("gone", "done", last="Bye."),
    ]
    fake({"agent.list": agents, "daemon.status": {}})
    lines = ctl("ls").out.splitlines()
    rows = [line.split()[0] for line in lines[1:-1]]
    assert rows == ["curious", "broken", "busy", "later", "calm", "gone"]
    assert lines[-1] == "6 agents: 1 answer, 1 failed, 1 working, 1 queued, 1 idle, 1 done"
    said = dict(zip(rows, lines[1:-1], strict=True))
    assert "why curious: answer curious TEXT" in said["curious"]
    assert "why broken: resume broken, or accept broken" in said["broken"]
    assert "shell: make" in said["busy"]
    assert "why later" in said["later"]
    assert "All\\x1b is well." in said["calm"]
    assert "Bye." in said["gone"]


@pytest.fixture
def family(listed):
    """A lead with children that work, ask, have failed and have been merged."""

    def make(*kinds, lead="waiting"):
        merged = {"ahead": 1, "files": 0, "landed": False, "work": {"commits": 1, "landed": False, "in": "lead"}}
        states: dict[str, dict[str, object]] = {"fails": {"state": "failed"}, "merged": {"clone": merged}}
        kids = [
            listed(f"kid-{number}", {"fails": "idle", "merged": "idle"}.get(kind, kind), f"why {number}", family="lead",
                   parent="lead", tokens={"input": 1000, "output": 0}, **states.get(kind, {}))
            for number, kind in enumerate(kinds, 1)
        ]  # fmt: skip
        return [listed("lead", lead, "its own", family="lead"), *kids]

    return make


@pytest.mark.parametrize(
    ("kinds", "lead", "row"),
    [
        (["working"] * 5 + ["answer", "merged", "merged"], "waiting",
         "lead +8  answer  8000  1 asks, 5 working, 2 merged into lead; kid-6: why 6: answer kid-6 TEXT"),
        (["done", "fails"], "merge", "lead +2  merge  2000  1 failed, 1 done; its own: merge lead"),
        (["merge", "merge", "done"], "done", "lead +3  merge  3000  2 to merge, 1 done; kid-1: why 1: merge kid-1 kid-2"),
        (["failed"] * 9, "failed", "lead +9  failed  9000  9 failed; its own: resume lead kid-1 kid-2"),
        (["working"], "waiting", "lead +1  working  1000  1 working"),
    ],
)  # fmt: skip
def test_a_family_has_one_row_with_what_its_weightiest_member_needs(ctl, fake, family, listed, kinds, lead, row):
    agents = [listed("alone", "idle"), *family(*kinds, lead=lead)]
    fake({"agent.list": lambda params: [{key: one.get(key) for key in params["fields"]} for one in agents]})
    lines = ctl("ls").out.splitlines()
    name, kind, tokens, doing = row.split("  ")
    assert len(lines) == 4
    [found] = [line for line in lines if line.startswith(name)]
    assert (f" {kind} " in found, f" {tokens} " in found, f"  {doing}" in found) == (True, True, True), found
    assert lines[-1].startswith(f"{len(kinds) + 2} agents: ")
    for words in (["-a"], ["*"], ["--attention", "idle,working,answer,done,merge,failed,waiting"]):
        assert len(ctl("ls", *words).out.splitlines()) == len(kinds) + 4, "each agent has a row"


def test_agents_that_are_named_are_asked_for_alone_and_a_tree_asks_for_their_families(ctl, fake, listed):
    asked: list[dict[str, object]] = []

    def answered(params):
        asked.append(params)
        return [{**listed("anna", "idle"), "id": "1", "parent": None}]

    fake({"agent.list": answered})
    for words in (["anna"], ["an*", "anna"], ["--tree", "anna"], ["--tree"]):
        assert "anna" in ctl("ls", *words).out
    assert [(one.get("names"), one.get("family")) for one in asked] == [
        (["anna"], None), (None, None), (["anna"], True), (None, None),
    ]  # fmt: skip
    assert all("reason" not in one["fields"] for one in asked)


def test_the_order_of_attention_is_the_daemons():
    order = [kind for kind in KINDS if kind in set(AttentionKind)]
    assert order == list(AttentionKind)


def test_what_needs_a_person_has_a_command_and_nothing_else_has(listed):
    for kind in AttentionKind:
        assert bool(attention.command(listed("a", kind.value))) == (kind.value in LEVELS), kind
    unsafe = listed("a", "unsafe")
    assert attention.command(unsafe) == "show a, then accept a"
    assert attention.command(unsafe, is_shown=True) == "accept a"
    unsafe["attention"]["text"] = "frozen, because .envrc was replaced here: resume a"
    assert attention.command(unsafe) == "show a, then accept a", "an agent may write any text"
    unsafe["attention"]["frozen"] = True
    assert attention.command(unsafe) == "show a, then resume a"
    said = "a needs you: frozen, because .envrc was replaced here: substratctl show a, then resume a"
    assert attention.need(unsafe) == said, "the command is said once"


def crowd(listed, urgent, working, idle):
    sentence = "Which of the two tables may I drop, users_old or accounts, and shall I keep a copy of them?"
    activity = {"text": "shell: make", "since": ""}
    return [
        *(listed(f"idle-{number}", "idle", last="done") for number in range(idle)),
        *(listed(f"working-{number}", "working", activity=activity) for number in range(working)),
        *(listed(f"asks-{number}", "answer", sentence) for number in range(urgent)),
    ]


@each(
    ("urgent", "working", "idle", "shown"),
    [(1, 2, 3, 1), (6, 4, 15, 6), (8, 17, 0, 8), (19, 4, 2, 19), (21, 0, 0, 21), (25, 2, 2, 18)],
)
def test_at_80_by_24_everybody_who_needs_a_person_is_there_with_the_command(listed, urgent, working, idle, shown):
    lines = agent_rows.laid_out(crowd(listed, urgent, working, idle), Place(0.0, 80, 23))
    assert len(lines) <= 23
    assert max(map(output.width, lines)) <= 80
    screen = "\n".join(lines)
    assert all(f"answer asks-{number} TEXT" in screen for number in range(shown))
    assert screen.count("Which of") == shown
    assert ("ls -a" in screen) == (urgent + working + idle > 21)


def test_a_reason_goes_on_in_the_line_of_its_command(listed):
    text = "May the migration drop users.email, which has 14 readers? (1 yes, 2 no)"
    _, first, second, _ = agent_rows.laid_out([listed("anna", "answer", text)], Place(0.0, 80, 23))
    start = first.index("May the")
    assert first[start:] + " " + second.strip().removesuffix(": answer anna TEXT") == text
    assert second.index(second.strip()) == start


def test_counts_that_take_two_lines_push_no_row_off_the_screen(listed):
    kinds = [*LEVELS, "working", "waiting", "queued", "idle", "done"]
    agents = [listed(f"{kind}-{number}", kind) for kind in kinds for number in range(3)]
    lines = agent_rows.laid_out(agents, Place(0.0, 80, 23))
    assert len(lines) <= 23
    assert max(map(output.width, lines)) <= 80
    assert " ".join(lines[-2:]).startswith("42 agents: 3 answer, ")


@each(
    ("kind", "text", "row"),
    [
        ("failed", "the agent program exited with status 1 without a result", "exited with status …: resume long-name-1"),
        ("unsafe", "made or replaced during the turn: lib/.git", "made or replaced duri…: show long-name-1"),
        ("idle", "has nothing to do; refused pypi.org: allow a pypi.org", "refused pypi.org: allow a pypi.org"),
    ],
)
def test_a_row_of_one_line_has_a_reason_too(listed, kind, text, row):
    agents = [listed("long-name-1", kind, text), *(listed(f"long-name-{number}", "answer") for number in range(2, 22))]
    [found] = [line for line in agent_rows.laid_out(agents, Place(0.0, 80, 23)) if line.startswith("long-name-1 ")]
    assert found.endswith(f"  {row}")


def test_what_does_not_fit_is_folded_the_least_urgent_first(listed):
    lines = agent_rows.laid_out(crowd(listed, 1, 12, 30), Place(0.0, 120, 12))
    assert lines[-4].startswith("working-5 ")
    assert lines[-3:] == [
        "6 more working: 'ls -a' lists them",
        "30 idle: 'ls -a' lists them",
        "43 agents: 1 answer, 12 working, 30 idle",
    ]
    assert len(lines) == 12
    assert len(agent_rows.laid_out(crowd(listed, 1, 12, 30), Place(0.0, 120, None))) == 46


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_table_fits_a_terminal_and_what_an_agent_does_is_widest(listed, width):
    clone = {"ahead": 2, "files": 3, "landed": False}
    activity = {"text": "shell: " + "word " * 60, "since": ""}
    agents = [
        listed("a-name-of-some-more-letters", "working", clone=clone, activity=activity,
               model="claude-4-sonnet-thinking", workspace="/home/somebody/with/a/long/path/" * 3),
        listed("b", "idle", tokens={"input": 81_600, "output": 500}, workspace="/home/me/project/sub"),
        listed("\u4e2d\u6587", "merge", "2 commits to land in main"),
    ]  # fmt: skip
    heads, *rows = agent_rows.laid_out(agents, Place(0.0, width, here="/home/me/project", home="/home/me"))[:-1]
    assert max(map(output.width, [heads, *rows])) <= width
    titles = heads.split()
    assert titles[:4] == ["NAME", "ATTENTION", "SINCE", "TOKENS"]
    assert ("WORK" in titles) == (width > 80)
    assert ("WORKSPACE" in titles) == (width == 200)
    starts = [heads.index(title) for title in titles] + [width]
    sizes = dict(zip(titles, (end - start for start, end in itertools.pairwise(starts)), strict=True))
    assert max(sizes, key=lambda title: sizes[title]) == "DOING"
    assert any("2 commits to land in main" in row for row in rows)
    assert any("merge \u4e2d\u6587" in row for row in rows)
    assert any("82k" in row for row in rows)
    if width == 200:
        assert rows[-1].endswith("  sub")


@each("width", [59, 40, 30])
@each("height", [None, 12])
def test_lines_keep_to_a_narrow_terminal(listed, width, height):
    agents = [*crowd(listed, 3, 4, 30), listed("a-name-of-some-more-letters", "unsafe", "made or replaced: lib/.git")]
    lines = agent_rows.laid_out(agents, Place(0.0, width, height))
    assert max(map(output.width, lines)) <= width
    assert height is None or len(lines) <= height
    assert lines[0].startswith("NAME ")
    assert "DOING" in lines[0]
    assert any("answer asks-0 TEXT" in line for line in lines)


def test_rows_are_the_same_whether_they_are_laid_out_for_a_terminal_or_a_pipe(listed, family):
    names = ["anna", "a  b", " c", "d ", "e|", "\u4e2d\u6587", "f\x1b[2J", "", "100%"]
    odd = [listed(name, "idle", last=f"{name}\nmore", workspace=f"/x/{name}", unread=None) for name in names]
    agents = [*crowd(listed, 3, 4, 30), *family("answer", "merged", "fails", lead="merge"), *odd]
    assert agent_rows.laid_out(agents, Place(0.0)) == agent_rows.laid_out(agents, Place(0.0, 10_000))
    for value in (*names, None, 7):
        assert output.texts_of([value, "b"]) == [output.text_of(value), "b"]


def test_numbers_of_tokens_are_short():
    for tokens, said in (
        (0, "0"), (9_999, "9999"), (10_000, "10k"), (999_499, "999k"), (999_500, "1.0M"), (12_345_678, "12M"),
        (5 * 10**12, "5000G"),
    ):  # fmt: skip
        assert agent_rows.shortened(tokens) == said


def test_an_agents_fields_cannot_break_the_table(ctl, fake, listed):
    fake({"agent.list": [listed("a\nb\x1b[2J", "answer", "x\r\ny", workspace="/a\r/b", model=None)]})
    done = ctl("ls")
    assert done.out.splitlines()[1].split()[:3] == ["a", "b\\x1b[2J", "answer"]
    assert done.out.count("\n") == 3
    assert "\x1b" not in done.out


def test_a_name_that_is_wrong_brings_no_empty_table(ctl, fake):
    fake({"agent.list": []})
    done = ctl("ls", "nobody")
    assert (done.code, done.out, done.error) == (4, "", "there is no agent 'nobody'")


def test_without_agents_it_is_its_heads_and_its_count(ctl, fake):
    fake({"agent.list": []})
    assert ctl("ls").out == "NAME  ATTENTION  SINCE  TOKENS  MODEL  NETWORK  DOING  WORKSPACE\n0 agents\n"
    assert ctl("ls", "--json").json == []


@pytest.fixture
def some(fake, listed, tmp_path):
    """A daemon with three agents, two of them below one directory."""
    agents = [
        listed("api-1", "idle", workspace=str(tmp_path)),
        listed("api-2", "failed", state="failed", workspace=str(tmp_path / "sub")),
        listed("web", "done", state="ended", workspace=f"{tmp_path}-other"),
    ]
    return fake({
        "agent.list": lambda params: [{key: one[key] for key in params.get("fields") or one} for one in agents],
        "daemon.status": {},
    })  # fmt: skip


@each(
    ("words", "found"),
    [
        ([], "api-1 api-2 web"),
        (["-a"], "api-1 api-2 web"),
        (["web", "api-1"], "api-1 web"),
        (["api-*"], "api-1 api-2"),
        (["API-*"], ""),
        (["--state", "idle,ended"], "api-1 web"),
        (["--state", "idle", "--state", "failed"], "api-1 api-2"),
        (["--attention", "failed"], "api-2"),
        (["-w", "."], "api-1 api-2"),
        (["api-*", "--attention", "idle, done"], "api-1"),
    ],
)
def test_it_picks_names_globs_states_kinds_and_directories(ctl, some, monkeypatch, tmp_path, words, found):
    monkeypatch.chdir(tmp_path)
    done = ctl("ls", "-q", *words)
    assert (done.out.split(), done.code) == (found.split(), 0)


def test_a_name_that_is_not_there_costs_a_line_and_a_glob_nothing(ctl, some):
    assert ctl("ls", "x*", "--json").json == []
    done = ctl("ls", "web", "nobody", "-q")
    assert (done.out, done.code, done.error) == ("web\n", 4, "there is no agent 'nobody'")


@each(
    ("words", "said"),
    [
        (["--state", "asleep"], "'asleep' is no state"),
        (["--attention", "tired"], "'tired' is no kind of attention"),
        (["--attention", ","], "--attention names no kind of attention"),
        (["--watch", "--json"], "leave --json and --quiet"),
        (["--watch"], "standard output is none"),
    ],
)
def test_a_list_that_cannot_be_is_status_2(ctl, some, words, said):
    done = ctl("ls", *words)
    assert (done.code, said in done.error) == (2, True), done


def test_columns_and_lines_count_where_they_are_set(monkeypatch, ctl, fake, listed):
    fake({"agent.list": crowd(listed, 1, 2, 30)})
    monkeypatch.setenv("LINES", "10")
    assert ctl("ls").out.count("\n") == 35, "a pipe folds nothing"
    monkeypatch.setenv("COLUMNS", "60")
    lines = ctl("ls").out.splitlines()
    assert max(map(len, lines)) <= 60
    for odd in ("0", "x", "-1", "", "1e3", "\u0663"):
        monkeypatch.setenv("COLUMNS", odd)
        assert max(map(len, ctl("ls").out.splitlines())) > 60, odd
