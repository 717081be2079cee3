"""Reads the configuration file: TOML to a frozen `Config`, with every key checked.

An unknown key is an error that names the nearest known one, because a misspelt limit would not limit anything.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from typing import TYPE_CHECKING, get_type_hints

import msgspec

from substrat.config_keys import (
    AgentKeys,
    CloneKeys,
    DiskKeys,
    LimitKeys,
    LogKeys,
    NotifyKeys,
    ProgramKeys,
    SandboxKeys,
    TaskKeys,
    TurnKeys,
)
from substrat.core.agents import environment
from substrat.core.agents.environment import BadVariable
from substrat.core.netfilter import upstream
from substrat.core.netfilter.names import AllowList, NoName
from substrat.core.netfilter.upstream import NoUpstream
from substrat.core.programs.table import CURSOR, PROGRAMS, named_wrong
from substrat.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OLD_CLONE = "worktree"


class Config(msgspec.Struct, frozen=True):
    """The whole configuration."""

    agent: AgentKeys = AgentKeys()
    programs: dict[str, ProgramKeys] = msgspec.field(default_factory=dict)
    sandbox: SandboxKeys = SandboxKeys()
    turns: TurnKeys = TurnKeys()
    limits: LimitKeys = LimitKeys()
    disk: DiskKeys = DiskKeys()
    clone: CloneKeys = CloneKeys()
    tasks: TaskKeys = TaskKeys()
    notify: NotifyKeys = NotifyKeys()
    log: LogKeys = LogKeys()

    def program(self, name: str) -> ProgramKeys:
        """Return the keys of an agent program, such as `cursor`."""
        return self.programs.get(name, ProgramKeys())

    def binary_of(self, name: str) -> str:
        """Return an agent program's path, or its name on PATH."""
        return self.program(name).binary or PROGRAMS[name].name

    def model_of(self, name: str) -> str:
        """Return the model of a program's agents that name none."""
        return self.program(name).model or self.agent.model

    def allow_of(self, name: str) -> tuple[str, ...]:
        """Return what a program's agents can reach that have no list of their own."""
        return (*(self.program(name).allow or PROGRAMS[name].hosts), *self.sandbox.allow)

    def env_of(self, name: str) -> dict[str, str]:
        """Return the variables of a program's agents, without those of each agent's own."""
        return {**self.agent.env, **self.program(name).env}


