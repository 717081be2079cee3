"""The rights of agents as frozen values: their network, its list, and the paths that their sandboxes share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from sandbox.spec import Network
from substrat.core.netfilter.names import AllowList, NoName


class SharedPath(NamedTuple):
    """A place of the host that an agent is shown besides its workspace: its physical path, whether it may write there."""

    path: str
    writable: bool

    def covers(self, other: SharedPath) -> bool:
        """Say whether somebody who is shown this may show another that."""
        inside = other.path == self.path or other.path.startswith(self.path.rstrip("/") + "/")
        return inside and self.writable >= other.writable


@dataclass(frozen=True, slots=True)
class Policy:
    """The rights of an agent. A child's are a subset of its parent's."""

    network: Network
    allow: tuple[str, ...] = ()
    """The list of the `filtered` network: patterns of `names` in canonical form, for example `*.example.org:443`."""
    binds: tuple[SharedPath, ...] = ()
    """The paths that its sandbox shares besides its workspace."""

    def allows(self, child: Policy) -> bool:
        """Say whether a child may have the given policy."""
        if not self.shows(child):
            return False
        if self.network is child.network is Network.FILTERED:
            return AllowList.of(self.allow).covers(AllowList.of(child.allow))
        return child.network.reach <= self.network.reach

    def could_allow(self, entry: str) -> bool:
        """Say whether an entry of an allow-list, for example `pypi.org:8443`, would let through more than these rights."""
        if self.network is not Network.FILTERED:
            return False
        try:
            wanted = AllowList.of((entry,))
        except NoName:  # no list can have it
            return False
        return not AllowList.of(self.allow).covers(wanted)

    def besides(self, hosts: tuple[str, ...]) -> Policy:
        """Return these rights with some hosts more, where a list says which there are."""
        if self.network is not Network.FILTERED:
            return self
        return replace(self, allow=AllowList.of((*self.allow, *hosts)).texts)

    def within(self, above: Policy) -> Policy:
        """Return the part of these rights that a parent's rights cover; the files that are shown stay."""
        if self.network.reach > above.network.reach:
            return replace(self, network=above.network, allow=above.allow)
        if self.network is above.network is Network.FILTERED:
            return replace(self, allow=AllowList.of(self.allow).within(AllowList.of(above.allow)).texts)
        return self

    def shows(self, child: Policy) -> bool:
        """Say whether a child is shown nothing that isn't shown here."""
        return all(any(own.covers(other) for own in self.binds) for other in child.binds)
