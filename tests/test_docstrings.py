"""The arguments that docstrings describe are the parameters, all of them, in their order."""

import ast
import re

from tests.test_imports import modules

ENTRIES = re.compile(r"^Args:\n((?:    .*\n|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^    (\w[\w, ]*):", re.MULTILINE)


def described(docstring):
    """List the names in the section `Args`; None: there is no such section."""
    section = ENTRIES.search(f"{docstring}\n")
    return section and [name for names in ENTRY.findall(section[1]) for name in names.split(", ")]


def parameters(node):
    """List the parameters of a function, or of a class's constructor, or the fields of a record."""
    if isinstance(node, ast.ClassDef):
        made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        if not made:
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            return [one.target.id.lstrip("_") for one in fields if "init=False" not in ast.unparse(one)]
        node = made[0]
    given = node.args
    listed = (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg)
    return [one.arg for one in listed if one is not None and one.arg not in {"self", "cls"}]


def test_docstrings_describe_the_parameters_in_their_order():
    wrong = []
    for name, path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names = described(ast.get_docstring(node) or "")
                if names is not None and names != parameters(node):
                    wrong.append(f"{name}.{node.name}: {names}, not {parameters(node)}")
    assert not wrong, "\n".join(wrong)
