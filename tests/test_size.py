"""Rooms, files, functions and calls stay as small as they are.

A room that grows beyond its number fails here; the commit that raises the number says why. The lists of what is too long
already only shrink. `python .ci/size.py` prints the lines of each room.
"""

import importlib.util

from tests.test_imports import ROOT

found = importlib.util.spec_from_file_location("size", ROOT / ".ci" / "size.py")
assert found is not None
size = importlib.util.module_from_spec(found)
assert found.loader is not None
found.loader.exec_module(size)

ROOMS: dict[str, int] = {
    "benchmarks": 3300,
    "mcp_server": 880,
    "sandbox": 1690,
    "substrat": 1130,
    "substrat/cli": 6220,
    "substrat/client": 620,
    "substrat/core": 0,
    "substrat/core/agents": 1780,
    "substrat/core/diagnosis": 220,
    "substrat/core/families": 1340,
    "substrat/core/netfilter": 760,
    "substrat/core/programs": 1940,
    "substrat/core/workspaces": 1750,
    "substrat/cursor_api": 1430,
    "substrat/daemon": 630,
    "substrat/daemon/agents": 2700,
    "substrat/daemon/chats": 320,
    "substrat/daemon/clones": 3960,
    "substrat/daemon/families": 2700,
    "substrat/daemon/kernel": 1790,
    "substrat/daemon/network": 950,
    "substrat/daemon/runs": 620,
    "substrat/daemon/sandboxes": 2160,
    "substrat/daemon/servers": 2700,
    "substrat/daemon/state": 3280,
    "substrat/daemon/turns": 2480,
    "substrat/daemon/workspaces": 2140,
    "substrat/demo": 360,
    "substrat/inside": 1900,
    "substrat/protocol": 780,
    "substrat/standin": 1970,
    "substrat/web": 1160,
    "substrat/web/page": 2490,
    "tests": 57250,
}
"""The most lines of code of each room."""
LONGEST_FILE = 480
LONG_FILES: dict[str, int] = {
    "tests/core/programs/cursor/test_dialects.py": 489,
    "tests/model/test_daemon.py": 523,
    "tests/systemd/conftest.py": 495,
}
LONGEST_FUNCTION = 70
LONG_FUNCTIONS: dict[str, int] = {}
LONG_CALLS: dict[str, int] = {
    "mcp_server": 1,
    "sandbox": 9,
    "substrat/cli": 1,
    "substrat/core/families": 2,
    "substrat/core/netfilter": 5,
    "substrat/core/programs": 4,
    "substrat/core/workspaces": 1,
    "substrat/cursor_api": 1,
    "substrat/daemon": 1,
    "substrat/daemon/agents": 26,
    "substrat/daemon/chats": 1,
    "substrat/daemon/clones": 10,
    "substrat/daemon/families": 19,
    "substrat/daemon/kernel": 1,
    "substrat/daemon/sandboxes": 8,
    "substrat/daemon/servers": 3,
    "substrat/daemon/state": 4,
    "substrat/daemon/turns": 11,
    "substrat/daemon/workspaces": 1,
    "substrat/demo": 4,
    "substrat/inside": 11,
    "substrat/protocol": 1,
    "substrat/web": 3,
}
"""How many calls of each room have more than five positional arguments."""


def programs():
    return [path for path in size.sources() if path.suffix == ".py" and path.parts[0] not in {"tests", "benchmarks"}]


def beyond(now, most):
    """Return what is more than it may be."""
    return {name: number for name, number in now.items() if number > most.get(name, 0)}


def test_no_room_grows_beyond_its_number():
    now = {name: lines for name, (lines, _) in size.rooms().items()}
    assert now.keys() == ROOMS.keys()
    assert not beyond(now, ROOMS)


def test_no_file_is_longer_than_two_things():
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in size.sources()}
    long = {name: length for name, length in lengths.items() if length > LONGEST_FILE}
    assert not beyond(long, LONG_FILES)
    assert LONG_FILES.keys() == long.keys(), "an entry whose file is short enough goes"


def test_functions_fit_on_a_screen():
    lengths = {f"{path} {name}": length for path in programs() for name, length in size.functions(path)}
    long = {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}
    assert not beyond(long, LONG_FUNCTIONS)
    assert LONG_FUNCTIONS.keys() == long.keys(), "an entry whose function is short enough goes"


def test_calls_name_what_would_be_their_sixth_argument():
    now: dict[str, int] = {}
    for path in programs():
        now[size.room(path)] = now.get(size.room(path), 0) + size.long_calls(path)
    assert {name: number for name, number in now.items() if number} == LONG_CALLS, "a number only goes down"
