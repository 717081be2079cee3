"""The seam to agent programs: all that the rest of Substrat knows about a program, as one frozen value. Pure.

An agent's settings name its program, and `table.program_of` finds it. A further program needs a folder beside `cursor/` and
an entry in `table.PROGRAMS`. `core/programs/transcript.py`, `chatreader.py` and `cursor_api/` import `cursor/` itself, so a
program's lines are decoded to the shape of cursor-agent's. Its folder provides:

- a `ProgramPlaces`: the directories and files that the program uses, such as `.cursor/chats` in the home directory;
- a `Login`: the variables and the file that hold the account, such as `CURSOR_API_KEY`;
- functions for each member of `AgentProgram`: the command line of a turn, the meaning of a line of output, the names of
  failures. They are pure, take any input without raising, and answer for input that the program was never seen to print;
- tests with recorded output: `tests/core/programs/cursor` shows which.

The state directory, the event kinds and the operator's methods are the same for all programs.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from substrat.core.programs.failures import Failure

Object = dict[str, object]
GENERATED = "/run/substrat/program"
"""Where sandboxes show the files that a program generates (`AgentProgram.generate`)."""
HOOK = "/run/substrat/hook.py"
"""Where sandboxes show `mcp_server/hook.py` to programs that run hooks (`AgentProgram.has_hooks`)."""


class LineEvent(NamedTuple):
    """The meaning of one line of a program's output.

    Args:
        kind: one of the contract's kinds, such as `assistant:delta`.
        text: its readable form, if it has one.
        body: the line's JSON object; None when it isn't one.
        verbatim: whether the line itself is valid JSON, so that it can be passed on as it is.
        written: the body as every reader takes it (`lenient.as_json`), where that was made beforehand.
    """

    kind: str
    text: str | None
    body: Object | None
    verbatim: bool
    written: bytes | None = None


def hook(companion: Mapping[str, Any], event: str) -> dict[str, object]:
    """Return the hook for an event such as `PostToolUse`, as claude and codex take it.

    Args:
        companion: the companion's entry, which names the interpreter and the agent socket.
        event: the event.
    """
    command = shlex.join((companion["command"], "-I", "-S", HOOK, companion["env"]["SUBSTRAT_SOCKET"], event))
    return {"type": "command", "command": command, "timeout": 5}


def gets_further(kind: str) -> bool:
    """Say whether an event shows that its turn gets further; a program may go on for ever about its tries to connect.

    Args:
        kind: the event's kind, such as `connection:reconnecting`, which doesn't.
    """
    return not kind.startswith(("connection:", "retry:"))


class TurnResult(NamedTuple):
    """The result that a program prints at the end of a turn.

    Args:
        text: the answer, or the sentence of a failure.
        is_error: whether it is a failure.
        usage: counts such as `{"inputTokens": 12}`; None when the result has none.
        status: the HTTP status of a failure, where the result names one.
    """

    text: str
    is_error: bool
    usage: dict[str, int] | None
    status: int | None = None


class ProgramPlaces(NamedTuple):
    """The directories and files of a program; the first group is relative to the home directory, the second to a workspace.

    Args:
        home: the program's own directory, of which each agent has one of its own: `.cursor`.
        settings: places that sandboxes show read-only because the login lies there: `.config/cursor`.
        chats: the directory that holds a folder for each workspace: `.cursor/chats`; empty: sessions lie in `home`.
        workspace: the directory of a workspace's own settings, which a generated copy covers: `.cursor`.
        mcp: the MCP servers' file in it: `mcp.json`.
        rules: the file in it that tells an agent about Substrat: `rules/substrat.mdc`.
        instructions: the file in it with the rules that its parent has given an agent: `rules/substrat-instructions.mdc`.
        chat_file: the file that makes a directory a chat: `store.db`.
        variable: the variable that names `home` to the program, such as `CODEX_HOME`; empty: it knows it.
        shown: generated files that are also shown in `home`, by their names and their paths there: `AGENTS.md` in both.
        moved: variables that move a place on the host, the place, and where it is below the variable's directory then:
            `("XDG_CONFIG_HOME", ".config/cursor", "cursor")`; the first that is set counts.
    """

    home: str
    settings: tuple[str, ...]
    chats: str = ""
    workspace: str = ""
    mcp: str = ""
    rules: str = ""
    instructions: str = ""
    chat_file: str = ""
    variable: str = ""
    shown: tuple[tuple[str, str], ...] = ()
    moved: tuple[tuple[str, str, str], ...] = ()


class Login(NamedTuple):
    """The places where an account's login can be.

    Args:
        variables: variables of the daemon's environment that are passed on to agents.
        file: the file that the program's own login writes, in the home directory.
        command: the command that logs a person in.
        account: returns the account that the file states, None if it states none.
    """

    variables: tuple[str, ...]
    file: str
    command: str
    account: Callable[[bytes], str | None] = lambda _: None


class AgentProgram(NamedTuple):
    """An agent program: its names and places as values, its formats as functions.

    Args:
        id: the name that people choose it by, such as `cursor`.
        name: the command's name, looked up on PATH where the configuration names no other.
        install: the command that installs it.
        hosts: names that a `filtered` network must allow, such as `*.cursor.sh`.
        places: its directories and files.
        login: where its login can be.
        private: the beginnings of its variables' names; their values are never shown.
        command: returns the argv of a turn from the program's path, workspace, model, session (None: a new one) and
            the options to leave out; the prompt comes on standard input.
        dispensable: options that a turn can do without, left out when a version refuses them.
        only_speaks: says whether the beginning of a cut line shows that the line reports no act.
        failure_of: names the failure that standard error shows, None when it shows no known one; or a failed result, from
            its text and its status.
        names_failed_results: whether `failure_of` knows the words of failed results.
        failure_shown: names the failure that stands in an answer's place, from the answer and its last passage.
        needs_last_passage: says whether `failure_shown` needs the last passage of an answer.
        version_of: returns the version that an installed program's path names, None when it names none.
        without_login: names of programs that speak its formats and need no account, such as the stand-in.
        environment: variables of its agents, such as the number of its own tries.
        generate: returns the files that sandboxes show read-only as `/run/substrat/program`, by their names, from the
            companion's entry and the rules; None: the files in the workspace's own directory are enough.
        session_file: returns the pattern of the file that holds a session, from the session's id and relative to
            `places.home`: `projects/*/ID.jsonl`; None: a session is a chat in `places.chats`.
        prompt: returns a prompt as the program takes it for one, and not for a command of its own such as `/clear`.
        has_hooks: whether it runs `HOOK` after each tool call, which brings its agent words in the middle of a turn.
        usage_is_total: whether the usage of a result counts the whole session so far, not its turn alone.
        prints_prompt: whether it prints its prompt; else the daemon records the event `user` itself.
    """

    id: str
    name: str
    install: str
    hosts: tuple[str, ...]
    places: ProgramPlaces
    login: Login
    private: tuple[str, ...]
    command: Callable[[str, str, str, str | None, frozenset[str]], tuple[str, ...]]
    dispensable: frozenset[str]
    only_speaks: Callable[[bytes], bool]
    failure_of: Callable[[str, int | None], Failure | None]
    names_failed_results: bool = True
    failure_shown: Callable[[str, str], Failure | None] = lambda _answer, _passage: None
    needs_last_passage: Callable[[str], bool] = lambda _: False
    version_of: Callable[[str], str | None] = lambda _: None
    without_login: frozenset[str] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    generate: Callable[[Object, str], Mapping[str, str]] | None = None
    session_file: Callable[[str], str] | None = None
    prompt: Callable[[str], str] = str
    has_hooks: bool = False
    usage_is_total: bool = False
    prints_prompt: bool = False
