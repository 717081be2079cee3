"""A change decides, commits and acts in one go: nothing else runs on the loop between its first look and last effect."""

import ast
from pathlib import Path

import substrat.daemon

DAEMON = Path(substrat.daemon.__file__).parent
PAUSES = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)
"""Where a function lets others run, or may."""


def bodies_of_changes(tree):
    """The statements inside `with ….change(…)` and `with ….transaction()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(is_change(item.context_expr) for item in node.items):
            yield node


def is_change(expression):
    function = expression.func if isinstance(expression, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr in {"change", "transaction"}


def pauses(body):
    """The pauses inside, but not those of functions that are only defined there."""
    for node in ast.iter_child_nodes(body):
        if isinstance(node, PAUSES):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from pauses(node)


def test_no_change_lets_others_run():
    found, changes = [], 0
    for path in sorted(DAEMON.rglob("*.py")):
        for change in bodies_of_changes(ast.parse(path.read_text())):
            changes += 1
            found += [f"{path.relative_to(DAEMON)}:{pause.lineno}" for pause in pauses(change)]
    # Two context managers: their one `yield` gives the change, or the journal's transaction, to their caller.
    assert [place.partition(":")[0] for place in found] == ["agents/registry.py", "state/events.py"]
    assert changes > 50
