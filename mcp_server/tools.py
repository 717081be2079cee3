"""Defines the agents' tools: one type for each, with its name, description and arguments; the daemon carries them out.

A tool answers at once. Longer work is recorded, and its outcome starts the agent's next turn: `ask_operator` returns
immediately, and the operator's answer arrives as a message.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(min_length=1)]
MAX_STATUS = 500
"""Characters: a status is one column of a list, and each agent object carries one."""


class Hints(NamedTuple):
    """Facts about a tool that a client may show its user before a call (MCP's `ToolAnnotations`).

    Args:
        reads_only: it changes nothing.
        destroys: it may take back or overwrite something.
        repeats_harmlessly: the same call again changes nothing more.
        reaches_out: it may reach beyond this machine's agents and their operator.
    """

    reads_only: bool = False
    destroys: bool = False
    repeats_harmlessly: bool = False
    reaches_out: bool = False


class Whoami(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="whoami", tag_field="_tool"):
    """Say who you are: your name, workspace, network, parent, children, reminders, and how many messages wait for you."""

    title: ClassVar[str] = "Who am I"
    hints: ClassVar[Hints] = Hints(reads_only=True, repeats_harmlessly=True)


class ListAgents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="list_agents", tag_field="_tool"):
    """List the other agents you can write to: name, state, parent and what they last said they are doing."""

    title: ClassVar[str] = "List the other agents"
    hints: ClassVar[Hints] = Hints(reads_only=True, repeats_harmlessly=True)


class SendMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="send_message", tag_field="_tool"):
    """Send a message to another agent, or to `operator`, the person in charge.

    It returns at once. An idle agent is woken by it; a busy one gets it in its next turn. Their reply, if they send one,
    starts your next turn: don't wait for it, finish yours.
    """

    title: ClassVar[str] = "Send a message"
    hints: ClassVar[Hints] = Hints()

    to: Annotated[Name, Meta(description="the agent's name, `parent` for your parent, or `operator`")]
    text: Annotated[Text, Meta(description="what to tell them")]


class CheckInbox(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="check_inbox", tag_field="_tool"):
    """Read the messages that have come for you since your turn began. Each is handed out once."""

    title: ClassVar[str] = "Read new messages"
    hints: ClassVar[Hints] = Hints()


class SpawnAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="spawn_agent", tag_field="_tool"):
    """Start another agent as your child, in your workspace, and give it a task.

    It returns at once with the child's name; when the child has finished the task, a message tells you its result.
    """

    title: ClassVar[str] = "Start another agent"
    hints: ClassVar[Hints] = Hints(destroys=True, reaches_out=True)  # the child may change files and use its network

    prompt: Annotated[Text, Meta(description="the child's task")]
    name: Annotated[Name | None, Meta(description="its name; one is made up when absent")] = None
    model: Annotated[Name | None, Meta(description="its model; yours when absent")] = None
    network: Annotated[
        Literal["none", "filtered", "host"] | None, Meta(description="its network, never more than yours")
    ] = None


class ReportStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="report_status", tag_field="_tool"):
    """Say in a few words what you are doing, for the operator and the other agents to see."""

    title: ClassVar[str] = "Report what you are doing"
    hints: ClassVar[Hints] = Hints(repeats_harmlessly=True)

    text: Annotated[str, Meta(min_length=1, max_length=MAX_STATUS, description="what you are doing")]


class AskOperator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ask_operator", tag_field="_tool"):
    """Ask the operator, the person in charge, something only they can decide.

    It returns at once. The answer, when it comes, starts your next turn: don't wait for it, finish yours.
    """

    title: ClassVar[str] = "Ask the operator"
    hints: ClassVar[Hints] = Hints()

    question: Annotated[Text, Meta(description="what you need to know, and what you suggest")]


class RemindMe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="remind_me", tag_field="_tool"):
    """Be told something later. When the time has come, a message with the text starts your next turn."""

    title: ClassVar[str] = "Set a reminder"
    hints: ClassVar[Hints] = Hints()

    text: Annotated[Text, Meta(description="what to tell you")]
    seconds: Annotated[float, Meta(ge=0, description="how many seconds from now")]


class CancelReminder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cancel_reminder", tag_field="_tool"):
    """Take a reminder back; `whoami` lists those you have."""

    title: ClassVar[str] = "Cancel a reminder"
    hints: ClassVar[Hints] = Hints(destroys=True, repeats_harmlessly=True)

    reminder: Annotated[int, Meta(description="its number")]


Tool = Whoami | ListAgents | SendMessage | CheckInbox | SpawnAgent | ReportStatus | AskOperator | RemindMe | CancelReminder
TOOLS: tuple[type[Tool], ...] = get_args(Tool)


class BadArguments(Exception):
    """A tool was called with arguments it doesn't take; the message says which."""


def name_of(tool: type[Tool]) -> str:
    """Return a tool's name."""
    return str(tool.__struct_config__.tag)


_BY_NAME: dict[str, type[Tool]] = {name_of(tool): tool for tool in TOOLS}


def description_of(tool: type[Tool]) -> str:
    """Return a tool's description for the model."""
    return " ".join((tool.__doc__ or "").split())


def schema_of(tool: type[Tool]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, in words that every client and model API knows.

    An argument that may be left out is just not required: unions with null are refused by some of them.
    """
    _, components = msgspec.json.schema_components([tool])
    schema = components[tool.__name__]
    properties = {key: _plain(value) for key, value in schema["properties"].items() if key != "_tool"}
    required = [key for key in schema.get("required", ()) if key != "_tool"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an argument's schema with its type and without null."""
    given = {key: value for key, value in schema.items() if key not in {"anyOf", "default"}}
    for choice in schema.get("anyOf", ()):
        given.update(choice if choice != {"type": "null"} else {})
    if "enum" in given:
        given["enum"] = [value for value in given["enum"] if value is not None]
        given["type"] = "string"
    return given


def parse(name: str, arguments: dict[str, Any] | None) -> Tool:
    """Read a call.

    Args:
        name: the tool's name.
        arguments: those that the model gave. Null counts as left out where that is allowed: models write it, schema or not.

    Raises:
        BadArguments: there is no such tool, or it doesn't take these arguments.
    """
    kind = _BY_NAME.get(name)
    if kind is None:
        raise BadArguments(f"there is no tool {name!r}; there are: {', '.join(_BY_NAME)}")
    try:
        return msgspec.convert({**(arguments or {}), "_tool": name}, kind)
    except msgspec.ValidationError as problem:
        raise BadArguments(f"{name}: {problem}") from None
