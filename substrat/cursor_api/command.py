"""Which program runs, with which arguments and environment; it starts nothing."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from substrat import errors
from substrat.cursor_api.model import DEFAULT_BINARY, AgentConfig, OutputFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_NAMES = ("agent", "cursor-agent")


class AgentNotFound(errors.AgentProgramMissing, FileNotFoundError):
    """There is no such agent program, or it can't be executed; also a `FileNotFoundError`, as of `subprocess`."""


class RunRequest(NamedTuple):
    """One run as it was asked for.

    Args:
        prompt: the prompt.
        output_format: the format of the program's output.
        session_id: the chat to resume, or None for a new one.
        timeout: after how many seconds the run is stopped; None: never.
        mode: `plan` or `ask`, or None.
        stream_partial: whether a stream brings the answer in pieces, too.
    """

    prompt: str
    output_format: OutputFormat = OutputFormat.STREAM_JSON
    session_id: str | None = None
    timeout: float | None = None
    mode: str | None = None
    stream_partial: bool = True


def arguments(config: AgentConfig, request: RunRequest) -> list[str]:
    """Return the arguments. The prompt isn't among them: it is given on standard input, where its length has no limit."""
    found = ["--print", "--output-format", request.output_format.value]
    if request.output_format is OutputFormat.STREAM_JSON and request.stream_partial:
        found.append("--stream-partial-output")
    found.append("--trust")
    if config.force_approve:
        found.append("--force")
    if config.approve_mcps:
        found.append("--approve-mcps")
    for header in config.headers:
        found += ["-H", header]
    if (workspace := config.workspace_path()) is not None:
        found += ["--workspace", workspace]
    if config.model is not None:
        found += ["--model", config.model]
    if request.mode is not None:
        found += ["--mode", request.mode]
    if request.session_id:
        found += _resume(request.session_id)
    return found


def environment(config: AgentConfig, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment: this process's, with the API key when there is one."""
    key = {"CURSOR_API_KEY": config.api_key} if config.api_key is not None else {}
    return {**environ, **key}


def find_binary(config: AgentConfig, environ: Mapping[str, str] = os.environ) -> str:
    """Find the program.

    Raises:
        AgentNotFound: there is none, or it can't be executed.
    """
    if config.agent_binary != DEFAULT_BINARY:
        return _find(config.agent_binary, environ, "AgentConfig.agent_binary")
    if chosen := environ.get("SUBSTRAT_AGENT_BINARY"):
        return _find(chosen, environ, "SUBSTRAT_AGENT_BINARY")
    for name in _DEFAULT_NAMES:
        if found := shutil.which(name, path=environ.get("PATH")):
            return found
    raise AgentNotFound(
        "neither 'agent' nor 'cursor-agent' is on PATH: install cursor-agent, or name the program in "
        "AgentConfig(agent_binary=…) or SUBSTRAT_AGENT_BINARY"
    )


def _find(given: str, environ: Mapping[str, str], source: str) -> str:
    """Find a program that was named; a path is kept as it is."""
    path = os.path.expanduser(given)
    found = shutil.which(path, path=environ.get("PATH"))
    if found is not None:
        return found
    if os.path.dirname(path):
        why = "isn't an executable file" if os.path.exists(path) else "doesn't exist"
    else:
        why = "isn't on PATH"
    raise AgentNotFound(f"the agent program {given!r} that {source} names {why}")


def _resume(session_id: str) -> list[str]:
    # The flag's value is optional, so one that looks like a flag has to be joined to it.
    return [f"--resume={session_id}"] if session_id.startswith("-") else ["--resume", session_id]
