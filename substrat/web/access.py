"""Decides who may ask the page's server, before anything is routed. Pure.

The browser is the danger: any page that a person has open can send requests to the loopback, and an agent's own server may
listen on another port of it. So there is no cookie (cookies don't know ports), every request must name the printed host
and port (a name that an attacker's DNS points at 127.0.0.1 doesn't), a foreign or `null` origin is refused, and a request
that changes something must be JSON, which another origin's page can't send without asking first (fetch.spec.whatwg.org,
"CORS protocol").
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES = ("agent", "aside", "dom", "list", "net", "page", "state", "text", "transcript")
"""The JavaScript modules of the page."""
PAGE_FILES = {"/": "index.html", "/page.css": "page.css", **{f"/{name}.js": f"{name}.js" for name in MODULES}}
"""The paths that need no token: the page has none before it has read the address."""
SUBPROTOCOL = "substrat.v1"
_TOKEN_PREFIX = "token."  # noqa: S105 - the name of a header's part, not a token


class Access(NamedTuple):
    """Who may.

    Args:
        hosts: the values that `Host` may have, such as `127.0.0.1:8675`.
        origins: the values that `Origin` may have, such as `http://127.0.0.1:8675`.
        read_only: whether every POST is refused.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    read_only: bool = False


class Asked(NamedTuple):
    """A request's properties by which it is judged.

    Args:
        verb: the HTTP method; `GET` for a WebSocket.
        path: the path.
        hosts: the values of all `Host` headers.
        origins: the values of all `Origin` headers.
        kind: the `Content-Type`.
        tokens: the tokens that it shows.
        is_ambiguous: whether it states the length of its body in two ways.
    """

    verb: str
    path: str
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    kind: str
    tokens: tuple[str, ...]
    is_ambiguous: bool = False


class Refusal(NamedTuple):
    """Why a request is refused.

    Args:
        status: the HTTP status.
        type: the error's name in the answer.
        message: a sentence.
        guessed: whether a wrong token was shown.
    """

    status: int
    type: str
    message: str
    guessed: bool = False


def asked(scope: Mapping[str, Any]) -> Asked:
    """Read a request's properties from its ASGI scope (asgi.readthedocs.io, "HTTP & WebSocket")."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    tokens = [text[7:].strip() for text in found.get("authorization", ()) if text[:7].lower() == "bearer "]
    # A browser gives a WebSocket no header of the page's but this one.
    offered = scope.get("subprotocols") or ()
    tokens += [text.removeprefix(_TOKEN_PREFIX) for text in offered if text.startswith(_TOKEN_PREFIX)]
    kind = (found.get("content-type") or [""])[0].partition(";")[0].strip().lower()
    hosts, origins = tuple(found.get("host", ())), tuple(found.get("origin", ()))
    # A proxy that goes by the other one would see two requests here (RFC 9112, section 6.3).
    is_ambiguous = "content-length" in found and "transfer-encoding" in found
    return Asked(scope.get("method", "GET"), scope["path"], hosts, origins, kind, tuple(tokens), is_ambiguous)


def judge(access: Access, token: str, request: Asked) -> Refusal | None:
    """Return why a request is refused, None if it isn't.

    Args:
        access: who may.
        token: the token; empty: there is none, and every request is refused.
        request: the request.
    """
    if request.is_ambiguous:
        return Refusal(400, "InvalidRequest", "Content-Length and Transfer-Encoding came together: send one of them")
    if len(request.hosts) != 1 or request.hosts[0].lower() not in access.hosts:
        wanted = " or ".join(sorted(access.hosts))
        return Refusal(421, "MisdirectedRequest", f"this server answers to the host {wanted} only")
    if len(request.origins) > 1 or any(origin not in access.origins for origin in request.origins):
        return Refusal(403, "Forbidden", "a page of another origin may ask nothing here")
    if request.verb in {"GET", "HEAD"} and request.path in PAGE_FILES:
        return None
    if not any(_is_equal(shown, token) for shown in request.tokens):
        how = "run 'substratctl web --url' for a link that has it"
        return Refusal(401, "Unauthorized", f"the token is missing or wrong: {how}", guessed=bool(request.tokens))
    if request.verb in {"GET", "HEAD"}:
        return None
    if access.read_only:
        return Refusal(403, "Forbidden", "this server is read-only: it was started with --read-only")
    if request.kind != "application/json":
        return Refusal(400, "InvalidParams", "a change must be sent as Content-Type: application/json")
    return None


def _is_equal(shown: str, token: str) -> bool:
    return bool(token) and hmac.compare_digest(shown.encode(), token.encode())
