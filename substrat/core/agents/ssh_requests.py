"""Decides which requests of an agent reach the person's ssh-agent: to list its keys and to sign with one. Pure.

All else would change the person's ssh-agent: lock it, remove its keys, add some, or have it load a library for smart cards.
The form and the numbers are those of draft-ietf-sshm-ssh-agent, sections 3 and 6; OpenSSH's PROTOCOL.agent describes
`session-bind`, by which a client says to which host a signature goes, so that keys that are limited to hosts work.
"""

from __future__ import annotations

_REQUEST_IDENTITIES, _SIGN_REQUEST, _EXTENSION = 11, 13, 27
_SESSION_BIND = b"session-bind@openssh.com"
_FAILURE = 5

LENGTH = 4
"""Bytes of the length, big-endian, that stands before each message."""
LONGEST = 256 * 1024
"""Bytes of a message: OpenSSH takes no longer ones (AGENT_MAX_LEN in authfd.c)."""


def framed(message: bytes) -> bytes:
    """Return a message with its length before it."""
    return len(message).to_bytes(LENGTH, "big") + message


REFUSAL = framed(bytes([_FAILURE]))
"""The answer to a request that isn't passed on."""


def passes(message: bytes) -> bool:
    """Say whether a request is passed on.

    Args:
        message: the request without its length: a byte that tells the kind, and the kind's own fields.
    """
    kind = message[0] if message else None
    if kind == _EXTENSION:
        return message[1:].startswith(framed(_SESSION_BIND))
    return kind in {_REQUEST_IDENTITIES, _SIGN_REQUEST}
