"""Command lines: options, words, `--`, and the sentences for lines that don't fit."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat import errors
from substrat.cli import options
from substrat.cli.options import Command, Option, parse
from substrat.cli.table import TAKES_AGENTS, VERBS
from substrat.cli.verbs import resume, spawn
from tests.support.cases import each

COMMAND = Command(
    "try", "NAME [PROMPT]",
    options=(
        Option("--follow", "-f", about="a flag"),
        Option("--workspace", "-w", value="DIR", about="a value"),
        Option("--network", value="N", about="a choice", choices=("none", "host")),
        Option("--since", value="CURSOR", about="a number"),
        Option("--timeout", value="S", about="seconds"),
    ),
)  # fmt: skip


def wrong(*line, command=COMMAND):
    with pytest.raises(errors.UsageError) as caught:
        parse(command, line)
    message = caught.value.message
    assert message.startswith(f"{command.name}: ")
    assert message.endswith(f"(see 'substratctl {command.name} --help')")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "line",
    [
        ("anna", "hello", "-f", "-w", "/w"),
        ("-f", "-w", "/w", "anna", "hello"),
        ("-w", "/w", "anna", "-f", "hello"),
        ("-w/w", "anna", "--follow", "hello"),
        ("anna", "--workspace=/w", "--follow", "--", "hello"),
        ("--workspace", "/w", "-f", "--", "anna", "hello"),
    ],
)
def test_options_may_stand_anywhere(line):
    found = parse(COMMAND, line)
    assert (found.words, found.flag("follow"), found.value("workspace")) == (["anna", "hello"], True, "/w")


@pytest.mark.parametrize("prompt", ["--json", "-f", "--", "-", "--no-such", "-w", "--help", "--since=x"])
def test_what_stands_after_two_dashes_is_left_alone(prompt):
    found = parse(COMMAND, ["anna", "--", prompt])
    assert found.words == ["anna", prompt]
    assert not found.json
    assert not found.flag("follow")
    assert not found.flag("help")


@pytest.mark.parametrize("prompt", ["-", "- buy milk", "-- and so on", "--json is an option", "—f", "-\n", "-x y=z", ""])
def test_what_no_option_can_be_is_a_word(prompt):
    assert parse(COMMAND, ["anna", prompt]).words == ["anna", prompt]


@pytest.mark.parametrize(
    "line", [("--json", "anna"), ("anna", "--json"), ("anna", "--json", "hello"), ("anna", "--json", "--json")]
)
def test_json_may_stand_anywhere(line):
    assert parse(COMMAND, line).json


@pytest.mark.parametrize(
    ("line", "value"), [(("-w", "--json"), "--json"), (("--workspace=--json",), "--json"), (("-w--json",), "--json")]
)
def test_json_as_a_value_is_a_value(line, value):
    found = parse(COMMAND, ["anna", *line])
    assert found.value("workspace") == value
    assert not found.json


def test_a_value_may_begin_with_a_dash_and_hold_equals_signs():
    assert parse(COMMAND, ["anna", "--since", "-20"]).whole("since") == -20
    assert parse(COMMAND, ["anna", "--since=-20"]).whole("since") == -20
    assert parse(COMMAND, ["anna", "--workspace=/a=b"]).value("workspace") == "/a=b"
    assert parse(COMMAND, ["anna", "-w", "--"]).value("workspace") == "--"


def test_the_last_value_counts_and_all_are_kept():
    found = parse(COMMAND, ["anna", "-w", "/a", "--workspace", "/b"])
    assert found.value("workspace") == "/b"
    assert found.values("workspace") == ["/a", "/b"]
    assert found.values("network") == []
    assert found.value("network") is None
    assert found.whole("since") is None
    assert found.seconds("timeout") is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--folow", "--follow"),
        ("--workspcae", "--workspace"),
        ("--network=none", None),
        ("--jsno", "--json"),
        ("--hepl", "--help"),
    ],
)
def test_an_unknown_option_names_the_nearest(typed, meant):
    if meant is None:
        assert parse(COMMAND, ["anna", typed]).value("network") == "none"
    else:
        assert f"there is no option {typed!r}; did you mean {meant!r}?" in wrong("anna", typed)


def test_an_unknown_option_that_resembles_nothing_tells_about_two_dashes():
    assert "there is no option '-q'; put '--' before words that begin with a dash" in wrong("anna", "-q")
    assert "there is no option '--please'; put '--' before" in wrong("anna", "--please")
    assert "there is no option '-5'" in wrong("anna", "-5")


def test_an_old_name_of_an_option_is_answered_with_the_one_of_now():
    for old in ("--worktree", "--worktree=fix"):
        with pytest.raises(errors.UsageError, match="--worktree is called --clone now"):
            parse(spawn.COMMAND, ["fix", old])


def test_too_many_words():
    assert "'c' is one argument too many, it takes NAME [PROMPT]; quote a prompt of several words" in wrong(
        "a", "b", "c", "d"
    )
    assert "'x' is one argument too many, it takes no arguments (" in wrong("x", command=Command("ls"))
    assert "'y' is one argument too many, it takes NAME (" in wrong("x", "y", command=Command("rm", "NAME"))


@each(
    ("words", "least", "most"),
    [
        ("", 0, 0), ("NAME", 1, 1), ("ID|NAME [TEXT]", 1, 2), ("NAME...|--all [PROMPT]", 0, None), ("[bash|fish]", 0, 1),
        ("[prune [NAME]...]", 0, None), ("NAME [-- COMMAND...]", 1, None), ("NAME [LOCAL:]PORT...", 2, None),
        ("NAME... [HOST[:PORT]]...", 1, None),
    ],
)  # fmt: skip
def test_a_usage_says_how_many_words_there_may_be(words, least, most):
    command = Command("try", words)
    assert (command.least, command.most) == (least, most)


def test_too_few_words():
    assert "it takes NAME [PROMPT], and got none" in wrong()
    assert "it takes A B, and got a" in wrong("a", command=Command("two", "A B"))


@pytest.mark.parametrize("line", [("-w",), ("--workspace",), ("--workspace=",), ("-w", ""), ("anna", "hello", "-w")])
def test_a_missing_value(line):
    assert "--workspace needs a value, DIR" in wrong(*line)


@pytest.mark.parametrize("line", [("--follow=yes",), ("-fyes",), ("--json=1",), ("--help=x",), ("--follow=",)])
def test_a_flag_takes_no_value(line):
    assert "takes no value, but got" in wrong("anna", *line)


def test_a_choice():
    assert "--network must be one of none, host, not 'all'" in wrong("anna", "--network", "all")


@pytest.mark.parametrize(
    ("given", "number"), [("0", 0.0), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("999999999", 999999999.0)]
)
def test_seconds(given, number):
    assert parse(COMMAND, ["anna", "--timeout", given]).seconds("timeout") == number


@pytest.mark.parametrize("given", ["x", "-1", "nan", "inf", "-inf", "1e9", "1s", "", " ", "0x10", "1,5"])
def test_what_is_no_number_of_seconds(given):
    with pytest.raises(errors.UsageError, match=r"--timeout (must be a number of seconds|needs a value)"):
        parse(COMMAND, ["anna", "--timeout", given]).seconds("timeout")


@pytest.mark.parametrize("given", ["x", "1.5", "1e3", "", "nan", "--", "0x10", "9" * 5000])
def test_what_is_no_whole_number(given):
    with pytest.raises(errors.UsageError, match=r"--since (must be a whole number|needs a value)"):
        parse(COMMAND, ["anna", "--since", given]).whole("since")


@pytest.mark.parametrize("line", [("--help",), ("-h",), ("a", "b", "c", "--help"), ("--version",)])
def test_help_and_version_need_no_words(line):
    assert parse(COMMAND, line).words is not None


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--", "--json", "-w", "-f", "--since", "--timeout=1", "-h", "-"])))
def test_any_line_is_read_or_refused_in_one_sentence(line):
    try:
        found = parse(COMMAND, line)
    except errors.UsageError as problem:
        assert problem.message.startswith("try: ")  # noqa: PT017
    else:
        after = line[line.index("--") + 1 :] if "--" in line and "--" not in found.values("workspace") else []
        assert set(found.words) <= set(line)
        if after and line[line.index("--") - 1] not in {"-w", "--since"}:
            assert found.words[-len(after) :] == after


# The verbs


@each("verb", VERBS)
def test_each_verb_has_its_file_and_its_help_fits_a_terminal_without_a_daemon(ctl, verb):
    module = importlib.import_module(f"substrat.cli.verbs.{verb}")
    assert callable(module.run)
    command = module.COMMAND
    assert (command.name, command.about) == (verb, VERBS[verb])
    text = options.help_text(command)
    shown = ctl(verb, "-h")
    assert (shown.code, shown.err, shown.out) == (0, "", text)
    assert text.startswith(f"usage: substratctl {verb}")
    assert text.endswith("\n")
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    for option in command.options:
        for name in option.names:
            assert name in text
    spellings = [name for option in command.options for name in option.names]
    assert len(spellings) == len(set(spellings))
    assert {"--json", "--help", "-h", "--version"} <= set(spellings)


def test_the_table_names_every_file_and_no_other():
    from pathlib import Path

    import substrat.cli.verbs as package

    files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(VERBS)
    assert set(TAKES_AGENTS) <= set(VERBS)


def test_the_overview_names_every_verb_and_every_status(ctl):
    for words in (("--help",), ("-h",), ("--json", "--help")):
        done = ctl(*words)
        assert (done.code, done.err) == (0, "")
        assert all(f"  {verb} " in done.out for verb in VERBS)
        assert (
            "0 done, 1 failed, 2 usage, 3 no daemon, 4 no such thing,\n5 the turn failed, 6 it needs you, 124 timed out"
            in done.out
        )
        assert max(map(len, done.out.splitlines())) <= 80


# Which word is the name, which the prompt


@pytest.mark.parametrize(
    ("words", "name", "prompt"),
    [
        ([], None, None),
        (["anna"], "anna", None),
        (["Fix the tests"], None, "Fix the tests"),
        (["anna", "Fix"], "anna", "Fix"),
        (["a.b_c-1", "x"], "a.b_c-1", "x"),
        (["é"], None, "é"),
        (["a" * 64], "a" * 64, None),
        (["a" * 65], None, "a" * 65),
        (["-"], None, "-"),
    ],
)
def test_spawn_tells_a_name_from_a_prompt(words, name, prompt):
    assert spawn.name_and_prompt(parse(spawn.COMMAND, ["-w", "/w", "--", *words])) == (name, prompt)


@pytest.mark.parametrize("name", ["two words", ".hidden", "a/b", "é", "a" * 65, "-x", "", "a\n"])
def test_spawn_refuses_what_is_no_name(name):
    with pytest.raises(errors.UsageError, match="can't be a name"):
        spawn.name_and_prompt(parse(spawn.COMMAND, ["--", name, "prompt"]))


@pytest.mark.parametrize(
    ("words", "names", "prompt"),
    [
        (["a", "b"], ["a", "b"], None),
        (["a", "go on"], ["a"], "go on"),
        (["a", "b", "c"], ["a", "b"], "c"),
        (["x", "y", "b"], ["x", "y", "b"], None),
        (["a", "anna-*"], ["a", "anna-*"], None),
        (["a", "why?"], ["a"], "why?"),
    ],
)
def test_resume_tells_names_from_a_prompt(words, names, prompt):
    assert resume.split_words(words, [{"id": one, "name": f"anna-{one}"} for one in ("a", "b")]) == (names, prompt)
