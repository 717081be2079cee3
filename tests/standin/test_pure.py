"""The parts that need no process: the script, the command line, records, names."""

from hypothesis import given
from hypothesis import strategies as st

from substrat.standin import flags, models, root, script, shells, stream


@given(st.lists(st.binary(min_size=32, max_size=32)), st.integers(0, 2**40), st.text())
def test_a_root_record_is_read_back(blob_ids, tokens, uri):
    assert root.message_ids(root.encode(blob_ids, tokens, 200_000, uri)) == blob_ids


@given(st.text(), st.integers(1, 50))
def test_pieces_are_the_text(text, size):
    assert "".join(stream.pieces(text, size)) == text


@given(st.text())
def test_every_line_that_is_not_blank_is_one_step(prompt):
    steps = script.parse(prompt, ("say", "x"))
    assert [step.line for step in steps] == [
        line.removesuffix("\r") for line in prompt.split("\n") if line.removesuffix("\r").strip()
    ]


def test_a_command_line():
    arguments = flags.parse(["-pf", "--model=a", "-ehttp://x", "one", "--resume", "--add-dir", "a", "--", "--two"])
    assert arguments.has("print")
    assert arguments.has("force")
    assert arguments.text("model") == "a"
    assert arguments.text("endpoint") == "http://x"
    assert arguments.has("resume")
    assert arguments.text("resume", "none") == "none"
    assert arguments.words == ("one", "--two")
    assert arguments.command == ""


def test_an_optional_value_is_taken_if_it_is_no_option():
    assert flags.parse(["--resume", "id", "word"]).text("resume") == "id"
    assert flags.parse(["--resume=-2"]).text("resume") == "-2"
    assert flags.parse(["--resume", "--print"]).text("resume", "none") == "none"


def test_only_the_first_word_before_the_dashes_is_a_command():
    assert flags.parse(["-p", "ls"]).command == "ls"
    assert flags.parse(["-p", "hello", "ls"]).command == ""
    assert flags.parse(["-p", "--", "ls"]).command == ""


def test_display_names():
    assert [models.display_name(slug) for slug in ("auto", "composer-2.5-fast", "gpt-5.5")] == [
        "Auto",
        "Composer 2.5 Fast",
        "GPT 5.5",
    ]
    assert [models.has_two_part_call_ids(slug) for slug in ("auto", "o3-pro", "composer-2.5", "opus-4.8")] == [
        True,
        True,
        False,
        False,
    ]


def test_simple_commands():
    assert shells.simple_commands("a b && c | d; e || f & g") == [["a", "b"], ["c"], ["d"], ["e"], ["f"], ["g"]]
