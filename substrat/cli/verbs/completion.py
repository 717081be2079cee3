"""`completion`: prints a script that makes a shell complete substratctl's command lines; it installs nothing."""

from __future__ import annotations

import importlib
import sys

from substrat.cli import output
from substrat.cli.options import Arguments, Command
from substrat.cli.table import PROGRAM, TAKES_AGENTS, VERBS

COMMAND = Command(
    "completion",
    VERBS["completion"],
    words="bash|zsh|fish",
    least=1,
    most=1,
    notes=(
        'bash: eval "$(substratctl completion bash)"\n'
        'zsh:  eval "$(substratctl completion zsh)"\n'
        "fish: substratctl completion fish | source"
    ),
)

# Only what a name can be: bash would run what stands in `$(...)` in the words it completes from. A daemon that doesn't
# answer must not keep a person waiting at Tab.
_NAMES = f"timeout 2 {PROGRAM} ls -q 2>/dev/null | grep -x '[A-Za-z0-9._-]*'"


def run(arguments: Arguments) -> int:
    """Print the script and return the exit status."""
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


def _options_of(verb: str) -> list[str]:
    command = importlib.import_module(f"substrat.cli.verbs.{verb}").COMMAND
    return [name for option in command.options for name in option.names if name.startswith("--")]


def _bash() -> str:
    cases = "\n".join(f"        {verb}) words='{' '.join(_options_of(verb))}' ;;" for verb in VERBS)
    return f"""\
_{PROGRAM}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W '{" ".join(VERBS)}' -- "$word")); return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case ${{COMP_WORDS[1]}} in
        {"|".join(TAKES_AGENTS)}) words="$words $({_NAMES})" ;;
    esac
    case ${{COMP_WORDS[COMP_CWORD-1]}} in
        -w|--prompt-file) COMPREPLY=($(compgen -f -- "$word")) ;;
        *) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    esac
}}
complete -F _{PROGRAM} {PROGRAM}
"""


def _zsh() -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash()


def _fish() -> str:
    first = f"not __fish_seen_subcommand_from {' '.join(VERBS)}"
    lines = [f"complete -c {PROGRAM} -f"]
    lines += [f"complete -c {PROGRAM} -n '{first}' -a {verb} -d {_quoted(about)}" for verb, about in VERBS.items()]
    lines += [
        f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {verb}' -l {name.removeprefix('--')}"
        for verb in VERBS
        for name in _options_of(verb)
    ]
    agents = f"__fish_seen_subcommand_from {' '.join(TAKES_AGENTS)}"
    lines.append(f"complete -c {PROGRAM} -n '{agents}' -a {_quoted(f'({_NAMES})')}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
