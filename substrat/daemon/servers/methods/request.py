"""Reads a request's parameters into the Struct of its method.

A method is one class. This one is `agent.send`, and `{"agent": "anna", "prompt": 7}` is answered with `InvalidParams`:
"agent.send: 'prompt' must be a string".

    class AgentSend(OperatorRequest, frozen=True):
        \"\"\"Queues a prompt.\"\"\"

        method: ClassVar[str] = "agent.send"

        agent: AgentName
        prompt: Annotated[str, about("the prompt")]

        async def perform(self, services: Services, _: ClientConnection) -> object: ...
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from substrat.core.agents.turn_check import LONGEST_COMMAND, MOST_RETRIES
from substrat.core.agents.turn_limits import LONGEST_S
from substrat.errors import InvalidParams
from substrat.protocol.vocabulary import AGENT_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection

_LARGEST = 2**63 - 1
"""The largest integer of SQLite and of most clients' languages; its negative has an absolute value there too."""


def about(text: str) -> Meta:
    """Describe a parameter, for `docs/protocol.md` and for the error that it is missing."""
    return Meta(description=text)


Integer = Annotated[int, Meta(ge=-_LARGEST, le=_LARGEST)]
Command = Annotated[str, Meta(min_length=1, max_length=LONGEST_COMMAND, pattern=r"^[^\0]*$")]
"""A shell command."""
Retries = Annotated[int, Meta(ge=0, le=MOST_RETRIES)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
State = Literal["idle", "queued", "running", "suspended", "failed", "ended"]
AgentName = Annotated[str, about("the agent's name or id")]
After = Annotated[str | None, about("the name or the id of the agent to read on after; default: the beginning")]
Limit = Annotated[
    Integer | None, about("how many at most, at least 1; default: all, because an array doesn't say that there are more")
]
Timeout = Annotated[Seconds | None, about(f"seconds, from 0 to {LONGEST_S}; default: no limit")]


class Encoded(NamedTuple):
    """A result that is JSON text already, in pieces."""

    pieces: Sequence[bytes]


class Last(NamedTuple):
    """A result, and a function that is called when it has been sent."""

    result: object
    then: Callable[[], None]


class OperatorRequest(msgspec.Struct, frozen=True):
    """A request with its parameters; the subclass's docstring is the method's text in `docs/protocol.md`.

    `method` is its name on the wire. A method that `waits` may be answered late; a connection's other requests are
    carried out one after the other.
    """

    method: ClassVar[str]
    waits: ClassVar[bool] = False

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        """Carry the request out and return its result: a value that JSON can say, an `Encoded` or a `Last`."""
        raise NotImplementedError


class Parameter(NamedTuple):
    """A parameter of a method.

    Args:
        name: its key in `params`.
        kind: the protocol's word for its type, such as `strings`.
        about: its description.
        required: whether it must be there.
        type: its type, with its limits.
    """

    name: str
    kind: str
    about: str
    required: bool
    type: Any


_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ARRAY_KINDS = {str: "strings", int: "integers", State: "states"}
_DESCRIPTIONS = {
    "string": "a string",
    "integer": "an integer of 64 bits",
    "number": "a number",
    "boolean": "true or false",
    "strings": "an array of strings",
    "integers": "an array of integers of 64 bits",
    "states": f"an array of states, which are {', '.join(AGENT_STATES)}",
}

R = TypeVar("R", bound=OperatorRequest)


@cache
def parameters(kind: type[OperatorRequest]) -> tuple[Parameter, ...]:
    """Return a method's parameters in their order."""
    return tuple(
        Parameter(field.name, _kind(field.type), _description(field.type), field.required, field.type)
        for field in msgspec.structs.fields(kind)
    )


def parse(kind: type[R], params: object) -> R:
    """Read a request's parameters.

    Args:
        kind: the method.
        params: the client's `params`. None counts as `{}`, and a parameter that is null as left out.

    Raises:
        InvalidParams: the message names the parameter.
    """
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise InvalidParams(f"{kind.method}: params must be an object")
    known = {parameter.name: parameter for parameter in parameters(kind)}
    if unknown := sorted(set(params) - set(known)):
        has = ", ".join(known) or "none"
        raise InvalidParams(f"{kind.method} has no parameter {unknown[0]!r}; it has: {has}")
    given = {name: value for name, value in params.items() if value is not None}
    values = {}
    for name, parameter in known.items():
        if name in given:
            values[name] = _convert(kind.method, parameter, given[name])
        elif parameter.required:
            raise InvalidParams(f"{kind.method} needs the parameter {name!r}: {parameter.about}")
    return kind(**values)


def _convert(method: str, parameter: Parameter, value: object) -> object:
    try:
        return msgspec.convert(value, parameter.type)
    except msgspec.ValidationError:
        raise InvalidParams(f"{method}: {parameter.name!r} must be {_expected(parameter)}") from None


def _expected(parameter: Parameter) -> str:
    bare = _without_null(parameter.type)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return f"one of {', '.join(str(member.value) for member in bare)}"
    for limit in _metadata(parameter.type):
        if limit.ge is not None and limit.le != _LARGEST:
            return f"{'a number' if parameter.kind == 'number' else 'an integer'} from {limit.ge} to {limit.le}"
        if limit.max_length is not None:
            return f"a string of {limit.min_length} to {limit.max_length} characters, without NUL"
    return _DESCRIPTIONS[parameter.kind]


def _kind(annotation: Any) -> str:
    bare = _without_null(annotation)
    if get_origin(bare) is tuple:
        return _ARRAY_KINDS[_without_null(get_args(bare)[0])]
    return "string" if issubclass(bare, Enum) else _KINDS[bare]


def _without_null(annotation: Any) -> Any:
    while get_origin(annotation) in {Annotated, Union, UnionType}:
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _metadata(annotation: Any) -> list[Meta]:
    """Return the descriptions and limits on a type, the outermost last."""
    if get_origin(annotation) is Annotated:
        inner, *found = get_args(annotation)
        return [*_metadata(inner), *found]
    if get_origin(annotation) in {Union, UnionType}:
        return [meta for part in get_args(annotation) for meta in _metadata(part)]
    return []


def _description(annotation: Any) -> str:
    *_, last = [meta.description for meta in _metadata(annotation) if meta.description is not None]
    return last
