"""The forms of names and ids, for the daemon, the core and `substratctl` alike. Pure; standard library only."""

from __future__ import annotations

import re

_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_agent_name(text: str) -> bool:
    """Say whether an agent can have a name: `anna`, `web.2`, `a_b-c`; at most 64 characters, so that it fits on a line."""
    return _AGENT_NAME.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """Say whether a text is a UUID in lower case: `0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21`."""
    return _UUID.fullmatch(text) is not None
