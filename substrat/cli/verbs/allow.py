"""`allow`: shows or changes the allow-lists of agents' `filtered` networks; `show` has the networks' decisions."""

from __future__ import annotations

import re

from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "allow",
    "NAME... [HOST[:PORT]]...",
    options=(Option("--remove", value="HOST", about="take this off the list; may be repeated"),),
    notes=(
        "The first word is a NAME. The words after it are NAMEs as far as agents have them as their name or "
        "id, then come HOSTs: 'localhost', and words with '.', ':', '*', '@' or '='; 'wiki:443' is a host without a dot. A "
        f"running turn is held to the new list at once. What a parent loses its children lose too.\n{many.JSON_NOTE}"
    ),
)

_HOST = re.compile(r"[.:*@=]|^localhost$", re.IGNORECASE)


def run(arguments: Arguments) -> int:
    """Change the lists if asked to, print them and return the exit status."""
    with Connection() as connection:
        names, hosts = _split(connection, arguments.words)
        change = {"allow": hosts or None, "remove": arguments.values("remove") or None}
        outcomes = connection.each([("agent.network", {"agent": name, **change}) for name in names])
    networks, status = many.settle(outcomes)
    if arguments.json:
        many.put_json(arguments, networks, status, names=len(names))
        return status
    for name, network in zip(names, outcomes, strict=True):
        allowed = network.get("allow") if isinstance(network, dict) else None
        for entry in allowed if isinstance(allowed, list) else []:
            print(f"{name}  {output.text_of(entry)}" if len(names) > 1 else output.text_of(entry))
    return status


def _split(connection: Connection, words: list[str]) -> tuple[list[str], list[str]]:
    """Tell names from hosts: the first word is a name, and those after it as long as agents are called so.

    Agents choose their children's names, so a word that looks like a host is a host even if an agent has that name.

    Raises:
        UsageError: a word is neither, such as a name that was mistyped.
    """
    if len(words) == 1:
        return words, []
    agents = connection.call_list("agent.list", fields=["id", "name"], names=words)
    known = {agent[key] for agent in agents for key in ("id", "name")}
    count = 1
    while count < len(words) and words[count] in known and not _HOST.search(words[count]):
        count += 1
    if odd := next((word for word in words[count:] if not _HOST.search(word)), None):
        why = "it stands behind a host" if odd in known else "no agent has that name"
        raise COMMAND.wrong(
            f"{odd!r} can't be allowed: {why}, and a host without a dot is written with its port, as 'wiki:443'"
        )
    return list(dict.fromkeys(words[:count])), words[count:]