def load(path: str, environ: Mapping[str, str], tell: Callable[[str], None] = lambda _: None) -> Config:
    """Read the configuration.

    Args:
        path: the TOML file; a missing one means the defaults.
        environ: `SUBSTRAT_AGENT_BINARY` in it overrides `programs.cursor.binary`.
        tell: is called with a sentence about each old word of the file, which is taken as the word of now.

    Raises:
        ConfigInvalid: naming the file, the key and the mistake.
    """
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        table = {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigInvalid(f"{path}: {problem}") from None
    return with_environment(parse(table, path, tell), environ)


def parse(table: Mapping[str, object], path: str = "config.toml", tell: Callable[[str], None] = lambda _: None) -> Config:
    """Check a parsed file.

    Args:
        table: the file's contents.
        path: how to call it in an error.
        tell: as for `load`.

    Raises:
        ConfigInvalid: naming the file, the key and the mistake.
    """
    table = _without_old_words(table, path, tell)
    sections = get_type_hints(Config)
    for name, section in table.items():
        _known(name, sections, path, "section")
        if name != "programs":
            _check_keys(section, get_type_hints(sections[name]), path, name)
            continue
        for program, keys in _check_keys(section, PROGRAMS, path, name).items():
            _check_keys(keys, get_type_hints(ProgramKeys), path, f"programs.{program}")
    try:
        config = msgspec.convert(table, Config)
    except msgspec.ValidationError as problem:
        raise ConfigInvalid(f"{path}: {_readable(str(problem))}") from None
    return _checked(config, path)


def with_environment(config: Config, environ: Mapping[str, str]) -> Config:
    """Apply the environment's overrides."""
    binary = environ.get("SUBSTRAT_AGENT_BINARY")
    if not binary:
        return config
    cursor = msgspec.structs.replace(config.program(CURSOR.id), binary=binary)
    return msgspec.structs.replace(config, programs={**config.programs, CURSOR.id: cursor})


def _without_old_words(table: Mapping[str, object], path: str, tell: Callable[[str], None]) -> dict[str, object]:
    """Return a parsed file in which private clones are called so: they were worktrees before the first release."""
    found = dict(table)
    if _OLD_CLONE in found:
        if "clone" in found:
            raise ConfigInvalid(f"{path}: [{_OLD_CLONE}] is the old name of [clone], and both are there: leave [clone]")
        found["clone"] = found.pop(_OLD_CLONE)
        tell(f"{path}: [{_OLD_CLONE}] is called [clone] now: rename it")
    agent = found.get("agent")
    if isinstance(agent, dict) and agent.get("workspace") == _OLD_CLONE:
        found["agent"] = agent = {**agent, "workspace": "clone"}
        tell(f'{path}: agent.workspace = "{_OLD_CLONE}" is "clone" now: change it')
    if isinstance(agent, dict) and "binary" in agent:
        programs = found.get("programs", {})
        cursor = programs.get("cursor", {}) if isinstance(programs, dict) else None
        if isinstance(cursor, dict) and "binary" in cursor:
            raise ConfigInvalid(f"{path}: agent.binary and programs.cursor.binary are one key: leave one of them out")
        if isinstance(programs, dict) and isinstance(cursor, dict):
            found["agent"] = {key: value for key, value in agent.items() if key != "binary"}
            found["programs"] = {**programs, "cursor": {**cursor, "binary": agent["binary"]}}
    return found


def _check_keys(section: object, known: Mapping[str, object], path: str, name: str) -> dict[str, object]:
    if not isinstance(section, dict):
        raise ConfigInvalid(f"{path}: {name!r} must be a section: write [{name}]")
    for key in section:
        _known(key, known, path, "key", f"{name}.")
    return section


def _known(name: str, known: Mapping[str, object], path: str, what: str, prefix: str = "") -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {prefix + near[0]!r}?" if near else f"known are: {', '.join(known)}"
    raise ConfigInvalid(f"{path}: there is no {what} {prefix + name!r}; {hint}")


def _readable(problem: str) -> str:
    """Turn msgspec's `Expected … - at `$.turns.max_running`` around: the key first."""
    said, _, where = problem.partition(" - at `$.")
    return f"{where.rstrip('`')}: {said[0].lower()}{said[1:]}" if where else problem


def _checked(config: Config, path: str) -> Config:
    if config.agent.program not in PROGRAMS:
        raise ConfigInvalid(f"{path}: agent.program: {named_wrong(config.agent.program)}")
    programs = {f"programs.{name}": keys for name, keys in config.programs.items()}
    with_hosts: dict[str, SandboxKeys | ProgramKeys] = {"sandbox": config.sandbox, **programs}
    for section, listed in with_hosts.items():
        try:
            AllowList.asked_for(listed.allow)
        except NoName as problem:
            raise ConfigInvalid(f"{path}: {section}.allow: {problem}") from None
    for key, entries in (("bind_ro", config.agent.bind_ro), ("path", config.agent.path)):
        if odd := [entry for entry in entries if not os.path.isabs(entry)]:
            raise ConfigInvalid(f"{path}: agent.{key}: {odd[0]!r} isn't an absolute path")
    if odd := [entry for entry in config.agent.path if ":" in entry]:
        raise ConfigInvalid(f"{path}: agent.path: {odd[0]!r} has a colon, which separates directories on a PATH")
    if config.clone.dir and not os.path.isabs(config.clone.dir):
        raise ConfigInvalid(f"{path}: clone.dir: {config.clone.dir!r} isn't an absolute path")
    if config.sandbox.ca and not os.path.isabs(config.sandbox.ca):
        raise ConfigInvalid(f"{path}: sandbox.ca: {config.sandbox.ca!r} isn't an absolute path")
    with_variables: dict[str, AgentKeys | ProgramKeys] = {"agent": config.agent, **programs}
    for section, given in with_variables.items():
        try:
            environment.checked(given.env)
        except BadVariable as problem:
            raise ConfigInvalid(f"{path}: {section}.env: {problem}") from None
    try:
        upstream.read(config.sandbox.upstream_proxy)
    except NoUpstream as problem:
        raise ConfigInvalid(f"{path}: sandbox.upstream_proxy: {problem}") from None
    return config
