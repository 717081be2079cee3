"""What is printed: tables, ages, times, one-liners, colour."""

import datetime as dt
import io
import json
import re
import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat import errors
from substrat.cli import output
from substrat.cli.verbs import show
from tests.cli.conftest import Terminal
from tests.support.cases import each

NOW = 1_767_225_600.0
"""2026-01-01T00:00:00Z"""


def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def stamp(seconds):
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().replace("+00:00", "Z")


def test_ages():
    for passed, said in (
        (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86399, "23h"), (86400, "1d"),
        (8_640_000, "100d"), (-50, "0s"),
    ):  # fmt: skip
        assert output.age(stamp(NOW - passed), NOW) == said


def test_what_is_no_time():
    odd: list[object] = [None, "", "yesterday", 5, [], "2026-01"]
    odd += [f"2026-01-01T00:00:{end}" for end in ("inf", "nanZ", "1e99")]
    assert [output.seconds_of(time) for time in odd] == [None] * len(odd)
    assert {(output.age(time, NOW), output.clock(time)) for time in odd} == {("-", "--:--:--")}


@given(st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(9999, 12, 31), timezones=st.just(dt.UTC)))
def test_times_are_read_as_datetime_reads_them(moment):
    for text in (moment.isoformat(), moment.isoformat().replace("+00:00", "Z")):
        assert output.seconds_of(text) == pytest.approx(moment.timestamp(), abs=1e-3)


@given(st.text(max_size=40))
def test_any_text_as_a_time_is_no_crash(text):
    assert output.age(text, NOW)
    assert output.clock(text)


def test_neutralise_leaves_only_newline_and_tab():
    everything = "".join(map(chr, range(0x500))) + "".join(map(chr, range(0x2000, 0x2070)))
    shown = output.neutralise(everything)
    assert {c for c in shown if unicodedata.category(c) == "Cc"} == {"\n", "\t"}
    assert {
        c for c in shown if unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    } == set()
    assert output.neutralise("\x1b\x9b\u202e\u2066\u200f\u061c") == "\\x1b\\x9b\\u202e\\u2066\\u200f\\u061c"
    assert output.neutralise("né 漢 🙂\t\n") == "né 漢 🙂\t\n"


@given(st.text(), st.integers(1, 40))
def test_one_line_is_one_line(text, most):
    flat = output.one_line(text, most)
    assert len(flat) <= most
    assert len(flat.splitlines()) <= 1
    assert "\x1b" not in flat


def test_text_of():
    assert [output.text_of(value) for value in (None, "", 0, False, "a\nb\x1b")] == ["-", "-", "0", "False", "a b\\x1b"]


def test_tables_align():
    rows = [["a", "idle", "/w"], ["long-name", "running", "/a b"]]
    assert output.table(("NAME", "STATE", "DIR"), rows, colour=False, painted=1) == (
        "NAME       STATE    DIR\n"
        "a          idle     /w\n"
        "long-name  running  /a b\n"
    )  # fmt: skip
    assert output.table(("NAME", "STATE"), [], colour=False) == "NAME  STATE\n"


def test_colours_do_not_move_columns():
    rows = [["a", "running", "x"], ["b", "idle", "y"], ["c", "odd", "z"]]
    plain = output.table(("NAME", "STATE", "DIR"), rows, colour=False, painted=1)
    painted = output.table(("NAME", "STATE", "DIR"), rows, colour=True, painted=1)
    assert "\x1b[32mrunning\x1b[0m" in painted
    assert re.sub(r"\x1b\[\d+m", "", painted).replace(" \n", "\n") == plain


@each("name", ["漢字", "\uff57\uff49\uff44\uff45", "e\u0301e\u0301", "plain", "🙂"])
def test_wide_characters_do_not_move_columns(name):
    text = output.table(("NAME", "STATE", "DIR"), [[name, "idle", "/w"], ["b", "running", "/w"]], colour=False, painted=1)
    lines = text.splitlines()
    assert {width(line[: line.index("/w")]) for line in lines[1:]} == {width(lines[0][: lines[0].index("DIR")])}


