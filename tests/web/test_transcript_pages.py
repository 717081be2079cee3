"""Pages of a transcript, with a daemon that is only played: where they end, and which turns are read for them."""

import json
from typing import Any

import pytest

from substrat.web.transcripts import transcript_page

TURNS = 300


class Client:
    """An agent's events, and its turns."""

    def __init__(self, events, turns=()):
        self.events = [{"cursor": cursor, **event} for cursor, event in enumerate(events, 1)]
        self.stored = turns
        self.read = 0

    async def show(self, agent):
        return {"id": agent, "turn": self.stored[-1] if self.stored else None}

    async def read_events(self, _, cursor, limit):
        found = self.events[cursor : cursor + limit]
        return found, cursor + len(found)

    async def turns(self, _, after, limit=100):
        found = self.stored[after : after + limit]
        self.read += len(found)
        return found


def event(kind, text="", turn=1, time="2030-01-01T00:00:00.000Z") -> Any:
    return {"kind": kind, "text": text, "turn": turn and f"turn {turn}", "time": time, "raw": None, "data": None}


async def page_of(client, **params):
    """Return a page's turns with the words of their steps, and the cursor of the next page."""
    page: Any = await transcript_page(client, "", {"agent": "anna", **params})
    turns = json.loads(page.content)["turns"]
    return [(turn["turn"], [step["text"] for step in turn["steps"]]) for turn in turns], page.after


async def test_a_page_cuts_no_speech_also_if_no_step_comes_before_it():
    silent = [event("thinking:completed")] * 2
    speech = [event("assistant:delta", "Good "), event("assistant:delta", "morning."), event("assistant", "Good morning.")]
    client = Client([event("assistant", "Hm."), *silent, *speech])
    assert await page_of(client, after=1, limit=3) == ([], 3)
    assert await page_of(client, after=1, limit=4) == ([], 3)
    assert await page_of(client, after=3, limit=4) == ([(None, ["Good morning."])], None)
    between = [event("agent:created", "is there", turn=None), event("prompt:queued", turn=None)]
    spoken, after = await page_of(Client([*between, event("turn:started"), *speech]), limit=5)
    assert (spoken, after) == ([(None, ["is there"])], 2)


@pytest.mark.parametrize("is_clock_odd", [False, True])
async def test_a_page_reads_the_turns_from_its_own_first_one_on(is_clock_odd):
    events, turns = [], []
    for number in range(1, TURNS + 1):
        year = 2031 if is_clock_odd and 240 <= number <= 260 else 2030
        time = f"{year}-01-01T00:{number // 60:02}:{number % 60:02}.000Z"
        turns.append({"id": f"turn {number}", "number": number, "started_at": time})
        events += [event(kind, f"{number}", number, time) for kind in ("turn:started", "assistant", "turn:ended")]
    client = Client(events, turns)
    spoken, after = await page_of(client, after=3 * 249, limit=6)
    assert [(turn["number"], words[0]) for turn, words in spoken] == [(250, "250"), (251, "251")]
    assert after == 3 * 251
    assert client.read < (2 if is_clock_odd else 0.5) * TURNS
