"""Composes the daemon: opens its parts in order, runs them in one nursery, and stops them in order."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from substrat import __version__
from substrat import config as configuration
from substrat.core.agents import prices
from substrat.daemon.agents.agents import Agents
from substrat.daemon.agents.disk_gate import DiskGate, free_bytes
from substrat.daemon.agents.due import end_due
from substrat.daemon.agents.findings import Findings
from substrat.daemon.agents.logins import Logins
from substrat.daemon.agents.registry import Registry
from substrat.daemon.agents.state import State
from substrat.daemon.agents.timer import Timer
from substrat.daemon.agents.turn_words import TurnWords
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.chats.reader import Chats
from substrat.daemon.chats.sessions import Sessions
from substrat.daemon.clones.clones import Clones
from substrat.daemon.failpoints import Failpoints
from substrat.daemon.families.bell import Bell
from substrat.daemon.families.families import Families
from substrat.daemon.families.mcp_tools import ToolCalls
from substrat.daemon.kernel import limits, sandbox_process, sockets
from substrat.daemon.kernel.clocks import WallAlarm, steady
from substrat.daemon.kernel.files import Files
from substrat.daemon.kernel.inotify import Watcher
from substrat.daemon.runs.runs import Runs
from substrat.daemon.runs.starting import Members
from substrat.daemon.sandboxes.sandboxes import Sandboxes
from substrat.daemon.servers.agent import AgentServer
from substrat.daemon.servers.agent_tools import AgentTools
from substrat.daemon.servers.kept_objects import KeptObjects
from substrat.daemon.servers.methods.services import Services
from substrat.daemon.servers.objects import AgentObjects
from substrat.daemon.servers.operator import OperatorServer
from substrat.daemon.state import backup, damaged_files, own_files, quarantine, reserve, soundness
from substrat.daemon.state.database import StateDamaged, bytes_to_check, damaged_state
from substrat.daemon.state.events import DaemonEvent, Journal
from substrat.daemon.state.store import Store
from substrat.daemon.state.trash import Trash
from substrat.daemon.turns import without_records
from substrat.daemon.turns.exec import ExecSessions
from substrat.daemon.turns.running_turns import RunningTurns
from substrat.daemon.turns.turns import Turns
from substrat.daemon.workspaces.user import User
from substrat.errors import ConfigInvalid, DaemonAlreadyRunning, StateUnusable, StorageFailed
from substrat.notify import Notifier

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from substrat.config import Config
    from substrat.daemon.state.layout import Layout

log = structlog.get_logger("substrat.daemon")

_DYING_SECONDS = 2.0
"""How long a killed daemon's child may still hold its lock: until it executes its program, milliseconds as a rule."""
_USUAL_START_SECONDS = 30.0
"""`TimeoutStartSec` of the unit."""
_CHECKED_PER_SECOND = 4 << 20
"""Bytes; a disk that turns reads no fewer of a database in the order of its pages."""
_WORTH_TELLING = 1.0
"""Seconds: a start that takes longer says in the log what it has read."""
_LOOK_AGAIN = 0.01
"""Seconds between attempts to take the lock in that time."""


class DaemonSettings(NamedTuple):
    """The settings that a daemon is started with.

    Args:
        layout: its directories.
        config_path: its configuration file.
        config: the file's contents.
        environ: its environment.
        file_server: the connection to the server of file workers.
        begin_anew: whether a damaged database is set aside, and its copy or a new one takes its place.
    """

    layout: Layout
    config_path: str
    config: Config
    environ: dict[str, str]
    file_server: socket.socket
    begin_anew: bool = False


