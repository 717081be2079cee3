"""The operator's methods as one table: names, parameters, results; what they do is `daemon/servers/operator.py`.

Standard library only. The daemon checks every request against this table, `substratctl` and `substrat.Client` are
built on it, and a test holds `docs/protocol.md` to it.
"""

from __future__ import annotations

from substrat import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

AGENT_STATES = ("idle", "queued", "running", "suspended", "failed", "ended")
OUTCOMES = ("success", "error", "interrupted", "timed_out", "lost")
NETWORKS = ("none", "filtered", "host")

AGENT_FIELDS = (
    "id", "name", "state", "session_id", "workspace", "model", "network", "parent", "created_at", "unread", "turn",
    "attention", "reason", "activity",
)  # fmt: skip
AGENT_EXTRAS = ("heard_at",)
"""Members that an agent object has only in a list that is asked for them."""
TURN_FIELDS = ("id", "number", "outcome", "started_at", "ended_at", "exit_code", "result", "usage", "error")
EVENT_FIELDS = ("cursor", "agent", "turn", "time", "kind", "text", "raw")


class Param:
    """One parameter of a method.

    Args:
        name: its key in `params`.
        kind: `string`, `integer`, `number`, `boolean`, `strings` (a list), `integers` (a list) or
            `states`.
        about: what it means, for the documents.
        required: whether it must be there; an optional one may also be null.
    """

    __slots__ = ("about", "kind", "name", "required")

    def __init__(self, name: str, kind: str, about: str, *, required: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.about = about
        self.required = required


class Method:
    """One method of the operator socket.

    Args:
        name: the JSON-RPC method.
        about: what it does, for the documents.
        result: what its result is, for the documents.
        params: its parameters.
        waits: whether its answer may take long; the others of a connection are carried out one after the other.
    """

    __slots__ = ("about", "name", "params", "result", "waits")

    def __init__(self, name: str, about: str, result: str, params: tuple[Param, ...] = (), *, waits: bool = False) -> None:
        self.name = name
        self.about = about
        self.result = result
        self.params = params
        self.waits = waits


_AGENT = Param("agent", "string", "the agent's name or id", required=True)

METHODS = (
    Method("hello", "opens the conversation; must be the first request", "`{protocol, server, pid, state_dir}`", (
        Param("protocol", "integer", "the newest protocol version the client speaks", required=True),
        Param("client", "string", "who is calling, for the log"),
    )),
    Method("agent.spawn", "creates an agent and queues its first prompt", "an agent object, `message`, `notes`", (
        Param("workspace", "string", "absolute path of the directory it works in", required=True),
        Param("name", "string", "its name; one is made up when absent"),
        Param("model", "string", "model slug; the configured default when absent"),
        Param("network", "string", "`none`, `filtered` or `host`; the configured default when absent"),
        Param("allow", "strings", "what `filtered` lets through: `HOST[:PORT][=private]`, `*.HOST`, a network, `@PRESET`"),
        Param("bind", "strings", "absolute paths of further places it may write to"),
        Param("bind_ro", "strings", "absolute paths of further places it may read"),
        Param("prompt", "string", "the first prompt"),
        Param("session", "string", "a chat of this workspace to take over; its model is the default then"),
        Param("restore", "string", "what becomes of it when its turn is lost: `hold` or `auto`"),
        Param("env", "strings", "variables of its own, `NAME=VALUE`"),
        Param("ssh_agent", "string", "absolute path of an ssh-agent's socket that it may ask for signatures"),
    )),
    Method("agent.send", "queues a prompt", "`{agent, message}`: the agent object and the inbox item's id", (
        _AGENT,
        Param("prompt", "string", "the prompt", required=True),
    )),
    Method("agent.list", "all agents, oldest first", "a list of agent objects, abridged", (
        Param("fields", "strings", "the members each object is to have; all when absent"),
    )),
    Method("agent.show", "one agent", "an agent object, whole, with `findings`", (_AGENT,)),
    Method("agent.wait", "answers when each agent is in one of the states", "a list of agent objects", (
        Param("agents", "strings", "names or ids", required=True),
        Param("until", "states", "the states; when absent: neither queued nor running"),
        Param("timeout", "number", "seconds after which it fails with `WaitTimedOut`"),
    ), waits=True),
    Method("agent.wait_message", "answers when the turn that carries an inbox item has ended", "that turn's agent object", (
        _AGENT,
        Param("message", "integer", "the inbox item's id; the newest prompt when absent"),
        Param("timeout", "number", "seconds after which it fails with `WaitTimedOut`"),
    ), waits=True),
    Method("agent.suspend", "stops the turn, keeps the session; answers when its process is gone", "an agent object", (
        _AGENT,
        Param("freeze", "boolean", "stop the turn in memory instead; answers when all of it is stopped"),
    ), waits=True),
    Method("agent.resume", "continues where it stopped", "`{agent, message}`; no message: nothing was left to do", (
        _AGENT,
        Param("prompt", "string", "what to do instead of going on where it stopped"),
    )),
    Method("agent.interrupt", "stops the turn; answers when its process is gone", "an agent object", (_AGENT,), waits=True),
    Method("agent.end", "finishes the agent; answers when its process is gone", "an agent object", (_AGENT,), waits=True),
    Method("agent.rm", "forgets an agent that isn't running, its files and its events", "null", (_AGENT,)),
    Method("agent.explain", "how the next turn would be started", "`{command, environment, program, missing}`", (_AGENT,)),
    Method("agent.exec", "runs a command in the agent's sandbox; answers when it has ended", "`{exit_code}`", (
        _AGENT,
        Param("command", "strings", "the program and its arguments, as seen from inside", required=True),
        Param("descriptors", "string", "absolute path of the Unix socket they are handed over on", required=True),
        Param("terminal", "string", "`TERM` of the terminal that standard input is; absent: it is none"),
    ), waits=True),
    Method("agent.turns", "a page of an agent's turns", "`{turns, after}`; `after` is where to read on", (
        _AGENT,
        Param("after", "integer", "the number of the turn to read after; 0 is the beginning"),
    )),
    Method("agent.usage", "what its turns used, and those of its family", "`{turns, usage, family}`", (_AGENT,)),
    Method("agent.network", "what its network lets through and decided", "`{network, form, process, allow, decisions}`", (
        _AGENT,
        Param("allow", "strings", "put these on the list of what `filtered` lets through"),
        Param("remove", "strings", "take these off it"),
    )),
    Method("agent.accept", "notes that a person has seen what asks for attention", "an agent object", (
        _AGENT,
        Param("what", "integers", "the numbers of the findings; when absent: all of them, and a failed turn"),
    )),
    Method("session.list", "the chats of a workspace, newest first", "a list of session objects", (
        Param("workspace", "string", "absolute path of the directory", required=True),
    ), waits=True),
    Method("session.read", "a page of a chat's messages", "what the chat is, `messages`, `after`", (
        Param("workspace", "string", "absolute path of the directory", required=True),
        Param("session", "string", "the chat's id", required=True),
        Param("after", "integer", "the number of the message to read after; 0 is the beginning"),
    ), waits=True),
    Method("events.read", "a page of events after a cursor", "`{events, cursor}`; `cursor` is where to read on", (
        Param("agent", "string", "only this agent's"),
        Param("since", "integer", "the cursor to read after; 0 is the beginning, negative counts from the end"),
        Param("limit", "integer", "how many at most (1000)"),
        Param("lines", "boolean", "add `line`: the agent's own bytes with their newline, in base64"),
    )),
    Method("events.subscribe", "sends events as `event` notifications", "`{subscription, cursor}`", (
        Param("agent", "string", "only this agent's"),
        Param("since", "integer", "the cursor to start after; when absent: only what comes from now on"),
        Param("lines", "boolean", "add `line`: the agent's own bytes with their newline, in base64"),
    )),
    Method("events.unsubscribe", "ends a subscription", "null", (
        Param("subscription", "integer", "the number `events.subscribe` gave", required=True),
    )),
    Method("inbox.list", "what agents asked or wrote to the operator", "a list of items, or `{items, after, more}`", (
        Param("after", "integer", "answer with a page: the number of the item to read after; 0 is the beginning"),
    )),
    Method("inbox.show", "one item of the inbox, whole", "`{id, from, time, text, kind}`", (
        Param("id", "integer", "its number", required=True),
    )),
    Method("inbox.answer", "answers a question or a message", "`{agent, message}`", (
        Param("id", "integer", "its number", required=True),
        Param("text", "string", "the answer", required=True),
    )),
    Method("inbox.dismiss", "takes a question or a message off the inbox", "null", (
        Param("id", "integer", "its number", required=True),
    )),
    Method(
        "daemon.status", "the daemon itself",
        "`{version, pid, state_dir, runtime_dir, agents, running, network, waiting_for, cgroups, damaged, reserve}`",
    ),
    Method("daemon.check", "whether agents can run under this daemon", "`{obstacle, environment}`"),
    Method("daemon.shutdown", "stops the daemon; turns go on unless suspended first", "null", (
        Param("suspend", "boolean", "suspend every agent before"),
    ), waits=True),
)  # fmt: skip

BY_NAME: dict[str, Method] = {method.name: method for method in METHODS}

_LARGEST = 2**63 - 1

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "strings": (list,),
    "integers": (list,),
    "states": (list,),
}


