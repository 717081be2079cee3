"""Which way imports point, and what programs that must start fast may import: `docs/architecture.md` as a test."""

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import each

ROOT = Path(__file__).parents[1]
PACKAGES = ("sandbox", "mcp_server", "substrat")
PATIENCE = 60

HEAVY = {
    "trio", "anyio", "asyncio", "mcp", "mcp_types", "pydantic", "msgspec", "structlog", "platformdirs", "rich", "click",
    "attrs", "attr", "ssl", "pyroute2", "logging", "dataclasses", "typing", "pathlib", "subprocess",
}  # fmt: skip
SHARED = {"substrat.errors", "substrat.names", "substrat.paths", "substrat.visible", "substrat.protocol"}

DAEMON = {"substrat.config", "substrat.core", "substrat.daemon.failpoints", "substrat", "sandbox", "mcp_server", *SHARED}
"""These may be imported by each layer of the daemon."""
FLOORS = (
    "kernel",
    "state",
    "network",
    "agents",
    "families",
    "workspaces",
    "sandboxes",
    "chats",
    "clones",
    "runs",
    "turns",
    "servers",
)
"""The daemon's layers from the bottom: a layer may import itself and those before it."""
LAYERS = {
    f"substrat.daemon.{floor}": {*DAEMON, *(f"substrat.daemon.{other}" for other in FLOORS[: number + 1])}
    for number, floor in enumerate(FLOORS)
} | {
    "substrat.daemon": {"substrat.daemon", "substrat.notify", *DAEMON},
    "substrat.daemon.failpoints": {"mcp_server.tools", *SHARED},
}
for floor in ("sandboxes", "chats", "clones"):
    LAYERS[f"substrat.daemon.{floor}"].add("substrat.inside")

# A room (the longest that holds a module counts) and what of ours it may import. `substrat` itself stands for its version.
ARROWS = {
    "sandbox": {"sandbox"},
    "mcp_server": set(),
    "mcp_server.relay": set(),
    "mcp_server.hook": set(),
    "mcp_server.tools": set(),
    "mcp_server.conversation": {"mcp_server.relay", "mcp_server.tools"},
    "mcp_server.newer": {"mcp_server.conversation", "mcp_server.relay"},
    "mcp_server.host": {"mcp_server.conversation"},
    "substrat": {"substrat.client"},
    "substrat.__main__": {"substrat.daemon.main"},
    "substrat.errors": set(),
    "substrat.names": set(),
    "substrat.paths": {"substrat.errors"},
    "substrat.visible": set(),
    "substrat.notify": set(),
    "substrat.protocol": SHARED,
    "substrat.core": {"substrat.core", "substrat.errors", "substrat.names", "sandbox.spec", "sandbox.protect"},
    "substrat.config": {"substrat.config_keys", "substrat.core", "sandbox", *SHARED},
    "substrat.config_keys": {"substrat.core", "sandbox"},
    **LAYERS,
    "substrat.client": {"substrat.client", "substrat", *SHARED},
    "substrat.cli": {"substrat.cli", "substrat", *SHARED},
    "substrat.cli.verbs.demo": {"substrat.cli", "substrat.demo", *SHARED},
    "substrat.cli.verbs.explain": {"substrat.cli", "substrat.core.programs.table", *SHARED},
    "substrat.cli.verbs.run": {"substrat.cli", "substrat.core.families", *SHARED},
    "substrat.cli.verbs.tasks": {"substrat.cli", "substrat.core.families", *SHARED},
    "substrat.cli.verbs.service": {"substrat.cli", "substrat.core.programs.table", *SHARED},
    "substrat.cli.verbs.web": {"substrat.cli", "substrat.web", *SHARED},
    "substrat.web": {
        "substrat.web",
        "substrat.client",
        "substrat.core.programs.transcript",
        "substrat.notify",
        "substrat",
        *SHARED,
    },
    "substrat.cli.transcripts": {"substrat.cli", "substrat.core.programs.transcript"},
    "substrat.cli.verbs.logs": {"substrat.cli", "substrat.core.programs.transcript", *SHARED},
    "substrat.cli.verbs.transcript": {"substrat.cli", "substrat.core.programs.transcript", *SHARED},
    "substrat.inside.chatreader": {"substrat.core.programs.cursor.chat_store"},
    "substrat.inside": {"substrat.inside"},
    "substrat.cli.verbs.doctor": {"substrat", "substrat.cli", "substrat.doctor", "substrat.netdoctor", *SHARED},
    "substrat.netdoctor": {"substrat.core", *SHARED},
    "substrat.netprobe": {"sandbox.netlaunch", "sandbox.netrelay", "substrat.inside.netjoiner"},
    "substrat.doctor": {"sandbox", "substrat.core", "substrat.config", "substrat.daemon.sandboxes.program", *SHARED},
    "substrat.cursor_api": {
        "substrat.cursor_api",
        "substrat.core",
        "substrat.cli.connection",
        "substrat.client",
        "substrat",
        *SHARED,
    },
    "substrat.manpages": {"substrat.cli", "substrat.daemon.main"},
    "substrat.demo": {"substrat.demo", "substrat.cli", *SHARED},
    "substrat.standin": {"substrat.standin", "substrat"},
}