async def run(settings: DaemonSettings, now: Callable[[], float] = time.time) -> None:
    """Run a daemon until it is told to stop by SIGTERM, SIGINT or the operator; turns go on without it.

    Args:
        settings: its settings.
        now: the clock, in seconds since the epoch.

    Raises:
        DaemonAlreadyRunning: another daemon holds the state directory.
        StateUnusable: the state can't be used.
    """
    layout, notifier = settings.layout, Notifier(settings.environ)
    damage: StateDamaged | None = None
    limits.prepare_daemon()
    _prepare_directories(layout)
    with (
        _locked(layout.state),
        _locked(layout.runtime),
        _opened_store(settings, now, notifier) as store,
        closing(Watcher()) as watcher,
        closing(WallAlarm()) as alarm,
        ExitStack() as undo,
    ):
        timer = Timer(now, alarm.wait)
        async with trio.open_nursery() as nursery:
            services = _build(settings, store, watcher, timer, nursery)
            undo.callback(services.sandboxes.protection.close)
            undo.callback(services.state.files.close)
            registry, points = services.registry, services.registry.points
            nursery.start_soon(watcher.deliver)
            await nursery.start(_obey_signals, settings, services, notifier)
            await _begin(services, nursery)
            nursery.start_soon(backup.keep, store, now, lambda: free_bytes(layout.state) - registry.config.disk.free)
            _ring(services)
            nursery.start_soon(timer.run, partial(_ring, services))
            points.before("operator socket made")
            held = sockets.inherited(settings.environ)
            listener = held or sockets.listen(os.path.join(layout.runtime, "daemon.sock"), 0o600)
            points.after("operator socket made")
            await nursery.start(OperatorServer(services).serve, listener)
            nursery.start_soon(notifier.feed_watchdog)
            _say_ready(notifier, registry, layout)
            damage = await soundness.check(store)
            if damage is not None:
                services.stop()
        points.at("daemon to be stopped")
        notifier.send("STOPPING=1")
        if held is None:
            _remove_socket(layout.runtime)
        log.info("stopped", turns_going_on=registry.running)
        if damage is not None:
            raise damage


def _prices() -> str:
    """Return the table of list prices, which is a part of the package."""
    return resources.files("substrat.core").joinpath("prices.toml").read_text(encoding="utf-8")


def _build(settings: DaemonSettings, store: Store, watcher: Watcher, timer: Timer, nursery: trio.Nursery) -> Services:
    """Build the rooms, each of what those below it have made."""
    environ, layout, points, sweep_wanted = settings.environ, settings.layout, Failpoints(settings.environ), Wakeup()
    journal, trash = Journal(store, _stdout_finder(store, layout), timer.now), Trash(layout.trash, sweep_wanted.set)
    running, user = RunningTurns(layout, trash, points), User.current(environ)
    registry = Registry(store, journal, settings.config, timer.now, steady, points, timer.ring_at, running)
    registry.prices = prices.parse(_prices())
    files = Files(settings.file_server)
    state = State(
        environ=environ, layout=layout, registry=registry, findings=Findings(registry, files), trash=trash,
        watcher=watcher, files=files,
    )  # fmt: skip
    disk_gate = DiskGate(layout.state, timer.now, timer.ring_at)
    families = Families(registry, files, disk_gate, Logins(user.home, environ).of)
    sandboxes = Sandboxes(state, user)
    chats = Chats(files, sandboxes, Sessions(state, sandboxes))
    agents = Agents(registry, sandboxes.networks, sandboxes.preparer.leave_out)
    serve_agent = AgentServer(
        points,
        lambda *call: tools.call(*call),  # noqa: PLW0108 - the tools are built later
        agents.accounting.companion_called,
        TurnWords(registry),
        registry.ssh_agent_of,
        has_tasks=families.tasks.are_for,
    ).serve
    exec_sessions = ExecSessions(state=state, sandboxes=sandboxes, serve_agent=serve_agent)
    clones = Clones(
        state=state, families=families, sandboxes=sandboxes, sessions=chats.sessions, wanted=running.clone_wanted,
        run=exec_sessions.run_own, check_unused=exec_sessions.check_none,
    )  # fmt: skip
    members = Members(agents.requests, sandboxes, clones, layout)
    calls = ToolCalls(agents.requests, families, agents.reminders, agents.inbox)
    tools = AgentTools(registry, families.waits, calls, clones.places, clones.diffing)
    turns = Turns(
        state=state, agents=agents, sandboxes=sandboxes, sessions=chats.sessions, clones=clones,
        running=running, serve_agent=serve_agent, sweep_wanted=sweep_wanted, nursery=nursery,
    )  # fmt: skip
    return Services(
        state=state, agents=agents, families=families, bell=Bell(registry, families.overview, environ),
        sandboxes=sandboxes, chats=chats, clones=clones, turns=turns,
        runs=Runs(agents.requests, families, members, clones.landings),
        exec_sessions=exec_sessions,
        objects=AgentObjects(registry, families.overview, KeptObjects(registry, families.waits)),
        stop=nursery.cancel_scope.cancel,
    )  # fmt: skip


