"""Reads from cursor-agent's login file whose account it is. Pure.

An example: `{"accessToken": "HEAD.eyJzdWIiOiJhdXRoMHxhbm5hIn0.SIGNATURE", "refreshToken": "…"}` is of `auth0|anna`, the
`sub` of a JSON Web Token (RFC 7519, 4.1.2). The program writes the file anew with each token; the account stays.
"""

from __future__ import annotations

import base64
import json


def account(data: bytes) -> str | None:
    """Return the account that a login file states, None if it states none.

    Args:
        data: the file.
    """
    try:
        claims = json.loads(data)["accessToken"].split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, str) and found else None
