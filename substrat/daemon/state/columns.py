"""The kinds of columns in the state: how each kind's values are read, checked and written.

For example `FLAG` reads 0 and 1 as False and True and refuses every other value. SQLite's declared types count for nothing
here: a damaged file holds anything in any column.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from substrat.core.agents import environment, stop_reason
from substrat.core.agents.records import AgentSettings
from substrat.core.agents.reminding import SHORTEST_PERIOD_S
from substrat.core.agents.rights import SharedPath
from substrat.core.agents.turn_check import TurnCheck
from substrat.core.families import budget, plans
from substrat.core.families.budget import Budget
from substrat.core.families.plans import Plan
from substrat.core.families.runs import Returned
from substrat.core.netfilter.names import AllowList
from substrat.core.programs.lenient import tame_text
from substrat.core.programs.table import PROGRAMS
from substrat.core.workspaces.clones import PastLandings
from substrat.daemon.kernel.procfs import MAX_PID
from substrat.errors import InvalidParams
from substrat.names import is_agent_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

MAX_NUMBER = 2**53
"""The largest number of a row, and of anything that is counted: JSON clients hold no greater whole number exactly, and
adding to it never leaves SQLite's 64 bits."""
_LAST_MOMENT = 253402300799.0
"""The last second of the year 9999, after which no time can be written as a date."""
_LONGEST_PATH = 4095
"""Bytes that Linux takes as a path (limits.h, PATH_MAX without the final zero)."""
_LONGEST_WORDS = 4096
"""Characters of names and reasons. The daemon writes none that comes near."""
_LONGEST_PROSE = 16 * 1024 * 1024
"""Characters of a text; a request on the operator socket, which prompts come in, has at most as many bytes."""
_LONGEST_LIST = 1024 * 1024
"""Characters of a list in JSON. Command lines, which such lists come from, are shorter."""
_Number = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
_Count = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
_Bits64 = Annotated[int, Meta(gt=-(2**63), le=2**63 - 1)]
_Moment = Annotated[float, Meta(ge=0, le=_LAST_MOMENT)]
_IDENTIFIER = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


class Column(NamedTuple):
    """How a column's values are read and written.

    Args:
        read: returns a stored value as the program uses it; raises ValueError with a complaint such as "is no time".
        write: returns the stored form of a value; None: the value itself.
        sample: for long texts, one that `read` takes: `read` copes with every text there, so `quarantine` reads this one
            instead of loading the stored one. None: `quarantine` looks at each value.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    sample: str | None = None


def _matching(matches: Callable[[str], object], complaint: str) -> Column:
    def read(value: object) -> str:
        if type(value) is not str or not matches(value):
            raise ValueError(complaint)
        return value

    return Column(read)


def member_of(kind: type[Enum]) -> Column:
    """Return the column of an enum, stored as the member's value."""
    members = {member.value: member for member in kind}

    def read(value: object) -> Enum:
        found = members.get(value)
        if found is None:
            raise ValueError(f"is none of {', '.join(members)}")
        return found

    return Column(read, lambda member: member.value)


def _whole(least: int, most: int) -> Column:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"is no whole number from {least} to {most}")
        return value

    return Column(read)


def _read_flag(value: object) -> bool:
    if type(value) is not int or not 0 <= value <= 1:
        raise ValueError("is neither 0 nor 1")
    return value == 1


def _read_moment(value: object) -> float:
    if type(value) not in {float, int} or not 0 <= value <= _LAST_MOMENT:  # type: ignore[operator]
        raise ValueError("is no time")
    return float(value)  # type: ignore[arg-type]


def _read_amount(value: object) -> float:
    if type(value) not in {float, int} or not 0 <= value <= 2**63:  # type: ignore[operator]
        raise ValueError("is no amount")
    return float(value)  # type: ignore[arg-type]


def _read_period(value: object) -> float:
    period = _read_moment(value)
    if period < SHORTEST_PERIOD_S:
        raise ValueError("is no period")
    return period


def _is_unicode(text: str) -> bool:
    """Say whether a text was UTF-8; `database` reads other bytes as lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_words(value: object) -> str:
    if type(value) is not str or len(value) > _LONGEST_WORDS or "\0" in value or not _is_unicode(value):
        raise ValueError("is no short text")
    return value


def _write_words(text: str) -> str:
    """Return words as they can be read again: a reason may name files, whose names are an agent's."""
    return tame_text(text).replace("\0", "�")[:_LONGEST_WORDS]


def _read_stop_reason(value: object) -> stop_reason.StopReason:
    try:
        return stop_reason.parse(_read_words(value))
    except ValueError:
        raise ValueError("is no reason for stopping a turn") from None