async def _begin(services: Services, nursery: trio.Nursery) -> None:
    """Take up what an earlier daemon left, and start the rooms' tasks."""
    registry, sandboxes, clones, turns = services.registry, services.sandboxes, services.clones, services.turns
    nursery.start_soon(registry.journal.followers.run)
    nursery.start_soon(sandboxes.protection.run)
    nursery.start_soon(sandboxes.preparer.unreadable.keep)
    _set_aside_lost_turns(registry, services.state.layout, registry.now())
    await sandboxes.preparer.protector.find_all_git()
    clones.take_up()
    services.families.take_up()
    await nursery.start(turns.runner.run)
    clones.start(nursery)
    nursery.start_soon(services.state.findings.run)
    _tidy_up(services, nursery)
    nursery.start_soon(sandboxes.cgroups.remove_late)
    nursery.start_soon(turns.retention.run)
    nursery.start_soon(turns.disk_watch.run)
    services.bell.look_at_all()
    nursery.start_soon(services.bell.run)
    nursery.start_soon(services.families.targets.run)
    nursery.start_soon(services.runs.run)


def _ring(services: Services) -> None:
    agents = services.agents
    end_due(services.registry, agents.reminders.tell_due, services.families.waits.end_due, agents.inbox.end_due)
    services.registry.admit()
    services.runs.look()


def _say_ready(notifier: Notifier, registry: Registry, layout: Layout) -> None:
    registry.points.before("daemon ready")
    notifier.send("READY=1", f"STATUS={len(registry.agents)} agents")
    registry.points.after("daemon ready")
    log.info("ready", version=__version__, state_dir=layout.state, agents=len(registry.agents))
    limits.freeze_heap()


def _tidy_up(services: Services, nursery: trio.Nursery) -> None:
    """Remove the remains of a daemon that was killed."""
    services.exec_sessions.end_those_before()
    nursery.start_soon(services.sandboxes.preparer.protector.placeholders.remove_unneeded)
    turns = (agent.turn for agent in services.registry.agents)
    services.sandboxes.cgroups.sweep({turn.id for turn in turns if turn is not None and turn.outcome is None})


