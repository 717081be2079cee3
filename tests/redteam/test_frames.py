"""Hostile bytes at the daemon's doors: odd frames, silent connections, messages and lines of millions of values."""

import json
import os

import pytest

from tests.redteam.hostile import DOOR, PROGRAM
from tests.redteam.test_doors import answer_of, attack, well

FRAMES = r"""
def last_word(*pieces, greet=True):
    '''What the daemon says to bytes, up to the end of the connection or an answer to a ping.'''
    door = Door(greet=greet)
    try:
        for piece in pieces:
            door.socket.sendall(piece)
        door.send({"jsonrpc": "2.0", "id": "ping", "method": "ping"})
        while (said := door.receive()) is not None:
            if isinstance(said, dict) and said.get("id") == "ping":  # a batch is answered by an array
                return "goes on"
        return "closed"
    except (ConnectionError, TimeoutError) as problem:
        return type(problem).__name__
def call(arguments):
    return b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"remind_me","arguments":' + arguments + b'}}\n'
def ping(number):
    return b'{"jsonrpc":"2.0","id":' + number + b',"method":"ping"}\n'
deep = b"[" * 100_000 + b"]" * 100_000
answer = {
    "endless": last_word(*[b"x" * 1_000_000] * 6),
    "deep first": last_word(deep + b"\n", greet=False),
    "deep": last_word(deep + b"\n", call(deep), call(b'{"a":' * 50_000 + b"1" + b"}" * 50_000)),
    "NaN": last_word(call(b'{"text":"x","seconds":NaN}'), call(b'{"text":"x","seconds":-Infinity}')),
    "duplicates": last_word(call(b'{"text":"x","text":"y","seconds":1e9,"seconds":-1}')),
    "surrogates": last_word(call(b'{"text":"\\ud800","seconds":99999}'), call(b'{"text":"x","\\udfff":1,"seconds":9}')),
    "not utf-8": last_word(b"\xff\xfe\x00{}\n", call(b'{"text":"\xff","seconds":9}')),
    "nul": last_word(b"\0\n", call(b'{"text":"a\\u0000b","seconds":99999}')),
    "numbers": last_word(ping(b"1e999"), ping(b"9" * 5000)),
    "odd ids": last_word(*map(ping, (b"null", b"true", b"[]", b"{}"))),
    "answers": last_word(b'{"jsonrpc":"2.0","id":1,"result":{}}\n' * 100, b'{"jsonrpc":"2.0","id":1,"error":1}\n'),
    "no object": last_word(b"1\n[]\n\"\"\nnull\n[{}]\n"),
    "huge number": last_word(call(b'{"text":"x","seconds":1e308}'), call(b'{"reminder":' + b"9" * 40 + b"}")
                             .replace(b"remind_me", b"cancel_reminder")),
}
slow = Door()
for byte in b'{"jsonrpc":"2.0","id":"slow","method":"ping"}\n':
    slow.socket.sendall(bytes([byte]))
answer["byte by byte"] = "goes on" if slow.answer("slow") else "closed"
answer["nothing odd"] = last_word(call(b'{"text":"x","seconds":99999}'))
"""


def test_such_frames_harm_a_careless_reader():
    """The control, of what is sent: Python's own reader takes what it should refuse, and breaks on what it shouldn't."""
    with pytest.raises(RecursionError):
        json.loads("[" * 100_000 + "]" * 100_000)
    assert json.loads("[NaN, -Infinity, 1e999]")[1:] == [float("-inf"), float("inf")]
    assert json.loads('{"seconds": 1e9, "seconds": -1}') == {"seconds": -1}
    with pytest.raises(UnicodeEncodeError):
        json.loads('"\\ud800"').encode()
    with pytest.raises(ValueError, match="4300"):
        json.loads("9" * 5000)


def test_no_frame_harms_the_daemon(daemon):
    hostile = daemon.start(agent=daemon.program(PROGRAM), executed=True)  # its memory is its own
    before = peak_memory(hostile.process.pid)
    said = attack(hostile, hostile.workspace(), FRAMES)
    assert said.pop("endless") in {"closed", "ConnectionResetError", "BrokenPipeError"}
    assert said.pop("deep first") in {"goes on", "closed"}
    assert said == dict.fromkeys(said, "goes on")
    assert peak_memory(hostile.process.pid) - before < 150_000 * 1024
    assert well(hostile)


def test_half_open_connections_are_the_agents_own_trouble(hostile, until):
    """It uses up its own door; the operator and other agents don't notice."""
    code = """
import fcntl, resource
held = []
for _ in range(10_000):
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    try:
        one.connect(door_path())
        one.send(b'{"jsonrpc": "2.0", "id": 1, ')
    except OSError:
        one.close()
        break
    held.append(one)
mark("held", str(len(held)))
wait_for("go")
for one in held:
    one.close()
answer = Door().call("whoami")[:1]
"""
    work = hostile.workspace()
    hostile.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=(DOOR + code).encode())
    until((work / "held").exists, "the connections")
    assert 16 < int((work / "held").read_text()) < 2000
    assert attack(hostile, hostile.workspace("other"), 'answer = Door().call("whoami")[:1]', "bert") == "{"
    assert len(os.listdir(f"/proc/{hostile.process.pid}/fd")) < 100
    (work / "go").touch()
    assert answer_of(hostile.wait("anna")) == "{", "its own door opens again"
    assert well(hostile)


DENSE = r"""
import threading
dense = b"[" + b"{}," * 1_390_000 + b"{}]"
def first():
    while True:
        door = Door(greet=False)
        door.socket.sendall(dense + b"\n")
        door.socket.close()
        mark("flooding")
def later():
    door = Door()
    while True:
        door.socket.sendall(b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":' + dense + b"}}\n")
for flood in (first, later, later):
    threading.Thread(target=flood, daemon=True).start()
wait_for("go")
"""


def test_messages_of_millions_of_values_cost_neither_the_daemons_memory_nor_its_answers(hostile, until):
    work = hostile.workspace()
    hostile.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=(DOOR + DENSE).encode())
    until((work / "flooding").exists)
    with hostile.wire() as wire:
        for _ in range(50):
            wire.call("daemon.status")
            wire.call("agent.list")
    assert peak_memory(hostile.process.pid) < 300 * 1024 * 1024
    hostile.ok("end", "anna")
    assert well(hostile)


def peak_memory(pid):
    """Return the most bytes of memory that a process has had."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


LINES = r"""
line = b'{"type":"assistant","message":{"content":[' + b'{"a":1},' * 1_000_000 + b'{}]}}\n'
for _ in range(5):
    os.write(1, line)
mark("flooding")
while True:
    os.write(1, line)
"""


@pytest.mark.slow
def test_lines_of_millions_of_values_keep_nobody_from_ending_the_turn(hostile, until):
    work = hostile.workspace()
    hostile.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=LINES.encode())
    until((work / "flooding").exists)
    with hostile.wire() as wire:
        for _ in range(20):
            wire.call("daemon.status")
    hostile.ok("end", "anna")
    assert hostile.show("anna")["state"] == "ended"
    assert peak_memory(hostile.process.pid) < 300 * 1024 * 1024
    assert well(hostile)
