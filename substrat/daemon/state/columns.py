"""The kinds of columns in the state: how each kind's values are read, checked and written.

For example `FLAG` reads 0 and 1 as False and True and refuses every other value. SQLite's declared types count for nothing
here: a damaged file holds anything in any column.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from substrat.core.agents import environment, stop_reason
from substrat.core.agents.records import AgentSettings
from substrat.core.agents.reminding import SHORTEST_PERIOD_S
from substrat.core.agents.rights import SharedPath
from substrat.core.netfilter.names import AllowList
from substrat.core.programs.lenient import tame_text
from substrat.core.workspaces.clones import PastLandings
from substrat.daemon.kernel.procfs import MAX_PID
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
    if type(value) is not str:
        raise ValueError("is no text")
    if not _is_unicode(value):
        value = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value if len(value) <= _LONGEST_PROSE else value[:_LONGEST_PROSE] + "… [cut]"


def _parsed(value: object) -> object:
    if type(value) is not str or len(value) > _LONGEST_LIST or not _is_unicode(value):
        raise ValueError("is no JSON")
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None


def _read_data(value: object) -> str:
    """Check that a text is a JSON object, and return the text: it is sent as it is."""
    if not isinstance(_parsed(value), dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - one kind of error for all that can't be read
    return str(value)


def _parsed_list(value: object) -> list[Any]:
    parsed = _parsed(value)
    if not isinstance(parsed, list):
        raise ValueError("is no JSON array")  # noqa: TRY004 - one kind of error for all that can't be read
    return parsed


@lru_cache(maxsize=64)
def _read_allow(value: object) -> tuple[str, ...]:
    texts = tuple(_parsed_list(value))
    if not all(type(text) is str for text in texts):
        raise ValueError("is no JSON array of strings")
    AllowList.of(texts)
    return texts


def _read_names(value: object) -> tuple[str, ...]:
    names = tuple(_parsed_list(value))
    if not all(type(name) is str for name in names):
        raise ValueError("is no JSON array of strings")
    return names


def _read_tally(value: object) -> tuple[tuple[str, int], ...]:
    found = _parsed_list(value)
    for one in found:
        if type(one) is not list or [type(part) for part in one] != [str, int] or not 0 <= one[1] <= MAX_NUMBER:
            raise ValueError("is no JSON array of names with numbers")
    return tuple((name, number) for name, number in found)


def _read_numbers(value: object) -> tuple[int, ...]:
    numbers = tuple(_parsed_list(value))
    if not all(type(number) is int and 0 < number <= MAX_NUMBER for number in numbers):
        raise ValueError("is no JSON array of numbers of rows")
    return numbers


@lru_cache(maxsize=64)
def _read_binds(value: object) -> tuple[SharedPath, ...]:
    found = []
    for entry in _parsed_list(value):
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[1]) is not bool:
            raise ValueError("is no JSON array of [path, whether writable]")
        found.append(SharedPath(_read_path(entry[0]), entry[1]))
    return tuple(found)


@lru_cache(maxsize=64)
def _read_moments(value: object) -> tuple[float, ...]:
    return tuple(map(_read_moment, _parsed_list(value)))


def _read_usage(value: object) -> dict[str, int]:
    parsed = _parsed(value)
    if not isinstance(parsed, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - one kind of error for all that can't be read
    if not all(type(count) is int and abs(count) < 1 << 63 for count in parsed.values()):
        raise ValueError("is no JSON object of numbers of 64 bits")
    if not all(map(_is_unicode, parsed)):
        raise ValueError("has a member whose name is no text")
    return parsed


@lru_cache(maxsize=64)
def _read_settings(value: object) -> AgentSettings:
    try:
        found = msgspec.json.decode(_read_prose(value), type=AgentSettings)
        for limit in (found.time_limit or 0, found.silence_limit or 0):
            _read_moment(limit)
        if found.ssh_agent is not None:
            _read_path(found.ssh_agent)
        return replace(found, environment=environment.checked(dict(found.environment)))
    except (msgspec.DecodeError, environment.BadVariable, UnicodeError):
        raise ValueError("is no JSON object of settings that an agent can have") from None


def _read_answer(value: object) -> tuple[str, bool]:
    if type(value) is not str:
        raise ValueError("is no JSON")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None
    if not isinstance(parsed, list) or len(parsed) != 2 or type(parsed[0]) is not str or type(parsed[1]) is not bool:
        raise ValueError("is no JSON array of a text and whether it is an error")
    return _read_prose(parsed[0]), parsed[1]


def _read_past_landings(value: object) -> PastLandings:
    parsed = _parsed(value)
    if not isinstance(parsed, dict) or not parsed.keys() <= set(PastLandings.__slots__):
        raise ValueError("is no JSON object of a landing's outcome")
    line, commits = parsed.pop("failed_line", None), {name: commit for name, commit in parsed.items() if commit is not None}
    return PastLandings(
        **{name: COMMIT.read(commit) for name, commit in commits.items()},
        failed_line=None if line is None else _read_prose(line),
    )


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
ALLOW = Column(_read_allow, json.dumps)
BINDS = Column(_read_binds, json.dumps)
NAMES = Column(_read_names, json.dumps)
PAST_LANDINGS = Column(_read_past_landings, lambda past: json.dumps(asdict(past)))
TALLY = Column(_read_tally, json.dumps)
"""Names, each with a number: `[["topic",2]]`."""
NUMBERS = Column(_read_numbers, json.dumps)
SETTINGS = Column(_read_settings, lambda settings: tame_text(json.dumps(asdict(settings), ensure_ascii=False)))
"""An agent's settings; fields that are left out have their defaults."""
MOMENTS = Column(_read_moments, json.dumps)
USAGE = Column(_read_usage, lambda usage: json.dumps(dict(usage)))
ANSWER = Column(_read_answer, json.dumps, sample='["",false]')
BITS_32 = _whole(0, 2**32 - 1)
PID = _whole(1, MAX_PID)
BITS_63 = _whole(0, 2**63 - 1)
EXIT_CODE = _whole(-(2**31), 2**31 - 1)
