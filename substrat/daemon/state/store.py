"""The agents, turns, findings and notes of one state directory as rows: each query and each change of them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.usage import Used
from substrat.daemon.kernel.fingerprint import content_of
from substrat.daemon.state.clone_queries import CloneQueries
from substrat.daemon.state.columns import ANSWER, USAGE
from substrat.daemon.state.database import unusable
from substrat.daemon.state.event_queries import EventQueries
from substrat.daemon.state.gate_queries import GateQueries
from substrat.daemon.state.item_queries import ItemQueries
from substrat.daemon.state.rows import AGENTS, CALLS, EVENTS, FINDINGS, REMINDERS, TABLES, TURNS
from substrat.daemon.state.run_queries import RunQueries
from substrat.daemon.state.task_queries import TaskQueries
from substrat.daemon.state.total_queries import TotalQueries
from substrat.daemon.state.wait_queries import WaitQueries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from substrat.core.agents.records import Agent, Finding, Turn
    from substrat.core.agents.reminding import Reminder


class KeptRow(NamedTuple):
    """A turn as retention sees it: `dropped` its files, `cleared` its events too, `unread` its report waits."""

    turn: str
    number: int
    ended_at: float | None
    dropped: bool
    cleared: bool
    unread: bool


class Store(
    ItemQueries, EventQueries, CloneQueries, WaitQueries, GateQueries, RunQueries, TaskQueries, TotalQueries
):  # fmt: skip
    """All rows of one state directory."""

    agents_without_records = 0
    """How many agents have files and no rows, as was found when the daemon started."""

    # Agents and turns

    def save_agent(self, agent: Agent) -> None:
        """Insert or replace an agent's row; its turn has a row of its own."""
        session = agent.session
        values = AGENTS.write(
            agent, network=agent.policy.network, allow=agent.policy.allow, binds=agent.policy.binds,
            session_id=session.id if session else None, session_stored=session.stored if session else False,
            input_tokens=agent.tokens.input, output_tokens=agent.tokens.output,
        )  # fmt: skip
        self._db.execute(_SAVE_AGENT, values)

    def save_turn(self, turn: Turn) -> None:
        """Insert or replace a turn's row.

        A turn that has ended keeps the result and the usage that are stored: in memory it may be without (`abridged`).
        """
        process = turn.process
        values = TURNS.write(
            turn, pid=process.pid if process else None, start_time=process.start_time if process else None,
            boot_id=process.boot_id if process else None,
        )  # fmt: skip
        self._db.execute(_SAVE_TURN, values)

    def save_progress(self, turn: Turn) -> None:
        """Update a turn's row with how far its output has been read, and when."""
        self._db.execute(
            "UPDATE turns SET offset = ?, reported = ?, heard_at = ? WHERE id = ?",
            (turn.offset, turn.reported, turn.heard_at, turn.id),
        )

    def agents(self) -> list[Agent]:
        """Load every agent with its newest turn, abridged, and the number of items that wait, oldest first.

        Raises:
            StateUnusable: the database is damaged.
        """
        try:
            return self._agents()
        except sqlite3.Error as problem:
            raise unusable(self.path, problem) from None

    def _agents(self) -> list[Agent]:
        newest = self._db.execute(_NEWEST_TURNS).fetchall()
        turns = {turn.agent: turn for turn in TURNS.read_all(newest)}
        findings: dict[str, list[Finding]] = {}
        for finding in self.open_findings():
            findings.setdefault(finding.agent, []).append(finding)
        waiting = dict(
            self._db.execute(
                "SELECT agent, count(*) FROM items WHERE turn IS NULL AND closed IS NULL AND agent NOT NULL "
                "AND starts_turn GROUP BY agent"
            )
        )
        clones = {clone.agent: clone for clone in self.clones()}
        found = self._all(AGENTS, "ORDER BY created_at, rowid")
        return [
            replace(
                agent, turn=turns.get(agent.id), waiting=waiting.get(agent.id, 0), clone=clones.get(agent.id),
                findings=tuple(findings.get(agent.id, ())),
            ) for agent in found
        ]  # fmt: skip

    def turn(self, turn_id: str) -> Turn | None:
        """Load one turn."""
        return next(iter(self._all(TURNS, "WHERE id = ?", turn_id)), None)

    def newest_ends(self, agent_id: str, count: int) -> list[tuple[str | None, str | None]]:
        """Load outcome and error of an agent's newest turns, newest first, without those that were tried again."""
        return self._db.execute(
            "SELECT outcome, error FROM turns WHERE agent = ? AND EXISTS (SELECT 1 FROM items WHERE items.turn = turns.id) "
            "ORDER BY number DESC LIMIT ?",
            (agent_id, count),
        ).fetchall()

    def turn_number(self, turn_id: str) -> int | None:
        """Load a turn's number alone: its row may hold a result of a megabyte."""
        return self._value("SELECT number FROM turns WHERE id = ?", turn_id)

    def turns_after(self, agent_id: str, number: int, limit: int, most: int | None = None) -> list[Turn]:
        """Load an agent's turns after a number, the oldest first.

        Args:
            agent_id: the agent.
            number: the turn before the first one.
            limit: how many turns at most.
            most: the characters of results and errors after which no further turn is loaded; None is no bound.
        """
        found = self._db.execute(
            f"{TURNS.select} WHERE agent = ? AND number > ? ORDER BY number LIMIT ?", (agent_id, number, limit)
        )
        turns, size = [], 0
        for values in found:
            turns.append(TURNS.read(values))
            size += len(turns[-1].result or "") + len(turns[-1].error or "")
            if most is not None and size > most:
                break
        found.close()
        return turns

    def used_in(self, agent_id: str, session: str) -> Counter[str]:
        """Return the usage of an agent's turns that ended in a session."""
        found = self._db.execute(
            "SELECT usage FROM turns WHERE agent = ? AND session = ? AND usage NOT NULL", (agent_id, session)
        )
        used: Counter[str] = Counter()
        for (usage,) in found:
            used.update(USAGE.read(usage))
        return used

    def usages(self, agent_id: str, after: int, limit: int) -> list[Used]:
        """Load the usage of each of an agent's turns after one that reported any."""
        found = self._db.execute(
            f"{_SELECT_USED} WHERE agent = ? AND number > ? AND usage NOT NULL ORDER BY number LIMIT ?",
            (agent_id, after, limit),
        )
        return [Used(agent, number, at, model, USAGE.read(usage)) for agent, number, at, model, usage in found]

    def usages_since(self, since: float, after: int, rows: int) -> list[Used]:
        """Load the usage of turns that were started at a time or later, and that reported any.

        Args:
            since: the time, in seconds since the epoch.
            after: the row after which they are looked for; 0: the beginning.
            rows: how many rows are looked at.
        """
        found = self._db.execute(
            f"{_SELECT_USED} WHERE rowid > ? AND rowid <= ? AND started_at >= ? AND usage NOT NULL",
            (after, after + rows, since),
        )
        return [Used(agent, number, at, model, USAGE.read(usage)) for agent, number, at, model, usage in found]

    def last_turn_row(self) -> int:
        """Return the row of the newest turn; 0: there is none."""
        return self._value("SELECT coalesce(max(rowid), 0) FROM turns") or 0

    def forget_agent(self, agent_id: str) -> None:
        """Delete everything about an agent, its questions too; its children have no parent any more.

        Its events are no longer loaded, and are deleted piece by piece (`delete_events_of`): there may be millions.
        """
        for table in TABLES:
            if table.owner == "agent" and table is not EVENTS:
                self._db.execute(f"DELETE FROM {table.name} WHERE agent = ?", (agent_id,))  # noqa: S608 - constants
        self._db.execute("UPDATE agents SET parent = NULL WHERE parent = ?", (agent_id,))
        self._db.execute("DELETE FROM agents WHERE id = ?", (agent_id,))
        # The answer would have no addressee. Its messages to the operator that ask nothing stay to be read.
        self._db.execute("DELETE FROM items WHERE agent IS NULL AND kind = 'question' AND sender = ?", (agent_id,))
        self._db.execute("INSERT OR IGNORE INTO removed_agents (id, last) VALUES (?, ?)", (agent_id, self.last_cursor()))
        self.forget_settled()

    # Findings

    def add_finding(self, finding: Finding) -> Finding:
        """Store a finding and return it with its number; the number it comes with is ignored."""
        done = self._db.execute(_ADD_FINDING, FINDINGS.write(finding, number=0, accepted_at=None, closed_at=None)[1:])
        return replace(finding, number=int(done.lastrowid or 0))

    def open_findings(self) -> list[Finding]:
        """Load the findings of all agents that no person has accepted, oldest first."""
        return self._all(FINDINGS, "WHERE accepted_at IS NULL AND closed_at IS NULL ORDER BY number")

    def closed_findings(self) -> list[Finding]:
        """Load the findings of all agents that have closed by themselves, oldest first."""
        return self._all(FINDINGS, "WHERE closed_at NOT NULL ORDER BY number")

    def close_findings(self, numbers: Iterable[int], now: float | None) -> None:
        """Note that findings have closed by themselves; None: they are open again."""
        self._db.executemany("UPDATE findings SET closed_at = ? WHERE number = ?", [(now, number) for number in numbers])

    def accepted_findings(self, agent_id: str, sharing: Sequence[str] = ()) -> set[tuple[str, str, str | None]]:
        """Return the path, the text and the content's hash of each finding of an agent that a person has accepted.

        Args:
            agent_id: the agent's id.
            sharing: ids of agents that share its workspace: their findings about files hold for it too.
        """
        found = self._db.execute(
            "SELECT path, text, digest FROM findings WHERE accepted_at NOT NULL AND digest NOT NULL "
            "AND (agent = ? OR (files <> '[]' AND agent IN (SELECT value FROM json_each(?))))",
            (agent_id, json.dumps(sharing)),
        )
        return {(path, text, content_of(digest)) for path, text, digest in found}

    def forget_findings(self, numbers: Iterable[int]) -> None:
        """Delete findings in whose place others come."""
        self._db.executemany("DELETE FROM findings WHERE number = ?", [(number,) for number in numbers])

    def accept_findings(self, numbers: Iterable[int], now: float) -> None:
        """Note that a person has accepted findings."""
        self._db.executemany("UPDATE findings SET accepted_at = ? WHERE number = ?", [(now, number) for number in numbers])

    # Reminders

    def add_reminder(self, reminder: Reminder) -> int:
        """Store a reminder and return its number; the number it comes with is ignored."""
        return int(self._db.execute(_ADD_REMINDER, REMINDERS.write(reminder)[1:]).lastrowid or 0)

    def reminders(self, agent_id: str | None = None, due: float | None = None) -> list[Reminder]:
        """Load an agent's reminders (None: everybody's), those that are due by then if a time is given, soonest first."""
        some = "WHERE (? IS NULL OR agent = ?) AND (? IS NULL OR due <= ?) ORDER BY due, id"
        values = (agent_id, agent_id, due, due)
        return self._all(REMINDERS, some, *values)

    def save_reminder(self, reminder: Reminder) -> None:
        """Update a reminder's row."""
        self._db.execute(_SAVE_REMINDER, REMINDERS.write(reminder))

    def forget_reminder(self, reminder: int) -> None:
        """Delete a reminder."""
        self._db.execute("DELETE FROM reminders WHERE id = ?", (reminder,))

    # Retention of old turns

    def turns_kept(self, agent_id: str) -> list[KeptRow]:
        """Load the facts that decide about keeping an agent's turns, the oldest first."""
        rows = self._db.execute(
            "SELECT id, number, ended_at, (SELECT cleared FROM dropped_turns WHERE turn = turns.id), "
            "EXISTS (SELECT 1 FROM items WHERE about = turns.id AND turn IS NULL AND closed IS NULL AND about NOT NULL) "
            "FROM turns WHERE agent = ? ORDER BY number",
            (agent_id,),
        )
        return [KeptRow(row[0], row[1], row[2], row[3] is not None, bool(row[3]), bool(row[4])) for row in rows]

    def drop_turn(self, agent_id: str, turn_id: str) -> None:
        """Note that a turn's files go, and forget its tool calls; its row stays. Its events go with `delete_events`."""
        self._db.execute("INSERT OR IGNORE INTO dropped_turns (turn, agent, cleared) VALUES (?,?,0)", (turn_id, agent_id))
        self._db.execute("DELETE FROM calls WHERE agent = ? AND turn = ?", (agent_id, turn_id))

    def turn_cleared(self, turn_id: str) -> None:
        """Note that nothing is left of a dropped turn but its row."""
        self._db.execute("UPDATE dropped_turns SET cleared = 1 WHERE turn = ?", (turn_id,))

    def removed_agents(self) -> list[str]:
        """Return the agents whose rows are gone and whose files may still be there."""
        return [row[0] for row in self._db.execute("SELECT id FROM removed_agents")]

    def forget_removed(self, agent_id: str) -> None:
        """Note that a removed agent's files are gone too."""
        self._db.execute("DELETE FROM removed_agents WHERE id = ?", (agent_id,))

    def known_agents(self) -> set[str]:
        """Return the ids of the agents that there are, that were set aside, and that are removed but not yet deleted."""
        known = "SELECT id FROM agents UNION SELECT agent FROM damaged UNION SELECT id FROM removed_agents"
        return {row[0] for row in self._db.execute(known)}

    def damaged_agents(self) -> int:
        """Return how many agents were set aside because their rows can't be read, or have no rows."""
        return (self._value("SELECT count(DISTINCT agent) FROM damaged") or 0) + self.agents_without_records

    # Tool calls and mount points

    def add_call(self, agent_id: str, turn_id: str, call: str, answer: str) -> None:
        """Store a tool call's answer, so that a repeated call gets it again."""
        self._db.execute(_ADD_CALL, (agent_id, turn_id, call, answer))

    def answered_call(self, agent_id: str, turn_id: str, call: str) -> str | None:
        """Return the answer a call got before, if it came before."""
        found = self._value("SELECT answer FROM calls WHERE agent = ? AND turn = ? AND call = ?", agent_id, turn_id, call)
        if found is None:
            return None
        try:
            return json.dumps(ANSWER.read(found))
        except ValueError:
            return json.dumps(["this call was carried out, but the record of its answer is damaged", True])

    def turn_has_call(self, agent_id: str, turn_id: str) -> bool:
        """Say whether a turn has called a tool of the daemon's."""
        return bool(self._value("SELECT 1 FROM calls WHERE agent = ? AND turn = ? LIMIT 1", agent_id, turn_id))

    def add_mount_points(self, paths: Iterable[str]) -> None:
        """Note files and directories that are about to be made in a workspace only to be mounted over."""
        self._db.executemany("INSERT OR IGNORE INTO mount_points (path) VALUES (?)", [(path,) for path in paths])

    def mount_points(self) -> list[str]:
        """Return the paths noted with `add_mount_points`."""
        return [row[0] for row in self._db.execute("SELECT path FROM mount_points")]

    def forget_mount_points(self, paths: Iterable[str]) -> None:
        """Take back `add_mount_points`."""
        self._db.executemany("DELETE FROM mount_points WHERE path = ?", [(path,) for path in paths])


_SAVE_AGENT = AGENTS.upsert("id")
_SAVE_TURN = TURNS.upsert("id", kept=("result", "report", "usage"), where="excluded.outcome NOT NULL")
_ADD_REMINDER = REMINDERS.insert(without=("id",))
_SAVE_REMINDER = REMINDERS.upsert("id")
_ADD_CALL = CALLS.insert()
_ADD_FINDING = FINDINGS.insert(without=("number",))
_SELECT_USED = "SELECT agent, number, started_at, coalesce(told_model, model), usage FROM turns"
# Without results and usages, which may have a megabyte each; a running turn's report is still to be told (`abridged`).
_ABRIDGED = ", ".join(
    f"CASE WHEN outcome IS NULL THEN {name} END" if name in {"result", "report", "usage"} else name for name in TURNS.names
)
_NEWEST_TURNS = (
    f"SELECT {_ABRIDGED} FROM turns JOIN (SELECT agent AS owner, max(number) AS newest FROM turns GROUP BY agent) "  # noqa: S608 - constants
    "ON agent = owner AND number = newest"
)
