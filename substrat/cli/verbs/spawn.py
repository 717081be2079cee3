"""`spawn`: creates an agent and hands over its first prompt; the daemon decides when the turn starts."""

from __future__ import annotations

import os

from substrat.cli import budgets, outage, output, turns, wrapping
from substrat.cli.connection import Connection, as_object
from substrat.cli.options import TIMEOUT, WAIT, Arguments, Command, Option
from substrat.cli.verbs.sessions import whole_id
from substrat.names import is_agent_name

COMMAND = Command(
    "spawn",
    "[NAME] [PROMPT]",
    options=(
        Option("--workspace", "-w", value="DIR", about="the directory it works in (needed)"),
        Option(
            "--clone",
            value="BRANCH",
            is_optional=True,
            about="work in a private clone of its own, on the branch substrat/NAME or BRANCH: the default in a repository",
        ),
        Option("--base", value="REF", about="the commit that its clone starts at; default HEAD"),
        Option("--wip", about="take your uncommitted changes along into its clone"),
        Option("--in-place", about="work in your checkout itself"),
        Option("--program", value="P", about="the agent program: cursor, claude or codex"),
        Option("--model", value="M", about="the model's slug"),
        Option("--network", value="N", about="what it can reach", choices=("none", "filtered", "host")),
        Option(
            "--allow", value="HOST", about="a host that 'filtered' lets through, or a preset such as @python; repeatable"
        ),
        Option("--bind", value="PATH", about="a further place it may write to; may be repeated"),
        Option("--bind-ro", value="PATH", about="a further place it may read; may be repeated"),
        Option("--env", value="K=V", about="a variable of its own; K alone takes this shell's; may be repeated"),
        Option("--ssh-agent", about="let it ask this shell's ssh-agent for signatures"),
        Option("--adopt", value="SESSION", about="go on with a chat of this workspace that `sessions` lists"),
        Option("--restore", value="HOW", about="when its turn is lost: wait for you, or go on", choices=("hold", "auto")),
        Option("--priority", value="P", about="which agents that wait it goes before", choices=("low", "normal", "high")),
        Option("--time-limit", value="S", about="seconds that a turn of it may take; 0: no limit"),
        Option("--silence-limit", value="S", about="seconds that it may print nothing, but for tool calls; 0: no limit"),
        Option("--check", value="CMD", about="its work is done when this shell command succeeds on the files it leaves"),
        Option("--retries", value="N", about="how often it is sent back when the check fails; default 2"),
        Option("--budget", value="K=N[,K=N]", about="what it and its descendants may use: turns=40 ('help budget')"),
        Option("--prompt-file", value="F", about="read the prompt from a file, '-' is standard input"),
        WAIT,
        TIMEOUT,
    ),
    notes=(
        "A single argument is the NAME when it looks like one (letters, digits, '.', '_', '-'), otherwise "
        "the PROMPT. Without a NAME one is made up. A PROMPT that is '-' is read from standard "
        "input. With --wait the turn's result is printed, and before it on standard error where a clone is."
    ),
)