def _read_path(value: object) -> str:
    if type(value) is not str or not value.startswith("/") or "\0" in value or not _is_unicode(value):
        raise ValueError("is no absolute path")
    if len(value.encode()) > _LONGEST_PATH or ".." in value.split("/"):
        raise ValueError("is no path that the kernel takes, or one that goes up")
    return value


def _read_prose(value: object) -> str:
    """Return a text; a few wrong bytes in it are no reason to lose the rest."""
    text = _repaired(value)
    return text if len(text) <= _LONGEST_PROSE else text[:_LONGEST_PROSE] + "… [cut]"


def _repaired(value: object) -> str:
    if type(value) is not str:
        raise ValueError("is no text")
    return value if _is_unicode(value) else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _parsed(value: object, most: int = _LONGEST_LIST) -> object:
    if type(value) is not str or len(value) > most or not _is_unicode(value):
        raise ValueError("is no JSON")
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None


def _json_of(
    kind: Any, complaint: str, check: Callable[[Any], object] = bool, most: int = _LONGEST_LIST
) -> Callable[[object], Any]:
    """Return a function that reads JSON as a type; `check` raises ValueError for values that can't be there."""
    members = getattr(kind, "__slots__", None)

    def read(value: object) -> Any:
        parsed = _parsed(value, most)
        try:
            found = msgspec.convert(parsed, kind)
        except msgspec.ValidationError:
            raise ValueError(complaint) from None
        if isinstance(parsed, dict) and members is not None and not parsed.keys() <= set(members):
            raise ValueError(complaint)
        check(found)
        return found

    return read


