"""The way to the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.client import Client

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

CLIENT = "web"
_PATIENCE_S = 5.0
"""How long the daemon may take to answer `hello`."""


def connected(socket: str) -> AbstractAsyncContextManager[Client]:
    """Open a conversation with the daemon."""
    return Client.connect(socket, patience=_PATIENCE_S, client=CLIENT)
