"""The soak's judges: of deliveries, which tells words said to an agent from quoted ones, and of leaked watches."""

import importlib
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from substrat.core.agents import prompts
from substrat.daemon.kernel.inotify import EntryWatcher, watch_names
from tests.support.cases import each

SPAWNED = {"kind": "agent:spawned", "agent": "1", "text": "a1 in /w", "cursor": 1}


def part(name):
    @pytest.fixture
    def found(monkeypatch):
        monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
        yield importlib.import_module(f"soaking.{name}")
        for module in (f"soaking.{name}", "soaking", "harness"):
            sys.modules.pop(module, None)

    return found


ledger, figures = part("ledger"), part("figures")
PROMPT = 'tok1@a1\n/tool send_message {"to": "a1", "text": "tok2@a1"}\n'
STOPPED = prompts.continuation(PROMPT)


@each(
    ("text", "said", "repeated"),
    [
        (PROMPT, ["tok1@a1"], []),
        ("hello tok1@a2 tok1@a11", [], []),
        (prompts.turn_as_answer("a2", 3, "success", "", PROMPT), [], []),
        (prompts.turn_as_answer("a2", 3, "success", "", prompts.turn_as_answer("a1", 4, "success", "", PROMPT)), [], []),
        (STOPPED, [], ["tok1@a1"]),
        (prompts.continuation(STOPPED), [], ["tok1@a1"]),
        (f"{STOPPED}\n\nhello tok3@a1", ["tok3@a1"], ["tok1@a1"]),
    ],
)
def test_a_quote_is_no_delivery(ledger, text, said, repeated):
    assert ledger.tokens("a1", text) == said
    assert ledger.repeated_tokens("a1", text) == repeated


def test_what_is_said_twice_or_never_is_noted(ledger):
    broken: list[str] = []
    judge = ledger.Ledger(broken)
    judge.take(SPAWNED)
    for token in ("tok1@a1", "tok2@a1"):
        judge.accept("a1", token)
    told = (PROMPT, STOPPED, prompts.child_report("c1", 1, "success", "", PROMPT), PROMPT)
    for cursor, text in enumerate(told, 2):
        judge.take({"kind": "user", "agent": "1", "text": text, "cursor": cursor})
    assert broken == ["tok1@a1 was delivered 2 times"]
    assert judge.lost("a1") == ["tok2@a1"]


def test_events_that_come_during_an_audit_are_for_the_next(ledger):
    broken: list[str] = []
    follower = ledger.Follower("it", broken)
    stored = [{"cursor": cursor, "kind": "user"} for cursor in (1, 2, 3)]
    for event in (stored[0], stored[2]):
        follower.take(event)
    follower.audit(stored[:1])
    assert broken == []
    follower.audit(stored[1:])
    assert broken == ["it missed 1 of 2 events, the first of them user with the cursor 2"]


def test_a_message_whose_event_comes_after_its_agent_was_removed_is_not_missed(ledger):
    judge = ledger.Ledger([])
    judge.take(SPAWNED)
    judge.forget("a1")
    judge.take({"kind": "message:received", "agent": "1", "text": "from a2: hello tok1@a1", "cursor": 2})
    assert judge.lost("a1") == []


def test_a_finding_excuses_one_watch_of_its_directory(figures, tmp_path):
    (tmp_path / "other").mkdir()
    excused, counted = [str(tmp_path), str(tmp_path / "gone")], []
    before = figures.watches(os.getpid(), excused).total()
    with closing(EntryWatcher()) as findings, closing(EntryWatcher()) as leaking:
        for watcher, place in ((findings, tmp_path), (leaking, tmp_path), (findings, tmp_path / "other")):
            watch_names((str(place),), watcher._fd)
            counted.append(figures.watches(os.getpid(), excused).total() - before)
    assert counted == [0, 1, 2]
