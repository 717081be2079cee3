"""Every document and picture against the tree: paths, links and commands that they name exist."""

import importlib
import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from substrat.cli.table import VERBS

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text() for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
}
PICTURES = sorted((ROOT / "docs" / "screenshots").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
PROGRAMS = "core|daemon|cli|client|protocol|inside|web|standin|demo"
TOPS = f"substrat|sandbox|mcp_server|tests|benchmarks|docs|man|systemd|{PROGRAMS}"
LAYERS = "servers|turns|clones|chats|sandboxes|workspaces|families|agents|network|state|kernel"


def code_lines(text):
    """The lines of code blocks without a prompt, and the words in backquotes outside of them."""
    parts = re.split(r"^```.*$", text, flags=re.MULTILINE)
    for block in parts[1::2]:
        yield from (line.removeprefix("$ ").strip() for line in block.splitlines())
    for prose in parts[0::2]:
        yield from re.findall(r"`([^`]+)`", prose)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_exist(name):
    named = re.findall(rf"(?<![\w/.~>-])((?:{TOPS}|{LAYERS})/[\w./-]*\w(?:/|\.(?:py|md|1|8|svg)\b))", DOCUMENTS[name])
    for path in named:
        places = (ROOT, ROOT / "substrat", ROOT / "substrat" / "daemon", (ROOT / name).parent)
        assert any((place / path).exists() for place in places), path


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", DOCUMENTS[name]):
        assert target.startswith("https://") or (ROOT / name).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_and_their_options_exist(name):
    for line in code_lines(DOCUMENTS[name]):
        for said in re.findall(r"(?:^|[;|&] )substratctl ([a-z]+\b[^|;]*)", line):
            verb, *words = shlex.split(said.partition(" #")[0].replace("…", ""), comments=True)
            assert verb in VERBS, said
            if verb in {"help", "completion"}:
                continue
            command = importlib.import_module(f"substrat.cli.verbs.{verb}").COMMAND
            known = {option for given in command.options for option in given.names}
            own = words[: words.index("--")] if "--" in words else words
            options = {word for word in own if word.startswith("-") and not word[1:].isdigit()}
            assert options <= known | {"--json", "--help"}, said


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_well_formed_and_shows_a_command_that_exists(path):
    root = ET.fromstring(path.read_text())
    assert root.tag == f"{SVG}svg"
    first = next(root.iter(f"{SVG}text")).text
    assert shlex.split(first)[:2] == ["$", "substratctl"]
    assert shlex.split(first)[2] == path.stem
    assert path.stem in VERBS
    assert root.find(f"{SVG}title").text == first.removeprefix("$ ")
    width = float(root.attrib["width"])
    for text in root.iter(f"{SVG}text"):
        assert float(text.attrib["x"]) + float(text.attrib["textLength"]) <= width, text.text


def test_every_picture_is_in_the_readme():
    shown = re.findall(r"!\[[^]]+\]\((docs/screenshots/[^)]+)\)", DOCUMENTS["README.md"])
    assert {ROOT / path for path in shown} == set(PICTURES) != set()
