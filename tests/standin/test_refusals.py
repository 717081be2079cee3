"""The command line, the failures of a script and the signals."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from substrat.standin import models, recorded

ROOT = Path(__file__).parents[2]
BARE = ("-p", "--output-format", "stream-json")


def refused(outcome):
    assert (outcome.code, outcome.stdout) == (1, b"")
    return outcome.stderr


def test_an_untrusted_workspace(standin):
    stderr = refused(standin.run("x", usual=BARE))
    assert stderr.startswith("\n⚠ Workspace Trust Required\n\n")
    assert f"\n    {standin.workspace}\n" in stderr
    for flag in ("--trust", "-f", "--yolo", "--force"):
        assert standin.run("x", flag, usual=BARE).code == 0
    refused(standin.run("x", usual=BARE))


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--fork"], "error: unknown option '--fork'\n"),
        (["--input-format", "x"], "error: unknown option '--input-format'\n"),
        (["-pX"], "error: unknown option '-pX'\n"),
        (["--model"], "error: option '--model <model>' argument missing\n"),
        (
            ["--output-format", "xml"],
            (
                "error: option '--output-format <format>' argument 'xml' is invalid. "
                "Allowed choices are text, json, stream-json.\n"
            ),
        ),
    ],
)
def test_a_wrong_command_line(standin, flags, text):
    assert refused(standin.run("x", *flags)) == text


def test_every_flag_is_accepted(standin):
    flags = (
        "--print --auto-review --sandbox disabled --add-dir /a --add-dir /b --plugin-dir /c --single-turn "
        "--show-thinking --disable-auto-update --api-key k --auth-token t -H a:b -e https://x -k --insecure -n name "
        "--allowed-tools x --exclude-tools y --printenv --harness h --worktree-base b --skip-worktree-setup "
        "--conversation-history-file f --stream-partial-output --mode=ask"
    )
    assert standin.run("x", *flags.split()).text == "x"


@pytest.mark.parametrize("flags", [["--system-prompt", "x"], ["--exclude-workspace-context"]])
def test_flags_that_only_the_server_refuses(standin, flags):
    outcome = standin.run("hello", *flags)
    kinds = [(line["type"], line.get("subtype")) for line in outcome.lines]
    assert kinds == [("system", "init"), ("user", None), *[("retry", "starting")] * 3]
    assert (outcome.code, outcome.stderr) == (1, f"RetriableError: [invalid_argument] unknown option '{flags[0]}'\n")


def test_what_the_stand_in_has_no_part_of(standin):
    for flag in ("--cloud", "--continue", "--list-models", "--new-session-id=x", "--worktree"):
        name = flag.partition("=")[0]
        assert refused(standin.run("x", flag, "--print")) == f"Error: {name} is not part of the stand-in\n"
    for name in ("status", "about", "login"):
        text = f"Error: the subcommand {name} is not part of the stand-in\n"
        assert refused(standin.run("", name, "--format", "json")) == text, "it is no prompt"


def test_models_of_known_families_are_accepted(standin):
    refused_models = ("no-such-model", "", "gpt", "auto[effort=high]")
    plausible = ("auto", "composer-2.5", "gpt-5.9-codex-high", "sonnet-4.6", "claude-x", "gemini-4-pro")
    assert [model for model in (*refused_models, *plausible) if models.is_known(model)] == [*plausible]
    stderr = refused(standin.run("x", "--model", "no-such-model"))
    assert stderr.startswith("Cannot use this model: no-such-model. Available models: auto, ")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("prompt", ["", "  \n\n"])
def test_an_empty_prompt(standin, prompt):
    assert "No prompt" in refused(standin.run(prompt))


def test_positional_words_and_those_behind_the_dashes_are_the_prompt(standin):
    outcome = standin.run("", "two", "words", "--", "--and", "status")
    assert outcome.text == "two words --and status"


def test_a_single_argument_of_the_limit_and_a_long_command_line(standin):
    code = "from substrat.standin import main; raise SystemExit(main.main(['-p', 'x' * 131072]))"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, b"")
    silent = standin.run("", *(["x" * 100_000] * 5))
    assert (silent.code, silent.stdout, silent.stderr) == (0, b"", "")


def test_a_prompt_in_the_command_line_and_an_open_stdin_never_exit(standin):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        running = standin.start("", "hello", stdin=theirs.fileno())
        theirs.close()
        assert running.read_until("result")["result"] == "hello"
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(0.3)
    assert running.finish().code == 0, "the end of stdin ends it"


@pytest.mark.parametrize("name", recorded.table("before"))
def test_failures_before_the_session(standin, name):
    text, code = recorded.table("before")[name]
    outcome = standin.run(f"hello\n/fail {name}")
    assert (outcome.code, outcome.stdout) == (code, b"")
    assert outcome.stderr.startswith((text or "").partition("$")[0])
    assert bool(outcome.stderr) == bool(text)
    assert "$" not in outcome.stderr
    assert standin.chats == []
    assert (standin.project / ".workspace-trusted").exists(), "its folder is there all the same"


SIGNALS = {"memory": signal.SIGABRT, "kill": signal.SIGKILL, "segv": signal.SIGSEGV}
ANSWERED = {"transport", "rate-answer", "hang"}


@pytest.mark.parametrize("name", [name for name in recorded.table("within") if name not in ANSWERED])
def test_failures_within_the_session(standin, name):
    step, text, *code = (*recorded.table("within")[name][-1], None)[:3]
    outcome = standin.run(f"hello\n/fail {name}\nnever")
    expected = {"refuse": 1 if code[0] is None else code[0], "leave": text, "die": -SIGNALS.get(name, 0)}
    assert outcome.code == expected[step]
    assert (f"{text}\n" if step == "refuse" else "") in outcome.stderr
    assert bool(outcome.stderr) == (step == "refuse" or name == "memory")
    assert outcome.stdout.startswith(b'{"type":"system"')
    assert b'"type":"result"' not in outcome.stdout
    assert b'"assistant"' not in outcome.stdout or name == "cut"


def test_network_lines(standin):
    outcome = standin.run("/fail network")
    kinds = [f"{line['type']}/{line['subtype']}" for line in outcome.lines[2:]]
    assert kinds == ["connection/reconnecting", "retry/starting"] * 3
    assert "Retry attempt 3..." in outcome.stderr


def test_a_transport_error_can_look_like_an_answer(standin):
    outcome = standin.run("hello\n/shell true\n/fail transport")
    assert outcome.of("assistant")[-1]["message"]["content"][0]["text"] == "RetriableError: [aborted] read ECONNRESET"
    assert outcome.text == "helloRetriableError: [aborted] read ECONNRESET"
    assert (outcome.code, outcome.stderr) == (0, "")


def test_what_a_failed_turn_leaves_on_disk(standin):
    session = standin.run("kept").result["session_id"]
    assert standin.run("said\n/fail quota", "--resume", session).code == 1
    assert standin.run("/recall", "--resume", session).text == "I remember 1 earlier turn:\n1. kept"


def test_a_failure_can_pass(standin):
    codes = [standin.run("/fail busy 2\nhello").code for _ in range(3)]
    assert codes == [1, 1, 0]
    assert [standin.run("/fail quota 1\nhello").code for _ in range(2)] == [1, 0]


def test_hang_without_a_result(standin):
    running = standin.start("hello\n/fail hang")
    running.read_until("assistant")
    assert running.process.poll() is None
    assert running.signal(signal.SIGTERM).of("result") == []


@pytest.mark.parametrize(
    ("script", "number"), [("/sleep 1000", 2), ("/shell sleep 5", 15), ("/fail hang", 15), ("/tool slow", 2)]
)
def test_signals_end_it_at_once(standin, script, number):
    standin.use_mcp()
    running = standin.start(f"here\n/shell true\n{script}")
    running.read_until("tool_call", "completed")
    if script.startswith(("/shell", "/tool")):
        running.read_until("tool_call", "started")
    outcome = running.signal(number)
    assert (outcome.code, outcome.stderr) == {2: (130, "Aborting operation...\n"), 15: (143, "")}[number]
    assert outcome.of("result") == []


def test_a_signal_while_it_reads_the_prompt(standin):
    ours, theirs = socket.socketpair()
    with ours:
        running = standin.start("", stdin=theirs.fileno())
        theirs.close()
        ours.sendall(b"half a prompt")
        while not (standin.home / ".cursor" / "projects").exists():
            assert running.process.poll() is None
        assert running.signal(signal.SIGTERM).code == 143


def test_closed_descriptors_are_not_taken_by_others(standin):
    command = [sys.executable, "-m", "substrat.standin.main", *BARE, "--trust", "hello"]
    shell = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command]
    environ = standin.environ | {"PYTHONPATH": str(ROOT)}
    output = subprocess.run(shell, env=environ, cwd=standin.workspace, stdout=subprocess.PIPE, check=True).stdout
    assert output.splitlines()[-1].startswith(b'{"type":"result"')


def test_the_environment_can_ask_for_a_failure_before_and_within_the_session(standin):
    standin.environ["STANDIN_FAIL"] = "auth"
    assert "Authentication required" in refused(standin.run("hello"))
    assert standin.chats == []
    standin.environ["STANDIN_FAIL"] = "no-result"
    assert standin.run("hello").of("result") == []
    standin.environ["STANDIN_FAIL"] = "nonsense"
    assert "not performed" in standin.run("hello").text


def test_signals_can_be_ignored(standin):
    running = standin.start("/ignore-signals\n/shell true\n/shell while ! test -e go; do sleep 0.01; done\nend")
    running.read_until("tool_call", "completed")
    running.process.terminate()
    running.process.send_signal(signal.SIGINT)
    (standin.workspace / "go").touch()
    assert running.finish().text == "end"


def test_without_force_commands_and_tools_are_rejected(standin):
    standin.use_mcp()
    outcome = standin.run("/shell touch f\n/write g text\n/tool echo", "--trust", "--approve-mcps", usual=BARE)
    about = {"command": "touch f", "workingDirectory": str(standin.workspace)}
    assert outcome.calls("shell") == [{"rejected": {**about, "reason": "", "isReadonly": False}}]
    assert "success" in outcome.calls("edit")[0]
    assert list(outcome.calls("mcp")[0]) == ["rejected"]
    assert not (standin.workspace / "f").exists()
    (completed, *_) = outcome.of("tool_call", "completed")
    assert list(completed["tool_call"]["shellToolCall"]) == ["result"]


@pytest.mark.parametrize("flags", [["--mode", "ask"], ["--plan"]])
def test_modes_change_nothing(standin, flags):
    outcome = standin.run("/shell touch f\n/write f text", *flags)
    assert list(outcome.calls("shell")[0]) == ["rejected"]
    assert list(outcome.calls("edit")[0]) == ["rejected"]
    assert not (standin.workspace / "f").exists()


def test_the_version_and_the_help(standin):
    assert b"stand-in" in standin.run("", "--version", usual=()).stdout
    assert standin.run("", "-v", usual=()).stdout.startswith(b"2026.")
    help_text = standin.run("", "--help", usual=()).stdout.decode()
    assert "stand-in" in help_text
    assert "/recall" in help_text
    assert "--stream-partial-output" in help_text
    assert "--single-turn" not in help_text
    for name in (*recorded.table("before"), *recorded.table("within"), *recorded.table("shapes")):
        assert name in help_text


def test_help_and_tables_agree():
    from substrat.standin import actions

    for name, line in zip(actions.ACTIONS, actions.help_lines(), strict=True):
        assert line.split()[0].rstrip(":") == f"/{name}"


def test_the_start_stays_lean():
    code = "import sys; before = set(sys.modules); import substrat.standin.main; print(*set(sys.modules) - before)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(output.split())
    heavy = {"typing", "dataclasses", "argparse", "asyncio", "logging", "pathlib", "subprocess", "sqlite3", "hashlib"}
    heavy |= {"uuid", "threading", "urllib", "shutil", "tempfile", "socket", "inspect", "trio", "mcp", "msgspec"}
    assert not loaded & heavy
    own = {name for name in loaded if name.startswith("substrat")}
    assert all(name in ("substrat", "substrat.standin") or name.startswith("substrat.standin.") for name in own)


def test_a_whole_turn_stays_lean():
    code = (
        "import sys; before = set(sys.modules); from substrat.standin import main; sys.argv[1:] = sys.argv[1:]; "
        "main.main(['-p', '--trust', '--force', '/shell true']); print(*set(sys.modules) - before)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert not {"typing", "dataclasses", "subprocess", "hashlib", "uuid", "threading"} & set(run.stdout.split())
