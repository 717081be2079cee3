"""Words that people type because other programs have them, and the commands of ours that do the same."""

from __future__ import annotations

from substrat import errors
from substrat.cli.options import nearest
from substrat.cli.table import COMMAND_NAME, VERBS

_SPAWN = "'spawn NAME -w DIR PROMPT' creates an agent and starts its first turn"
_LOGS = "'logs -f NAME' follows what an agent does, 'exec NAME' opens a shell beside it"
_RM = "'end NAME' finishes an agent, 'rm NAME' forgets it"
HABITS = {
    "ps": "'ls' lists the agents",
    "list": "'ls' lists the agents",
    "cat": "'transcript NAME' shows what an agent did, 'logs NAME' its events",
    "login": "'cursor-agent login', outside of Substrat, signs you in",
    "status": "'ls' shows all agents, 'show NAME' everything about one, 'doctor' the daemon and this machine",
    "stop": "'suspend NAME' stops the turn and keeps it for 'resume', 'interrupt NAME' gives it up",
    "pause": "'suspend NAME' stops the turn and keeps it for 'resume', with --freeze in memory",
    "freeze": "'suspend NAME --freeze' stops the turn in memory",
    "thaw": "'resume NAME' goes on with a frozen turn",
    "unfreeze": "'resume NAME' goes on with a frozen turn",
    "kill": "'interrupt NAME' stops the turn, 'end NAME' finishes the agent; both kill what doesn't stop",
    "attach": _LOGS,
    "tail": "'logs -f NAME' follows what an agent does",
    "log": "'logs NAME' shows what an agent did",
    "create": _SPAWN,
    "new": _SPAWN,
    "start": f"'resume NAME' continues an agent, {_SPAWN}; 'service install' starts the daemon",
    "restart": "'resume NAME' continues an agent; 'interrupt NAME' stops a turn that hangs before",
    "continue": "'resume NAME' continues an agent",
    "adopt": "'spawn -w DIR --adopt SESSION' takes a chat over, and 'sessions -w DIR' lists them",
    "delete": _RM,
    "remove": _RM,
    "top": "'ls' shows what agents do, 'events -f' what happens",
    "model": "'set NAME model=SLUG' changes an agent's model",
    "undo": "'restore NAME --turn N' puts an agent's clone back to a turn",
    "land": "'merge NAME' lands an agent's work in your branch",
    "commit": "'merge NAME' lands an agent's work; 'diff NAME' shows what it has not committed",
    "clone": "'spawn NAME --clone' gives a new agent a private clone, 'clones' lists them",
    "fork": "'spawn NEW --base refs/substrat/NAME/head' begins another agent at an agent's work",
    "prompt": "'send NAME PROMPT' queues a prompt",
    "shell": "'exec NAME' opens a shell in an agent's sandbox",
    "cost": "'usage' shows tokens",
    "reply": "'inbox' lists what agents ask, 'answer ID TEXT' answers",
    "questions": "'inbox' lists what agents ask, 'answer ID TEXT' answers",
    "trees": "'clones' lists private clones, 'clones prune' removes those of agents that are over",
    "tree": "'ls --tree' draws families",
    "waits": "'ls --tree' says what each agent waits for",
    "messages": "'inbox NAME' lists what was sent to an agent and by it",
    "rename": "'set OLD name=NEW' gives an agent another name",
    "notify": "'doctor --bell' tries the command that tells you when agents need you",
    "stats": "'usage' shows tokens, 'show NAME' memory and processor time",
}


def unknown(word: str) -> errors.UsageError:
    """Make the error for an unknown command; it names the command that was probably meant."""
    if word in HABITS:
        return errors.UsageError(f"there is no command {word!r}: {HABITS[word]}")
    close = nearest(word, VERBS)
    if close is None and (habit := nearest(word, HABITS)) is not None:
        return errors.UsageError(f"there is no command {word!r}: {HABITS[habit]}")
    hint = f"did you mean {close!r}?" if close else f"'{COMMAND_NAME} --help' lists the commands"
    return errors.UsageError(f"there is no command {word!r}; {hint}")
