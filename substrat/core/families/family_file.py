"""Reads a family from a TOML file, as `substratctl run` takes it. Pure: the texts of roles are asked for.

An example:

    [family]
    name = "review"
    lead = "author"
    [vars]
    task = "Make the tests pass."
    [agents.author]
    prompt = "{{task}}"
    check = "make test"
    [agents.reviewer]
    prompt = "Review what {{agent.author}} has committed."
    needs = ["author"]

`{{task}}` is a variable, `{{agent.reviewer}}` the name of an agent, `{{n}}` and `{{item}}` number and line of one of
several. The agent gets its prompt filled (`run_prompts`). In `check` and `each` nothing is replaced, because a value is no
shell text: there they are environment variables, `$TASK`, `$N` and `$ITEM`.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from substrat.core.agents import environment
from substrat.core.agents.turn_check import MOST_RETRIES, RETRIES
from substrat.core.families import budget, tasks
from substrat.core.families.plans import ROUNDS, Land, Member, OnFail, Plan, checked
from substrat.core.families.run_prompts import filled
from substrat.errors import InvalidParams, SubstratError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from substrat.core.families.tasks import NewTask

_TEXT, _NUMBER, _COUNT, _TEXTS, _TABLE = "a text", "a number above 0", "a whole number", "a list of texts", "a table"
_TABLES = "a list of tables: write [[tasks]]"
_FAMILY = {"name": _TEXT, "lead": _TEXT, "workspace": _TEXT, "budget": _TABLE, "timeout": _NUMBER, "land": _TEXT}
_AGENT = {
    "prompt": _TEXT, "role": _TEXT, "check": _TEXT, "on_fail": _TEXT, "needs": _TEXTS, "program": _TEXT, "model": _TEXT,
    "network": _TEXT, "allow": _TEXTS, "budget": _TABLE, "time_limit": _NUMBER, "result_schema": _TABLE, "count": _COUNT,
    "each": _TEXT, "returns_to": _TEXT, "rounds": _COUNT,
}  # fmt: skip
_PARTS = {"family": _TABLE, "vars": _TABLE, "agents": _TABLE, "tasks": _TABLES}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"\s*\[\[?\s*([^\],]+?)\s*\]\]?\s*(#.*)?$")
_LONG_TEXT = re.compile(r'"""|\'\'\'')
_FRONT = re.compile(r"---\n(.*?)\n---\n?(.*)", re.DOTALL)


class Role(NamedTuple):
    """The content of a role's file.

    Args:
        instructions: its text.
        model: its model; None: it names none, or says that the agent's own counts.
    """

    instructions: str
    model: str | None = None


