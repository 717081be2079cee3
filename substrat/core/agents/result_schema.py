"""Checks an agent's result against the JSON schema that its parent wants it in. Pure.

A small part of JSON Schema (draft 2020-12), which can't take long however it is written: no patterns, no references.
An example: `{"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONGEST = 16 * 1024
"""Bytes of a schema: it stands in the child's rules."""
_DEEPEST = 16
"""Schemas within each other."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,),
    "null": (type(None),),
}  # fmt: skip
_LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_WORDS = ("title", "description", "default", "examples", "$schema")
"""Keywords that say nothing about which results fit."""
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n```", re.DOTALL | re.IGNORECASE)
_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", *_LIMITS, *_WORDS}
)


def problem(schema: object, where: str = "the schema", depth: int = 0) -> str | None:
    """Say why a schema can't be used, None if it can.

    Args:
        schema: the schema, as JSON decodes it.
        where: how to call it.
        depth: in how many others it stands.
    """
    if not isinstance(schema, dict):
        return f"{where} is no object"
    if depth >= _DEEPEST:
        return f"{where} lies more than {_DEEPEST} deep"
    if unknown := sorted(map(str, schema.keys() - _KEYWORDS)):
        return f"{where} has {unknown[0]!r}, which isn't supported: use {', '.join(sorted(_KEYWORDS - set(_WORDS)))}"
    kinds = schema.get("type", [])
    if any(kind not in _TYPES for kind in (kinds if isinstance(kinds, list) else [kinds])):
        return f"{where} has the type {kinds!r}: use {', '.join(_TYPES)}"
    if not isinstance(schema.get("enum", []), list):
        return f"the enum of {where} is no array"
    if not _are_words(schema.get("required", [])):
        return f"the required of {where} is no array of names"
    if any(isinstance(schema.get(key, 0), bool) or not isinstance(schema.get(key, 0), int | float) for key in _LIMITS):
        return f"{where} has a limit that is no number"
    if not isinstance(properties := schema.get("properties", {}), dict):
        return f"the properties of {where} are no object"
    parts = [(f"the property {name!r} of {where}", part) for name, part in properties.items()]
    if "items" in schema:
        parts.append((f"the items of {where}", schema["items"]))
    if not isinstance(extra := schema.get("additionalProperties", True), bool):
        parts.append((f"the additionalProperties of {where}", extra))
    return next((found for name, part in parts if (found := problem(part, name, depth + 1))), None)


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def misfit(schema_text: str, result: str) -> str | None:
    """Say in a sentence why a result doesn't fit a schema, None if it does.

    Args:
        schema_text: the schema, as JSON, in which `problem` found none.
        result: the result, as JSON.
    """
    try:
        value = json.loads(unfenced(result), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return f"the result must be JSON, and isn't: {error}"
    return next(_misfits(json.loads(schema_text), value, "the result"), None)


def unfenced(text: str) -> str:
    """Return the JSON that a model has put into a Markdown fence of its own, with nothing beside; another text as it is."""
    found = _FENCE.fullmatch(text.strip())
    return found[1] if found is not None else text


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _misfits(schema: dict[str, Any], value: object, where: str) -> Iterator[str]:
    kinds = schema.get("type", list(_TYPES))
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not any(_is_of(kind, value) for kind in kinds):
        yield f"{where} must be of type {' or '.join(kinds)}, not {json.dumps(value)[:80]}"
        return
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"{where} must be one of {json.dumps(schema['enum'])[:200]}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{where} must be {json.dumps(schema['const'])[:200]}"
    if isinstance(value, dict):
        yield from _misfits_of_object(schema, value, where)
    elif isinstance(value, list):
        yield from _out_of_bounds(schema, len(value), "minItems", "maxItems", f"the number of items of {where}")
        for number, item in enumerate(value if "items" in schema else ()):
            yield from _misfits(schema["items"], item, f"item {number} of {where}")
    elif isinstance(value, str):
        yield from _out_of_bounds(schema, len(value), "minLength", "maxLength", f"the length of {where}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _out_of_bounds(schema, value, "minimum", "maximum", where)


def _misfits_of_object(schema: dict[str, Any], value: dict[str, Any], where: str) -> Iterator[str]:
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where} lacks {name!r}"
    for name, item in value.items():
        if name in properties:
            yield from _misfits(properties[name], item, f"{name!r} of {where}")
        elif extra is False:
            yield f"{where} has {name!r}, which the schema doesn't know"
        elif isinstance(extra, dict):
            yield from _misfits(extra, item, f"{name!r} of {where}")


def _out_of_bounds(schema: dict[str, Any], value: float, least: str, most: str, what: str) -> Iterator[str]:
    if value < schema.get(least, value):
        yield f"{what} is {value}, less than {schema[least]}"
    if value > schema.get(most, value):
        yield f"{what} is {value}, more than {schema[most]}"


def _is_of(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _same(one: object, other: object) -> bool:
    """Compare as JSON does: true isn't 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
