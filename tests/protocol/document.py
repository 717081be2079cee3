"""Reads the documents: their rules, tables, words in backquotes and the transcript."""

import functools
import re
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()

_HEADING = re.compile(r"^(#{1,4}) (.+)$", re.MULTILINE)


def rules():
    """The rules' ids, in the order they stand there."""
    return re.findall(r"^\*\*(P-[A-Z]+-\d+)\*\* ", PROTOCOL, re.MULTILINE)


def mentioned_rules():
    return set(re.findall(r"\bP-[A-Z]+-\d+\b", PROTOCOL))


@functools.cache
def sections(text=PROTOCOL):
    """The text under each heading, without the sections below it; backquotes are taken off the headings."""
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return {heading[2].replace("`", ""): text[heading.end() : end] for heading, end in zip(headings, ends, strict=True)}


@functools.cache
def tables(text):
    """Each table as a list of rows, the first of them its head; a row is a list of cells without backquotes."""
    found = []
    rows = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")])
        elif rows:
            found.append([row for row in rows if not set("".join(row)) <= set("-|")])
            rows = []
    return found


def table(section, first):
    """The rows of a section's table whose head begins with a word, without the head."""
    (found,) = [rows[1:] for rows in tables(sections()[section]) if rows[0][0] == first]
    return found


def column(section, first):
    """The first column of a section's tables whose heads begin with a word, joined."""
    return [row[0] for rows in tables(sections()[section]) if rows[0][0] == first for row in rows[1:]]


@functools.cache
def methods():
    """The methods' sections by name."""
    return {name: text for name, text in sections().items() if re.fullmatch(r"hello|[a-z]+\.[a-z_]+", name)}


def parameters(method):
    """A method's parameters as the document has them: name, kind, whether it is required."""
    for rows in tables(methods()[method]):
        if rows[0][0] == "parameter":
            return [(name, kind, required == "yes") for name, kind, required, _ in rows[1:]]
    return []


def result_members(method):
    """The members of a method's result, when the document has a table of them."""
    for rows in tables(methods()[method]):
        if rows[0][0] == "member":
            return {name: kind for name, kind, _ in rows[1:]}
    return None


def transcript():
    """The transcript's lines as pairs of side and text."""
    inside = PROTOCOL.partition("<!-- transcript:begin -->")[2].partition("<!-- transcript:end -->")[0]
    lines = inside.strip().removeprefix("```text").removesuffix("```").splitlines()
    return [(line[0], line[3:]) for line in lines if line]


_TYPES = {
    "boolean": "boolean",
    "string": "string",
    "integer": "integer",
    "number": "number",
    "array": "array of strings",
    "object": "table of strings",
}


def configuration_rows():
    """The table rows that `docs/configuration.md` must have, by section, made from the code."""
    from substrat.config import Config

    definitions = msgspec.json.schema(Config)["$defs"]
    found = {}
    for section, reference in definitions["Config"]["properties"].items():
        of_each = reference.get("additionalProperties", reference)
        prefix = section if of_each is reference else f"{section}.NAME"
        keys = definitions[of_each["$ref"].rpartition("/")[2]]["properties"]
        found[prefix] = [_configuration_row(f"{prefix}.{name}", key) for name, key in keys.items()]
    return found


def _configuration_row(name, key):
    kind = _TYPES[key.get("type", "string")]
    if "minimum" in key:
        kind += f", at least {key['minimum']}"
    if "exclusiveMinimum" in key:
        kind += f", more than {key['exclusiveMinimum']}"
    default = msgspec.json.encode(key["default"]).decode()
    return f"| `{name}` | {kind} | `{default}` | {key['description']} |"
