"""Completion scripts, in the shells that are here."""

import importlib
import os
import shlex
import shutil
import subprocess

import pytest

from substrat.cli.table import TAKES_AGENTS, VERBS
from tests.support.cases import each

SHELLS = ("bash", "zsh", "fish")


def options_of(verb):
    command = importlib.import_module(f"substrat.cli.verbs.{verb}").COMMAND
    return sorted(name for option in command.options for name in option.names if name.startswith("--"))


@pytest.fixture
def script(ctl):
    def get(shell):
        done = ctl("completion", shell)
        assert (done.code, done.err) == (0, "")
        return done.out

    return get


@pytest.fixture
def complete(script, executable, tmp_path):
    """Complete a command line in bash; the last word is the one under the cursor."""
    text = script("bash")

    def run(*words, listed="anna\nbert", offered="", cwd=None):
        known = {"ls -q": listed, "completion --values inbox": offered}
        cases = " ".join(f"{shlex.quote(line)}) printf '%s\\n' {shlex.quote(said)} ;;" for line, said in known.items())
        program = executable("substratctl", f'case "$*" in {cases} esac')
        line = " ".join(map(shlex.quote, ("substratctl", *words)))
        drive = f"{text}\nCOMP_WORDS=({line}) COMP_CWORD={len(words)}\n_substratctl\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
        done = subprocess.run(
            ["bash", "--norc", "--noprofile", "-u", "-c", drive],
            env=environment,
            cwd=cwd or tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return sorted(line for line in done.stdout.splitlines() if line)

    return run


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_is_correct_for_its_shell(script, shell, tmp_path):
    program = shutil.which("bash" if shell == "zsh" and not shutil.which("zsh") else shell)
    if program is None:
        pytest.skip(f"{shell} isn't installed here")
    path = tmp_path / "script"
    path.write_text(script(shell))
    done = subprocess.run([program, "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_zsh_script_is_the_bash_one_behind_a_bridge(script):
    assert script("zsh") == "autoload -U +X bashcompinit && bashcompinit\n" + script("bash")


def test_the_fish_script_names_every_verb_and_option(script):
    lines = script("fish").splitlines()
    assert lines[0] == "complete -c substratctl -f"
    for verb, about in VERBS.items():
        assert any(f" -a {verb} -d " in line and about.replace("'", "\\'") in line for line in lines)
        for option in options_of(verb):
            assert f"complete -c substratctl -n '__fish_seen_subcommand_from {verb}' -l {option[2:]}" in lines
    assert all(line.startswith("complete -c substratctl ") for line in lines)


def test_json_is_one_document(ctl, script):
    assert ctl("completion", "bash", "--json").json == {"shell": "bash", "script": script("bash")}


def test_verbs(complete):
    assert complete("") == sorted(VERBS)
    assert complete("s") == sorted(verb for verb in VERBS if verb.startswith("s"))
    assert complete("susp") == ["suspend"]
    assert complete("nothing") == []


@each("verb", VERBS)
def test_options(complete, verb):
    assert complete(verb, "--") == options_of(verb)
    assert complete(verb, "--js") == ["--json"]


def test_agents(complete):
    assert complete("show", "a") == ["anna"]
    assert complete("suspend", "anna", "b") == ["bert"]
    assert {"anna", "bert"} <= set(complete("logs", ""))
    assert "anna" not in complete("ls", "")
    assert [verb for verb in TAKES_AGENTS if complete(verb, "an") != ["anna"]] == []


def test_values(complete, ctl, fake, agent):
    assert complete("spawn", "--network", "f") == ["filtered"]
    assert complete("wait", "anna", "--until", "sus") == ["suspended"]
    assert complete("ls", "--state", "fa") == ["failed"]
    assert complete("help", "sus") == ["suspend"]
    fake({
        "agent.list": [agent(), agent(model="gpt-5")], "session.list": [{"session": "abc"}],
        "inbox.list": lambda params: {"items": [{"id": 12}, {"id": 3}], **params, "more": False} if params else [],
    })  # fmt: skip
    assert ctl("completion", "--values", "models").out == "auto\ngpt-5\n"
    assert ctl("completion", "--values", "sessions").out == "abc\n"
    assert ctl("completion", "--values", "inbox").out == "12\n3\n"
    assert complete("answer", "1", offered="12\n3") == ["12"]
    assert complete("inbox", "--dismiss", "", offered="12\n3") == ["12", "3"]
    assert ctl("completion", "--values", "models", "bash").code == ctl("completion").code == 2


def test_files(complete, tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "inner").mkdir()
    assert complete("spawn", "x", "-w", "pl", cwd=tmp_path) == ["place"]
    assert complete("spawn", "x", "--prompt-file", "place/", cwd=tmp_path) == ["place/inner"]


def test_without_a_daemon_options_are_still_completed(complete):
    assert complete("show", "", listed="") == options_of("show")


def test_what_agents_write_is_neither_offered_nor_run(complete, tmp_path):
    said = "anna\na$(touch bad)\na`touch bad`\na b\n"
    assert complete("show", "a", listed=said) == ["anna"]
    assert not (tmp_path / "bad").exists()


def test_the_installed_program_completes_itself(program, script):
    done = program("completion", "bash")
    assert (done.code, done.out, done.err) == (0, script("bash"), "")