def test_a_terminal_breaks_no_word_and_no_row():
    assert output.wrapped("one two three", 4, 12) == "one two\n    three"
    assert output.wrapped("  kept: a-word-longer-than-that b", 2, 14) == "  kept:\n  a-word-longer-than-that\n  b"
    assert output.wrapped("one two three", 4, None) == "one two three"
    rows = [("a" * 30, "12"), ("\u4e2d" * 20, "3")]
    shown = output.cut(("NAME", "TURNS"), rows, 20, {"NAME": 8})
    assert output.widths(("NAME", "TURNS"), shown) == [13, 5]
    assert output.cut(("NAME", "TURNS"), rows, None, {"NAME": 8}) == rows


def test_a_frozen_turn_is_not_called_running(agent):
    turn = {"number": 2, "outcome": None}
    assert output.turn_summary(agent(state="suspended", turn=turn)) == "2 frozen"
    assert output.turn_summary(agent(state="running", turn=turn)) == "2 running"


def test_an_answer_of_another_form_is_a_clear_error(ctl, fake, agent):
    fake({"agent.list": {"agents": []}, "agent.show": [agent()], "agent.send": {"agent": None}})
    for words in (("ls",), ("ls", "--tree"), ("show", "a"), ("send", "a", "b")):
        done = ctl(*words)
        assert (done.code, done.out) == (1, "")
        assert "are both of one version?" in done.error


