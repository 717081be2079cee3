"""Composes the daemon: opens its parts in order, runs them in one nursery, and stops them in order."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from substrat import __version__
from substrat import config as configuration
from substrat.core.programs.table import PROGRAM
from substrat.daemon.agents.accounting import Accounting
from substrat.daemon.agents.allow_list import AllowLists
from substrat.daemon.agents.disk_gate import DiskGate, free_bytes
from substrat.daemon.agents.due import end_due
from substrat.daemon.agents.findings import Findings
from substrat.daemon.agents.inbox import Inbox
from substrat.daemon.agents.logins import Logins
from substrat.daemon.agents.registry import Registry
from substrat.daemon.agents.reminders import Reminders
from substrat.daemon.agents.requests import AgentRequests
from substrat.daemon.agents.settings import Settings
from substrat.daemon.agents.timer import Timer
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.chats.reader import Chats
from substrat.daemon.chats.sessions import Sessions
from substrat.daemon.clones.check_room import CheckRoom
from substrat.daemon.clones.checkouts import Checkouts
from substrat.daemon.clones.children import ChildPlaces
from substrat.daemon.clones.clones import Clones
from substrat.daemon.clones.diffing import Diffing
from substrat.daemon.clones.forgetting import Forgetting
from substrat.daemon.clones.git_sandbox import GitSandbox
from substrat.daemon.clones.host_git import HostGit
from substrat.daemon.clones.keeping import Keeping
from substrat.daemon.clones.landing import Landings
from substrat.daemon.clones.landing_git import LandingGit
from substrat.daemon.clones.making import Making
from substrat.daemon.clones.moving import BranchMover
from substrat.daemon.clones.pruning import Pruning
from substrat.daemon.clones.relocating import Relocating
from substrat.daemon.clones.renaming import Renaming
from substrat.daemon.clones.repository import Repositories
from substrat.daemon.clones.restoring import Restoring
from substrat.daemon.clones.setting_up import SettingUp
from substrat.daemon.clones.wishes import CloneWishes
from substrat.daemon.failpoints import Failpoints
from substrat.daemon.families.bell import Bell
from substrat.daemon.families.families import Families
from substrat.daemon.families.mcp_tools import ToolCalls
from substrat.daemon.kernel import limits, sandbox_process, sockets
from substrat.daemon.kernel.cgroups import Cgroups, find_cgroups
from substrat.daemon.kernel.clocks import WallAlarm, steady
from substrat.daemon.kernel.inotify import Watcher
from substrat.daemon.network.filtered import Networks
from substrat.daemon.sandboxes.prepare import SandboxPreparer
from substrat.daemon.sandboxes.running import RunningSandboxes
from substrat.daemon.sandboxes.spawn_checks import SpawnChecks
from substrat.daemon.sandboxes.turn_git import TurnGit
from substrat.daemon.servers.agent import AgentServer
from substrat.daemon.servers.agent_tools import AgentTools
from substrat.daemon.servers.methods.services import Services
from substrat.daemon.servers.objects import AgentObjects
from substrat.daemon.servers.operator import OperatorServer
from substrat.daemon.state import backup, damaged_files, own_files, quarantine, reserve
from substrat.daemon.state.database import StateDamaged, bytes_to_check, damaged_state
from substrat.daemon.state.events import DaemonEvent, Journal
from substrat.daemon.state.store import Store
from substrat.daemon.state.storing import until_stored
from substrat.daemon.state.trash import Trash
from substrat.daemon.turns import without_records
from substrat.daemon.turns.disk_watch import DiskWatch
from substrat.daemon.turns.ending import EndStep, TurnEnd
from substrat.daemon.turns.exec import ExecSessions
from substrat.daemon.turns.preparation import TurnPreparation
from substrat.daemon.turns.questions import TurnQuestions
from substrat.daemon.turns.retention import Retention
from substrat.daemon.turns.runner import TurnRunner
from substrat.daemon.turns.running_turns import RunningTurns
from substrat.daemon.turns.starting import TurnStarter
from substrat.daemon.turns.workspace_look import WorkspaceLook
from substrat.daemon.workspaces.protection import Protection
from substrat.daemon.workspaces.user import User
from substrat.errors import ConfigInvalid, DaemonAlreadyRunning, StateUnusable, StorageFailed
from substrat.notify import Notifier

if TYPE_CHECKING:
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
        begin_anew: whether a damaged database is set aside, and its copy or a new one takes its place.
    """

    layout: Layout
    config_path: str
    config: Config
    environ: dict[str, str]
    begin_anew: bool = False


