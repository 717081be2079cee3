"""The API's paths as a table: which method of the protocol each stands for, and the form of its answer.

`app` serves the table and `openapi` describes it, so that neither has a path that the other lacks. A path has the
parameters of its method; those in the path itself and the fixed ones aside, a GET takes them in the query and a POST as
members of a JSON object.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from substrat import errors
from substrat.protocol import clone_objects, objects
from substrat.protocol.parameters import PARAMETERS
from substrat.web.pages import Page, limit_of
from substrat.web.transcripts import MOST_OF_TRANSCRIPT, transcript_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from substrat.client import Client
    from substrat.web.pages import Object

    Answer = Callable[[Client, str, Object], Awaitable[object]]

Parameter = tuple[str, bool, str]
"""Its kind, whether it is required, its description."""
API = "/api/v1"
MOST_OBJECTS = 1000
"""Objects of a page: half a megabyte, where they are agents."""
_CHOICE = ("fields", "names", "family")
"""Parameters of lists by which `ls` chooses."""


class Route(NamedTuple):
    """A path of the API.

    Args:
        verb: `GET` or `POST`.
        path: below `/api/v1`, with the parameters in it in braces.
        method: the protocol's method.
        about: what it does, in a sentence.
        result: the type of its answer.
        answer: makes the answer from the method and its parameters.
        without: the method's parameters that this path lacks.
        status: the HTTP status of success.
        more: parameters that the method lacks, or describes otherwise.
    """

    verb: str
    path: str
    method: str
    about: str
    result: Any
    answer: Answer
    without: tuple[str, ...] = ()
    status: int = 200
    more: Mapping[str, Parameter] = MappingProxyType({})

    @property
    def in_path(self) -> tuple[str, ...]:
        """The names of the parameters in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters besides those in the path, by name."""
        found = {**PARAMETERS[self.method], **self.more}
        return {name: found[name] for name in found if name not in self.in_path and name not in self.without}

    def kind_of(self, name: str) -> Parameter:
        """Return a parameter of the path."""
        return PARAMETERS[self.method].get(name, ("string", True, "the agent's name or id"))


async def _call(client: Client, method: str, params: Object) -> object:
    return await client.call(method, **params)


def _paged(member: str) -> Answer:
    """Answer with a page of objects, which is followed by that after a member of its last one."""

    async def answer(client: Client, method: str, params: Object) -> object:
        limit = limit_of(params, MOST_OBJECTS)
        found = cast("list[Object]", await client.call(method, **{**params, "limit": limit}))
        return Page(found, found[-1][member] if len(found) == limit else None)

    return answer


async def _turns(client: Client, _: str, params: Object) -> object:
    limit, after = limit_of(params, MOST_OBJECTS), cast("int", params.get("after", 0))
    found: list[objects.TurnObject] = []
    while len(found) < limit and (turns := await client.turns(str(params["agent"]), after, limit - len(found))):
        found += turns
        after = turns[-1]["number"]
    return Page(found, after if len(found) == limit else None)


async def _diff(client: Client, method: str, params: Object) -> object:
    found = cast("Object", await client.call(method, **params))
    return found if params.get("text") else {name: found[name] for name in found if name not in {"text", "cut"}}


async def _merge(client: Client, method: str, params: Object) -> object:
    return await client.call(method, agents=[params["agent"]], **{name: params[name] for name in params if name != "agent"})


async def _inbox(client: Client, _: str, params: Object) -> object:
    limit, after = limit_of(params, MOST_OBJECTS), cast("int | None", params.get("after", 0))
    found: list[objects.InboxItemObject] = []
    while len(found) < limit and after is not None:
        items, after = await client.inbox_page(after, limit - len(found))
        found += items
    return Page(found, after)


_AGENT, _AGENTS, _LANDED = objects.AgentObject, list[objects.AgentObject], list[clone_objects.LandingObject]
_USED = list[objects.AgentUsageObject]


_LIMIT = {"limit": ("integer", False, f"how many at most, from 1 to {MOST_OBJECTS}; default: {MOST_OBJECTS}")}
_OF_EVENTS = {
    "after": ("integer", False, "the cursor to read on after; default: 0, the beginning"),
    "limit": (
        "integer",
        False,
        f"of how many events at most, from 1 to {MOST_OF_TRANSCRIPT}; default: {MOST_OF_TRANSCRIPT}",
    ),
}


def _get(
    path: str,
    method: str,
    about: str,
    result: Any,
    answer: Answer = _call,
    *,
    without: tuple[str, ...] = (),
    more: Mapping[str, Parameter] = MappingProxyType({}),
) -> Route:
    return Route("GET", path, method, about, result, answer, without, more=more)


def _post(
    path: str,
    method: str,
    about: str,
    result: Any,
    answer: Answer = _call,
    *,
    status: int = 200,
    without: tuple[str, ...] = (),
) -> Route:
    return Route("POST", path, method, about, result, answer, without, status)


ROUTES = (
    _get("/agents", "agent.list", "The agents, oldest first.", _AGENTS, _paged("id"), without=_CHOICE, more=_LIMIT),
    _get("/agents/{agent}", "agent.show", "One agent, whole.", objects.WholeAgentObject),
    _get("/agents/{agent}/turns", "agent.turns", "Its turns, oldest first.", list[objects.TurnObject], _turns, more=_LIMIT),
    _get(
        "/agents/{agent}/transcript", "agent.show", "Prompts, words and tool calls, turn by turn.", dict, transcript_page,
        more=_OF_EVENTS,
    ),
    _get("/agents/{agent}/diff", "agent.diff", "The work in its private clone.", clone_objects.DiffObject, _diff),
    _get(
        "/agents/{agent}/network", "agent.network", "Its allow-list and its network's decisions.", objects.NetworkObject,
        without=("allow", "remove"),
    ),
    _get("/inbox", "inbox.list", "What waits for the operator.", list[objects.InboxItemObject], _inbox, more=_LIMIT),
    _get(
        "/waits", "wait.list", "Open waits of agents for others.", list[objects.WaitObject], _paged("id"),
        without=("agents",), more=_LIMIT,
    ),
    _get(
        "/queue", "queue.list", "Agents that wait for their turns.", list[objects.QueuedObject], _paged("agent"),
        more=_LIMIT,
    ),
    _get("/usage", "usage.list", "Tokens of agents and their families.", _USED, _paged("agent"), more=_LIMIT),
    _post("/agents", "agent.spawn", "Creates an agent.", objects.SpawnedAgentObject, status=201),
    _post("/agents/{agent}/send", "agent.send", "Queues a prompt.", dict[str, Any]),
    _post("/agents/{agent}/interrupt", "agent.interrupt", "Stops the turn.", _AGENT),
    _post("/agents/{agent}/suspend", "agent.suspend", "Stops the turn and keeps the session.", _AGENT),
    _post("/agents/{agent}/resume", "agent.resume", "Goes on where it stopped.", dict[str, Any]),
    _post("/agents/{agent}/end", "agent.end", "Finishes the agent for good.", _AGENT),
    _post("/agents/{agent}/accept", "agent.accept", "A person has seen what asks for attention.", _AGENT),
    _post("/agents/{agent}/allow", "agent.network", "Changes the allow-list.", objects.NetworkObject),
    _post("/agents/{agent}/merge", "agent.merge", "Lands its commits.", _LANDED, _merge, without=("agents",)),
    _post("/inbox/{id}/answer", "inbox.answer", "Answers a question or a message.", dict[str, Any]),
)  # fmt: skip


_DESCRIPTIONS = {"boolean": "true or false", "integer": "an integer"}


def from_query(kind: str, name: str, values: list[str]) -> object:
    """Read a parameter from the query.

    Args:
        kind: its kind in the protocol, such as `integer`.
        name: its name, for the error.
        values: its values there, at least one.

    Raises:
        InvalidParams: it can't be read.
    """
    match kind:
        case "boolean" if values[-1] in {"true", "false"}:
            return values[-1] == "true"
        case "integer" if len(values[-1]) <= 20 and values[-1].removeprefix("-").isdecimal():  # 64 bits have as many
            return int(values[-1])
        case "string":
            return values[-1]
        case "strings":
            return values
    raise errors.InvalidParams(f"the query's {name!r} must be {_DESCRIPTIONS.get(kind, kind)}")