def check(method: Method, params: object) -> dict[str, object]:
    """Check a request's parameters against the table.

    Args:
        method: the table's row.
        params: what the client sent; None counts as `{}`.

    Returns:
        The parameters that were given, without nulls.

    Raises:
        InvalidParams: naming the parameter and what it should be.
    """
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise errors.InvalidParams(f"{method.name}: params must be an object")
    known = {param.name: param for param in method.params}
    if unknown := sorted(set(params) - set(known)):
        has = ", ".join(known) or "none"
        raise errors.InvalidParams(f"{method.name} has no parameter {unknown[0]!r}; it has: {has}")
    given = {name: value for name, value in params.items() if value is not None}
    for param in method.params:
        if param.name in given:
            _check_value(method, param, given[param.name])
        elif param.required:
            raise errors.InvalidParams(f"{method.name} needs the parameter {param.name!r}: {param.about}")
    return given


def _check_value(method: Method, param: Param, value: Any) -> None:
    where = f"{method.name}: {param.name!r}"
    fits = isinstance(value, _KINDS[param.kind]) and (param.kind == "boolean" or not isinstance(value, bool))
    if fits and param.kind == "integer" and not -_LARGEST <= value <= _LARGEST:
        raise errors.InvalidParams(f"{where} must be an integer of 64 bits")
    if fits and isinstance(value, list):
        wanted = int if param.kind == "integers" else str
        fits = all(isinstance(item, wanted) and not isinstance(item, bool) for item in value)
        if fits and wanted is int and any(abs(item) > _LARGEST for item in value):
            raise errors.InvalidParams(f"{where} must be integers of 64 bits")
        if fits and param.kind == "states" and (odd := [item for item in value if item not in AGENT_STATES]):
            raise errors.InvalidParams(f"{where}: {odd[0]!r} is no state; the states are {', '.join(AGENT_STATES)}")
    if not fits:
        raise errors.InvalidParams(f"{where} must be of kind {param.kind}")


def verdict_status(outcome: object) -> int:
    """Return the exit status that passes a turn's verdict on.

    Args:
        outcome: the turn object's `outcome`.
    """
    return errors.DONE if outcome == "success" else errors.TURN_FAILED


def fields(source: Mapping[str, object], names: tuple[str, ...]) -> dict[str, object]:
    """Pick an object's contract fields, in the contract's order."""
    return {name: source[name] for name in names}
