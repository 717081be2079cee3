"""A journal of events and the output that fills it, as tests write and read them."""

from substrat.core.programs.cursor import stream
from substrat.core.programs.cursor.tool_calls import Pairing
from substrat.core.programs.ndjson import Splitter
from substrat.daemon.state.events import DaemonEvent, Journal


class Bench:
    """A journal over a store, and an agent whose output is written as an agent program would."""

    def __init__(self, store, directory, clock):
        self.store = store
        self.clock = clock
        self.path = directory / "stdout"
        self.path.touch()
        self.journal = self.again()
        self._splitter, self._pairing = Splitter(), Pairing()

    def again(self):
        """Open a journal that has nothing in memory."""
        return Journal(self.store, lambda _agent, _turn: str(self.path), self.clock)

    def write(self, data, agent="a", turn="t", *, end=False):
        with self.path.open("ab") as file:
            file.write(data)
        lines = list(self._splitter.feed(data)) + (list(self._splitter.finish()) if end else [])
        decoded = [(line, stream.decode(line, self._pairing)) for line in lines]
        with self.journal.transaction():
            self.journal.append(agent, turn, decoded)

    def fail(self, problem, agent="a"):
        with self.journal.transaction():
            self.journal.record(DaemonEvent(agent, None, "told", "this never happened"))
            with self.journal.transaction():
                self.journal.record(DaemonEvent(agent, None, "told", "this never either"))
            raise problem

    def record(self, *texts, agent="a"):
        with self.journal.transaction():
            self.journal.record(*(DaemonEvent(agent, None, "told", text) for text in texts))


def read_all(journal, cursor=0, agent=None, limit=256):
    found = []
    while page := journal.page(cursor, agent, limit):
        assert len(page) <= limit
        found += page
        cursor = page[-1].cursor
    return found


CALL = b'{"type":"tool_call","subtype":"%s","call_id":"c\\n1","timestamp_ms":%d,"tool_call":{"shellToolCall":{%s}}}\n'
OUTPUT = [
    b'{"type":"system","subtype":"init","session_id":"s","model":"Auto"}\n',
    b'{"type":"assistant","message":{"content":[{"type":"text","text":"h\xc3\xa9llo"}]}}\n',
    b' {"type" : "user" ,\t"message":"spaces"} \r\n',
    CALL % (b"started", 1000, b'"args":{"command":"make"}'),
    CALL % (b"completed", 3500, b'"result":{"success":{"exitCode":0}}'),
    b"not json at all\n",
    b"\n",
    b"\xff\xfe\x00\n",
    b'{"type":"user","x":NaN,"message":"\\ud800"}\n',
    b'{"a":1,"a":2}\n',
    b'{"type":"result","subtype":"success","result":"done","usage":{"inputTokens":12345678901234567890}}\n',
    b'{"deep":' + b"[" * 400 + b"]" * 400 + b"}\n",
    b'{"half a line',
]
