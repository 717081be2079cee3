"""`demo`: plays the main job with the stand-in, in a private daemon that ends with it."""

from __future__ import annotations

import os

from substrat.cli import output
from substrat.cli.options import Arguments, Command

COMMAND = Command(
    "demo",
    notes="It needs git and user namespaces, no account and no running daemon, and leaves nothing behind.",
)


def run(arguments: Arguments) -> int:
    """Play the demo and return the exit status."""
    from substrat.demo import story

    def report(proved: list[str]) -> None:
        if arguments.json:
            output.put_json({"proved": proved})

    story.run(show=not arguments.json, environ=os.environ, report=report)
    return 0
