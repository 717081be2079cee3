"""`budget`: shows what an agent may use with its descendants, and gives it more, less or no limits."""

from __future__ import annotations

import sys

from substrat.cli import budgets, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "budget",
    "NAME",
    options=(
        Option("--set", value="K=N[,K=N]", about="limit these; other limits stay as they are"),
        Option("--add", value="K=N[,K=N]", about="give so much more"),
        Option("--clear", about="take all limits away, and forget what is used"),
    ),
    notes=(
        "K is usd (the list price of tokens), turns, minutes (of the turns together), input_tokens, output_tokens, "
        "tool_calls, or running (turns at once). "
        "A budget is a pool of the agent and all that descend from it. When it is used up no turn of them begins, "
        "prompts wait, and for minutes and tool_calls the turns that run are stopped too; nothing is ended. With more "
        "of it all goes on by itself. Tokens and usd are counted at a turn's end, so they may go over by a turn; a model "
        "without a list price, auto among them, can't have usd."
    ),
)


def run(arguments: Arguments) -> int:
    """Change the budget if asked to, print it, and return the exit status."""
    (name,) = arguments.words
    if arguments.flag("clear") and (arguments.flag("set") or arguments.flag("add")):
        raise COMMAND.wrong("--clear stands alone: set the new limits by a command of their own")
    with Connection() as connection:
        found = connection.call_object(
            "agent.budget",
            agent=name,
            limits=budgets.limits(arguments.values("set")),
            more=budgets.limits(arguments.values("add")),
            clear=True if arguments.flag("clear") else None,
        )
    if arguments.json:
        output.put_json(found)
    else:
        _print(found)
    return 0


def _print(found: dict[str, object]) -> None:
    name = output.text_of(found.get("agent"))
    print(f"{name} has no budget" if not found.get("limits") else f"{name}: {budgets.told(found)}")
    members = found.get("members")
    listed = [one for one in members if isinstance(one, dict)] if isinstance(members, list) else []
    keys = list(dict.fromkeys(key for one in listed for key in budgets.numbers(one, "used")))
    rows = [
        (
            output.text_of(one.get("agent")), *(budgets.shown(budgets.numbers(one, "used").get(key, 0)) for key in keys),
            budgets.told(one) or "-",
        )
        for one in listed
        if one.get("limits") or one.get("used")
    ]  # fmt: skip
    if rows:
        titles = ("AGENT", *(budgets.word(key).upper() for key in keys), "OF ITS OWN BUDGET")
        shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"AGENT": 10})
        sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout), numbers=titles[1:-1]))
    if found.get("state") == "out":
        output.note(f"it is used up, so what {name} and its descendants have to do waits: 'budget {name} --add' gives more")
