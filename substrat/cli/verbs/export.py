"""`export`: prints a whole chat as Markdown, as cursor-agent keeps it; `transcript` has an agent's work under Substrat."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli import output, transcripts
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.verbs.sessions import WORKSPACE, whole_id, workspace_of
from substrat.names import is_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Object = dict[str, object]

COMMAND = Command(
    "export",
    "SESSION|NAME",
    options=(WORKSPACE,),
    notes="A SESSION is one that `substratctl sessions` lists; a NAME stands for that agent's session.",
)


def run(arguments: Arguments) -> int:
    """Print the chat and return the exit status."""
    with Connection() as connection:
        workspace, session = _find(connection, arguments)
        head = _page(connection, workspace, session, 0)
        messages = _messages(connection, workspace, session, head)
        if arguments.json:
            output.put_json({**{key: head[key] for key in head if key != "after"}, "messages": list(messages)})
        else:
            text = transcripts.session_as_markdown(head, messages)
            # A file gets the chat as it is; a terminal must not get control characters from it.
            sys.stdout.writelines(map(output.neutralise, text) if sys.stdout.isatty() else text)
    return 0


def _find(connection: Connection, arguments: Arguments) -> tuple[str, str]:
    """Return the workspace and the id of the chat that is meant.

    Raises:
        NotFound: the agent has no session yet, or there is no such agent.
    """
    word = arguments.words[0]
    if is_uuid(word.lower()):
        try:
            agent = connection.call_object("agent.show", agent=word)
        except errors.NotFound:
            return workspace_of(arguments), word
    else:
        try:
            agent = connection.call_object("agent.show", agent=word)
        except errors.NotFound:
            workspace = workspace_of(arguments)
            session = whole_id(connection, workspace, word)
            if session == word:
                raise
            return workspace, session
    if agent.get("session_id") is None:
        raise errors.NotFound(f"{output.text_of(agent['name'])} has no session yet: its first turn begins one")
    return str(agent["workspace"]), str(agent["session_id"])


def _messages(connection: Connection, workspace: str, session: str, page: Object) -> Iterator[Object]:
    """Give a chat's messages; write a notice where they end early because the chat is damaged."""
    while True:
        found = page.get("messages")
        if isinstance(found, list):
            yield from found
        if page.get("damage"):
            output.note(f"the session is damaged from here on: {page['damage']}; nothing was changed")
            return
        if not found:
            return
        page = _page(connection, workspace, session, page.get("after"))


def _page(connection: Connection, workspace: str, session: str, after: object) -> Object:
    return connection.call_object("session.read", workspace=workspace, session=session, after=after)
