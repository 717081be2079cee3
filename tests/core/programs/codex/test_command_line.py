"""codex's command line and settings; codex 0.171.0 ran with both against a scripted model server."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.codex import command_line
from tests.support.cases import each

SESSION = "01a219c6-2586-7c62-8805-d8956c208681"
COMPANION = {"command": "/usr/bin/python3", "args": ["-I", "/s/relay.py"], "env": {"SUBSTRAT_SOCKET": "/run/s"}}


def test_a_new_turn_names_everything_that_has_a_surprising_default():
    assert command_line.command("/opt/codex", "/w", "gpt-6-sol", None) == (
        "/opt/codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox",
        "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "--profile", "substrat",
        "--cd", "/w", "--model", "gpt-6-sol", "-",
    )  # fmt: skip


def test_the_options_stand_before_resume_which_knows_no_workspace():
    command = command_line.command("codex", "/w", "gpt-6-sol", SESSION)
    new = command_line.command("codex", "/w", "gpt-6-sol", None)
    assert command == (*new[:-1], "resume", SESSION, "-")


def test_the_choice_of_a_model_may_be_left_to_codex():
    assert "--model" not in command_line.command("codex", "/w", "auto", None)


@each("option", sorted(command_line.DISPENSABLE))
def test_an_option_that_a_version_refuses_is_left_out(option):
    assert option not in command_line.command("codex", "/w", "auto", None, frozenset({option}))


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_the_settings_name_the_companion(path):
    companion = {**COMPANION, "args": ["-I", path], "env": {"SUBSTRAT_SOCKET": path}}
    assert tomllib.loads(command_line.settings(companion))["mcp_servers"] == {"substrat": companion}


def test_tools_beside_the_companions_are_off_and_so_are_endless_tries_to_connect():
    settings = tomllib.loads(command_line.settings(COMPANION))
    assert (settings["web_search"], settings["agents"]) == ("disabled", {"enabled": False})
    assert settings["features"] == {"goals": False, "plugins": False, "unbounded_connection_retries": False}
    assert settings["tools"]["experimental_request_user_input"] == {"enabled": False}


def test_a_session_is_a_file_of_a_day():
    assert command_line.session_file(SESSION) == f"sessions/*/*/*/rollout-*-{SESSION}.jsonl"