async def run(settings: DaemonSettings, now: Callable[[], float] = time.time) -> None:  # noqa: PLR0915 - one a line
    """Run a daemon until it is told to stop by SIGTERM, SIGINT or the operator; turns go on without it.

    Args:
        settings: its settings.
        now: the clock, in seconds since the epoch.

    Raises:
        DaemonAlreadyRunning: another daemon holds the state directory.
        StateUnusable: the state can't be used.
    """
    layout, notifier = settings.layout, Notifier(settings.environ)
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
        journal = Journal(store, _stdout_finder(store, layout), now)
        timer, points = Timer(now, alarm.wait), Failpoints(settings.environ)
        sweep_wanted, turn_runs = Wakeup(), Wakeup()
        trash = Trash(layout.trash, sweep_wanted.set)
        clone_wanted = Wakeup()
        turns = RunningTurns(layout, trash, points, turn_runs.set, clone_wanted.set)
        user = User.current(settings.environ)
        logins = Logins(user.home, settings.environ)
        registry = Registry(store, journal, settings.config, now, steady, points, timer.ring_at, turns)
        families = Families(registry, DiskGate(layout.state, now, timer.ring_at), logins.of)
        reminders, inbox = Reminders(registry), Inbox(registry)
        async with trio.open_nursery() as nursery:
            bell = Bell(registry, families.overview, settings.environ, nursery)
            groups, networks, sandboxes = find_cgroups(), Networks(), RunningSandboxes()
            preparer = SandboxPreparer(registry, layout, user, settings.environ, groups)
            preparer.set_limits()
            checks = SpawnChecks(registry, layout, user, settings.environ, preparer)
            findings = Findings(registry)
            find_bubblewrap = preparer.machine.find_bubblewrap
            protection = undo.enter_context(closing(Protection(registry, preparer.protector.placeholders)))
            sessions = Sessions(registry, layout, user, trash, find_bubblewrap, preparer.unreadable.paths)
            git_sandbox = GitSandbox(find_bubblewrap, preparer.unreadable.paths)
            repositories = Repositories(git_sandbox, preparer.protector.borrowing)
            wishes = CloneWishes(registry, repositories, layout.trees, checks.check_workspace)
            keeping = Keeping(registry, git_sandbox, repositories, layout, user.home, preparer.protector.borrowing)
            accounting = Accounting(registry, sessions, preparer.leave_out)
            requests = AgentRequests(registry, sessions)
            diffing = Diffing(git_sandbox, repositories)
            places = ChildPlaces(registry, layout, repositories, wishes, keeping)
            tools = AgentTools(registry, families.waits, ToolCalls(requests, families, reminders, inbox), places, diffing)
            agent_server = AgentServer(points, tools.call, accounting.companion_called, registry.ssh_agent_of)
            exec_sessions = ExecSessions(
                registry=registry, preparer=preparer, cgroups=groups, networks=networks, layout=layout, watcher=watcher,
                trash=trash, protection=protection, findings=findings, serve_agent=agent_server.serve, sandboxes=sandboxes,
            )  # fmt: skip
            setting_up = SettingUp(
                registry=registry, sandbox=git_sandbox, repositories=repositories, layout=layout, user=user,
                own_places=lambda: preparer.protector.own_places, run=exec_sessions.run_own,
            )  # fmt: skip
            making = Making(
                registry=registry, waits=families.waits, sandbox=git_sandbox, repositories=repositories, trash=trash,
                wanted=clone_wanted, directory=layout.trees, keeping=keeping, setting_up=setting_up, person=preparer.person,
            )  # fmt: skip
            disk_watch = DiskWatch(registry, accounting, layout, os.path.join(user.home, PROGRAM.places.chats), turn_runs)
            preparation = TurnPreparation(
                registry=registry, accounting=accounting, layout=layout, preparer=preparer, groups=groups,
                protection=protection, findings=findings, sessions=sessions, refresh=making.refresh,
            )  # fmt: skip
            starter = TurnStarter(
                registry=registry, accounting=accounting, layout=layout, groups=groups, networks=networks, watcher=watcher,
                preparation=preparation, serve_agent=agent_server.serve, now=now, turns=turns, sandboxes=sandboxes,
            )  # fmt: skip
            turn_git = TurnGit(preparer, layout)
            look = WorkspaceLook(
                registry=registry, accounting=accounting, layout=layout, protector=preparer.protector, git=turn_git,
                findings=findings,
            )  # fmt: skip
            end = TurnEnd(registry, accounting, sessions, groups, turns, sweep_wanted)
            end_steps = (
                EndStep("look at the workspace", look.look),
                EndStep("tell shortages", end.tell_shortage),
                EndStep("settle the chat", end.settle_chat),
                EndStep("keep the clone", lambda over: keeping.keep(over.agent.id, (over.turn.id, over.turn.number))),
                EndStep("account", end.account),
                EndStep("remove the cgroup", end.remove_cgroup),
            )
            runner = TurnRunner(registry, layout, preparer.protector.placeholders, nursery, turns, starter, end_steps)
            chats = Chats(user.home, find_bubblewrap, sessions.own_chats, preparer.unreadable.paths)
            landing_wanted = Wakeup()
            host_git = HostGit(git_sandbox, repositories, settings.environ, BranchMover(layout.trees))
            landing_git = LandingGit(git_sandbox, repositories, host_git, settings.environ)
            check_room = CheckRoom(
                registry=registry, sandbox=git_sandbox, setting_up=setting_up, person=preparer.person,
                machine=preparer.machine, unreadable=preparer.unreadable, layout=layout, user=user,
                protector=preparer.protector, trash=trash,
            )  # fmt: skip
            landings = Landings(
                registry=registry, repositories=repositories, git=landing_git, host=host_git, room=check_room,
                queue=families.queue, wanted=landing_wanted,
            )  # fmt: skip
            allow_lists = AllowLists(registry, networks)
            renaming = Renaming(registry, families.waits, repositories, git_sandbox, keeping, exec_sessions.check_none)
            pruning = Pruning(registry, repositories, keeping, making, exec_sessions.check_none)
            forgetting = Forgetting(registry, repositories, git_sandbox, renaming.being_given)
            restore_wanted = Wakeup()
            restoring = Restoring(
                registry=registry, sandbox=git_sandbox, repositories=repositories, keeping=keeping, making=making,
                diffing=diffing, wanted=restore_wanted, directory=layout.trees, borrowing=preparer.protector.borrowing,
                check_unused=exec_sessions.check_none,
            )  # fmt: skip
            checkouts = Checkouts(registry, repositories, landing_git, host_git, lambda: preparer.protector.own_places)
            relocating = Relocating(
                registry, repositories, keeping, sessions, checks.check_workspace, exec_sessions.check_none
            )
            clones = Clones(
                repositories=repositories, wishes=wishes, making=making, keeping=keeping, diffing=diffing,
                landings=landings, pruning=pruning, forgetting=forgetting, restoring=restoring, relocating=relocating,
                checkouts=checkouts,
            )  # fmt: skip
            services = Services(
                requests=requests, families=families, objects=AgentObjects(registry, families.overview),
                turns=TurnQuestions(turns, groups), preparer=preparer, checks=checks, cgroups=groups, layout=layout,
                chats=chats, sessions=sessions, inbox=inbox, allow_lists=allow_lists, exec_sessions=exec_sessions,
                findings=findings, clones=clones, renaming=renaming, settings=Settings(registry, allow_lists),
                sandboxes=sandboxes, bell=bell, stop=nursery.cancel_scope.cancel,
            )  # fmt: skip
            operator_server = OperatorServer(services)
            nursery.start_soon(watcher.deliver)
            nursery.start_soon(journal.followers.run)
            nursery.start_soon(protection.run)
            nursery.start_soon(preparer.unreadable.keep)
            await nursery.start(_obey_signals, settings, registry, preparer, bell, notifier, nursery.cancel_scope)
            _set_aside_lost_turns(registry, layout, now())
            await preparer.protector.find_all_git()
            landings.take_up()
            check_room.forget_earlier()
            families.take_up()
            await nursery.start(runner.run)
            nursery.start_soon(making.run)
            nursery.start_soon(landings.run)
            nursery.start_soon(findings.run)
            nursery.start_soon(renaming.finish)
            nursery.start_soon(keeping.clear_quarantines)
            nursery.start_soon(pruning.finish_removals)
            nursery.start_soon(restoring.run)
            _tidy_up(exec_sessions, preparer, registry, groups, nursery)
            nursery.start_soon(groups.remove_late)
            nursery.start_soon(Retention(registry, layout, trash, sweep_wanted, forgetting.sweep).run)
            nursery.start_soon(disk_watch.run)
            nursery.start_soon(backup.keep, store, now, lambda: free_bytes(layout.state) - registry.config.disk.free)
            bell.look_at_all()
            nursery.start_soon(bell.run)
            end_all_due = partial(end_due, registry, reminders.tell_due, families.waits.end_due, inbox.end_due)
            end_all_due()

            def ring() -> None:
                end_all_due()
                registry.admit()

            nursery.start_soon(timer.run, ring)
            points.before("operator socket made")
            held = sockets.inherited(settings.environ)
            listener = held or sockets.listen(os.path.join(layout.runtime, "daemon.sock"), 0o600)
            points.after("operator socket made")
            await nursery.start(operator_server.serve, listener)
            nursery.start_soon(notifier.feed_watchdog)
            _say_ready(notifier, registry, layout)
        points.at("daemon to be stopped")
        notifier.send("STOPPING=1")
        if held is None:
            _remove_socket(layout.runtime)
        log.info("stopped", turns_going_on=registry.running)


