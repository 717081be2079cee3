"""Composes the parts of the daemon that make, keep, show, land, restore and remove private clones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.clones.check_room import CheckRoom
from substrat.daemon.clones.checkouts import Checkouts
from substrat.daemon.clones.children import ChildPlaces
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
from substrat.daemon.clones.spawn_notes import SpawnNotes
from substrat.daemon.clones.turn_checks import TurnChecks
from substrat.daemon.clones.wishes import CloneWishes

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.state import State
    from substrat.daemon.agents.wakeup import Wakeup
    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.clones.setting_up import RunCommand
    from substrat.daemon.families.families import Families
    from substrat.daemon.sandboxes.sandboxes import Sandboxes


class Clones:
    """The clones of one daemon's agents.

    Args:
        state: the agents, and where their files are.
        families: say what agents wait for, and let checks begin.
        sandboxes: knows how sandboxes are made here.
        sessions: the agents' chats.
        wanted: is set when an agent wants a clone.
        run: runs a command in an agent's sandbox.
        check_unused: raises `Refused` while a person's command runs in an agent's sandbox.
    """

    def __init__(
        self,
        *,
        state: State,
        families: Families,
        sandboxes: Sandboxes,
        sessions: Sessions,
        wanted: Wakeup,
        run: RunCommand,
        check_unused: Callable[[Agent], None],
    ) -> None:
        registry, layout, preparer = state.registry, state.layout, sandboxes.preparer
        check_workspace, protector = sandboxes.checks.check_workspace, preparer.protector
        git = GitSandbox(state.files, preparer.machine.find_bubblewrap, preparer.unreadable.system_mounts)
        self.repositories = repositories = Repositories(git, lambda: protector.borrowing)
        self.wishes = CloneWishes(registry, repositories, layout.trees, check_workspace)
        self.keeping = keeping = Keeping(registry, repositories, layout, sandboxes.user.home)
        self.diffing = Diffing(repositories)
        self.places = ChildPlaces(registry, layout, repositories, self.wishes, keeping)
        setting_up = SettingUp(state=state, repositories=repositories, sandboxes=sandboxes, run=run)
        self.making = Making(
            state=state, waits=families.waits, repositories=repositories, wanted=wanted, keeping=keeping,
            setting_up=setting_up, person=preparer.person,
        )  # fmt: skip
        self.spawn_notes = SpawnNotes(
            state.registry, state.files, repositories, self.wishes, self.making, person=preparer.person
        )
        host_git = HostGit(repositories, state.environ, BranchMover(layout.trees))
        landing_git = LandingGit(repositories, host_git, state.environ)
        self.check_room = CheckRoom(state=state, sandboxes=sandboxes, git=git, setting_up=setting_up)
        self.landings = Landings(
            registry=registry, repositories=repositories, git=landing_git, host=host_git, room=self.check_room,
            queue=families.queue,
        )  # fmt: skip
        self.turn_checks = TurnChecks(registry, families.checks, self.check_room, families.queue, keeping)
        self.renaming = Renaming(registry, families.waits, repositories, keeping, check_unused)
        self.pruning = Pruning(registry, repositories, keeping, self.making, check_unused)
        self.forgetting = Forgetting(registry, repositories, self.renaming.being_given)
        self.restoring = Restoring(
            state=state, repositories=repositories, keeping=keeping, making=self.making, diffing=self.diffing,
            check_unused=check_unused,
        )  # fmt: skip
        self.checkouts = Checkouts(registry, repositories, landing_git, host_git, lambda: protector.own_places)
        self.relocating = Relocating(registry, repositories, keeping, sessions, check_workspace, check_unused=check_unused)

    def take_up(self) -> None:
        """Take up the landings that an earlier daemon left, and remove its checks' rooms."""
        self.landings.take_up()
        self.check_room.forget_earlier()

    def start(self, nursery: trio.Nursery) -> None:
        """Start the tasks that look after clones, in a nursery."""
        for task in (self.making.run, self.landings.run, self.turn_checks.run, self.renaming.finish, self.restoring.run):
            nursery.start_soon(task)
        nursery.start_soon(self.keeping.clear_quarantines)
        nursery.start_soon(self.pruning.finish_removals)
