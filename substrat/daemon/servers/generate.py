"""Writes the clients' tables of methods and parameters and the methods' part of `docs/protocol.md` from the Structs.

`python -m substrat.daemon.servers.generate`, or `make generate`, writes the three files in the source tree it lies in.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

from substrat.daemon.servers.methods.request import OperatorRequest, Parameter, parameters
from substrat.daemon.servers.methods.table import METHODS

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "substrat" / "protocol" / "methods.py"
PARAMETERS = ROOT / "substrat" / "protocol" / "parameters.py"
DOCUMENT = ROOT / "docs" / "protocol.md"

_TABLE_HEAD = '''"""The operator's methods as the clients need them; `make generate` writes it from the daemon's Structs.

Standard library only: `substratctl` imports this at every start.
"""

from __future__ import annotations

'''
_PARAMETERS_HEAD = '''"""The parameters of the operator's methods; `make generate` writes it from the daemon's Structs.

Each has its kind, whether it is required, and its description.
"""

from __future__ import annotations

PARAMETERS: dict[str, dict[str, tuple[str, bool, str]]] = {
'''
_SECTION = re.compile(r"^### `([a-z_.]+)`\n(.*?)(?=^### |^## )", re.MULTILINE | re.DOTALL)


def table() -> str:
    """Return the text of `substrat/protocol/methods.py`."""
    names = "".join(f'    "{kind.method}",\n' for kind in METHODS)
    waiting = "".join(f'    "{kind.method}",\n' for kind in METHODS if kind.waits)
    return (
        f"{_TABLE_HEAD}METHODS = (\n{names})\n"
        f"WAITING = frozenset({{\n{waiting}}})  # fmt: skip\n"
        '"""Methods whose answers may take long; the others of a connection are carried out one after the other."""\n'
    )


def parameter_table() -> str:
    """Return the text of `substrat/protocol/parameters.py`."""
    methods = "".join(f'    "{kind.method}": {{\n{"".join(map(_row, parameters(kind)))}    }},\n' for kind in METHODS)
    return f"{_PARAMETERS_HEAD}{methods}}}  # fmt: skip\n"


def document(text: str) -> str:
    """Return `docs/protocol.md` with each method's description and parameters as the Structs have them.

    A section's end, from the line that begins with `Result:`, stays as it is.

    Args:
        text: the document as it is.

    Raises:
        KeyError: a method has no section, or no result, in it.
    """
    ends = {name: f"Result:{body.partition('Result:')[2]}" for name, body in _SECTION.findall(text)}
    sections = "".join(f"### `{kind.method}`\n\n{_head(kind)}{ends[kind.method]}" for kind in METHODS)
    first = text.index(f"### `{METHODS[0].method}`")
    return text[:first] + sections + text[text.index("\n## ", first) + 1 :]


def _row(one: Parameter) -> str:
    name, kind, about = (json.dumps(word, ensure_ascii=False) for word in (one.name, one.kind, one.about))
    return f"        {name}: ({kind}, {one.required}, {about}),\n"


def _head(kind: type[OperatorRequest]) -> str:
    found = f"{inspect.cleandoc(kind.__doc__ or '')}\n\n"
    if not parameters(kind):
        return found
    rows = [
        f"| `{one.name}` | `{one.kind}` | {'yes' if one.required else 'no'} | {one.about} |\n" for one in parameters(kind)
    ]
    return f"{found}| parameter | kind | required | meaning |\n|---|---|---|---|\n{''.join(rows)}\n"


def main() -> None:
    """Write the files."""
    TABLE.write_text(table())
    PARAMETERS.write_text(parameter_table())
    DOCUMENT.write_text(document(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
