"""The parts of the daemon that make, keep and show private clones, as the methods of its sockets use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from substrat.daemon.clones.checkouts import Checkouts
    from substrat.daemon.clones.diffing import Diffing
    from substrat.daemon.clones.forgetting import Forgetting
    from substrat.daemon.clones.keeping import Keeping
    from substrat.daemon.clones.landing import Landings
    from substrat.daemon.clones.making import Making
    from substrat.daemon.clones.pruning import Pruning
    from substrat.daemon.clones.relocating import Relocating
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.clones.restoring import Restoring
    from substrat.daemon.clones.wishes import CloneWishes


class Clones(NamedTuple):
    """The parts that work on clones.

    Args:
        repositories: the users' repositories.
        wishes: checks the clones that are asked for.
        making: makes them.
        keeping: keeps the work in clones.
        diffing: compares it.
        landings: lands it.
        pruning: looks after the trees of agents whose turns are over.
        forgetting: deletes the refs of agents that are over.
        restoring: puts clones back to a turn.
        relocating: gives agents in clones other workspaces.
        checkouts: gives a person working copies.
    """

    repositories: Repositories
    wishes: CloneWishes
    making: Making
    keeping: Keeping
    diffing: Diffing
    landings: Landings
    pruning: Pruning
    forgetting: Forgetting
    restoring: Restoring
    relocating: Relocating
    checkouts: Checkouts
