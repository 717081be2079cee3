"""Transcripts on a screen and as Markdown: nothing an agent wrote drives a terminal or ends a code block."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.cli import transcripts
from substrat.core.programs.transcript import Tool, TranscriptStep


def tool(text="shell: ls", status="done", verdict="exit 0", output="", seconds=None):
    return TranscriptStep(
        "t", "2026", "tool", text, None, Tool("c", "shell", None, None, status, verdict, output, 0, seconds)
    )


def test_a_long_output_is_shortened_unless_all_is_wanted():
    step = tool(output="\n".join(str(number) for number in range(100)))
    short, whole = (transcripts.as_text(step, colour=False, whole=whole) for whole in (False, True))
    assert "    10\n" in short
    assert "    50\n" not in short
    assert "… 89 more lines, --whole shows them" in short
    assert "    99\n" in whole


def test_a_tool_is_one_line_with_its_verdict_and_time():
    assert transcripts.as_text(tool(seconds=1.25), colour=False, whole=False) == "  shell: ls → exit 0 (1.2 s)\n\n"
    assert transcripts.as_markdown(tool(seconds=1.25)) == "**Tool** `shell: ls` → `exit 0` (1.2 s)\n\n"


@pytest.mark.parametrize(("status", "colour"), [("done", "32"), ("failed", "31"), ("rejected", "31"), ("open", "33")])
def test_verdicts_have_colours(status, colour):
    assert f"\x1b[{colour}mexit 0\x1b[0m" in transcripts.as_text(tool(status=status), colour=True, whole=False)


def test_a_turns_head():
    turn = {"number": 3, "outcome": None, "started_at": "2026-01-01T00:00:00.000Z", "ended_at": None}
    assert transcripts.heading(turn) == "Turn 3 · running · 2026-01-01 00:00:00"
    ended = {**turn, "outcome": "error", "ended_at": "2026-01-01T00:01:00.500Z"}
    assert transcripts.heading(ended) == "Turn 3 · error · 60.5 s · 2026-01-01 00:00:00"
    assert transcripts.heading(None) == "Between turns"
    assert transcripts.usage_line({"usage": {"inputTokens": 5, "x": 1}}) == "inputTokens 5, x 1"
    assert transcripts.usage_line({"usage": None}) == transcripts.usage_line(None) == ""


@given(st.sampled_from(["prompt", "text", "thinking", "note", "tool"]), st.text(max_size=40))
def test_no_text_drives_a_terminal(kind, text):
    step = tool(text, output=text, verdict=text) if kind == "tool" else TranscriptStep("t", "x", kind, text, f"raw{text}")
    shown = transcripts.as_text(step, colour=False, whole=True)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)


@given(st.text(alphabet="`a\n ", max_size=30))
def test_nothing_ends_a_code_block_or_span(text):
    block = transcripts.fenced(text).split("\n")
    fence = block[0]
    assert block[-1] == fence
    assert not any(line.strip().startswith(fence) for line in block[1:-1])
    span = transcripts.code(text)
    mark = re.match("`+", span)[0]
    runs = re.findall("`+", span)
    assert runs.count(mark) == 2
    assert span.startswith(mark)
    assert span.endswith(mark)


def test_a_session_as_a_document():
    head = {"session": "s", "title": "A\nchat", "model": None, "created_at": "2026"}
    messages = [
        {"role": "user", "text": "hi\n", "calls": []},
        {"role": "assistant", "text": "", "calls": ['Shell {"command": "ls"}']},
        {"role": "tool", "text": "```\nout", "calls": []},
    ]
    assert "".join(transcripts.session_as_markdown(head, iter(messages))) == (
        "# A chat\n\nSession `s`, begun `2026`.\n\n## User\n\nhi\n\n"
        '## Assistant\n\n```\nShell {"command": "ls"}\n```\n\n## Tool\n\n````\n```\nout\n````\n\n'
    )


@pytest.mark.parametrize("end", ["\r", "\u2028", "\u2029", "\x85", "\x0b", "\n"])
def test_a_prompt_is_quoted_whatever_ends_its_lines(end):
    written = transcripts.as_markdown(TranscriptStep("t", "x", "prompt", f"one{end}# two"))
    assert written == "> one\n> # two\n\n"