def modules():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def imports(path, *, at_run_time_only=False):
    """List what a file imports: (module or module.name, whether at the top level); type hints count unless told not to."""

    def walk(node, *, top):
        for child in ast.iter_child_nodes(node):
            if at_run_time_only and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                for other in child.orelse:
                    yield from walk(other, top=top)
            elif isinstance(child, ast.Import):
                yield from ((alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: a relative import"
                yield from ((f"{child.module}.{alias.name}", top) for alias in child.names)
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, top=top and not inside)

    return list(walk(ast.parse(path.read_text()), top=True))


def lies_in(name, room):
    return name == room or name.startswith(room + ".")


def room_of(name):
    rooms = [room for room in ARROWS if lies_in(name, room)]
    return max(rooms, key=len)


@each(("name", "path"), modules())
def test_imports_point_one_way(name, path):
    room = room_of(name)
    allowed = ARROWS[room]
    for imported, _ in imports(path):
        if not imported.startswith(PACKAGES):
            continue
        version = imported == "substrat.__version__" and "substrat" in allowed
        fits = version or any(lies_in(imported, other) for other in allowed - {"substrat"})
        assert fits, f"{name} imports {imported}; {room} may import {', '.join(sorted(allowed)) or 'nothing of ours'}"


@each(("name", "path"), modules())
def test_who_may_import_which_library(name, path):
    tops = {imported.partition(".")[0] for imported, _ in imports(path, at_run_time_only=True)}
    if name != "mcp_server.newer":
        assert not tops & {"mcp", "mcp_types", "pydantic", "pydantic_core"}
    if not any(lies_in(name, room) for room in ("mcp_server.newer", "substrat.client", "substrat.web")):
        assert "anyio" not in tops
    if lies_in(name, "substrat.client"):
        assert not tops & {"trio", "asyncio"}
    if name in {"mcp_server.conversation", "mcp_server.tools"}:
        assert not tops & {"trio", "asyncio", "socket", "time"}
    if name != "substrat.netprobe":
        assert "pyroute2" not in tops
    if name != "substrat.web.metrics":
        assert "prometheus_client" not in tops
    if lies_in(name, "substrat.core") or lies_in(name, "sandbox"):
        assert not tops & {"trio", "anyio", "asyncio", "structlog"}
    if lies_in(name, "substrat.core"):
        assert not tops & {"time", "random", "secrets", "subprocess", "socket", "sqlite3", "threading", "shutil"}
    if lies_in(name, "substrat.cli"):
        assert not {imported.partition(".")[0] for imported, top in imports(path) if top} & {"trio", "msgspec", "structlog"}


def test_every_room_of_the_map_is_there():
    names = {name for name, _ in modules()}
    for room in ARROWS:
        assert any(lies_in(name, room) for name in names), room


def loaded(statement, *options):
    """Return the names of the modules that a fresh interpreter has after a statement."""
    command = [sys.executable, *options, "-c", f"import sys\n{statement}\nsys.stdout.flush(); print('\\n', *sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.fixture(scope="module")
def at_start():
    """What an interpreter of this environment imports by itself (`.pth` files are not ours)."""
    return loaded("pass")


def heavy(names, at_start):
    return sorted((names - at_start) & HEAVY)


def main_of(module, *arguments):
    """Run a program's main function, also when it ends by leaving."""
    return (
        f"from {module} import main\nsys.argv[1:] = {list(arguments)!r}\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )  # fmt: skip


def test_importing_substrat_costs_nothing(at_start):
    assert loaded("import substrat; assert 'Client' in dir(substrat)") - at_start == {"substrat"}


STARTS = [
    ("substratctl --help", main_of("substrat.cli.main", "--help")),
    ("substratctl ls --help", main_of("substrat.cli.main", "ls", "--help")),
    ("substratctl version", main_of("substrat.cli.main", "--version")),
    ("substratctl ls without a daemon", "import os; os.environ['SUBSTRAT_SOCKET'] = '/nonexistent/s'\n"
     + main_of("substrat.cli.main", "ls")),
    ("what both ends share",
     "import substrat.errors, substrat.paths, substrat.visible, substrat.protocol.framing, substrat.protocol.methods"),
    ("cursor-agent-standin --version", main_of("substrat.standin.main", "--version")),
    ("cursor-agent-standin --help", main_of("substrat.standin.main", "--help")),
]  # fmt: skip


@pytest.mark.parametrize("statement", [pytest.param(statement, id=name) for name, statement in STARTS])
def test_what_starts_often_starts_light(at_start, statement):
    assert heavy(loaded(statement), at_start) == []


VERBS = sorted(path.stem for path in (ROOT / "substrat" / "cli" / "verbs").glob("[a-z]*.py"))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_imported_light(at_start, verb):
    found = heavy(loaded(f"import substrat.cli.main, substrat.cli.verbs.{verb}"), at_start)
    assert found == []


@pytest.mark.parametrize("program", ["relay", "hook"])
def test_the_companion_and_the_hook_start_with_next_to_nothing(program):
    names = loaded(f"import mcp_server.{program}")
    assert not names & (HEAVY - loaded("pass"))


def test_the_relay_of_the_proxy_form_starts_with_next_to_nothing():
    names = loaded("import sandbox.netrelay")
    assert not names & (HEAVY - loaded("pass"))


def test_the_core_needs_neither_loop_nor_log(at_start):
    statement = "\n".join(f"import {name}" for name, _ in modules() if lies_in(name, "substrat.core"))
    names = loaded(statement) - at_start
    assert not names & {"trio", "anyio", "asyncio", "structlog", "mcp", "pydantic", "sqlite3"}


def test_the_daemon_is_ready_without_the_protocols_library(tmp_path):
    """`-X importtime` names every module as it is imported."""
    address = str(tmp_path / "notify")
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "NOTIFY_SOCKET": address,
        "SUBSTRAT_STATE_DIR": str(tmp_path / "state"), "SUBSTRAT_RUNTIME_DIR": str(tmp_path / "run"),
        "SUBSTRAT_CONFIG": str(tmp_path / "config.toml"),
    }  # fmt: skip
    log = tmp_path / "log"
    command = [sys.executable, "-X", "importtime", "-m", "substrat.daemon.main"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, log.open("wb") as errors:
        manager.bind(address)
        manager.settimeout(PATIENCE)
        with subprocess.Popen(command, env=environment, cwd="/", stderr=errors) as daemon:
            try:
                assert manager.recv(4096).startswith(b"READY=1")
                imported = log.read_text()
            finally:
                daemon.terminate()
    names = {line.rpartition("|")[2].strip() for line in imported.splitlines() if line.startswith("import time:")}
    assert "trio" in names
    later = {"mcp", "mcp_types", "pydantic", "pydantic_core", "anyio", "starlette", "uvicorn", "websockets"}
    assert not {name for name in names if name.partition(".")[0] in later}
    assert not {name for name in names if lies_in(name, "substrat.web") or lies_in(name, "substrat.client")}
