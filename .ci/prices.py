"""Writes the table of list prices, `substrat/core/prices.toml`, from the package genai-prices, which `make prices` brings.

A price in it may grow with the length of a prompt: the table has the first one. Of several prices in time it has today's.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from genai_prices import data

from substrat.core.agents import prices

if TYPE_CHECKING:
    from collections.abc import Iterator

PROVIDERS = ("anthropic", "google", "openai", "x-ai")
"""The vendors of the models that our agent programs run."""
KINDS = {
    "input": "input_mtok", "cache_read": "cache_read_mtok", "cache_write": "cache_write_mtok", "output": "output_mtok",
}  # fmt: skip
HEAD = """\
# List prices in dollars for a million tokens, written by `make prices` on {day} from genai-prices {version} (MIT license).
# Of models whose price grows with the prompt it is the first one. `core/agents/prices.py` reads it.
"""


def main(path: str) -> int:
    """Write the file."""
    lines, seen = [HEAD.format(day=datetime.now(UTC).date(), version=version("genai-prices"))], set[str]()
    for provider in sorted(data.providers, key=lambda one: one.id):
        if provider.id not in PROVIDERS:
            continue
        lines.append(f"[{provider.id}]")
        for model in sorted(provider.models, key=lambda one: one.id):
            price = model.get_prices(datetime.now(UTC))
            found = {kind: _first(getattr(price, name)) for kind, name in KINDS.items()}
            if found["input"] is not None and found["output"] is not None:
                told = ", ".join(f"{kind} = {number:g}" for kind, number in found.items() if number is not None)
                for name in (model.id, *_aliases(model.match)):
                    if (plain := prices.plain(name)) not in seen:  # of a model that several vendors sell, the maker's
                        seen.add(plain)
                        lines.append(f'"{name}" = {{ {told} }}')
        lines.append("")
    Path(path).write_text("\n".join(lines), encoding="utf-8")
    return 0


def _aliases(match: object) -> Iterator[str]:
    """Return the other names of a model, and the beginnings of such as end with a date."""
    for clause in getattr(match, "or_", [match]):
        for kind in ("equals", "starts_with"):
            if name := getattr(clause, kind, None):
                yield name.rstrip("@")


def _first(price: object) -> float | None:
    """Return a price, of several for longer prompts the first."""
    base = getattr(price, "base", price)
    return float(base) if base is not None else None  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
