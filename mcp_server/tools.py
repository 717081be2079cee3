"""Defines the agents' tools: one type for each, with its name, description and arguments; the daemon carries them out.

A tool answers at once. Longer work is recorded, and its outcome starts the agent's next turn: `ask_operator` returns
immediately, and the operator's answer arrives as a message.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from collections.abc import Sequence

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(min_length=1)]
MAX_STATUS = 500
"""Characters: a status is one column of a list, and each agent object carries one."""


class Whoami(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="whoami", tag_field="_tool"):
    """Say who you are, and what is yours.

    Your workspace, network, limits, parent, children, reminders, open waits and questions, and who has written to you.
    """


class ListAgents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="list_agents", tag_field="_tool"):
    """List other agents: name, state and its reason, status, waits, parent, work, tokens and last result."""

    scope: Annotated[Literal["family", "children", "siblings", "all"], Meta(description="which agents; default family")] = (
        "family"
    )


class SendMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="send_message", tag_field="_tool"):
    """Send a message to another agent, to several, or to `operator`, the person in charge.

    It returns at once. A request (the default) wakes an idle agent of your family; others get it in their next turn. Its
    reply, or the result of the turn in which it read the request, starts your next turn: don't wait for it, finish yours.
    """

    to: Annotated[Name, Meta(description="a name, `parent`, `operator`, or the groups `children`, `siblings`, `family`")]
    text: Annotated[Text, Meta(description="what to tell them")]
    intent: Annotated[
        Literal["request", "inform", "reply"] | None,
        Meta(description="`inform` starts no turn: it comes with the receiver's next one; `reply` answers a message"),
    ] = None
    reply_to: Annotated[int | None, Meta(description="the number of the message you answer; by default their last")] = None


class CheckInbox(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="check_inbox", tag_field="_tool"):
    """Read the messages that have come for you since your turn began. Each is handed out once."""

    peek: Annotated[bool, Meta(description="leave them unread, so that your next turn still begins with them")] = False
    message: Annotated[int | None, Meta(description="instead, the number of one that has come, to read all of it")] = None


class GetAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="get_agent", tag_field="_tool"):
    """Look at another agent without disturbing it: its status, or of one of your family also its work.

    The status names the commit of its work that is kept: `git merge` and `git cherry-pick` take it from your clone.
    """

    name: Annotated[Name, Meta(description="the agent")]
    what: Annotated[
        Literal["status", "result", "tail", "stat", "diff"],
        Meta(
            description="status (default), its last result, the end of what it does, the files that it has changed in its "
            "clone, or the changes"
        ),
    ] = "status"
    path: Annotated[
        Annotated[str, Meta(min_length=1, max_length=4095)] | None,
        Meta(description="with stat or diff: only this file or directory, from the top of the repository"),
    ] = None


class SpawnAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="spawn_agent", tag_field="_tool"):
    """Start another agent as your child and give it a task, or several at once.

    It returns at once with the child's name and where it works; when the child has finished the task, a message tells you
    its result.
    """

    prompt: Annotated[Text | None, Meta(description="the child's task; needed, but for agents")] = None
    name: Annotated[Name | None, Meta(description="its name; one is made up when absent")] = None
    model: Annotated[Name | None, Meta(description="its model; yours when absent")] = None
    network: Annotated[
        Literal["none", "filtered", "host"] | None, Meta(description="its network, never more than yours")
    ] = None
    workspace: Annotated[
        Literal["share", "clone", "scratch", "worktree"] | None,
        Meta(
            description="share: your directory; clone: a clone of its own; scratch: an empty directory for it alone; "
            "default: clone if you work in a clone yourself, else share"
        ),
    ] = None
    base: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        Meta(description="where its clone starts: a commit, workspace/BRANCH or agents/NAME; default: your HEAD of now"),
    ] = None
    instructions: Annotated[Text | None, Meta(description="rules that it sees in each of its turns")] = None
    result_schema: Annotated[
        dict[str, Any] | None, Meta(description="a JSON schema that the result it gives to `complete` must fit")
    ] = None
    needs: Annotated[
        tuple[Name, ...], Meta(max_length=16, description="agents of your family that must succeed before it starts")
    ] = ()
    program: Annotated[Name | None, Meta(description="its program: cursor, claude or codex; yours when absent")] = None
    allow: Annotated[
        Annotated[tuple[Annotated[str, Meta(max_length=300)], ...], Meta(max_length=100)] | None,
        Meta(description="the only hosts that its filtered network lets through, of those that yours does"),
    ] = None
    time_limit_s: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="seconds that a turn of it may take, never more than yours")
    ] = None
    priority: Annotated[
        Literal["low", "normal", "high"] | None, Meta(description="which waiting agents it goes before, never above yours")
    ] = None
    check: Annotated[
        Annotated[str, Meta(min_length=1, max_length=10_000)] | None,
        Meta(
            description="a shell command that decides whether its work is done: when it fails on the files of a turn's "
            "end, the child is sent back, twice; you hear of it when it passes or the child has failed"
        ),
    ] = None
    budget: Annotated[
        dict[str, float] | None,
        Meta(
            description="what it may use with its descendants, of yours: usd, turns, minutes, input_tokens, output_tokens, "
            "tool_calls, running; at its end they pause and the operator decides"
        ),
    ] = None
    agents: Annotated[
        Annotated[tuple[dict[str, Any], ...], Meta(max_length=16)] | None,
        Meta(description="instead of all else, several children: an object with these arguments for each"),
    ] = None


class WaitAgents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wait_agents", tag_field="_tool"):
    """Wait for other agents: your children, or those of your family that you name.

    If they have finished, you get their results at once. Otherwise end your turn: you are woken once, with all results, or
    at the timeout with those there are. No message about their turns wakes you before.
    """

    names: Annotated[tuple[Name, ...] | None, Meta(description="the agents; all your children when absent")] = None
    mode: Annotated[Literal["all", "any"], Meta(description="whether all must have finished (default) or one")] = "all"
    timeout_s: Annotated[
        Annotated[float, Meta(ge=0)] | None, Meta(description="seconds after which you are woken in any case")
    ] = None
    note: Annotated[str | None, Meta(description="words that come back to you with the results")] = None


class InterruptAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="interrupt_agent", tag_field="_tool"):
    """Stop the running turns of descendants. With a text, each one's next turn begins with it. It wakes you for none."""

    name: Annotated[Name | None, Meta(description="the descendant's name")] = None
    text: Annotated[Text | None, Meta(description="the prompt of its next turn")] = None
    names: Annotated[tuple[Name, ...], Meta(max_length=100, description="several of them")] = ()


class EndAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="end_agent", tag_field="_tool"):
    """End descendants for good, and their own descendants with them. What they changed in files stays."""

    name: Annotated[Name | None, Meta(description="the descendant's name")] = None
    reason: Annotated[Annotated[str, Meta(max_length=MAX_STATUS)] | None, Meta(description="why, for the record")] = None
    names: Annotated[tuple[Name, ...], Meta(max_length=100, description="several of them")] = ()


class Complete(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="complete", tag_field="_tool"):
    """Give the result of your work to those who asked for it. Otherwise it is the words after your last tool call.

    Call it last, once your work is done or has failed for good.
    """

    result: Annotated[Text, Meta(description="the result; where a schema was asked for, the JSON value or its text")]
    status: Annotated[Literal["succeeded", "failed"], Meta(description="default succeeded")] = "succeeded"
    files: Annotated[
        tuple[Annotated[str, Meta(max_length=500)], ...],
        Meta(max_length=50, description="files that belong to the result, such as large ones in $SUBSTRAT_SHARED"),
    ] = ()


class NewTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task that is to be added."""

    title: Annotated[Text, Meta(description="a line about it")]
    description: Annotated[str, Meta(description="all else that its agent has to know")] = ""
    id: Annotated[Name | None, Meta(description="its id; one is made up when absent")] = None
    needs: Annotated[tuple[Name, ...], Meta(max_length=100, description="tasks that must succeed before")] = ()
    label: Annotated[Name | None, Meta(description="a word that claims can be narrowed to")] = None
    attempts: Annotated[Annotated[int, Meta(ge=1, le=100)] | None, Meta(description="agents that may try it")] = None


class AddTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="add_tasks", tag_field="_tool"):
    """Add parts of your family's work, which its agents claim when they are free.

    What needs another is blocked until that has succeeded, and skipped if it fails.
    """

    tasks: Annotated[
        Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=500)],
        Meta(description="objects: title, description, id, needs (ids), label, attempts"),
    ]


class ClaimTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="claim_task", tag_field="_tool"):
    """Take a task of your family, the oldest that is ready. It is yours, your only one, until you finish it."""

    id: Annotated[str | None, Meta(description="this one")] = None
    label: Annotated[str | None, Meta(description="only one with this label")] = None
    wait: Annotated[
        bool, Meta(description="if none is ready, end your turn: you are woken with one, or when all are finished")
    ] = False


class FinishTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="finish_task", tag_field="_tool"):
    """Finish the task that you have."""

    id: Annotated[str | None, Meta(description="its id")] = None
    status: Annotated[Literal["succeeded", "failed"], Meta(description="default succeeded")] = "succeeded"
    result: Annotated[str, Meta(description="what came of it, for those that need it")] = ""


class ListTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="list_tasks", tag_field="_tool"):
    """List your family's tasks, and count them."""

    state: Annotated[
        Literal["blocked", "ready", "claimed", "succeeded", "failed", "skipped"] | None,
        Meta(description="only those; default all that aren't finished"),
    ] = None
    label: Annotated[str | None, Meta(description="only those with this label")] = None


class ReportStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="report_status", tag_field="_tool"):
    """Say in a few words what you are doing, for the operator and the other agents to see."""

    text: Annotated[str, Meta(min_length=1, max_length=MAX_STATUS, description="what you are doing")]


class AskOperator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ask_operator", tag_field="_tool"):
    """Ask the operator, the person in charge, something only they can decide.

    It returns at once. The answer, when it comes, starts your next turn: don't wait for it, finish yours.
    """

    question: Annotated[Text, Meta(description="what you need to know, and what you suggest")]
    options: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...],
        Meta(max_length=20, description="answers to choose from, for example to approve or not"),
    ] = ()
    default: Annotated[
        Text | None, Meta(description="the answer if none has come by the deadline; one of the options, if there are any")
    ] = None
    deadline_s: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="seconds until then")] = None


class CancelQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cancel_question", tag_field="_tool"):
    """Take a question to the operator back that isn't answered yet; `whoami` lists those you have."""

    question: Annotated[int | None, Meta(description="its number; by default your last")] = None


class RemindMe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="remind_me", tag_field="_tool"):
    """Be told something later, once or again and again. When it is time, a message with the text starts your next turn.

    Give `in_s`, `at` or `every_s`; the last needs `times` or `until`.
    """

    text: Annotated[Text, Meta(description="what to tell you")]
    in_s: Annotated[Annotated[float, Meta(ge=0)] | None, Meta(description="seconds from now")] = None
    at: Annotated[str | None, Meta(description="a time such as 2026-01-31T18:00:00Z")] = None
    every_s: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="seconds between two reminders")] = None
    times: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="how often in all")] = None
    until: Annotated[str | None, Meta(description="the time after which there are no more")] = None


class CancelReminder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cancel_reminder", tag_field="_tool"):
    """Take a reminder back; `whoami` lists those you have."""

    reminder: Annotated[int, Meta(description="its number")]


Tool = (
    Whoami | ListAgents | GetAgent | SendMessage | CheckInbox | SpawnAgent | InterruptAgent | EndAgent | WaitAgents
    | Complete | ReportStatus | AskOperator | CancelQuestion | RemindMe | CancelReminder
    | AddTasks | ClaimTask | FinishTask | ListTasks
)  # fmt: skip
FOR_TASKS: tuple[type[Tool], ...] = (AddTasks, ClaimTask, FinishTask, ListTasks)
"""Tools that only those see whose families have tasks, or who may lead one."""
TOOLS: tuple[type[Tool], ...] = get_args(Tool)
ONLY_READ = frozenset({"whoami", "list_agents", "get_agent", "list_tasks"})
"""Tools that change nothing."""
CALLS_PER_SECOND = 20.0
"""Messages of one turn's companion that are answered a second, after a burst: beyond that the agent waits."""


