"""The daemon put together: what is opened in which order, the one nursery, the order of stopping; no logic of agents."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from substrat import __version__
from substrat.daemon import config as configuration
from substrat.daemon import damage, process, quarantine, sockets
from substrat.daemon.agent_door import AgentDoor
from substrat.daemon.alarm import Alarm
from substrat.daemon.allowance import Allowances
from substrat.daemon.cgroups import Cgroups, find_cgroups
from substrat.daemon.chats import Chats
from substrat.daemon.database import StateDamaged, damaged_state
from substrat.daemon.furnisher import Furnisher
from substrat.daemon.gate import Gate
from substrat.daemon.journal import Journal
from substrat.daemon.netns import Networks
from substrat.daemon.notify import Notifier
from substrat.daemon.operator_door import OperatorDoor
from substrat.daemon.points import Points
from substrat.daemon.questions import Questions
from substrat.daemon.registry import Registry
from substrat.daemon.reminders import Reminders
from substrat.daemon.runner import TurnRunner
from substrat.daemon.store import Store
from substrat.daemon.supervisor import Supervisor
from substrat.daemon.sweeper import Sweeper
from substrat.daemon.tools import ToolCalls
from substrat.daemon.turnbook import TurnBook
from substrat.daemon.visits import Visits
from substrat.daemon.watch import Watcher
from substrat.daemon.workspace import User
from substrat.errors import ConfigInvalid, DaemonAlreadyRunning, StateUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.daemon.config import Config
    from substrat.daemon.places import Places

log = structlog.get_logger("substrat.daemon")

_DYING_SECONDS = 2.0
_LOOK_AGAIN = 0.01


class Settings(NamedTuple):
    """What a daemon is started with.

    Args:
        places: its directories.
        config_path: its configuration file.
        config: what the file said.
        environ: its environment.
        begin_anew: whether a damaged database is set aside and a new one begun.
    """

    places: Places
    config_path: str
    config: Config
    environ: dict[str, str]
    begin_anew: bool = False


async def run(settings: Settings, now: Callable[[], float] = time.time) -> None:
    """Run a daemon until it is told to stop by SIGTERM, SIGINT or the operator; turns go on without it.

    Args:
        settings: what it is started with.
        now: the clock, in seconds since the epoch.

    Raises:
        DaemonAlreadyRunning: another daemon holds the state directory.
        StateUnusable: the state can't be used.
    """
    places = settings.places
    process.keep_descriptors_private()
    process.allow_many_descriptors()
    _make_private(places.state)
    _make_private(places.runtime)
    with (
        _locked(places.state),
        _locked(places.runtime),
        _opened_store(settings, now) as store,
        _opened_watcher() as watcher,
    ):
        journal = Journal(store, _stdout_finder(store, places), now)
        alarm = Alarm(now)
        points = Points(settings.environ)
        registry = Registry(store, journal, settings.config, now, points, alarm.ring_at)
        registry.gate = Gate(registry, places.state)
        book = TurnBook(registry)
        supervisor = Supervisor(registry, book)
        reminders, questions = Reminders(registry), Questions(registry)
        notifier = Notifier(settings.environ)
        user = User.current(settings.environ)
        async with trio.open_nursery() as nursery:
            calls = ToolCalls(supervisor, reminders, questions)
            agent_door = AgentDoor(points, calls.perform, book.companion_called)
            sweeper = Sweeper(registry, places)
            groups, networks = find_cgroups(), Networks()
            furnisher = Furnisher(registry, places, user, settings.environ, groups)
            furnisher.set_limits()
            runner = TurnRunner(
                registry, book, places, furnisher, groups, networks, user, watcher, nursery, sweeper, agent_door.serve, now
            )
            chats = Chats(user.home, furnisher.find_bubblewrap)
            visits = Visits(registry, furnisher, groups, networks, places, watcher, sweeper)
            door = OperatorDoor(
                supervisor, runner, furnisher, groups, places, chats, questions, Allowances(registry, networks), visits,
                nursery.cancel_scope.cancel,
            )  # fmt: skip
            nursery.start_soon(watcher.deliver)
            await nursery.start(_obey_signals, settings, registry, furnisher, notifier, nursery.cancel_scope)
            book.attach(runner)
            _tidy_up(visits, furnisher, registry, groups)
            nursery.start_soon(sweeper.run)
            reminders.tell_due()

            def ring() -> None:
                reminders.tell_due()
                book.admit()

            nursery.start_soon(alarm.run, ring)
            points.before("operator socket made")
            held = sockets.inherited(settings.environ)
            listener = held or sockets.listen(os.path.join(places.runtime, "daemon.sock"), 0o600)
            points.after("operator socket made")
            await nursery.start(door.serve, listener)
            nursery.start_soon(notifier.feed_watchdog)
            _say_ready(notifier, registry, places)
        points.at("daemon to be stopped")
        notifier.send("STOPPING=1")
        if held is None:
            _remove_socket(places.runtime)
        log.info("stopped", turns_going_on=registry.running)


def _say_ready(notifier: Notifier, registry: Registry, places: Places) -> None:
    registry.points.before("daemon ready")
    notifier.send("READY=1", f"STATUS={len(registry.agents)} agents")
    registry.points.after("daemon ready")
    log.info("ready", version=__version__, state_dir=places.state, agents=len(registry.agents))


def _tidy_up(visits: Visits, furnisher: Furnisher, registry: Registry, groups: Cgroups) -> None:
    """Remove what a daemon that was killed has left."""
    visits.end_those_before()
    furnisher.stand_ins.remove_unneeded()
    turns = (agent.turn for agent in registry.agents)
    groups.sweep({turn.id for turn in turns if turn is not None and turn.outcome is None})


async def _obey_signals(
    settings: Settings,
    registry: Registry,
    furnisher: Furnisher,
    notifier: Notifier,
    everything: trio.CancelScope,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number != signal.SIGHUP:
                log.info("stopping", signal=signal.Signals(number).name)
                everything.cancel()
                return
            notifier.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            _reload(settings, registry, furnisher)
            notifier.send("READY=1")


def _reload(settings: Settings, registry: Registry, furnisher: Furnisher) -> None:
    """Read the configuration again; a broken one changes nothing."""
    try:
        registry.config = configuration.load(settings.config_path, settings.environ)
    except ConfigInvalid as problem:
        log.error("configuration not reloaded", reason=problem.message)  # noqa: TRY400 - the sentence says it all
        return
    furnisher.reconfigured()
    if registry.admit is not None:
        registry.admit()
    log.info("configuration reloaded", path=settings.config_path)


@contextmanager
def _locked(state: str) -> Iterator[None]:
    """Hold the state directory; the lock ends with the process, however it ends."""
    descriptor = os.open(os.path.join(state, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take_lock(descriptor, state)
        with suppress(OSError):  # on a full disk: it only says who holds the lock
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, state: str) -> None:
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
                f"another substratd (pid {holder}) holds {state}: use it, or stop it with `substratctl shutdown`"
            ) from None
        return


@contextmanager
def _opened_store(settings: Settings, now: Callable[[], float]) -> Iterator[Store]:
    path = os.path.join(settings.places.state, "substrat.db")
    try:
        store = _checked_store(path, settings.places)
    except StateDamaged as problem:
        if not settings.begin_anew:
            raise
        try:
            kept = damage.set_aside_database(path, settings.places, now())
        except OSError as obstacle:
            raise StateUnusable(f"the damaged state in {path} can't be moved: {obstacle}; move it away") from None
        log.error("damaged state set aside", reason=problem.message, kept=kept)  # noqa: TRY400 - the sentence says it all
        store = Store(path)
    try:
        _set_aside_damaged_agents(store, settings.places, now())
        yield store
    finally:
        store.close()


def _checked_store(path: str, places: Places) -> Store:
    """Open the database; an empty one where there are agents is one that was cut to nothing."""
    if os.path.isfile(path) and os.path.getsize(path) == 0 and damage.agents_without_records(places):
        raise damaged_state(path, "it is empty, and there are files of agents")
    return Store(path)


def _set_aside_damaged_agents(store: Store, places: Places, now: float) -> None:
    """Start without the agents whose records can't be read, and say which; where none are, say whose files there are."""
    for found in quarantine.set_aside(store, now):
        log.error("agent set aside", agent=found.agent, name=found.name, reason=found.reason, kept="table 'damaged'")
        for started in found.processes:
            process.kill_recorded(started)  # nobody would look after it
    if store.is_empty():
        removed = store.removed_agents()
        for agent in damage.agents_without_records(places):
            if agent.id not in removed:
                how = (
                    f"substratctl spawn {agent.name} -w {agent.workspace} --adopt {agent.session}"
                    if agent.session
                    else None
                )
                log.warning("agent without records", **agent._asdict(), continue_with=how)


@contextmanager
def _opened_watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    try:
        yield watcher
    finally:
        watcher.close()


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


def _stdout_finder(store: Store, places: Places) -> Callable[[str, str], str | None]:
    def find(agent: str, turn: str) -> str | None:
        found = store.turn(turn)
        return places.agent(agent).turn(found.number).stdout if found is not None else None

    return find
