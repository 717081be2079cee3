"""Runs each example of `docs/python.md`, and compares its output with the one beside it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"
TEXT = DOCUMENT.read_text()
ON_ASYNCIO = "anyio.run(main)"
EXAMPLES = re.findall(r"^### (.+?)$.*?^```python\n(.*?)^```\n\n```text\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("source", "expected"), [pytest.param(*found[1:], id=found[0]) for found in EXAMPLES])
def test_an_example_prints_its_output(source, expected, daemon, place):
    run(source, expected, place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "expected"), [pytest.param(*found[1:], id=found[0]) for found in EXAMPLES if ON_ASYNCIO in found[1]]
)
def test_an_example_prints_its_output_on_trio_too(source, expected, daemon, place):
    run(source.replace(ON_ASYNCIO, 'anyio.run(main, backend="trio")'), expected, place)


def run(source, expected, place):
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, cwd=place)
    assert (done.stdout, done.stderr) == (expected, "")


def test_each_example_has_an_output():
    assert len(EXAMPLES) == TEXT.count("```python\n") > 5
