"""Records the prompts and messages that the daemon accepted and those that it delivered, and compares the two."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

QUOTED = "You were stopped in the middle"
"""The beginning of a prompt that repeats the one of a stopped turn (`substrat.core.agents.prompts.continuation`)."""
LOST = "accepted and never delivered"


def tokens(name: str, text: str) -> list[str]:
    """Return the tokens for an agent in a text, without those in tool calls, which are for the addressee.

    Quoted ones aren't said to the agent: it, or another agent, was told them before, and their words came back in a result.
    """
    return re.findall(rf"\btok\d+@{re.escape(name)}\b", re.sub(r"(?m)^(/tool |>).*$", "", text))


def repeated_tokens(name: str, text: str) -> list[str]:
    """Return the tokens for an agent in the prompt that a text repeats, if it is one that goes on with a stopped turn."""
    found = []
    while text.startswith(QUOTED):
        # The stopped turn may have gone on with another itself.
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith(">"))
        found += tokens(name, text)
    return found


class Follower:
    """A subscriber to all events: its cursor, and the events that it was sent since the last audit.

    Args:
        name: its name in a report.
        broken: the list of broken promises.
        pause: seconds for which it waits after each event, so that the daemon must wait for it.
    """

    def __init__(self, name: str, broken: list[str], pause: float = 0.0) -> None:
        self.name = name
        self.broken = broken
        self.pause = pause
        self.cursor = 0
        self.events = 0
        self.seen: set[int] = set()

    def take(self, event: Mapping[str, Any]) -> None:
        """Note an event that it was sent."""
        if event["cursor"] <= self.cursor:
            self.broken.append(f"event {event['cursor']} was sent to {self.name} after {self.cursor}")
        self.cursor = event["cursor"]
        self.seen.add(event["cursor"])
        self.events += 1

    def audit(self, stored: list[dict]) -> None:
        """Compare with all events that are stored since the last audit; the follower has reached the last of them.

        Those that it was sent since then are for the next audit.
        """
        missed = [event for event in stored if event["cursor"] not in self.seen]
        if missed:
            first = missed[0]
            self.broken.append(
                f"{self.name} missed {len(missed)} of {len(stored)} events, the first of them {first['kind']} "
                f"with the cursor {first['cursor']}"
            )
        newest = stored[-1]["cursor"] if stored else 0
        self.seen = {cursor for cursor in self.seen if cursor > newest}


class Ledger(Follower):
    """The follower that keeps account: each accepted token must be delivered to its agent, once.

    Args:
        broken: the list of broken promises.
    """

    def __init__(self, broken: list[str]) -> None:
        super().__init__("the first follower", broken)
        self.names: dict[str, str] = {}
        self.accepted: dict[str, set[str]] = {}
        self.removed: set[str] = set()
        self.delivered: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.excused: set[str] = set()
        self.running: dict[str, str] = {}
        self.children: dict[str, str] = {}
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def accept(self, name: str, token: str) -> None:
        """Note that a token was accepted for an agent, unless that was removed meanwhile."""
        if name not in self.removed:
            self.accepted.setdefault(name, set()).add(token)

    def expect_child(self, name: str, token: str) -> None:
        """Note the token in the first prompt of a child that an agent may spawn; it counts once the child exists."""
        self.children[name] = token

    def excuse(self, found: Collection[str]) -> None:
        """Note tokens in the prompt of a turn that a person interrupted, maybe before its delivery."""
        self.excused.update(found)

    def forget(self, name: str) -> None:
        """Forget an agent that was removed with the messages that still waited for it; events of some may yet come."""
        self.removed.add(name)
        self.accepted.pop(name, None)

    def take(self, event: Mapping[str, Any]) -> None:
        """Note an event that was sent."""
        super().take(event)
        agent, text = event["agent"], str(event["text"])
        if event["kind"] == "agent:spawned":
            self.names[agent] = text.partition(" ")[0]
        name = self.names.get(agent, agent)  # its first event may have been lost, which the next audit tells
        match event["kind"]:
            case "agent:spawned":
                if name in self.children:
                    self.accept(name, self.children[name])
            case "message:received":
                for token in tokens(name, text):
                    self.accept(name, token)
            case "turn:started":
                if agent in self.running:
                    self.broken.append(f"{name} began a turn beside another")
                self.running[agent] = event["turn"]
            case "turn:ended":
                if self.running.pop(agent, event["turn"]) != event["turn"]:
                    self.broken.append(f"{name} ended another turn than it began")
                self.outcomes[text.split()[2]] += 1
                if (reason := text.partition(": ")[2]) and text.split()[2] != "success":
                    self.reasons[re.sub(r"\d+", "*", reason)[:120]] += 1
            case "user":
                self._take_prompt(name, text)

    def _take_prompt(self, name: str, text: str) -> None:
        own = tokens(name, text)
        self.repeated.update(repeated_tokens(name, text))
        self.delivered.update(own)
        self.broken += [
            f"{token} was delivered {self.delivered[token]} times" for token in own if self.delivered[token] > 1
        ]

    def lost(self, name: str) -> list[str]:
        """Return the tokens that were accepted for an agent and not delivered to it."""
        return sorted(
            token
            for token in self.accepted.get(name, ())
            if not self.delivered[token] + self.repeated[token] and token not in self.excused
        )
