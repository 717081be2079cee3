"""`completion`: prints a script that makes a shell complete substratctl's command lines; it installs nothing."""

from __future__ import annotations

import importlib
import os
import sys

from substrat.cli import output
from substrat.cli.connection import Connection, as_list
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import COMMAND_NAME, TAKES_AGENTS, VERBS
from substrat.protocol import vocabulary

COMMAND = Command(
    "completion",
    "[bash|zsh|fish]",
    options=(
        Option("--values", value="KIND", about="print the offered values instead", choices=("models", "sessions", "inbox")),
    ),
    notes=(
        'bash: eval "$(substratctl completion bash)"\n'
        'zsh:  eval "$(substratctl completion zsh)"\n'
        "fish: substratctl completion fish | source\n"
        "Offered are commands, options, agents' names, states, networks, the models that agents have, what the "
        "inbox holds, the sessions of this directory, and files."
    ),
)

# Only letters that names have: bash would run a `$(...)` in the words it completes from. A daemon that doesn't answer must
# not keep a person waiting at Tab.
_SAFE = "grep -x '[A-Za-z0-9._-]*'"
_NAMES = f"timeout 2 {COMMAND_NAME} ls -q 2>/dev/null | {_SAFE}"
_FILES = ("DIR", "F", "PATH")
"""The names of options' values that are files."""
_ASKED = {"M": "models", "SESSION": "sessions", "ID": "inbox"}
"""The names of options' values that only the daemon knows, and the kinds that `--values` prints."""
_STATES = ("STATE", "STATE,...")


def run(arguments: Arguments) -> int:
    """Print the script, or values for one, and return the exit status."""
    kind = arguments.value("values")
    if bool(arguments.words) == (kind is not None):
        raise COMMAND.wrong("it takes bash, zsh or fish, or --values")
    if kind is not None:
        return _print_values(kind, json=arguments.json)
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    shell = arguments.words[0]
    if shell not in makers:
        raise COMMAND.wrong(f"there is a script for {', '.join(makers)}, not for {shell!r}")
    script = makers[shell]()
    if arguments.json:
        output.put_json({"shell": shell, "script": script})
    else:
        sys.stdout.write(script)
    return 0


def _print_values(kind: str, *, json: bool) -> int:
    with Connection() as connection:
        if kind == "models":
            found = {str(agent.get("model")) for agent in connection.call_list("agent.list", fields=["model"])}
        elif kind == "inbox":
            items = as_list("inbox.list", connection.call_object("inbox.list", after=0).get("items"))
            found = {str(item.get("id")) for item in items}
        else:
            chats = connection.call_list("session.list", workspace=os.getcwd())
            found = {str(chat.get("session")) for chat in chats}
    if json:
        output.put_json(sorted(found))
    else:
        sys.stdout.write("".join(f"{output.one_line(value)}\n" for value in sorted(found)))
    return 0


def _commands() -> list[Command]:
    return [importlib.import_module(f"substrat.cli.verbs.{verb}").COMMAND for verb in VERBS]


def _options_of(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names if name.startswith("--")]


def _words_for(option: Option) -> str | None:
    """Return the words that an option's value can be, as the shell finds them; None when nothing is known of it."""
    if option.choices:
        return " ".join(option.choices)
    if option.value in _STATES:
        return " ".join(vocabulary.AGENT_STATES)
    if option.value in _ASKED:
        return _asked(_ASKED[option.value])
    return None


def _asked(kind: str) -> str:
    """Return the shell's expression for the values of a kind that only the daemon knows."""
    return f"$(timeout 2 {COMMAND_NAME} completion --values {kind} 2>/dev/null | {_SAFE})"


def _bash() -> str:
    commands = _commands()
    cases = "\n".join(f"        {command.name}) words='{' '.join(_options_of(command))}' ;;" for command in commands)
    options = [option for command in commands for option in command.options if option.value is not None]
    files = "|".join(dict.fromkeys(name for option in options if option.value in _FILES for name in option.names))
    values = {name: words for option in options if (words := _words_for(option)) for name in option.names}
    offers = "\n".join(
        f'        {name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;' for name, words in values.items()
    )
    return f"""\
_{COMMAND_NAME}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W '{" ".join(VERBS)}' -- "$word")); return
    fi
    case ${{COMP_WORDS[COMP_CWORD-1]}} in
        {files}) COMPREPLY=($(compgen -f -- "$word")); return ;;
    esac
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case ${{COMP_WORDS[COMP_CWORD-1]}} in
{offers}
        *)
            case ${{COMP_WORDS[1]}} in
                {"|".join(TAKES_AGENTS)}) words="$words $({_NAMES})" ;;
                help) words="$words {" ".join(VERBS)}" ;;
                answer) words="$words {_asked("inbox")}" ;;
            esac
            COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    esac
}}
complete -F _{COMMAND_NAME} {COMMAND_NAME}
"""


def _zsh() -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash()


def _fish() -> str:
    first = f"not __fish_seen_subcommand_from {' '.join(VERBS)}"
    lines = [f"complete -c {COMMAND_NAME} -f"]
    lines += [f"complete -c {COMMAND_NAME} -n '{first}' -a {verb} -d {_quoted(about)}" for verb, about in VERBS.items()]
    for command in _commands():
        head = f"complete -c {COMMAND_NAME} -n '__fish_seen_subcommand_from {command.name}'"
        lines += [f"{head} -l {name.removeprefix('--')}" for name in _options_of(command)]
        for option in command.options:
            if option.value in _FILES:
                lines.append(f"{head} -l {option.key} -rF")
            elif words := _words_for(option):
                offered = words[1:] if words.startswith("$(") else words
                lines.append(f"{head} -l {option.key} -xa {_quoted(offered)}")
    agents = f"__fish_seen_subcommand_from {' '.join(TAKES_AGENTS)}"
    lines.append(f"complete -c {COMMAND_NAME} -n '{agents}' -a {_quoted(f'({_NAMES})')}")
    lines.append(f"complete -c {COMMAND_NAME} -n '__fish_seen_subcommand_from answer' -a {_quoted(_asked('inbox')[1:])}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
