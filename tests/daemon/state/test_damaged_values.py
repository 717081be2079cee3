"""Any wrong value in any column of the state: the others are all there, and all that a client can ask is answered.

The cases come from the schema: a column that is added later is damaged here without anybody having to think of it.
"""

import os
import re
import shutil
import sqlite3
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from substrat.core.families.account_gate import Gate
from substrat.core.families.plans import Member, Plan
from substrat.core.families.runs import Returned, Run, RunOutcome
from substrat.core.families.tasks import Status, Task, TaskState
from substrat.core.families.waits import WaitMode
from substrat.core.workspaces.clones import Clone, Kept, OnlyHere, PastLandings, Stage
from substrat.core.workspaces.landing import Landing, LandingMode
from substrat.core.workspaces.left_refs import LeftRefs
from substrat.daemon.agents.allow_list import AllowLists
from substrat.daemon.agents.due import end_due
from substrat.daemon.agents.findings import Findings, Found
from substrat.daemon.agents.inbox import Inbox, Question
from substrat.daemon.agents.reminders import Reminders, ReminderWish
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.state.columns import MAX_NUMBER
from substrat.daemon.state.layout import Layout
from substrat.daemon.state.quarantine import set_aside
from substrat.daemon.state.schema import MIGRATIONS
from substrat.daemon.state.trash import Trash
from substrat.daemon.turns.retention import Retention
from substrat.protocol import vocabulary
from tests.daemon.state.operator_methods import OperatorMethods
from tests.support.files_here import FilesHere

NOT_UTF8 = object()
VALUES = {
    "null": None,
    "empty": "",
    "text": "zz top",
    "a path up": "../../trash",
    "an id of none": "99999999-0000-4000-8000-000000000000",
    "very long": "x" * 100_000,
    "zero": 0,
    "one": 1,
    "a number": 4_242_424_242,
    "negative": -1,
    "the largest": 2**63 - 1,
    "the smallest": -(2**63),
    "a fraction": 1.5,
    "after all dates": 1e12,
    "infinite": float("inf"),
    "minus infinite": float("-inf"),
    "bytes": b"\xff\x00",
    "not UTF-8": NOT_UTF8,
    "a zero": "a\0b",
    "an object": '{"a": "b"}',
    "numbers": "[1, 1e999]",
    "null in a list": "[null]",
    "a deep list": "[" * 50_000,
    "pairs": '[["/x", 1], ["x", true], ["/x"]]',
    "a pair": '["text", 1]',
}
OTHERS = ("good", "busy", "child")


def columns():
    db = sqlite3.connect(":memory:")
    db.executescript("".join(MIGRATIONS))
    named = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'sqlite_sequence'"
    tables = [name for (name,) in db.execute(named)]
    for table in tables:
        for _, column, *_ in db.execute(f"PRAGMA table_info({table})"):
            yield table, column
    db.close()


def clone_of(agent):
    kept = Kept(1, 1.0, "a" * 40, "b" * 40, ahead=1, landed=False, only_here=OnlyHere(1, 1, 1, 1))
    return Clone(
        agent.id, agent.name, f"/trees/{agent.id}", "/w", "/w/.git", "/w", f"substrat/{agent.name}", "main", "c" * 40,
        Stage.READY, "why", with_wip=True, source=agent.id, kept=kept,
        landings=PastLandings(landed_head="a" * 40, failed_line="line"),
    )  # fmt: skip


