"""A certificate of the tests' own, made by openssl."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import StrPath


def certificate(directory: Path) -> Path:
    """Make a key and a self-signed certificate in one file, and return its path."""
    path = directory / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
    made: list[StrPath] = [
        *command,
        "-subj",
        "/CN=a.test",
        "-keyout",
        directory / "key.pem",
        "-out",
        directory / "only.pem",
    ]
    subprocess.run(made, check=True, capture_output=True)
    path.write_text((directory / "key.pem").read_text() + (directory / "only.pem").read_text())
    return path