def run(arguments: Arguments) -> int:
    """Create the agent, wait for its first turn if asked to, and return the exit status."""
    name, given = name_and_prompt(arguments)
    prompt = turns.read_prompt(arguments, given)
    timeout = turns.check_wait(arguments, has_prompt=prompt is not None)
    workspace = arguments.value("workspace")
    if workspace is None:
        raise COMMAND.wrong("-w DIR is missing: the directory the agent works in, '-w .' for this one")
    if arguments.flag("retries") and not arguments.flag("check"):
        raise COMMAND.wrong("--retries needs --check: how often the agent is sent back when the check fails")
    clone = _clone(arguments)
    unknown = "whether the agent was created isn't known: look with 'substratctl ls' before you spawn it again"
    with Connection(timeout=timeout) as connection:
        session = arguments.value("adopt")
        if session is not None:
            session = whole_id(connection, os.path.abspath(workspace), session)
        ask: dict[str, object] = {
            # Not resolved: the agent sees its workspace under the path it was given.
            "workspace": os.path.abspath(workspace),
            "name": name,
            "program": arguments.value("program"),
            "model": arguments.value("model"),
            "network": arguments.value("network"),
            "allow": arguments.values("allow") or None,
            "bind": arguments.values("bind") or None,
            "bind_ro": arguments.values("bind-ro") or None,
            "env": [_variable(text) for text in arguments.values("env")] or None,
            "ssh_agent": _ssh_agent() if arguments.flag("ssh-agent") else None,
            "priority": arguments.value("priority"),
            "time_limit": arguments.seconds("time-limit"),
            "silence_limit": arguments.seconds("silence-limit"),
            "check": arguments.value("check"),
            "retries": arguments.whole("retries"),
            "budget": budgets.limits(arguments.values("budget")),
            "prompt": prompt,
            "session": session,
            "restore": arguments.value("restore"),
            "clone": clone,
            "branch": arguments.value("clone") or None,
            "base": arguments.value("base"),
            "wip": True if arguments.flag("wip") else None,
        }
        created = outage.ask_once(connection, unknown, lambda: connection.call("agent.spawn", **ask))
        agent = as_object("agent.spawn", created)
        message, notes = agent.pop("message", None), agent.get("notes")
        if isinstance(notes, list) and notes:
            output.note(f"{output.text_of(agent['name'])} {'; '.join(map(str, notes))}")
        if arguments.flag("wait"):
            if agent.get("clone") is not None:
                output.note(f"{output.text_of(agent['name'])} works {_where(agent)}")
            return turns.wait_for_verdict(connection, agent, message, timeout, json=arguments.json)
    if arguments.json:
        output.put_json(agent)
    else:
        name = output.text_of(agent["name"])
        wrapping.writing(output.width(name) + 2)(f"{name}  spawned {_where(agent)}\n")
    return 0


def _clone(arguments: Arguments) -> bool | None:
    """Say whether a clone is asked for; None: as configured."""
    wants = next((option for option in ("clone", "base", "wip") if arguments.flag(option)), None)
    if arguments.flag("in-place"):
        if wants is not None:
            raise COMMAND.wrong(f"--in-place and --{wants} contradict each other: leave one of them out")
        return False
    return True if wants is not None else None


def _where(agent: dict[str, object]) -> str:
    """Say in a few words where an agent works, and how its work is seen and taken."""
    clone, workspace = agent.get("clone"), output.text_of(agent["workspace"])
    if not isinstance(clone, dict):
        return f"in {workspace}"
    base, name = clone.get("base"), output.text_of(agent["name"])
    at = f" at {output.text_of(base)[:12]}" if base else ""
    how = f"'diff {name}' shows its work, 'merge {name}' takes it"
    return f"in a clone of {workspace}, branch {output.text_of(clone['branch'])}{at}: {how}"


def _variable(text: str) -> str:
    """Return `NAME=VALUE`, with this process's value where only the name is given."""
    if "=" in text:
        return text
    if (value := os.environ.get(text)) is None:
        raise COMMAND.wrong(f"--env {text}: there is no such variable here: write {text}=VALUE, or export it first")
    return f"{text}={value}"


def _ssh_agent() -> str:
    if not (path := os.environ.get("SSH_AUTH_SOCK")):
        raise COMMAND.wrong(
            '--ssh-agent: SSH_AUTH_SOCK isn\'t set here: start an agent first, eval "$(ssh-agent)"; ssh-add'
        )
    return os.path.abspath(path)


def name_and_prompt(arguments: Arguments) -> tuple[str | None, str | None]:
    """Decide which of the words is the name and which the prompt.

    Raises:
        UsageError: the name can't be one.
    """
    words = arguments.words
    if len(words) == 1 and not is_agent_name(words[0]):
        return None, words[0]
    name = words[0] if words else None
    if name is not None and not is_agent_name(name):
        raise COMMAND.wrong(f"{name!r} can't be a name: up to 64 letters, digits, '.', '_' and '-', no '.' or '-' first")
    return name, words[1] if len(words) == 2 else None