def fill(agents):
    """Agents with all that an agent can have; `bad` is the one to be damaged."""
    store, registry, families = agents.store, agents.registry, agents.families
    reminders, questions, findings = Reminders(registry), Inbox(registry), Findings(registry, FilesHere())
    for name in ("bad", "good"):
        agents.spawn(name, "the first", allow=("example.org",), budget={"turns": 100.0})
        agents.begin(name, f"00000000-0000-4000-9000-0000000000{'0b' if name == 'bad' else '0c'}")
        agents.write(name, {"type": "assistant", "message": {"content": [{"type": "text", "text": "hello"}]}})
        agents.finish(name, "done", {"inputTokens": 3})
        agents.supervisor.send(name, "the second")
        agents.supervisor.report_status(name, "at work")
        agents.spawn(f"{name}-kid", "a part", parent=name)
        reminders.add(agents.agent(name), ReminderWish("look", 1.0))
        reminders.add(agents.agent(name), ReminderWish("look again", 100_000.0))
        questions.ask(agents.agent(name), Question(f"may {name}?"))
        findings.record(agents.agent(name).id, None, [Found("/w/sub/.git", "one"), Found("/w/other/.git", "another")])
        trio.run(findings.accept, name, [agents.agent(name).findings[0].number], "ctl")
        with agents.registry.change("clone kept") as change:
            change.put_clone(agents.agent(name), clone_of(agents.agent(name)))
            store.add_landing(Landing(0, agents.agent(name).id, "main", LandingMode.SQUASH, "m", "make", ("a",), time=1.0))
        families.waits.register(agents.agent(name), [f"{name}-kid"], WaitMode.ALL, 1000.0, "a note")
        with store.transaction():
            store.add_call(agents.agent(name).id, agents.turn(name).id, "c", '["sent", false]')
            store.drop_turn(agents.agent(name).id, store.turns_after(agents.agent(name).id, 0, 1)[0].id)
            store.add_call(agents.agent(name).id, agents.turn(name).id, "d", '["sent", false]')
    agents.spawn("child", parent="bad")
    agents.spawn("busy", "now")
    agents.spawn("gone")
    agents.supervisor.remove("gone")
    with store.transaction():
        store.save_gate(Gate("cursor-agent:0123456789abcdef", "x", "used up", 1.0, 2.0, 1, "t", "auto"))
        plan = Plan("team", (Member("one", "x"),))
        run = Run("team", "/f.toml", "/w", plan, "ctl", started_at=1.0, agents={"one": "x"}, standings={"one": "failed"})
        run = replace(run, returned={"one": Returned(1, "t")}, root="x")
        store.add_tasks([
            Task(
                0, agents.agent(name).id, "t1", "do it", "all", ("t0",), "any", 3, "ctl", 1.0, TaskState.FAILED, "x", 1,
                Status.FAILED, "no", 2.0,
            )
            for name in ("bad", "good")
        ])  # fmt: skip
        store.save_run(replace(run, ended_at=2.0, outcome=RunOutcome.FAILED, why="it broke", result="nothing"))
        store.add_mount_points(["/w/.envrc", "/v/.envrc"])
        store.note_worked_in(["/w", "/v"], ["/o/objects"])
        store.note_left_refs(LeftRefs("/w/.git", "past", "/w", "main", "a" * 40, "b" * 40, 1.0))
        store.connection.execute(
            "INSERT INTO damaged (time, agent, origin, reason, row) VALUES (1.0,'x','agents','r','{}')"
        )


LAX = re.compile(r"\bINTEGER\b(?! PRIMARY KEY)|\bTEXT\b|\bREAL\b")


def loosened(sql):
    """A table's definition without its checks of values."""
    return LAX.sub("BLOB", sql).replace(" NOT NULL", "").replace(") STRICT, WITHOUT", ") WITHOUT").replace(") STRICT", ")")


@pytest.fixture
def scene(tmp_path, new_agents):
    """A database with everything in it, and another whose tables take any value."""
    agents = new_agents()
    fill(agents)
    agents.store.close()
    agents.store.close = lambda: None
    tables = tmp_path / "lax.db"
    shutil.copy(agents.path, tables)
    db = sqlite3.connect(tables)
    schema = dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"))
    db.execute("PRAGMA writable_schema=1")
    for name, sql in schema.items():
        db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (loosened(sql), name))
    db.commit()
    db.close()
    return SimpleNamespace(agents=agents, lax=tables, schema=schema, directory=tmp_path, count=0)


def damaged(scene, table, column, where, value):
    """Put a value where none like it can be; returns the database's path, None when SQLite itself can't hold it."""
    scene.count += 1
    path = scene.directory / f"case-{scene.count}.db"
    shutil.copy(scene.lax, path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=OFF")
    try:
        given, raw = ("CAST(? AS TEXT)", b"\xff\xfe") if value is NOT_UTF8 else ("?", value)
        changed = db.execute(f"UPDATE {table} SET {column} = {given} WHERE {where}", (raw,)).rowcount
        assert changed == 1
    except sqlite3.IntegrityError:
        return None  # the number of a row, or the key of a table without row numbers
    else:
        db.execute("PRAGMA writable_schema=1")
        for name, sql in scene.schema.items():
            db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))
    finally:
        db.close()
    return str(path)


