"""The seam to agent programs: nothing outside it knows a program's module, flag, path, variable or format."""

import ast
import re
from pathlib import Path

from tests.support.cases import each

ROOT = Path(__file__).parents[3]
OUTSIDE = [
    path
    for package in ("sandbox", "substrat")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not re.match(r"substrat/(core/programs|cursor_api|standin|demo|inside/chatreader\.py)", str(path.relative_to(ROOT)))
]
OWN = re.compile(
    r"(^|/)\.cursor\b(?!\.)|\.config/cursor|auth\.json|CURSOR_\w|store\.db|(?<!own-)mcp\.json|stream-json|--(output-format|trust|force(?!-)|"
    r"resume|approve-mcps|stream-partial-output)\b|cursor\.(sh|com)\b|substrat\.mdc"
)
PROSE = {
    "sandbox/protect.py": "a table of files that programs on the host obey, whichever program the agent is",
    "substrat/daemon/sandboxes/binds.py": "a table of directories with logins, whichever program the agent is",
    "substrat/config_keys.py": "the description of a key",
    "substrat/inside/clone/set_up.py": "the place of worktrees.json, which other programs read too",
}


def strings(path):
    """List a file's texts without its docstrings and the descriptions below constants."""
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]


@each("path", OUTSIDE)
def test_only_the_seam_knows_a_program(path):
    assert "substrat.core.programs.cursor" not in path.read_text()
    if str(path.relative_to(ROOT)) not in PROSE:
        assert [text for text in strings(path) if OWN.search(text)] == []
