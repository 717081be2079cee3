"""`restore`: puts an agent's private clone back to how one of its turns left it."""

from __future__ import annotations

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "restore",
    "NAME",
    options=(Option("--turn", value="N", about="the turn at whose end the clone was as it shall be again"),),
    notes=(
        "The branch goes back to that turn's last commit, and the files to those of its end; ignored files and the chat "
        "stay. What is there now is kept first. The agent's next prompt tells it."
    ),
)


def run(arguments: Arguments) -> int:
    """Put the clone back, and return the exit status."""
    turn = arguments.whole("turn")
    if turn is None or turn < 1:
        raise COMMAND.wrong("it needs --turn N, the number of a turn from 1 on")
    with Connection() as connection:
        done = connection.call_object("agent.restore", agent=arguments.words[0], turn=turn)
    if arguments.json:
        output.put_json({name: done.get(name) for name in ("agent", "turn", "head", "kept_as")})
        return errors.DONE
    head = str(done.get("head") or "")[:12]
    print(f"{output.text_of(done['agent'])} is as turn {turn} left it{f', at {head}' if head else ''}")
    if done.get("kept_as"):
        print(f"its work of before is {output.text_of(done['kept_as'])}")
    return errors.DONE
