"""`transcript`: prints agents' prompts, words and tool calls turn by turn, as text, Markdown or JSON."""

from __future__ import annotations

import sys

from substrat.cli import many, output, transcripts, wrapping
from substrat.cli.connection import Connection
from substrat.cli.follow import Feed
from substrat.cli.options import Arguments, Command, Option
from substrat.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.cli.output import Agent
    from substrat.core.programs.transcript import TranscriptStep

    Turn = dict[str, object]

COMMAND = Command(
    "transcript",
    "NAME...",
    options=(
        Option("--turn", value="N", about="only this turn; -1 is the newest"),
        Option("--markdown", about="as a Markdown document"),
        Option("--whole", about="the whole output of tools, not only its beginning"),
    ),
    notes=f"{many.JSON_NOTE}\nWith --turn, an agent without such a turn counts as one that failed.",
)


def run(arguments: Arguments) -> int:
    """Print the transcript and return the exit status."""
    if arguments.json and arguments.flag("markdown"):
        raise COMMAND.wrong("--json and --markdown came together")
    several = len(arguments.words) > 1
    with Connection() as connection:
        agents, status = many.ask_objects(connection, "agent.show", arguments.words)
        opened = False
        for agent in agents:
            lost: list[NotFound] = []
            try:
                found = _find(connection, agent, arguments.whole("turn"), lost)
            except NotFound as problem:
                failed = output.complain(problem)
                status = status or failed
                continue
            if arguments.json and several:
                sys.stdout.write("," if opened else "[")
            _put(arguments, *found, several=several)
            opened = True
            for gone in lost:
                failed = output.complain(gone)
                status = status or failed
        if arguments.json and several and (opened or not status):
            sys.stdout.write("]" if opened else "[]")
        if arguments.json and opened:
            sys.stdout.write("\n")
    return status


def _find(
    connection: Connection, agent: Agent, number: int | None, lost: list[NotFound]
) -> tuple[Agent, dict[str, Turn], Iterator[TranscriptStep]]:
    """Return an agent, its turns by their ids, and the steps that are asked for; raises `NotFound` without such a turn.

    `lost` takes the error if the agent is removed while its steps are read; they end there.
    """
    turns = {str(turn["id"]): turn for turn in _turns(connection, agent)}
    only = _only(number, list(turns.values()), agent)
    return agent, turns, _steps(Feed(connection, [str(agent["id"])], 0), only, lost)


def _put(
    arguments: Arguments, agent: Agent, turns: dict[str, Turn], steps: Iterator[TranscriptStep], *, several: bool
) -> None:
    if arguments.json:
        _put_json(agent, turns, steps)
    elif arguments.flag("markdown"):
        _put_markdown(agent, turns, steps)
    else:
        sys.stdout.write(many.title(agent["name"], more=several, colour=output.has_colour(sys.stdout)))
        _put_text(turns, steps, whole=arguments.flag("whole"))


def _turns(connection: Connection, agent: Agent) -> Iterator[Turn]:
    """Fetch an agent's turn objects, oldest first."""
    after: object = 0
    while True:
        page = connection.call_object("agent.turns", agent=str(agent["id"]), after=after)
        found = page.get("turns")
        if not isinstance(found, list) or not found:
            return
        yield from found
        after = page.get("after")


def _only(number: int | None, turns: list[Turn], agent: Agent) -> str | None:
    """Return the id of the turn that is asked for, None for all of them; raises `NotFound` if there is no such turn."""
    if number is None:
        return None
    if number < 0:
        found = turns[number] if -number <= len(turns) else None
    else:
        found = next((turn for turn in turns if turn.get("number") == number), None)
    if found is None:
        raise NotFound(f"{output.text_of(agent['name'])} has no turn {number}; it has had {len(turns)}")
    return str(found["id"])


def _steps(feed: Feed, only: str | None, lost: list[NotFound]) -> Iterator[TranscriptStep]:
    """Put an agent's events together."""
    from substrat.core.programs.transcript import Transcript

    transcript = Transcript()
    try:
        for event in feed.past():
            if only is None or event.get("turn") == only:
                yield from transcript.feed(event)
    except NotFound as problem:
        lost.append(problem)
    yield from transcript.finish()


def _put_text(turns: dict[str, Turn], steps: Iterator[TranscriptStep], *, whole: bool) -> None:
    colour, write = output.has_colour(sys.stdout), wrapping.writing()

    def put_head(turn: Turn | None) -> None:
        write(output.paint(f"── {transcripts.heading(turn)} ──", output.BOLD, on=colour) + "\n")
        used = transcripts.usage_line(turn)
        write(output.paint(f"   {used}", output.DIM, on=colour) + "\n\n" if used else "\n")

    for step in _with_heads(turns, steps, put_head):
        write(transcripts.as_text(step, colour=colour, whole=whole))


def _put_markdown(agent: Agent, turns: dict[str, Turn], steps: Iterator[TranscriptStep]) -> None:
    def put_head(turn: Turn | None) -> None:
        used = transcripts.usage_line(turn)
        sys.stdout.write(f"## {transcripts.heading(turn)}\n\n" + (f"{used}\n\n" if used else ""))

    sys.stdout.write(f"# {output.text_of(agent['name'])}\n\n")
    workspace, model = transcripts.code(str(agent["workspace"])), transcripts.code(str(agent["model"]))
    sys.stdout.write(f"In {workspace} with the model {model}.\n\n")
    for step in _with_heads(turns, steps, put_head):
        text = transcripts.as_markdown(step)
        # A file gets the agent's text as it is; a terminal must not get control characters from it.
        sys.stdout.write(output.neutralise(text) if sys.stdout.isatty() else text)


def _with_heads(
    turns: dict[str, Turn], steps: Iterator[TranscriptStep], put_head: Callable[[Turn | None], None]
) -> Iterator[TranscriptStep]:
    """Give the steps, and write a head before the first one of each turn."""
    started, before = False, None
    for step in steps:
        if not started or step.turn != before:
            put_head(turns.get(step.turn) if step.turn is not None else None)
        started, before = True, step.turn
        yield step


def _put_json(agent: Agent, turns: dict[str, Turn], steps: Iterator[TranscriptStep]) -> None:
    """Write one document as the steps come, however long it gets."""
    from substrat.core.programs.transcript import TranscriptDocument

    document = TranscriptDocument(agent, turns)
    sys.stdout.write(document.head())
    for step in steps:
        sys.stdout.write(document.piece(step))
    sys.stdout.write(document.tail())