async def _obey_signals(
    settings: DaemonSettings,
    services: Services,
    notifier: Notifier,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number != signal.SIGHUP:
                log.info("stopping", signal=signal.Signals(number).name)
                services.stop()
                return
            notifier.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            _reload(settings, services)
            services.bell.look_at_all()
            notifier.send("READY=1")


def _reload(settings: DaemonSettings, services: Services) -> None:
    """Read the configuration again; a broken one changes nothing."""
    try:
        services.registry.config = configuration.load(settings.config_path, settings.environ, log.warning)
    except ConfigInvalid as problem:
        log.error("configuration not reloaded", reason=problem.message)  # noqa: TRY400 - the sentence says it all
        return
    services.sandboxes.preparer.reconfigured()
    services.registry.admit()
    services.runs.look()
    log.info("configuration reloaded", path=settings.config_path)


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Hold the state or the runtime directory; the lock ends with the process, however it ends."""
    path = os.path.join(directory, "lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise StateUnusable(f"{path} can't be opened: {problem.strerror}; move it away or name another directory") from None
    try:
        _take_lock(descriptor, directory)
        with suppress(OSError):  # on a full disk: it only says who holds the lock
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, directory: str) -> None:
    deadline = time.monotonic() + _DYING_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            # A child of a daemon that was killed has its lock for an instant yet, until it executes its program.
            if time.monotonic() < deadline and holder.isdecimal() and not os.path.exists(f"/proc/{holder}"):
                time.sleep(_LOOK_AGAIN)
                continue
            raise DaemonAlreadyRunning(
                f"another substratd (pid {holder}) holds {directory}: use it, or stop it with `substratctl shutdown`"
            ) from None
        return


@contextmanager
def _opened_store(settings: DaemonSettings, now: Callable[[], float], notifier: Notifier) -> Iterator[Store]:
    path = os.path.join(settings.layout.state, "substrat.db")
    began = time.monotonic()
    if checked := bytes_to_check(path):
        notifier.extend_start(_USUAL_START_SECONDS + checked / _CHECKED_PER_SECOND)

    try:
        # Before a damaged database is set aside, all of it must be looked at.
        store = _checked_store(path, settings.layout, puts_off=not settings.begin_anew)
    except StateDamaged as problem:
        if not settings.begin_anew:
            raise
        try:
            gone_back = backup.prepare(path)
            kept = damaged_files.set_aside_database(path, settings.layout, now())
            backup.go_back(path)
        except (OSError, sqlite3.Error) as obstacle:
            raise StateUnusable(f"the damaged state in {path} can't be moved: {obstacle}; move it away") from None
        log.error("damaged state set aside", reason=problem.message, kept=kept, gone_back=gone_back)  # noqa: TRY400
        store = Store(path, reserve.SIZE)
    if (seconds := time.monotonic() - began) > _WORTH_TELLING:
        log.info("database opened", bytes=checked, seconds=round(seconds, 1))
    try:
        _set_aside_damaged_agents(store, settings.layout, now())
        yield store
    finally:
        store.close()


def _checked_store(path: str, layout: Layout, *, puts_off: bool) -> Store:
    """Open the database; a missing or empty one where there are agents, or a log, is one that was lost."""
    if os.path.lexists(path) and not os.path.isfile(path):
        raise damaged_state(path, "it isn't a file")
    has_agents = without_records.has_agents(layout)
    size = os.path.getsize(path) if os.path.lexists(path) else None
    if not size:
        how = "missing" if size is None else "empty"
        if has_agents:
            raise damaged_state(path, f"it is {how}, and there are files of agents")
        if backup.time_of(path) is not None:
            raise damaged_state(path, f"it is {how}, and there is a copy of it")
        if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
            raise damaged_state(path, f"it is {how}, and there is a log beside it, substrat.db-wal")
    try:
        return Store(path, reserve.SIZE, may_be_new=not has_agents, puts_off=puts_off)
    except StateDamaged:
        raise
    except StateUnusable as problem:
        if free_bytes(layout.state) >= reserve.SIZE:
            raise
        log.warning("the database is opened for this process alone, because the disk is full", reason=problem.message)
        return Store(path, reserve.SIZE, without_index=True, may_be_new=not has_agents)


def _set_aside_damaged_agents(store: Store, layout: Layout, now: float) -> None:
    """Start without the agents whose records can't be read, and say which; and whose files have no records."""
    for found in quarantine.set_aside(store, now):
        what = "agent set aside" if found.agent is not None else "row set aside"
        log.error(what, agent=found.agent, name=found.name, reason=found.reason, kept="table 'damaged'")
        for started in found.processes:
            sandbox_process.kill_recorded(started)  # no turn's task would look after it
    unrecorded = without_records.agents_without_records(layout, store.known_agents())
    store.agents_without_records = len(unrecorded)
    for agent in unrecorded:
        place = layout.agent(agent.id)
        killed = without_records.kill_all_left(place)  # no turn's task would look after it
        log.warning(
            "agent without records", **agent._asdict(), continue_with=agent.command, directory=place.root, killed=killed
        )


def _set_aside_lost_turns(registry: Registry, layout: Layout, now: float) -> None:
    """End turns of which there are files and no records, tell each, and move its files out of the next one's way.

    On a full disk they stay where they are, for the next start; nothing takes them for turns of their numbers.
    """
    for agent in list(registry.agents):
        for lost in without_records.turns_without_records(layout.agent(agent.id), agent.turn):
            registry.points.before("sandbox killed")
            was_running = without_records.kill_left(lost.files)
            registry.points.after("sandbox killed")
            target = damaged_files.target_of(lost.files.root, layout, now)
            told = without_records.describe_lost(lost, target, was_running=was_running)
            log.error("damaged", agent=agent.name, turn=lost.number, what=told)
            try:
                with registry.change("lost turn told") as change:
                    change.record(DaemonEvent(agent.id, None, "state:damaged", told))
            except StorageFailed as problem:
                log.error("lost turn not told", agent=agent.name, reason=problem.message)  # noqa: TRY400 - it says it all
            else:
                damaged_files.move_aside(lost.files.root, target, layout)


def _prepare_directories(layout: Layout) -> None:
    _make_private(layout.state)
    _make_private(layout.runtime)
    own_files.check(layout)


def _make_private(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as problem:
        raise StateUnusable(f"the directory {path} can't be used: {problem.strerror}; name another") from None


def _remove_socket(runtime: str) -> None:
    try:
        os.unlink(os.path.join(runtime, "daemon.sock"))
    except FileNotFoundError:
        log.warning("somebody removed the operator socket")


def _stdout_finder(store: Store, layout: Layout) -> Callable[[str, str], str | None]:
    def find(agent: str, turn: str) -> str | None:
        number = store.turn_number(turn)
        return layout.agent(agent).turn(number).stdout if number is not None else None

    return find
