"""Builds claude's command line and its environment, and says where it keeps a session. Pure."""

from __future__ import annotations

OWN_TOOLS = (
    "Agent", "Task", "ListAgents", "SendMessage", "ScheduleWakeup", "CronCreate", "CronDelete", "CronList", "EnterWorktree",
    "ExitWorktree", "Workflow", "Monitor", "TaskStop", "AskUserQuestion", "ReportFindings", "Skill", "TaskCreate",
    "TaskGet", "TaskList", "TaskOutput", "TaskUpdate",
)  # fmt: skip
"""Tools of claude's that are left out: they stand in the way of the companion's, or ask a person who isn't there.

The last five are a list of tasks with owners, of 2,600 tokens: a third of all tools' descriptions.
"""

OPTIONS = (
    ("--print",),
    ("--output-format", "stream-json"),
    ("--verbose",),  # without it --print refuses stream-json
    ("--permission-mode", "bypassPermissions"),
    ("--disallowedTools", ",".join(OWN_TOOLS)),
)
"""The options of every turn besides the generated files, its model and session."""

HOOKS = ("PostToolUse", "PostToolUseFailure")
"""The events after a tool call: claude tells of a failed one, such as `exit 3` in a shell, by the second alone."""

DISPENSABLE = frozenset({"--disallowedTools", "--strict-mcp-config", "--settings"})
"""Options that a version may not know and that a turn can do without: the companion's tools are there all the same."""

ENVIRONMENT = (
    # The daemon's own pauses decide, and can hold the account: a refused login took 182 s with claude's ten tries.
    ("CLAUDE_CODE_MAX_RETRIES", "2"),
    # A command that outlives the turn's result would be followed by a second result.
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    # Otherwise the model has to look for the companion's tools before it sees them.
    ("ENABLE_TOOL_SEARCH", "false"),
)

DEFAULT_MODEL = "auto"
"""The model's name that leaves the choice to the program; claude has no such model."""


def command(
    program: str, mcp: str, rules: str, settings: str, model: str, session: str | None, without: frozenset[str]
) -> tuple[str, ...]:
    """Return the command that runs one turn in the workspace; the prompt comes on standard input.

    Args:
        program: the agent program's path in the sandbox.
        mcp: the path of the MCP configuration there.
        rules: the path of the file with the rules there.
        settings: the path of the file with the hooks there.
        model: the model's name, or `auto` for the account's own.
        session: the session to continue, or None for a new one.
        without: options that this version of the program was seen not to know.
    """
    options = [*OPTIONS, ("--mcp-config", mcp), ("--strict-mcp-config",), ("--append-system-prompt-file", rules)]
    options.append(("--settings", settings))
    if model != DEFAULT_MODEL:
        options.append(("--model", model))
    if session is not None:
        options.append(("--resume", session))
    return (program, *(word for option in options if option[0] not in without for word in option))


def prompt(text: str) -> str:
    """Return a prompt with a blank before a leading slash: claude takes `/clear` for a command, and ` /clear` for words.

    Args:
        text: the prompt.
    """
    return f" {text}" if text.startswith("/") else text


def session_file(session: str) -> str:
    """Return the pattern of the file that holds a session, relative to claude's own directory.

    The folder's name stands for the workspace: `projects/-home-me-app/ID.jsonl`.

    Args:
        session: the session's UUID.
    """
    return f"projects/*/{session}.jsonl"
