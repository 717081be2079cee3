"""The two digests that name files and records; `hashlib` is not used because it loads OpenSSL for a few bytes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def md5(data: bytes) -> bytes:
    """The MD5 digest, which names a workspace's folder of chats."""
    return bytes(_first("_md5", "hashlib").md5(data, usedforsecurity=False).digest())


def sha256(data: bytes) -> bytes:
    """The SHA-256 digest, which names a record of a chat and an approved MCP server."""
    return bytes(_first("_sha2", "_sha256", "hashlib").sha256(data).digest())


def _first(*names: str) -> ModuleType:
    """The first of these modules that this Python has; builds and versions differ in all but the last."""
    for name in names:
        try:
            return __import__(name)
        except ImportError:
            continue
    raise ImportError(f"none of {', '.join(names)} can be imported")
