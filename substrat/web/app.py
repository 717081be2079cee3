"""The page's server as an ASGI application: the guard, the page's files, the API's table, the events."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, cast

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route as Served
from starlette.routing import WebSocketRoute

from substrat import errors
from substrat.protocol import framing
from substrat.web import access, failures, metrics, openapi, routes, streams, token
from substrat.web.daemon import connected
from substrat.web.pages import Encoded, Page
from substrat.web.routes import API
from substrat.web.window import Wanted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import HTTPConnection, Request
    from starlette.types import ASGIApp, Receive, Scope, Send
    from starlette.websockets import WebSocket

    from substrat.web.access import Access, Refusal
    from substrat.web.fanout import Fanout
    from substrat.web.pages import Object
    from substrat.web.routes import Route

    Endpoint = Callable[[Request], Awaitable[Response]]

_AFTER_A_GUESS_S = 0.5
"""How long a wrong token waits for its refusal."""
_LAST_WORD_S = 1.0
"""How long the end of a stream waits for its client."""
_KINDS = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Guard:
    """Lets a request through to the application, or refuses it before anything looks at its path.

    Args:
        app: the application.
        who: who may.
    """

    def __init__(self, app: ASGIApp, who: Access) -> None:
        self._app = app
        self._access = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (asgi.readthedocs.io)."""
        refusal = access.judge(self._access, token.read(), access.asked(scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        if refusal.guessed:
            await anyio.sleep(_AFTER_A_GUESS_S)
        await _refuse(scope, send, refusal)


async def _refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    # Closed, because where the body of a refused request ends isn't known.
    headers = [*_RAW_HEADERS, (b"content-type", b"application/json"), (b"connection", b"close")]
    text = streams.encode(failures.body(refusal.type, refusal.message))
    await send({"type": f"{kind}.response.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": text})


def make(fanout: Fanout, address: str, who: Access) -> ASGIApp:
    """Return the application.

    Args:
        fanout: brings the daemon's events.
        address: the server's own address, such as `http://127.0.0.1:8675`.
        who: who may.
    """
    socket = fanout.socket
    described = streams.encode(openapi.document(address))

    async def describe(_: Request) -> Response:
        return Response(described, headers=HEADERS, media_type="application/json")

    served = [
        *(Served(path, _page(name), methods=["GET"]) for path, name in access.PAGE_FILES.items()),
        Served("/metrics", _metrics(socket), methods=["GET"]),
        Served(f"{API}/openapi.json", describe, methods=["GET"]),
        Served(f"{API}/events", _events(socket, fanout), methods=["GET"]),
        WebSocketRoute(f"{API}/stream", _stream(fanout)),
        *(Served(API + route.path, _row(socket, route), methods=[route.verb]) for route in routes.ROUTES),
    ]
    app = Starlette(routes=served, exception_handlers={errors.SubstratError: _failed, HTTPException: _not_served})
    return Guard(app, who)


def _page(name: str) -> Endpoint:
    """Serve a file of the page."""
    content = resources.files("substrat.web").joinpath("page", name).read_bytes()
    headers = {**HEADERS, "content-type": _KINDS[name.rpartition(".")[2]]}

    async def serve(_: Request) -> Response:
        return Response(content, headers=headers)

    return serve


def _metrics(socket: str) -> Endpoint:
    """Serve the daemon's metrics to Prometheus."""

    async def serve(request: Request) -> Response:
        async with connected(socket) as client:
            content, kind = metrics.encode(await client.metrics(), request.headers.get("accept"))
        return Response(content, headers={**HEADERS, "content-type": kind})

    return serve


def _row(socket: str, route: Route) -> Endpoint:
    """Serve a row of the table."""

    async def serve(request: Request) -> Response:
        params = await _parameters(request, route)
        async with connected(socket) as client:
            found, headers = await route.answer(client, route.method, params), HEADERS
        if isinstance(found, Page):
            if found.after is not None:
                there = request.url.include_query_params(after=found.after)
                headers = {**HEADERS, "link": f'<{there.path}?{there.query}>; rel="next"'}
            found = found.content
        content = found if isinstance(found, Encoded) else streams.encode(found)
        return Response(content, route.status, headers, "application/json")

    return serve


async def _parameters(request: Request, route: Route) -> Object:
    """Read a request's parameters from its path, its query and its body.

    Raises:
        InvalidParams: one is wrong. Those of a body are left to the daemon.
        MessageTooLarge: the body is longer than the daemon takes.
    """
    inside = {name: routes.from_query(route.kind_of(name)[0], name, [request.path_params[name]]) for name in route.in_path}
    if route.verb == "GET":
        return {**_query(request, {name: found[0] for name, found in route.parameters.items()}), **inside}
    body = await _body(request)
    if unknown := sorted(set(body) - set(route.parameters)):
        has = ", ".join(route.parameters) or "none"
        raise errors.InvalidParams(f"there is no parameter {unknown[0]!r} here; there are: {has}")
    return {**body, **inside}


def _query(request: HTTPConnection, kinds: dict[str, str]) -> Object:
    if unknown := sorted(set(request.query_params) - set(kinds)):
        has = ", ".join(kinds) or "none"
        raise errors.InvalidParams(f"the query has no parameter {unknown[0]!r} here; there are: {has}")
    return {name: routes.from_query(kinds[name], name, request.query_params.getlist(name)) for name in request.query_params}


async def _body(request: Request) -> Object:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > framing.MAX_LINE:
            raise errors.MessageTooLarge(f"the body has more than {framing.MAX_LINE} bytes, which the daemon takes")
    try:
        found = msgspec.json.decode(bytes(data) or b"{}")
    except (msgspec.DecodeError, RecursionError) as problem:
        raise errors.InvalidParams(f"the body isn't JSON: {problem}") from None
    if not isinstance(found, dict):
        raise errors.InvalidParams("the body must be a JSON object")
    return found


_PAGE_KINDS = {"since": "integer", "journal": "string", "limit": "integer", "agent": "string", "filter": "strings"}


def _events(socket: str, fanout: Fanout) -> Endpoint:
    """Serve a page of events, or a stream of them to who accepts one."""

    async def serve(request: Request) -> Response:
        params = _query(request, _PAGE_KINDS)
        if "text/event-stream" in request.headers.get("accept", ""):
            if last := request.headers.get("last-event-id"):
                params["since"] = routes.from_query("integer", "Last-Event-ID", [last])
            return _EventStream(_wanted(params), fanout)
        async with connected(socket) as client:
            params.pop("filter", None)
            return Response(streams.encode(await client.call("events.read", **params)), 200, HEADERS, "application/json")

    return serve


class _EventStream(Response):
    """Events as they come, as an answer that doesn't end."""

    def __init__(self, wanted: Wanted, fanout: Fanout) -> None:
        self._wanted = wanted
        self._fanout = fanout
        self.background = None

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        async with self._fanout.opened(self._wanted) as reader:
            await streams.send_events(reader, receive, send, _RAW_HEADERS)
        with anyio.move_on_after(_LAST_WORD_S):
            await send({"type": "http.response.body", "body": b""})


def _stream(fanout: Fanout) -> Callable[[WebSocket], Awaitable[None]]:
    """Serve events over a WebSocket."""

    async def serve(asking: WebSocket) -> None:
        try:
            params = _query(asking, {**_PAGE_KINDS, "gathered": "boolean"})
            async with fanout.opened(_wanted(params)) as reader:
                await asking.accept(access.SUBPROTOCOL if access.SUBPROTOCOL in asking.scope["subprotocols"] else None)
                await streams.send_messages(reader, asking, gathered=bool(params.get("gathered")))
        except errors.SubstratError as problem:
            await asking.send_denial_response(_failure(problem))

    return serve


def _wanted(params: Object) -> Wanted:
    """Read the events that a client asks for; raises `InvalidParams` if a filter is unknown."""
    filters = set(cast("list[str]", params.get("filter", [])))
    if unknown := sorted(filters - {"no-thinking"}):
        raise errors.InvalidParams(f"there is no filter {unknown[0]!r}; there is: no-thinking")
    agent, journal = (cast("str | None", params.get(key)) for key in ("agent", "journal"))
    return Wanted(agent, cast("int | None", params.get("since")), journal, bool(filters))


def _failure(problem: errors.SubstratError) -> Response:
    text = streams.encode(failures.body(problem.wire_name or type(problem).__name__, problem.message))
    return Response(text, failures.status(problem), HEADERS, "application/json")


async def _failed(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, errors.SubstratError)
    return _failure(problem)


async def _not_served(_: Request, problem: Exception) -> Response:
    """Answer for a path, or a method of one, that there isn't."""
    assert isinstance(problem, HTTPException)
    kind = "MethodNotAllowed" if problem.status_code == 405 else "NotFound"
    text = streams.encode(failures.body(kind, "there is no such path; openapi.json lists those that there are"))
    return Response(text, problem.status_code, {**HEADERS, **(problem.headers or {})}, "application/json")