def test_colour_is_for_terminals_of_people_who_want_it():
    assert output.has_colour(Terminal(), {"TERM": "xterm"})
    assert not output.has_colour(io.StringIO(), {"TERM": "xterm"})
    assert not output.has_colour(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert output.has_colour(Terminal(), {"TERM": "xterm", "NO_COLOR": ""})
    assert not output.has_colour(Terminal(), {"TERM": "dumb"})
    assert not output.has_colour(Terminal(), {})
    assert output.paint("x", output.RED, on=False) == "x"
    assert output.paint("", output.RED, on=True) == ""
    assert output.paint_state("idle", on=True) == "idle"


def test_json_is_one_ascii_line(capsys):
    output.put_json({"text": "é\n\x1b\u2028\ud800"})
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert shown.count("\n") == 1
    assert json.loads(shown) == {"text": "é\n\x1b\u2028\ud800"}


# show

OUTCOMES = (None, "success", "error", "interrupted", "timed_out", "lost", "new-one")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_show_with_every_outcome(ctl, fake, agent, outcome):
    running = {"ended_at": None, "exit_code": None, "result": None, "usage": None}
    turn = {"outcome": outcome, **(running if outcome is None else {})}
    if outcome not in {None, "success"}:
        turn |= {"error": "it broke\nbadly", "result": None, "exit_code": 1}
    fake({"agent.show": agent(turn=turn)})
    done = ctl("show", "anna")
    shown = {line[:12].rstrip(): line[12:] for line in done.out.splitlines()}
    assert (done.code, done.err) == (0, "")
    assert shown["turn"] == f"3 {outcome or 'running'} (id t1)"
    assert shown["  exit code"] == {None: "-", "success": "0"}.get(outcome, "1")
    assert ("  result" in shown) == (outcome == "success")
    assert shown.get("  error") == (None if outcome in {None, "success"} else "it broke badly")
    assert shown["network"].startswith("host (shares this machine's network; `--network filtered` does not)")


def test_show_without_a_turn(agent):
    lines = dict(show.describe(agent(network="none", session_id="s")))
    assert lines["turn"] == "none yet"
    shown = [lines[name] for name in ("network", "session", "created", "parent")]
    assert shown == ["none", "s", "2026-01-01 00:00:00", "-"]


def test_show_names_the_parent_while_it_is_there(ctl, fake, agent):
    answers = {"agent.show": agent(parent="p"), "agent.list": [agent(id="p", name="paul")]}
    fake(answers)
    assert "parent      paul (p)\n" in ctl("show", "anna").out
    assert ctl("show", "anna", "--json").json["parent"] == "p"
    answers["agent.show"] = agent(parent="gone")
    assert "parent      gone\n" in ctl("show", "anna").out


def test_a_long_hostile_result_is_cut_and_harmless(agent):
    lines = dict(show.describe(agent(turn={"result": "\x1b[2J\n" * 500, "usage": {"a\x1b": "b\x1b"}})))
    assert len(lines["  result"]) == 400
    assert all("\x1b" not in value for value in lines.values())


def test_why_an_agent_waits_is_said_once(agent):
    held = {"kind": "held", "level": "action", "text": "the disk is full"}
    assert "waits" not in dict(show.describe(agent(attention=held, reason="the disk is full")))
    lines = dict(show.describe(agent(attention={**held, "kind": "merge", "text": "1 commit"}, reason="the disk is full")))
    assert lines["waits"] == "the disk is full"


# What waiting says


@pytest.mark.parametrize(
    ("outcome", "status"), [("success", 0), ("error", 5), ("interrupted", 5), ("timed_out", 5), ("lost", 5), (None, 5)]
)
def test_a_verdict_is_the_exit_status(ctl, fake, agent, outcome, status):
    after = agent(turn={"outcome": outcome, "error": None if outcome == "success" else "because\nof this"})
    fake({"agent.send": {"agent": agent(), "message": 7}, "agent.wait_message": after})
    done = ctl("send", "anna", "hi", "--wait")
    assert done.code == status
    if status:
        assert (done.out, done.error) == ("", f"turn 3 of anna ended with {outcome or 'no outcome'}: because of this")
    else:
        assert (done.out, done.err) == ("all done\n", "")
    assert ctl("send", "anna", "hi", "--wait", "--json").json == after


def test_a_wait_that_takes_too_long(ctl, fake, agent):
    late = errors.WaitTimedOut("late")
    answers = {
        "agent.send": {"agent": agent(), "message": 7}, "agent.wait_message": late, "agent.wait": late,
        "agent.show": agent(state="running"),
    }  # fmt: skip
    daemon = fake(answers)
    done = ctl("send", "anna", "hi", "--wait", "--timeout", "2.5")
    assert (done.code, done.out) == (124, "")
    assert done.error == "anna didn't finish within 2.5 s; its turn goes on, and 'substratctl logs -f anna' shows it"
    assert daemon.calls("agent.wait_message") == [{"agent": agent()["id"], "message": 7, "timeout": 2.5}]
    for turn, held in (({"outcome": None}, "its turn is frozen"), ({}, "it is suspended")):
        answers["agent.show"] = agent(turn, state="suspended")
        done = ctl("send", "anna", "hi", "--wait", "--timeout", "2.5")
        assert done.error == f"anna didn't finish within 2.5 s; {held}, and 'substratctl resume anna' lets it go on"
    done = ctl("wait", "anna", "bert", "anna", "--until", "idle, ended", "--timeout", "1")
    assert (done.code, done.error) == (124, "some of anna, bert weren't idle or ended within 1 s; nothing was changed")
    assert daemon.calls("agent.wait") == [
        {"agents": [name], "until": ["idle", "ended"], "timeout": 1.0} for name in ("anna", "bert")
    ]


def test_the_first_failure_of_many_is_the_status_and_the_rest_is_done(ctl, fake, agent):
    def suspend(params):
        if params["agent"] == "b":
            raise errors.NotFound("there is no b")
        if params["agent"] == "c":
            raise errors.Refused("c is ended")
        return agent(name=params["agent"], state="suspended")

    daemon = fake({"agent.suspend": suspend})
    done = ctl("suspend", "a", "b", "a", "c", "d")
    assert (done.code, done.out) == (4, "a  suspended\nd  suspended\n")
    assert done.err == "substratctl: there is no b\nsubstratctl: c is ended\n"
    assert [call["agent"] for call in daemon.calls("agent.suspend")] == ["a", "b", "c", "d"]
    assert [found["name"] for found in ctl("suspend", "a", "b", "--json").json] == ["a"]
    done = ctl("suspend", "b", "--json")
    assert (done.code, done.out) == (4, "")


def test_resume_waits_for_all_and_names_them(ctl, fake, agent):
    def resume(params):
        return {"agent": agent(id=params["agent"], name=params["agent"]), "message": None if params["agent"] == "c" else 5}

    def wait(params):
        outcome = "success" if params["agent"] == "a" else "error"
        return agent(id=params["agent"], name=params["agent"], turn={"outcome": outcome, "result": "fine", "error": "bad"})

    suspended = [agent(id=i, name=i, state="suspended") for i in "abc"]
    daemon = fake({"agent.list": suspended, "agent.resume": resume, "agent.wait_message": wait})
    done = ctl("resume", "a", "b", "c", "--wait")
    assert (done.code, done.out) == (5, "a: fine\n")
    assert done.error == "turn 3 of b ended with error: bad"
    assert [call["agent"] for call in daemon.calls("agent.wait_message")] == ["a", "b"]
    assert [found["id"] for found in ctl("resume", "--all", "--wait", "--json").json] == ["a", "b", "c"]
    assert ctl("resume", "a", "go on").code == 0
    assert daemon.calls("agent.resume")[-1] == {"agent": "a", "prompt": "go on"}
    assert ctl("resume", "--all", "stop it").out == "3 agents resumed\n"
    assert daemon.calls("agent.resume")[-1] == {"agent": "c", "prompt": "stop it"}
    assert "c  resumed (idle, nothing was left to do)" in ctl("resume", "c").out


def test_the_inbox_is_harmless_and_says_that_it_is_empty(ctl, fake):
    item = {"id": 1, "from": "anna", "time": "2026-01-01T00:00:00Z", "text": "one\n\x1b[2Jtwo\n", "cut": False}
    answers = {"inbox.list": {"items": [item], "after": 1, "more": False}}
    fake(answers)
    assert ctl("inbox").out == "1  2026-01-01 00:00:00  anna\n  one\n  \\x1b[2Jtwo\n"
    answers["inbox.list"] = {"items": [], "after": 0, "more": False}
    done = ctl("inbox")
    assert (done.code, done.out, done.error) == (0, "", "the inbox is empty")


INBOX = {
    number: {"id": number, "from": "anna", "time": "2026-01-01T00:00:00Z", "text": f"{number}" * 3000, "kind": "message"}
    for number in range(1, 6)
}  # fmt: skip


def inbox_page(params):
    """Two items a page; the first of them is cut."""
    items = [{**INBOX[number], "cut": False} for number in (params["after"] + 1, params["after"] + 2) if number in INBOX]
    items[0].update(cut=True, text="…")
    return {"items": items, "after": items[-1]["id"], "more": items[-1]["id"] < 5}


def test_the_inbox_is_read_page_by_page_and_shown_whole(ctl, fake):
    daemon = fake({"inbox.list": inbox_page, "inbox.show": lambda params: INBOX[params["id"]]})
    assert ctl("inbox", "--json").json == list(INBOX.values())
    assert [call["after"] for call in daemon.calls("inbox.list")] == [0, 2, 4]
    assert [call["id"] for call in daemon.calls("inbox.show")] == [1, 3, 5]
    assert [line.strip() for line in ctl("inbox").out.splitlines()[1::2]] == [item["text"] for item in INBOX.values()]


def test_what_is_dismissed_is_said_in_a_line_each(ctl, fake):
    items = {**INBOX, 7: {"id": 7, "from": "bob", "text": "Which one?\n\x1b[2J" + "word " * 20}}
    daemon = fake({"inbox.show": lambda params: items[params["id"]], "inbox.dismiss": None, "inbox.list": inbox_page})
    done = ctl("inbox", "--dismiss", "7", "--dismiss", "1")
    assert done.out.splitlines() == [
        "7  dismissed; bob: Which one? \\x1b[2Jword word word word word word word word…",
        f"1  dismissed; anna: {'1' * 59}…",
    ]
    assert ctl("inbox", "--dismiss", "7", "--json").json == list(INBOX.values())
    assert [call["id"] for call in daemon.calls("inbox.dismiss")] == [7, 1, 7]


@pytest.mark.parametrize(
    ("tried", "gates", "said"),
    [
        (1, 1, "cursor 3f2a: its next turn begins at once; if the account lets it work, the others follow"),
        (0, 1, "nothing was changed: a turn of each login that is held tries already, or is about to"),
        (0, 0, "nothing was changed: no login is held"),
    ],
)
def test_a_try_says_what_begins_or_why_nothing_does(ctl, fake, tried, gates, said):
    gate = {
        "login": "cursor 3f2a",
        "failures": 1,
        "until": "2026-01-01T00:00:00Z",
        "reason": "out of usage",
        "trying": None,
    }
    fake({"queue.try": [gate] * tried, "queue.list": [], "queue.gates": [gate] * gates})
    assert ctl("queue", "--try").err.splitlines()[0] == f"substratctl: {said}"


def test_what_leaves_the_inbox_while_it_is_read_is_left_out(ctl, fake):
    gone = {1: errors.NotFound("there is no 1"), 3: errors.Refused("3 is settled already")}
    answers = {"inbox.list": inbox_page, "inbox.show": lambda params: gone.get(params["id"], INBOX[5])}
    fake(answers)
    assert [item["id"] for item in ctl("inbox", "--json").json] == [2, 4, 5]
    gone[3] = errors.SubstratError("broken")
    done = ctl("inbox", "--json")
    assert (done.code, done.error) == (1, "broken")


def test_version_with_and_without_a_daemon(ctl, fake):
    assert ctl("version").out.endswith("\nno daemon is running\n")
    assert ctl("version", "--json").json["server"] is None
    fake({})
    done = ctl("version")
    assert done.out.endswith("\ndaemon substratd 9.9\n")
    assert "so restart the daemon; turns go on" in done.error
    assert ctl("version", "--json").json["server"] == "substratd 9.9"


def test_spawn_sends_what_was_asked_for(ctl, fake, agent, monkeypatch, tmp_path):
    daemon = fake({"agent.spawn": agent()})
    monkeypatch.chdir(tmp_path)
    words = ["spawn", "anna", "-w", ".", "--model", "m", "--network", "filtered", "--allow", "a.org", "--allow", "b.org"]
    assert ctl(*words, "do it").out == f"anna  spawned in {agent()['workspace']}\n"
    assert daemon.calls("agent.spawn") == [{
        "workspace": str(tmp_path), "name": "anna", "model": "m", "network": "filtered", "allow": ["a.org", "b.org"],
        "prompt": "do it",
    }]  # fmt: skip
    assert ctl("spawn", "-w", "/w", "--json").json == agent()
    assert daemon.calls("agent.spawn")[-1] == {"workspace": "/w"}


def test_a_suspended_agents_prompt_is_said_to_wait(ctl, fake, agent):
    fake({"agent.send": {"agent": agent(state="suspended"), "message": 1}})
    done = ctl("send", "anna", "hi")
    assert (done.code, done.error) == (0, "anna is suspended; the prompt waits until 'substratctl resume anna'")


def test_shutdown_waits_until_the_daemon_hangs_up_and_calls_it_no_second_time(ctl, fake):
    asked = []

    def stop(peer):
        peer.greet()
        asked.append(peer.read())
        peer.answer(asked[-1], None)

    daemon = fake(stop)
    done = ctl("shutdown", "--suspend", "--json")
    assert (done.code, done.json) == (0, {"stopped": True, "socket": daemon.path})
    assert [(request["method"], request["params"]) for request in asked] == [("daemon.shutdown", {"suspend": True})]


def test_names_alone(ctl, fake, agent):
    daemon = fake({"agent.list": [{"name": "anna"}, {"name": "bert"}]})
    assert ctl("ls", "-q").out == "anna\nbert\n"
    assert ctl("ls", "--quiet", "--json").json == [{"name": "anna"}, {"name": "bert"}]
    assert daemon.calls("agent.list") == [{"fields": ["name"]}] * 2


def test_a_sentences_times_are_local_and_of_another_day_with_the_date(monkeypatch):
    now = "2026-11-27T12:00:00.000Z"
    monkeypatch.setenv("TZ", "Pacific/Chatham")  # 13:45 ahead in summer
    time.tzset()
    try:
        text = f"held until {now}, or 2026-11-27T09:59:59Z: it waits; ZZ 2026-11-27"
        found = output.in_local_time(text, output.seconds_of(now))
        assert found == "held until 01:45, or 2026-11-27 23:44: it waits; ZZ 2026-11-27"
    finally:
        monkeypatch.undo()
        time.tzset()


@each(
    ("sentence", "broken"),
    [
        ("can't reach it; start it", "can't reach it;\n  start it"),
        ("look at /a/path/that/is/too/long for it", "look at\n  /a/path/that/is/too/long\n  for it"),
        ("the agents' work: 'diff the-agent' shows it", "the agents' work:\n  'diff the-agent'\n  shows it"),
        ("if it's yours, `cp -aT /a/b /c/d` does", "if it's yours,\n  `cp -aT /a/b /c/d`\n  does"),
        ("x needs you: why: substratctl answer x TEXT", "x needs you: why:\n  substratctl answer x TEXT"),
        ("that is short", "that is short"),
    ],
)
def test_a_terminal_gets_long_sentences_broken_at_spaces_and_what_is_copied_whole(capsys, sentence, broken):
    with pytest.MonkeyPatch.context() as terminal:
        terminal.setenv("COLUMNS", "18")
        output.tell(sentence)
        assert capsys.readouterr().err == f"{sentence}\n"
        terminal.setattr(sys.stderr, "isatty", lambda: True)
        output.tell(sentence)
        assert capsys.readouterr().err == f"{broken}\n"
