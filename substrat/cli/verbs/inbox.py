"""`inbox`: lists what agents ask and tell the operator, until it is answered or dismissed, or all messages of an agent."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection, as_list, as_object
from substrat.cli.options import Arguments, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = Command(
    "inbox",
    "[NAME]...",
    options=(
        Option("--dismiss", value="ID", about="take this one off your inbox, without an answer; may be repeated"),
        Option("--drop", value="ID", about="take back this message to NAME, which still waits; may be repeated"),
    ),
    notes="Without NAME: what agents ask and tell you. Reading takes nothing away; `substratctl answer ID TEXT` answers. "
    "With NAME: what was sent to the agent and by it. STATE is accepted (it waits), delivered or answered, with the number "
    "of the turn that read it, refused (its addressee took no more), or dropped (taken back, or its addressee ended "
    "first). An inform starts no turn. A request that gets no reply is answered by the result of the turn that read it; it "
    "comes from 'substrat'. --json gives an array for one NAME, and an array of such arrays for several.",
)
_TOLD = 60
"""Characters of what is dismissed: with the number and the agent's name they fit in a line."""


def run(arguments: Arguments) -> int:
    """Print the waiting items, or dismiss some, and return the exit status."""
    if arguments.words and arguments.values("dismiss"):
        raise COMMAND.wrong("--dismiss takes an item off your own inbox: leave NAME out")
    if arguments.values("drop") and not arguments.words:
        raise COMMAND.wrong("--drop takes a message to an agent back: it needs the agent's NAME")
    if arguments.words:
        # Imported here because it reads numbers as this verb does.
        from substrat.cli import messages

        return messages.show(arguments)
    numbers = [number_of(arguments, text) for text in arguments.values("dismiss")]
    with Connection() as connection:
        for number in numbers:
            item = connection.call_object("inbox.show", id=number)
            connection.call("inbox.dismiss", id=number)
            if not arguments.json:
                text = output.one_line(str(item.get("text", "")), _TOLD)
                print(f"{number}  dismissed; {output.text_of(item.get('from'))}: {text}")
        if arguments.json:
            output.put_json_list(items_of(connection))
        elif not numbers:
            _print_all(items_of(connection))
    return 0


def _print_all(items: Iterator[dict[str, object]]) -> None:
    columns = output.terminal_width(sys.stdout)
    last: dict[str, object] | None = None
    for last in items:
        _print(last, columns)
    if last is None:
        output.note("the inbox is empty")
    elif columns is not None:
        output.note(f"'answer {last.get('id')} TEXT' answers, 'inbox --dismiss {last.get('id')}' takes it off")


def _print(item: dict[str, object], columns: int | None) -> None:
    head = "  ".join((output.text_of(item.get("id")), output.local(item.get("time")), output.text_of(item.get("from"))))
    kind = {"question": "  asks", "merge": "  has work to land"}.get(str(item.get("kind")), "")
    text = output.neutralise(str(item.get("text", ""))).rstrip()
    print(head + kind)
    for line in text.split("\n"):
        print("  " + output.wrapped(line, 2, columns))
    options = item.get("options")
    for number, option in enumerate(options if isinstance(options, list) else (), 1):
        print(f"    {number}  {output.neutralise(str(option))}")
    if item.get("deadline") is not None:
        default = output.neutralise(str(item.get("default")))
        print(f"    without an answer by {output.local(item.get('deadline'))}: {default}")


def items_of(connection: Connection) -> Iterator[dict[str, object]]:
    """Yield the waiting items, read page by page, each with its whole text.

    An item that is answered or dismissed meanwhile is left out.
    """
    after: object = 0
    while True:
        page = connection.call_object("inbox.list", after=after)
        items = as_list("inbox.list", page.get("items"))
        long = [item["id"] for item in items if item.get("cut")]
        whole = dict(zip(long, connection.each(("inbox.show", {"id": number}) for number in long), strict=True))
        for item in items:
            found = whole.get(item["id"], item)
            if isinstance(found, errors.NotFound | errors.Refused):
                continue
            if isinstance(found, errors.SubstratError):
                raise found
            yield {key: value for key, value in as_object("inbox.show", found).items() if key != "cut"}
        if not page.get("more"):
            return
        after = page.get("after")


def number_of(arguments: Arguments, text: str) -> int:
    """Read an item's number.

    Raises:
        UsageError: it isn't one.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise arguments.command.wrong(f"{text!r} is no number of `substratctl inbox`")
    return int(text)