def _read_data(value: object) -> str:
    """Check that a text is a JSON object, and return the text: it is sent as it is."""
    if not isinstance(_parsed(value), dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - one kind of error for all that can't be read
    return str(value)


def _check_binds(binds: tuple[SharedPath, ...]) -> None:
    for bind in binds:
        _read_path(bind.path)


def _check_landings(past: PastLandings) -> None:
    for commit in (past.accepted, past.bounced, past.landed_head, past.landed_commit, past.failed_head):
        if commit is not None:
            COMMIT.read(commit)


def _check_turn_check(check: TurnCheck) -> None:
    for commit in (check.commit, check.wip):
        if commit is not None:
            COMMIT.read(commit)


def _check_budget(found: Budget) -> None:
    _read_moment(found.since)
    for limits in (found.limits, found.used):
        if not all(key in budget.KEYS and 0 <= number <= budget.MOST * 1000 for key, number in limits.items()):
            raise ValueError("has a limit that no budget can have")


def _check_plan(plan: Plan) -> None:
    try:
        plans.consistent(plan)
        environment.checked(dict(plan.variables))
        for limits in (plan.budget, *(member.budget for member in plan.members)):
            budget.checked(limits)
    except (InvalidParams, UnicodeError):
        raise ValueError("is a plan that no family can have") from None


def _check_settings(settings: AgentSettings) -> None:
    for limit in (settings.time_limit or 0, settings.silence_limit or 0):
        _read_moment(limit)
    COUNT.read(settings.retries)
    if settings.program not in PROGRAMS:
        raise ValueError(f"names an agent program that there isn't: choose {' or '.join(PROGRAMS)}")
    if settings.ssh_agent is not None:
        _read_path(settings.ssh_agent)
    try:
        environment.checked(dict(settings.environment))
    except (environment.BadVariable, UnicodeError):
        raise ValueError("has a variable that no agent can have") from None


_settings_of = _json_of(AgentSettings, "is no JSON object of an agent's settings", _check_settings, 8 * _LONGEST_PROSE)
_landings_of = _json_of(PastLandings, "is no JSON object of a landing's outcome", _check_landings)
_checked_of = _json_of(TurnCheck, "is no JSON object of a turn's check", _check_turn_check, 8 * _LONGEST_PROSE)
_budget_of = _json_of(Budget, "is no JSON object of a budget", _check_budget)
_plan_of = _json_of(Plan, "is no JSON object of a family's plan", _check_plan, 256 * _LONGEST_PROSE)
_answer_of = _json_of(tuple[str, bool], "is no JSON array of a text and whether it is an error", most=8 * _LONGEST_PROSE)
_remembered = lru_cache(maxsize=64)
"""For values that many rows have alike."""


@_remembered
def _read_settings(value: object) -> AgentSettings:
    text = _repaired(value)
    found: AgentSettings = _settings_of(text)
    if text != value and "\N{REPLACEMENT CHARACTER}" in f"{found.ssh_agent}{found.environment}":
        raise ValueError("has a path or a variable that isn't UTF-8")
    return found


def _read_past_landings(value: object) -> PastLandings:
    past: PastLandings = _landings_of(value)
    return past if past.failed_line is None else replace(past, failed_line=_read_prose(past.failed_line))


def _read_checked(value: object) -> TurnCheck:
    check: TurnCheck = _checked_of(_repaired(value))
    return replace(check, text=_read_prose(check.text))


def _read_answer(value: object) -> tuple[str, bool]:
    text, is_error = _answer_of(_repaired(value))
    return _read_prose(text), is_error


def or_null(column: Column) -> Column:
    """Return a column that may be NULL, read as None."""
    read, write = column.read, column.write

    def read_or_null(value: object) -> Any:
        return None if value is None else read(value)

    def write_or_null(value: object) -> Any:
        return None if value is None or write is None else write(value)

    return Column(read_or_null, write_or_null if write is not None else None, column.sample)


IDENTIFIER = _matching(_IDENTIFIER.fullmatch, "is no id")
"""An agent's, turn's or session's id. It becomes part of paths, so it has neither slashes nor dots."""
NAME = _matching(is_agent_name, "is no name")
COMMIT = _matching(re.compile("[0-9a-f]{40}|[0-9a-f]{64}").fullmatch, "is no commit")
"""A commit's id, by SHA-1 or by SHA-256 (gitglossary(7), \"object identifier\")."""
WORDS = Column(_read_words, _write_words)
STOP_REASON = Column(_read_stop_reason, lambda reason: _write_words(str(reason)))
PATH = Column(_read_path)
PROSE = Column(_read_prose, tame_text, sample="")
DATA = Column(_read_data)
"""A JSON object that the daemon has written, such as `{"by":"ctl","item":7}`."""
NUMBER = _whole(1, MAX_NUMBER)
COUNT = _whole(0, MAX_NUMBER)
ADDRESS = _whole(1, 254)
"""The last part of an address 127.0.77.N: 0 and 255 would be a network's own and its broadcast address."""
FLAG = Column(_read_flag, int)
MOMENT = Column(_read_moment)
"""Seconds since the epoch, between 1970 and 9999."""
AMOUNT = Column(_read_amount)
"""A total: whole numbers are exact up to 2**53, and adding never fails."""
PERIOD = Column(_read_period)
"""The seconds between two reminders."""
ALLOW = Column(_remembered(_json_of(tuple[str, ...], "is no JSON array of strings", AllowList.of)), json.dumps)
BINDS = Column(
    _remembered(_json_of(tuple[SharedPath, ...], "is no JSON array of [path, whether writable]", _check_binds)), json.dumps
)
NAMES = Column(_json_of(tuple[str, ...], "is no JSON array of strings"), json.dumps)
PAST_LANDINGS = Column(_read_past_landings, lambda past: json.dumps(asdict(past)))
CHECKED = Column(_read_checked, lambda check: tame_text(json.dumps(asdict(check), ensure_ascii=False)))
PLAN = Column(_plan_of, lambda plan: tame_text(json.dumps(asdict(plan), ensure_ascii=False)))
RETURNED = Column(
    _json_of(dict[str, Returned], "is no JSON object of what agents have given back"),
    lambda returned: json.dumps({name: asdict(one) for name, one in returned.items()}),
)
IDS = Column(_json_of(dict[str, str], "is no JSON object of ids"), json.dumps)
BUDGET = Column(_budget_of, lambda budget: json.dumps(asdict(budget)))
TALLY = Column(_json_of(tuple[tuple[str, _Count], ...], "is no JSON array of names with numbers"), json.dumps)
"""Names, each with a number: `[["topic",2]]`."""
NUMBERS = Column(_json_of(tuple[_Number, ...], "is no JSON array of numbers of rows"), json.dumps)
SETTINGS = Column(_read_settings, lambda settings: tame_text(json.dumps(asdict(settings), ensure_ascii=False)))
"""An agent's settings; fields that are left out have their defaults."""
MOMENTS = Column(_remembered(_json_of(tuple[_Moment, ...], "is no JSON array of times")), json.dumps)
USAGE = Column(
    _json_of(dict[str, _Bits64], "is no JSON object of numbers of 64 bits", lambda usage: "".join(usage).encode()),
    lambda usage: json.dumps(dict(usage)),
)
ANSWER = Column(_read_answer, json.dumps, sample='["",false]')
BITS_32 = _whole(0, 2**32 - 1)
PID = _whole(1, MAX_PID)
BITS_63 = _whole(0, 2**63 - 1)
EXIT_CODE = _whole(-(2**31), 2**31 - 1)
