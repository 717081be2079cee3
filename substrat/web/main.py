"""The process of `substratctl web`: binds the loopback, prints the link, serves until it is told to stop."""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import NamedTuple

import uvicorn

from substrat import errors, paths
from substrat.notify import Notifier
from substrat.web import app, running, token
from substrat.web.access import Access
from substrat.web.fanout import Fanout

ADDRESS = "127.0.0.1"
PORT = 8675
_BACKLOG = 512
_SEND_BUFFER = 256 * 1024
"""Bytes that the kernel takes for a client that doesn't read, which is then dropped soon (socket(7), SO_SNDBUF)."""
_UNREAD_MS = 30_000
"""How long sent bytes may go without acknowledgement before the kernel ends a connection (tcp(7), TCP_USER_TIMEOUT)."""
_MAX_MESSAGE = 4096
_STOPPING_S = 2


class Options(NamedTuple):
    """How the page is served.

    Args:
        port: the port; 0: any that is free.
        origin: the origin of a proxy in front; None: there is none.
        read_only: whether every POST is refused.
        new_token: whether the token is made anew.
    """

    port: int
    origin: str | None
    read_only: bool
    new_token: bool


def links(port: int | None, *, new_token: bool) -> str:
    """Return a line with the link and the token for each server that runs.

    Args:
        port: only for the server on this port.
        new_token: whether the token is made anew first.

    Raises:
        NotAvailable: no such server runs.
        StateUnusable: the token can't be written.
    """
    found = [one for one in running.ports() if port in {None, one}]
    if not found:
        which = "no server of the page runs" if port is None else f"no server of the page runs on port {port}"
        raise errors.NotAvailable(f"{which}: start one with 'substratctl web'")
    secret = token.make(anew=new_token)
    return "".join(link(one, secret) + "\n" for one in found)


def link(port: int, secret: str | None) -> str:
    """Return the page's address, with the token if it is to be told."""
    return f"http://{ADDRESS}:{port}/" + (f"#token={secret}" if secret else "")


def serve(options: Options) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        NotAvailable: the port is taken.
        StateUnusable: the token can't be written.
    """
    secret = token.make(anew=options.new_token)
    listening = _listen(options.port)
    port = listening.getsockname()[1]
    with listening, running.noted(port):
        address = f"http://{ADDRESS}:{port}"
        fanout = Fanout(paths.operator_socket())
        served = app.make(fanout, address, _access(address, options))
        config = uvicorn.Config(
            served, log_level="error", access_log=False,
            server_header=False, proxy_headers=False, lifespan="off", loop="asyncio", http="h11", ws="websockets-sansio",
            ws_max_size=_MAX_MESSAGE, ws_per_message_deflate=False, timeout_graceful_shutdown=_STOPPING_S,
        )  # fmt: skip
        config.load()
        logging.getLogger("uvicorn.error").addFilter(_is_ours)
        # A unit's journal is read by more people than the token is for.
        sys.stdout.write(link(port, secret if sys.stdout.isatty() else None) + "\n")
        sys.stdout.flush()
        # From here `web --url` finds it, and the kernel keeps its clients until it answers.
        Notifier(os.environ).send("READY=1")
        _Server(config, fanout).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn's server, which brings events while it serves, and doesn't wait for streams that have no end."""

    def __init__(self, config: uvicorn.Config, fanout: Fanout) -> None:
        super().__init__(config)
        self._fanout = fanout

    async def main_loop(self) -> None:
        """Do what uvicorn does until the server is told to stop, and end the streams."""
        async with self._fanout.running():
            await super().main_loop()


def _is_ours(record: logging.LogRecord) -> bool:
    """Say whether a log line tells a fault of the server's.

    uvicorn 0.54 logs an error for each refused WebSocket and for each stream that ends because its client is too slow: any
    page and any agent on this loopback could fill the journal with those.
    """
    return "returned without completing" not in str(record.msg)


def _access(address: str, options: Options) -> Access:
    origins = {address} | ({options.origin} if options.origin else set())
    return Access(frozenset(one.partition("://")[2] for one in origins), frozenset(origins), options.read_only)


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit both.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        listening.bind((ADDRESS, port))
        listening.listen(_BACKLOG)
    except OSError as problem:
        listening.close()
        raise errors.NotAvailable(
            f"can't listen on {ADDRESS}:{port}: {problem.strerror}; name another port with --port"
        ) from None
    return listening
