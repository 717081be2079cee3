"""Speaks to a company's proxy, through which `filtered` networks may have to go: reads its address, writes requests. Pure.

RFC 9110, 9.3.6: after `CONNECT pypi.org:443` and an answer of the 2xx kind, the connection leads to that host. A plain
request goes to the proxy itself with its whole address, `GET http://pypi.org/ HTTP/1.1` (RFC 9112, 3.2.2), because
tinyproxy and Squid allow CONNECT for https alone unless they are told otherwise.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LONGEST_ANSWER = 64 * 1024
"""The most bytes of an answer's head: several times the 8 KiB to which common servers limit theirs."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?\r?\n")
_HTTP_PORT = 80
_LOGIN_WANTED = 407
_REASONS = {
    403: "it refuses the host or the port",
    _LOGIN_WANTED: "it refuses the login in sandbox.upstream_proxy, or wants one",
    502: "it can't reach the host",
    503: "it can't reach the host",
    504: "the host doesn't answer it",
}


class NoUpstream(ValueError):
    """A text names no proxy. The message says why; it leaves the text out, which may hold a password."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the proxy is, and the login it asks for.

    Args:
        host: its name or address.
        port: its port.
        login: `user:password`, if there is one; it isn't shown.
    """

    host: str
    port: int
    login: str | None = field(default=None, repr=False)


class ConnectAnswer(NamedTuple):
    """A proxy's answer to CONNECT.

    Args:
        length: how many bytes the answer's head has; the bytes behind it come from the host.
        refusal: why there is no connection, in a few words; None: there is one.
    """

    length: int
    refusal: str | None


def read(text: str) -> Upstream | None:
    """Read `http://[USER:PASSWORD@]HOST:PORT`; None when the text is empty.

    Raises:
        NoUpstream: the text has another form.
    """
    if not text:
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise NoUpstream("it isn't of the form http://[USER:PASSWORD@]HOST:PORT") from None
    if parts.scheme != "http":
        raise NoUpstream("only proxies that are spoken to with plain http:// can be used")
    if not host or port is None or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise NoUpstream("it isn't of the form http://[USER:PASSWORD@]HOST:PORT")
    login = None
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Upstream(host, port, login)


def request(upstream: Upstream, host: str, port: int) -> bytes:
    """Return the request that asks a proxy for a connection.

    Args:
        upstream: the proxy.
        host: a canonical name or an address.
        port: the port there.
    """
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *_login(upstream)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def plain_head(upstream: Upstream, host: str, port: int, head: bytes) -> bytes:
    """Return the head of a plain request in the form that a proxy takes.

    Args:
        upstream: the proxy.
        host: the canonical name of the server.
        port: the port there.
        head: the request's head for the server itself; its first field is Host.
    """
    line, _, fields = head.partition(b"\r\n")
    method, path, version = line.decode("ascii").split(" ")
    where = host if port == _HTTP_PORT else f"{host}:{port}"
    address = f"http://{where}{'' if path == '*' else path}"
    lines = [f"{method} {address} {version}", f"Host: {where}", *_login(upstream)]
    return ("\r\n".join(lines) + "\r\n").encode("ascii") + fields.partition(b"\r\n")[2]


def _login(upstream: Upstream) -> list[str]:
    if upstream.login is None:
        return []
    return [f"Proxy-Authorization: Basic {base64.b64encode(upstream.login.encode()).decode()}"]


def login_refusal(data: bytes) -> str | None:
    """Say that a proxy refuses its login, if the first bytes of its answer to a plain request do.

    Other answers may be the server's.
    """
    found = _STATUS.match(data)
    return _REASONS[_LOGIN_WANTED] if found is not None and int(found[1]) == _LOGIN_WANTED else None


def answer(data: bytes) -> ConnectAnswer | None:
    """Read a proxy's answer; None: its head isn't whole yet.

    Args:
        data: the bytes that came so far.
    """
    end = re.search(rb"\r?\n\r?\n", data)
    if end is None:
        return ConnectAnswer(len(data), "its answer is too long") if len(data) > LONGEST_ANSWER else None
    found = _STATUS.match(data)
    if found is None:
        return ConnectAnswer(end.end(), "it doesn't answer as an HTTP proxy does")
    status = int(found[1])
    if 200 <= status < 300:
        return ConnectAnswer(end.end(), None)
    said = "".join(letter if letter.isprintable() else "?" for letter in (found[2] or b"").decode("latin-1")[:80])
    return ConnectAnswer(end.end(), f"{_REASONS.get(status, 'it answers')} ({status}{' ' + said if said else ''})")