def _say_ready(notifier: Notifier, registry: Registry, layout: Layout) -> None:
    registry.points.before("daemon ready")
    notifier.send("READY=1", f"STATUS={len(registry.agents)} agents")
    registry.points.after("daemon ready")
    log.info("ready", version=__version__, state_dir=layout.state, agents=len(registry.agents))
    limits.freeze_heap()


def _tidy_up(
    exec_sessions: ExecSessions, preparer: SandboxPreparer, registry: Registry, groups: Cgroups, nursery: trio.Nursery
) -> None:
    """Remove the remains of a daemon that was killed; on a full disk, as soon as there is room."""
    exec_sessions.end_those_before()
    try:
        preparer.protector.placeholders.remove_unneeded()
    except StorageFailed:
        nursery.start_soon(until_stored, preparer.protector.placeholders.remove_unneeded)
    turns = (agent.turn for agent in registry.agents)
    groups.sweep({turn.id for turn in turns if turn is not None and turn.outcome is None})


async def _obey_signals(
    settings: DaemonSettings,
    registry: Registry,
    preparer: SandboxPreparer,
    bell: Bell,
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
            _reload(settings, registry, preparer)
            bell.look_at_all()
            notifier.send("READY=1")


def _reload(settings: DaemonSettings, registry: Registry, preparer: SandboxPreparer) -> None:
    """Read the configuration again; a broken one changes nothing."""
    try:
        registry.config = configuration.load(settings.config_path, settings.environ, log.warning)
    except ConfigInvalid as problem:
        log.error("configuration not reloaded", reason=problem.message)  # noqa: TRY400 - the sentence says it all
        return
    preparer.reconfigured()
    registry.admit()
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
        store = _checked_store(path, settings.layout)
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
        log.info("database opened", bytes_checked=checked, seconds=round(seconds, 1))
    try:
        _set_aside_damaged_agents(store, settings.layout, now())
        yield store
    finally:
        store.close()


def _checked_store(path: str, layout: Layout) -> Store:
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
        return Store(path, reserve.SIZE, may_be_new=not has_agents)
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