def read(text: str, given: Mapping[str, str], role_text: Callable[[str], str]) -> Plan:
    """Return the plan of a family.

    Args:
        text: the file's text.
        given: values of variables, which count before the file's.
        role_text: returns the text of a role's file, by its path as it stands here; may raise `SubstratError`.

    Raises:
        InvalidParams: no family can be so; the message begins with the line and the key.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InvalidParams(f"this is no TOML: {problem}") from None
    return _Reader(text, found, role_text).plan(given)


class _Reader:
    def __init__(self, text: str, found: dict[str, Any], role_text: Callable[[str], str]) -> None:
        self._lines = text.splitlines()
        self._found = found
        self._role_text = role_text

    def plan(self, given: Mapping[str, str]) -> Plan:
        self._check((), self._found, _PARTS)
        family, agents = self._found.get("family", {}), self._found.get("agents", {})
        self._check(("family",), family, _FAMILY)
        if not agents:
            raise self._wrong(("agents",), "there is no agent: write [agents.NAME] with a prompt")
        variables = self._variables(given)
        for name, agent in agents.items():
            if not isinstance(agent, dict):
                raise self._wrong(("agents", name), "is a table of its own: write [agents.NAME]")
            self._check(("agents", name), agent, _AGENT)
        members = tuple(self._member(name, agent, variables) for name, agent in agents.items())
        place = "in-place" if family.get("workspace") == "share" else family.get("workspace")
        plan = Plan(
            family.get("name", "family"), members, family.get("lead"), place, self._budget(("family",), family),
            timeout=family.get("timeout"), variables=self._environment(variables), land=self._land(family),
            tasks=self._tasks(variables),
        )  # fmt: skip
        try:
            return checked(plan)
        except InvalidParams as problem:
            key, _, said = problem.message.partition(": ")
            path = self._path_of(key) if key.startswith("agents.") else (key,) if key in _PARTS else ("family", key)
            raise self._wrong(path, said) from None

    def _path_of(self, key: str) -> tuple[str, ...]:
        """Return the path of a key of an agent, whose name may have dots: `agents.a.b.needs`."""
        name, _, last = key.removeprefix("agents.").rpartition(".")
        return ("agents", name, last) if name in self._found["agents"] else ("agents", key.removeprefix("agents."))

    def _member(self, name: str, agent: dict[str, Any], variables: Mapping[str, str]) -> Member:
        where = ("agents", name)
        if not agent.get("prompt", "").strip():
            raise self._wrong((*where, "prompt"), "is missing: it says what the agent is to do")
        role = self._role(where, agent["role"]) if "role" in agent else Role("")
        on_fail, retries = self._on_fail(where, agent)
        self._filled((*where, "prompt"), agent["prompt"], variables)
        return Member(
            name, agent["prompt"], role.instructions, agent.get("check"), retries, on_fail=on_fail,
            needs=tuple(agent.get("needs", ())), program=agent.get("program"), count=agent.get("count"),
            model=self._filled((*where, "model"), agent["model"], variables) if "model" in agent else role.model,
            each=agent.get("each"), returns_to=agent.get("returns_to"), rounds=agent.get("rounds", ROUNDS),
            network=agent.get("network"), allow=tuple(agent["allow"]) if "allow" in agent else None,
            budget=self._budget(where, agent), time_limit=agent.get("time_limit"),
            result_schema=json.dumps(agent["result_schema"], default=str) if "result_schema" in agent else None,
        )  # fmt: skip

    # Values

    def _variables(self, given: Mapping[str, str]) -> dict[str, str]:
        own = self._found.get("vars", {})
        for name, value in own.items():
            if not _VARIABLE.fullmatch(name):
                raise self._wrong(("vars", name), "can't be a variable's name: letters, digits and '_', no digit first")
            if isinstance(value, dict | list):
                raise self._wrong(("vars", name), "is a text or a number")
        if unknown := sorted(set(given) - set(own)):
            raise InvalidParams(f"--set {unknown[0]}: the file has no such variable below [vars]")
        found = {name: str(given.get(name, value)) for name, value in own.items()}
        for name in found:
            if sum(name.lower() == other.lower() for other in found) > 1:
                raise self._wrong(("vars", name), f"and another variable are both ${name.upper()} in checks: rename one")
        return found

    def _environment(self, variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        for name in variables:
            if (upper := name.upper()) in {"PATH", "N", "ITEM"}:
                raise self._wrong(("vars", name), f"would take the place of ${upper} in checks: choose another name")
        try:
            return environment.checked({name.upper(): value for name, value in variables.items()})
        except InvalidParams as problem:
            raise self._wrong(("vars",), problem.message) from None

    def _filled(self, path: tuple[str, ...], text: str, variables: Mapping[str, str]) -> str:
        """Return a text with its variables' values; a prompt is only looked at, because its agents have no names yet."""
        agent = self._found["agents"][path[1]]
        known = {"n": "count" in agent or "each" in agent, "item": "each" in agent}

        def value(word: str, braced: str) -> str:
            if word in variables:
                return variables[word]
            kind, _, name = word.partition(".")
            if path[-1] == "prompt" and (known.get(word) or (kind == "agent" and name in self._found["agents"])):
                return braced
            raise self._wrong(path, f"{braced} is unknown: set it below [vars], or write \\{braced} for these words")

        return filled(text, value)

    def _tasks(self, variables: Mapping[str, str]) -> tuple[NewTask, ...]:
        def value(word: str, braced: str) -> str:
            if word in variables:
                return variables[word]
            raise self._wrong(("tasks",), f"{braced} is unknown: set it below [vars], or write \\{braced} for these words")

        try:
            found = tasks.read(self._found.get("tasks", []))
        except InvalidParams as problem:
            raise self._wrong(("tasks",), problem.message) from None
        return tuple(
            replace(task, title=filled(task.title, value), description=filled(task.description, value)) for task in found
        )

    def _land(self, family: dict[str, Any]) -> Land:
        if (word := family.get("land", Land.ASK)) not in set(Land):
            raise self._wrong(("family", "land"), f"can be {', '.join(Land)}, not {word!r}")
        return Land(word)

    def _on_fail(self, where: tuple[str, ...], agent: dict[str, Any]) -> tuple[OnFail, int]:
        word, _, count = agent.get("on_fail", f"retry {RETRIES}" if "check" in agent else "stop").partition(" ")
        if word == "retry":
            if not count.isdecimal() or int(count) > MOST_RETRIES or "check" not in agent:
                raise self._wrong(
                    (*where, "on_fail"), f"'retry N' sends the agent back for its check: N is 0 to {MOST_RETRIES}"
                )
            return OnFail.STOP, int(count)
        if word not in set(OnFail) or count:
            raise self._wrong((*where, "on_fail"), f"can be 'retry N', ask, continue or stop, not {agent['on_fail']!r}")
        return OnFail(word), 0

    def _budget(self, where: tuple[str, ...], table: dict[str, Any]) -> dict[str, float]:
        found = table.get("budget", {})
        for key, number in found.items():
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise self._wrong((*where, "budget"), f"{key} is a number")
        try:
            return budget.checked({key: float(number) for key, number in found.items()})
        except InvalidParams as problem:
            raise self._wrong((*where, "budget"), problem.message) from None

    def _role(self, where: tuple[str, ...], path: str) -> Role:
        try:
            return role_of(self._role_text(path), is_toml=path.endswith(".toml"))
        except SubstratError as problem:
            raise self._wrong((*where, "role"), f"{path}: {problem.message}") from None

    # Errors

    def _check(self, where: tuple[str, ...], table: object, kinds: Mapping[str, str]) -> None:
        if not isinstance(table, dict):
            raise self._wrong(where, "is a table: write [" + ".".join(where) + "]")
        for key, value in table.items():
            if key not in kinds:
                raise self._wrong((*where, key), f"is unknown; there are {', '.join(kinds)}")
            if not _is_a(value, kinds[key]):
                raise self._wrong((*where, key), f"is {kinds[key]}")

    def _wrong(self, path: tuple[str, ...], problem: str) -> InvalidParams:
        return InvalidParams(f"line {self._line_of(path)}: {'.'.join(path)}: {problem}")

    def _line_of(self, path: tuple[str, ...]) -> int:
        """Return the number of the line where a key stands, or else the header of its table, or else the first."""
        table, best, is_text = "", 1, False
        for number, line in enumerate(self._lines, 1):
            was_text, is_text = is_text, is_text ^ (len(_LONG_TEXT.findall(line)) % 2 == 1)
            if was_text:
                continue
            header = _HEADER.match(line)
            if header is not None:
                table = re.sub(r"\s*\.\s*", ".", header[1]).replace('"', "")
                if table == ".".join(path):
                    return number
                if table == ".".join(path[:-1]):
                    best = number
            elif path and table == ".".join(path[:-1]) and re.match(rf"\s*\"?{re.escape(path[-1])}\"?\s*[.=]", line):
                return number
        return best


def _is_a(value: object, kind: str) -> bool:
    if kind == _TABLES:
        return isinstance(value, list)
    if kind == _TEXTS:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if kind == _COUNT:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == _NUMBER:
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return isinstance(value, str if kind == _TEXT else dict)


def role_of(text: str, *, is_toml: bool) -> Role:
    """Read a role's file: Claude's form, Markdown after `key: value` lines between `---`, or Codex's, TOML.

    Both forms are those of their programs' documents (subagents of Claude Code, agents of Codex).
    """
    if is_toml:
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise InvalidParams(f"this is no TOML: {problem}") from None
        words, model = found.get("developer_instructions", found.get("instructions", "")), found.get("model")
    else:
        match = _FRONT.match(text)
        head, words = (match[1], match[2]) if match is not None else ("", text)
        lines = (line.partition(":") for line in head.splitlines() if not line[:1].isspace())
        model = {key.strip(): value.strip().strip("\"'") for key, _, value in lines}.get("model")
    if not isinstance(words, str) or not words.strip():
        raise InvalidParams("it has no instructions")
    return Role(words.strip(), model if isinstance(model, str) and model not in {"", "inherit"} else None)
