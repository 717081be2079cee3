"""Counts the lines of code by room, and what is long; `tests/test_size.py` holds the ceilings.

Usage: `python .ci/size.py` prints a line for each room, such as `sandbox  1626 in 12 files`. Docstrings, comments
and blanks are no code.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PLACES = ("sandbox", "mcp_server", "substrat", "benchmarks", "tests")
OF_ROOMS = frozenset({"core", "daemon", "web"})
"""The directories of `substrat/` whose directories are rooms of their own."""
GENERATED = {"substrat/protocol/parameters.py"}
SKIPPED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER})


def sources() -> Iterator[Path]:
    """Give the files with code, as paths from the top."""
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            name = path.relative_to(ROOT)
            if path.suffix in {".py", ".js", ".css", ".html"} and "vendor" not in name.parts and str(name) not in GENERATED:
                yield name


def room(path: Path) -> str:
    """Return the room of a file: `substrat/daemon/turns/exec.py` lies in `substrat/daemon/turns`."""
    parts = path.parts[:-1]
    depth = 1 if parts[0] != "substrat" else 3 if parts[1:2] and parts[1] in OF_ROOMS else 2
    return "/".join(parts[:depth])


def code_lines(path: Path) -> int:
    """Count the lines of a file that have code."""
    text = (ROOT / path).read_text()
    if path.suffix != ".py":
        return sum(bool(line.strip()) for line in text.splitlines())
    tree = ast.parse(text)
    documented = {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    with tokenize.open(ROOT / path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in SKIPPED:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def rooms() -> dict[str, tuple[int, int]]:
    """Return each room's lines of code and files."""
    found: dict[str, tuple[int, int]] = {}
    for path in sources():
        lines, files = found.get(room(path), (0, 0))
        found[room(path)] = lines + code_lines(path), files + 1
    return found


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Give each function of a file with its number of lines."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def long_calls(path: Path) -> int:
    """Count a file's calls with more than five positional arguments."""
    tree = ast.parse((ROOT / path).read_text())
    return sum(isinstance(node, ast.Call) and len(node.args) > 5 for node in ast.walk(tree))


if __name__ == "__main__":
    for name, (lines, files) in sorted(rooms().items()):
        sys.stdout.write(f"{name:26} {lines:6} in {files:3} files\n")