class BadArguments(Exception):
    """A tool was called with arguments it doesn't take; the message says which."""


def name_of(tool: type[Tool]) -> str:
    """Return a tool's name."""
    return str(tool.__struct_config__.tag)


_BY_NAME: dict[str, type[Tool]] = {name_of(tool): tool for tool in TOOLS}


def description_of(tool: type[Tool]) -> str:
    """Return a tool's description for the model."""
    return " ".join((tool.__doc__ or "").split())


_OLD_WORDS = frozenset({"worktree"})
"""Values that are taken, because chats of agents have them, and not offered any more: a `clone` was a `worktree` once."""


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
    given.pop("additionalProperties", None)
    if "enum" in given:
        given["enum"] = [value for value in given["enum"] if value not in {None, *_OLD_WORDS}]
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
        raise BadArguments(no_such("tool", name, [*_BY_NAME]))
    given = arguments or {}
    if kind is Complete and given.get("result") is not None and not isinstance(given["result"], str):
        given = {**given, "result": json.dumps(given["result"], ensure_ascii=False)}  # what a schema asks for
    try:
        return msgspec.convert({**given, "_tool": name}, kind)
    except msgspec.ValidationError as problem:
        raise BadArguments(f"{name}: {_in_words(str(problem), given, schema_of(kind)['properties'])}") from None


def children_of(call: SpawnAgent) -> tuple[SpawnAgent, ...]:
    """Return a call for each child that is to be started, each with a prompt; raises `BadArguments`."""
    if call.agents is None:
        if call.prompt is None:
            raise BadArguments("spawn_agent: prompt is missing: give the child its task")
        return (call,)
    if call != SpawnAgent(agents=call.agents) or not call.agents:
        raise BadArguments("spawn_agent: agents stands alone, and names one child or more: put each one's arguments there")
    found: list[SpawnAgent] = []
    for number, arguments in enumerate(call.agents, 1):
        child = parse(name_of(SpawnAgent), arguments)
        if not isinstance(child, SpawnAgent) or child.agents is not None or child.prompt is None:
            raise BadArguments(f"spawn_agent: child {number} of agents needs a prompt, and has no agents of its own")
        found.append(child)
    return tuple(found)


def new_tasks_of(call: AddTasks) -> tuple[NewTask, ...]:
    """Return the tasks that a call adds; raises `BadArguments` for one that can't be read."""
    found: list[NewTask] = []
    for number, arguments in enumerate(call.tasks, 1):
        given = {key: value for key, value in arguments.items() if value is not None}
        try:
            found.append(msgspec.convert(given, NewTask))
        except msgspec.ValidationError as problem:
            said = _in_words(str(problem), given, msgspec.json.schema_components([NewTask])[1]["NewTask"]["properties"])
            raise BadArguments(f"add_tasks: task {number}: {said}") from None
    return tuple(found)


_PLACE = re.compile(r" - at `\$\.(\w+)")
_UNKNOWN = re.compile(r"unknown field `(.*)`")


def _in_words(problem: str, given: dict[str, Any], properties: dict[str, Any]) -> str:
    """Return msgspec's sentence about arguments with the value at fault, and those there could be."""
    if (found := _UNKNOWN.search(problem)) is not None:
        return no_such("argument", found[1], [*properties])
    if (found := _PLACE.search(problem)) is None:
        return problem
    key = found[1]
    if "Invalid enum value" in problem and (allowed := properties[key].get("enum")):
        return no_such(key, str(given[key]), allowed)
    return f"{key}: {problem[: found.start()]}, and it is {json.dumps(given.get(key), default=str)[:80]}"


def no_such(what: str, word: str, words: Sequence[str]) -> str:
    """Say that a word isn't one of those there are: `there is no mode 'al' (did you mean all?); there are: all, any`."""
    return f"there is no {what} {word[:80]!r}{nearest(word, words)}; there are: {', '.join(words)}"


def nearest(word: str, words: Sequence[str]) -> str:
    """Return ` (did you mean all?)` for the nearest of some words; empty if none is near."""
    near = difflib.get_close_matches(word.lower(), words, 1)
    return f" (did you mean {near[0]}?)" if near else ""
