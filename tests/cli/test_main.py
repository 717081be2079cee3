"""The program as a whole: finding the verb, exit statuses, interruptions, imports."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from substrat import __version__, errors

PROGRAMS = Path(sys.executable).parent
STATUSES = {
    errors.InvalidParams: 2, errors.NotFound: 4, errors.WaitTimedOut: 124, errors.DaemonNotRunning: 3,
    errors.ConnectionLost: 3, errors.ConfigInvalid: 2, errors.UsageError: 2,
    errors.CloneFailed: 5, errors.OutOfBudget: 5,
}  # fmt: skip


@pytest.mark.parametrize("kind", errors.every_error().values(), ids=lambda kind: kind.__name__)
def test_each_error_is_one_line_and_its_status(ctl, fake, kind):
    fake({"agent.show": kind("the reason\nand \x1b[31mmore")})
    done = ctl("show", "anna")
    assert (done.code, done.out, done.error) == (STATUSES.get(kind, 1), "", "the reason and \\x1b[31mmore")


def test_without_a_daemon(ctl):
    for line in (
        "ls", "ls --tree", "inbox", "events", "events -f", "show x", "spawn x -w .", "send x hi", "logs x", "wait x",
        "suspend --all", "resume --all", "interrupt x", "end x", "rm x", "shutdown",
    ):  # fmt: skip
        done = ctl(*line.split(), "--json")
        assert (done.code, done.out) == (3, ""), line
        where = f"can't reach {os.environ['SUBSTRAT_SOCKET']}: no daemon listens on it; start one with "
        assert done.error.startswith(where), line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "a command is missing; 'substratctl --help' lists them"),
        (("--json",), "a command is missing"),
        (("lst",), "there is no command 'lst'; did you mean 'ls'?"),
        (("susspend", "x"), "did you mean 'suspend'?"),
        (("qqqq",), "there is no command 'qqqq'; 'substratctl --help' lists the commands"),
        (("main",), "there is no command 'main'"),
        (("__init__",), "there is no command '__init__'"),
        (("../ls",), "there is no command '../ls'"),
        (("",), "there is no command ''"),
        (("-w", "ls"), "there is no option '-w' before the command"),
        (("--", "ls"), "there is no option '--' before the command"),
        (("queue", "x"), "queue: 'x' is one argument too many, it takes no arguments"),
        (("inbox", "x", "--dismiss", "1"), "--dismiss takes an item off your own inbox: leave NAME out"),
        (("inbox", "--drop", "1"), "--drop takes a message to an agent back: it needs the agent's NAME"),
        (("inbox", "x", "y", "--drop", "1"), "--drop takes one NAME"),
        (
            ("ls", "--tree", "--quiet"),
            "--tree draws whole families: leave the other options than --json out, and give NAMEs",
        ),
        (("set", "a", "name=b", "model=x"), "name= stands alone: set the other keys by a command of their own"),
        (("set", "a", "name="), "name= has no default: give the agent's new name"),
        (("waits",), "there is no command 'waits': 'ls --tree' says what each agent waits for"),
        (("show",), "show: it takes NAME..., and got none"),
        (("send", "a", "\udcff"), "the argument '\\udcff' isn't UTF-8"),
        (("spawn", "a"), "spawn: -w DIR is missing"),
        (("spawn", "-w", "/", "--wait"), "--wait needs a prompt"),
        (("spawn", "-w", "/", "--timeout", "3", "a", "b"), "--timeout needs --wait"),
        (("spawn", "-w", "/", "a", "  "), "the prompt is empty"),
        (("spawn", "-w", "/", "a b", "c"), "'a b' can't be a name"),
        (("send", "a"), "the PROMPT is missing; give it, or '-' to read it from standard input"),
        (("send", "a", "p", "--prompt-file", "f"), "a PROMPT and --prompt-file came together"),
        (("wait", "a", "--until", "asleep"), "'asleep' is no state"),
        (("wait", "a", "--until", ","), "--until names no state"),
        (("suspend",), "it takes NAME..., or --all"),
        (("suspend", "a", "--all"), "names and --all came together"),
        (("resume",), "it takes NAME..., or --all"),
        (("resume", "--all", "go", "on"), "quote a prompt of several words"),
        (("resume", "--all", "go", "--prompt", "x"), "a PROMPT and --prompt came together"),
        (("logs", "a", "--raw", "--json"), "--raw and --json came together"),
        (("logs", "a", "--since", "x"), "--since must be a whole number, not 'x'"),
        (("completion", "tcsh"), "there is a script for bash, zsh, fish, not for 'tcsh'"),
        (("exec",), "exec: it takes NAME [-- COMMAND...], and got none"),
        (("exec", "a", "ls", "-l"), "put '--' before words that begin with a dash"),
        (("exec", "a", "--json"), "there is no --json"),
        (("set", "a", "modle=x"), "'modle' is no key; the keys are program, model, network, "),
        (("set", "a", "model"), "'model' is no KEY=VALUE"),
        (("service", "start"), "it takes install or uninstall, not 'start'"),
    ],
)
def test_a_wrong_command_line_is_status_2_without_a_daemon(ctl, words, said):
    done = ctl(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.error


@pytest.mark.parametrize(
    "words", [("--version",), ("--json", "--version"), ("ls", "--version"), ("spawn", "a", "b", "c", "--version")]
)
def test_the_version_of_the_program(ctl, words):
    done = ctl(*words)
    assert (done.code, done.out, done.err) == (0, f"substratctl {__version__}\n", "")


def test_json_before_and_after_the_verb_and_not_after_two_dashes(ctl, fake, agent):
    daemon = fake({"agent.send": {"agent": agent(), "message": 7}})
    for words in (("--json", "send", "anna", "hi"), ("send", "--json", "anna", "hi"), ("send", "anna", "hi", "--json")):
        assert ctl(*words).json == agent()
    done = ctl("send", "anna", "--", "--json")
    assert done.out == "anna  prompt queued (idle)\n"
    assert [call["prompt"] for call in daemon.calls("agent.send")] == ["hi", "hi", "hi", "--json"]


def test_an_interruption_is_130(ctl, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("substrat.cli.verbs.ls.run", interrupted)
    done = ctl("ls")
    assert (done.code, done.out, done.err) == (130, "", "")


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("wait", "nothing was changed: the agents go on; 'substratctl ls' shows them"),
        ("interrupt", "nothing was taken back: turns that were told to stop are stopped, and 'substratctl ls' shows them"),
    ],
)
def test_ctrl_c_while_waiting_for_the_daemon(fake, verb, said):
    asked = threading.Event()

    def serve(peer):
        peer.greet()
        assert peer.read()["method"] == f"agent.{verb}"
        asked.set()
        assert peer.read() is None

    fake(serve)
    environment = {"SUBSTRAT_SOCKET": os.environ["SUBSTRAT_SOCKET"]}
    process = subprocess.Popen(
        [PROGRAMS / "substratctl", verb, "anna"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert asked.wait(20)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == (b"", f"substratctl: {said}\n".encode())
    assert process.returncode == 130


def test_a_reader_that_goes_away_is_141_and_silent(fake, agent):
    fake({"agent.list": [agent(name=f"a{number}") for number in range(5000)]})
    environment = {"SUBSTRAT_SOCKET": os.environ["SUBSTRAT_SOCKET"]}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [PROGRAMS / "substratctl", "ls"], env=environment, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_standard_output(fake, agent):
    fake({"agent.list": [agent()]})
    environment = {"SUBSTRAT_SOCKET": os.environ["SUBSTRAT_SOCKET"]}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [PROGRAMS / "substratctl", "ls"], env=environment, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"substratctl: can't use standard output: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_standard_stream_is_no_crash(fake, agent, closed):
    fake({"agent.list": [agent()]})
    environment = {"PATH": os.environ["PATH"], "SUBSTRAT_SOCKET": os.environ["SUBSTRAT_SOCKET"]}
    line = f'"$1" ls {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, "sh", PROGRAMS / "substratctl"], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_text_that_the_locale_cannot_write_comes_out_escaped(program, fake, agent):
    fake({"agent.show": agent(turn={"result": "é \ud800"})})
    done = program(
        "show",
        "anna",
        environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
    )
    assert (done.code, done.err) == (0, "")
    assert "\\xe9 \\ud800" in done.out


def test_a_prompt_file(ctl, fake, agent, tmp_path):
    daemon = fake({"agent.send": {"agent": agent(), "message": 1}})
    path = tmp_path / "prompt"
    path.write_text("zeile 1\r\nzwei é\n")
    assert ctl("send", "anna", "--prompt-file", path).code == 0
    assert daemon.calls("agent.send")[0]["prompt"] == path.read_bytes().decode()
    path.write_bytes(b"abc\xff")
    assert ctl("send", "anna", "--prompt-file", path).error == f"the prompt file {path} isn't UTF-8 at byte 3"
    path.write_text(" \n")
    done = ctl("send", "anna", "--prompt-file", path)
    assert (done.code, f"the prompt file {path} is empty" in done.error) == (2, True), done
    done = ctl("send", "anna", "--prompt-file", tmp_path / "none")
    assert (done.code, done.error) == (1, f"can't read the prompt file {tmp_path}/none: No such file or directory")
    assert ctl("send", "anna", "--prompt-file", tmp_path).error == f"can't read the prompt file {tmp_path}: Is a directory"


def test_a_request_over_the_limit_is_refused_before_it_is_sent(ctl, fake, tmp_path):
    daemon = fake({})
    path = tmp_path / "prompt"
    path.write_bytes(b"x" * (16 * 1024 * 1024))
    done = ctl("send", "anna", "--prompt-file", path)
    assert done.code == 1
    assert "put the text into a file in the workspace" in done.error
    assert daemon.calls("agent.send") == []


# Start-up

HEAVY = {
    "trio", "anyio", "asyncio", "mcp", "pydantic", "msgspec", "structlog", "platformdirs", "dataclasses", "typing",
    "pathlib", "subprocess", "logging", "ssl", "argparse", "inspect", "difflib", "textwrap", "shutil", "tempfile",
    "datetime", "socket", "selectors", "threading", "unicodedata", "substrat.client", "substrat.doctor",
    "substrat.daemon", "substrat.core", "sandbox", "mcp_server",
}  # fmt: skip
LIST_MODULES = "import sys; before = set(sys.modules); from substrat.cli.main import main; status = main(); "
LIST_MODULES += "sys.stdout.flush(); sys.stderr.write(' '.join(set(sys.modules) - before)); sys.exit(status)"


@pytest.mark.parametrize("words", [("ls",), ("show", "anna"), ("logs", "anna"), ("send", "anna", "x"), ("ls", "--tree")])
def test_imports_stay_lean(fake, agent, words):
    answers = {"agent.list": [agent()], "agent.show": agent(), "events.read": {"events": [], "cursor": 0}}
    fake({**answers, "agent.send": {"agent": agent(), "message": 1}})
    environment = {"SUBSTRAT_SOCKET": os.environ["SUBSTRAT_SOCKET"]}
    command = [sys.executable, "-c", LIST_MODULES, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = set(done.stderr.split())
    assert f"substrat.cli.verbs.{words[0]}" in imported
    assert imported & HEAVY == set()
    verbs = {name for name in imported if name.startswith("substrat.cli.verbs.")}
    assert verbs == {f"substrat.cli.verbs.{words[0]}"}
