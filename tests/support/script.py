"""Heads of programs that tests write."""

from __future__ import annotations

import sys


def head(*options: str) -> str:
    """The first lines of a program for this interpreter, whose path may have spaces: a kernel would cut it there."""
    words = " ".join(options)
    return f"#!/bin/sh\n'''exec' \"{sys.executable}\" {words} \"$0\" \"$@\"\n' '''\n"