class Asked(OperatorMethods):
    """A daemon's agents with the methods of the operator socket, after a start."""

    def __init__(self, kind, path, clock, directory):
        agents = kind(path, clock)
        places = Layout(str(directory / "state"), str(directory / "run"))
        networks: Any = SimpleNamespace(changed=lambda *_: None)
        super().__init__(agents, places, allow_lists=AllowLists(agents.registry, networks))
        self.reminders, wanted = Reminders(agents.registry), Wakeup()
        self.sweeper = Retention(agents.registry, places, Trash(places.trash, wanted.set), wanted, trio.lowlevel.checkpoint)

    async def everything(self):
        """Ask all that can be asked; returns the answers about the others."""
        listed = await self.ask("agent.list")
        inbox = await self.ask("inbox.list")
        status = await self.ask("daemon.status")
        assert status["agents"] == len(listed)
        assert len(await self.ask("queue.list")) <= len(listed)
        assert len(await self.ask("queue.gates")) <= 1
        assert len(await self.ask("task.list")) <= 2
        found = {}
        for agent in listed:
            said = [
                await self.ask(method, agent=agent["id"])
                for method in ("agent.show", "agent.turns", "agent.usage", "agent.network", "events.read")
            ]
            if agent["name"] in OTHERS:
                said[0].pop("parent")  # its parent may be gone, and with it the root of its family
                said[0].pop("family")
                said[0]["shares"] = [share for share in said[0].get("shares", []) if share["agent"] in OTHERS]
                said[4].pop("journal")  # its id may be what is damaged
                said += [await self.ask("task.list", agent="good")] if agent["name"] == "good" else []
                found[agent["name"]] = said
        events, cursor = [], 0
        while (page := await self.ask("events.read", since=cursor, limit=50))["events"]:
            events += page["events"]
            cursor = page["cursor"]
        texts = [entry["text"] for entry in inbox]
        busy = next(agent["id"] for agent in listed if agent["name"] == "busy")
        assert (await self.ask("daemon.metrics"))["agents"].keys() == set(vocabulary.AGENT_STATES)
        return found, "may good?" in texts, {event["text"] for event in events if event["agent"] == busy}

    async def go_on(self):
        """Do a daemon's own work, and accept new work."""
        self.agents.clock.time += 10.0
        end_due(self.agents.registry, self.reminders.tell_due)
        self.agents.registry.admit()
        await self.sweeper.sweep()
        for name in ("good", "child"):
            _, number, _ = self.agents.supervisor.send(name, "more")
            assert 0 < number <= MAX_NUMBER
        assert self.questions.ask(self.agents.agent("good"), Question("and now?")) <= MAX_NUMBER
        cursor = self.agents.journal.last_cursor
        self.agents.finish("busy")
        assert [event.cursor > cursor for event in self.agents.journal.page(cursor, None)]
        assert self.agents.turn("good").outcome is None
        assert any(name == "good" for name, _ in self.agents.runner.started)
        assert "look" in " ".join(text for _, text in self.agents.told("good"))


def victims(table, column):
    bad = "(SELECT id FROM agents WHERE name = 'bad')"
    first = {
        "agents": ["name = 'bad'"],
        "turns": [f"agent = {bad} AND number = 1", f"agent = {bad} AND number = 2"],
        "items": [f"id = (SELECT min(id) FROM items WHERE agent = {bad})", "text = 'may bad?'"],
        "events": [f"cursor = (SELECT max(cursor) FROM events WHERE agent = {bad})"],
        "reminders": [f"agent = {bad} AND text = 'look'"],
        "calls": [f"agent = {bad} AND call = 'c'"],
        "dropped_turns": [f"agent = {bad}"],
        "mount_points": ["path = '/w/.envrc'"],
        "worked_in": ["root = '/w'"],
        "clones": [f"id = {bad}"],
        "landings": [f"agent = {bad}"],
        "waits": [f"agent = {bad}"],
        "tasks": [f"agent = {bad}"],
        "task_needs": [f"agent = {bad}"],
        "totals": ["name = 'tokens'", "name = 'turns'", "name = 'turn_seconds'"],
        "findings": ["rowid = (SELECT min(rowid) FROM findings)"],
    }  # fmt: skip
    return first.get(table, ["rowid = 1" if table == "damaged" else f"{column} = (SELECT min({column}) FROM {table})"])


COLUMNS = list(columns())
TABLES = sorted({table for table, _ in COLUMNS})
STEP = {"all": 1, "some": 3}[os.environ.get("SUBSTRAT_TEST_CASES", "all")]
"""Each value is tried in each column, and in `.ci/run` every third, by turns."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("table", TABLES)
async def test_no_value_breaks_what_it_does_not_belong_to(scene, clock, table):
    kind = type(scene.agents)
    clock.time = 1_700_001_000.0
    control = Asked(kind, str(shutil.copy(scene.agents.path, scene.directory / "control.db")), clock, scene.directory)
    expected = await control.everything()
    control.agents.store.close()
    tried = 0
    for number, column in enumerate(column for other, column in COLUMNS if other == table):
        for where in victims(table, column):
            for what in list(VALUES)[number % STEP :: STEP]:
                path = damaged(scene, table, column, where, VALUES[what])
                if path is None:
                    continue
                tried += 1
                clock.time = 1_700_001_000.0
                try:
                    await one_case(Asked(kind, path, clock, scene.directory), expected, table)
                except Exception as problem:
                    problem.add_note(f"{table}.{column} where {where} was {what}")
                    raise
    assert tried


async def one_case(asked, expected, table):
    found = await asked.everything()
    assert found[0].keys() == expected[0].keys()
    for name in OTHERS:
        assert found[0][name] == expected[0][name]
    assert found[1] == expected[1]
    if table != "events":
        assert found[2] == expected[2]
    await asked.go_on()
    assert set_aside(asked.agents.store, 1.0) == []
    asked.agents.store.close()
