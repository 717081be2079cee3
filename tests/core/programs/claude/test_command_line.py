"""claude's command line."""

import itertools

from substrat.core.programs.claude import command_line

SESSION = "11111111-2222-4333-8444-555555555555"


def command(model="opus", session=None, without=frozenset()):
    return command_line.command("/opt/claude", "/run/mcp.json", "/run/rules.md", "/run/hooks.json", model, session, without)


def test_every_turn_names_all_options_again():
    new, resumed = command(), command(session=SESSION)
    assert new[:2] == ("/opt/claude", "--print")
    pairs = dict(itertools.pairwise(new))
    assert pairs["--output-format"] == "stream-json"
    assert pairs["--permission-mode"] == "bypassPermissions"
    assert pairs["--mcp-config"] == "/run/mcp.json"
    assert pairs["--append-system-prompt-file"] == "/run/rules.md"
    assert pairs["--settings"] == "/run/hooks.json"
    assert pairs["--model"] == "opus"
    assert {"--verbose", "--strict-mcp-config"} <= set(new)
    assert "AskUserQuestion" in pairs["--disallowedTools"].split(",")
    assert resumed == (*new, "--resume", SESSION)


def test_the_account_chooses_the_model_where_none_is_named():
    assert "--model" not in command(model="auto")


def test_an_option_is_left_out_with_its_value():
    assert set(command()) - set(command(without=frozenset({"--disallowedTools"}))) == {
        "--disallowedTools", ",".join(command_line.OWN_TOOLS),
    }  # fmt: skip


def test_a_prompt_is_no_command_of_claudes():
    assert command_line.prompt("/clear") == " /clear"
    assert command_line.prompt("say /clear") == "say /clear"


def test_a_session_is_found_in_any_projects_folder():
    assert command_line.session_file(SESSION) == f"projects/*/{SESSION}.jsonl"
