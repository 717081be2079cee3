"""Decides which agents with overlapping directories may run beside each other, and writes the sentences about them. Pure.

Two agents that can both reach a directory, and one of which can write there, share more than files: a socket in it lets one
pass the other its open connections (unix(7), SCM_RIGHTS), so each reaches the network of both. The git directory that
the worktrees of a repository share is such a directory: what else follows from sharing one doesn't follow from it.

An agent takes rules and MCP servers from its workspace, also from directories further down. Where another agent can write
there, it decides what the first one does with its rights. In one and the same directory the `.cursor` at the top is
read-only to both. Example: `bob` works in `/p` with the network `none`, and `anna` is to work in `/p/sub` with `host`. Bob
could make `/p/sub/.cursor/mcp.json`, which would run with anna's network. So anna isn't spawned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandbox.spec import Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from substrat.core.agents.environment import Variables
    from substrat.core.agents.records import Agent
    from substrat.core.agents.rights import Policy

_NOTHING: frozenset[tuple[str, str]] = frozenset()
_MOST_NAMED = 5
"""How many agents a sentence names; it is to be read on one line."""


class Claim(NamedTuple):
    """The directories and the rights of an agent, or of one that is to be spawned.

    Args:
        name: the agent's name.
        workspace: its workspace's physical path; of an agent with a clone the clone's, where it alone writes.
        policy: its network and binds.
        git: git directories elsewhere that its workspace's repository is in; it may write there too.
        lent: its further variables and its ssh-agent.
    """

    name: str
    workspace: str
    policy: Policy
    git: tuple[str, ...] = ()
    lent: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, agent: Agent, git: tuple[str, ...] = ()) -> Claim:
        """Return an agent's claim."""
        lends = lent(agent.settings.environment, agent.settings.ssh_agent)
        return cls(agent.name, agent.host_directory, agent.policy, git, lends)

    @property
    def writable(self) -> tuple[str, ...]:
        """The directories that it may write to, where another agent's rules could lie: no rules lie in git directories."""
        return (self.workspace, *(bind.path for bind in self.policy.binds if bind.writable))

    @property
    def readable(self) -> tuple[str, ...]:
        """All the directories of the host that it sees and not every sandbox does."""
        return (self.workspace, *(bind.path for bind in self.policy.binds))


def lent(variables: Variables, ssh_agent: str | None) -> frozenset[tuple[str, str]]:
    """Return an agent's variables and ssh-agent, so that two agents' can be compared; empty for nearly all."""
    if not variables and ssh_agent is None:
        return _NOTHING
    return frozenset((*variables, *((("", ssh_agent),) if ssh_agent is not None else ())))


class Overlap(NamedTuple):
    """A directory that two agents share.

    Args:
        other: the other agent.
        path: the directory, the inner one where one lies in the other.
        is_same: whether it is the workspace of both.
        is_mixed: whether their networks differ, by kind or by allow-list.
        is_git: whether it is shared only because it is the git directory of a worktree that lies elsewhere.
    """

    other: Claim
    path: str
    is_same: bool
    is_mixed: bool
    is_git: bool = False


def overlaps(claim: Claim, others: Iterable[Claim]) -> tuple[Overlap, ...]:
    """Find which of the other agents share a directory with an agent, and which directory."""
    return tuple(found for other in others if (found := _overlap(claim, other)) is not None)


def writes_in(claim: Claim, places: tuple[str, ...]) -> bool:
    """Say whether an agent can write in one of some directories, below it, or above it, where it could be replaced."""
    return _meet((*claim.writable, *claim.git), places) is not None


def _overlap(mine: Claim, theirs: Claim) -> Overlap | None:
    shared = _meet(mine.writable, theirs.readable) or _meet(mine.readable, theirs.writable)
    if shared is None and not mine.git and not theirs.git:
        return None  # as nearly all of some thousand agents
    is_mixed = _differ(mine.policy, theirs.policy)
    if shared is not None:
        return Overlap(theirs, shared, mine.workspace == theirs.workspace, is_mixed)
    # Worktrees of one repository beside each other are common, and only connections matter there.
    git = _meet(mine.git, (*theirs.readable, *theirs.git)) or _meet(mine.readable, theirs.git) if is_mixed else None
    return Overlap(theirs, git, is_same=False, is_mixed=True, is_git=True) if git is not None else None


def _meet(ours: tuple[str, ...], theirs: tuple[str, ...]) -> str | None:
    """Return the first directory that two agents share, the inner one of two; workspaces come first."""
    for path in ours:
        for other in theirs:
            if _within(path, other) or _within(other, path):
                return max(path, other, key=len)
    return None


def _differ(mine: Policy, theirs: Policy) -> bool:
    """Say whether one of two agents may reach something that the other may not."""
    if mine.network is not theirs.network:
        return True
    if mine.network is not Network.FILTERED or mine.allow == theirs.allow:
        return False
    return set(mine.allow) != set(theirs.allow)


def ruling(claim: Claim, others: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return the agents that could write an agent's rules though they have less than it has.

    Agents in one and the same workspace aren't among them, because `.cursor` at its top is read-only to both.
    """
    return tuple(
        other
        for other in others
        if other.workspace != claim.workspace
        and any(_within(path, claim.workspace) or _within(claim.workspace, path) for path in other.writable)
        and not (other.policy.allows(claim.policy) and other.lent >= claim.lent)
    )


def refusal(claim: Claim, others: Iterable[Claim]) -> str | None:
    """Say why an agent may not work where it is to, None when it may."""
    writers = ruling(claim, others)
    return _refused(writers[0], claim) if writers else None


def refusal_of_new(claim: Claim, others: Iterable[Claim]) -> str | None:
    """Say why an agent may not be spawned: another could write its rules, or it could write another's."""
    found = tuple(others)
    ruled = next((other for other in found if ruling(other, (claim,))), None)
    return refusal(claim, found) or (_refused(claim, ruled) if ruled is not None else None)


def _refused(writer: Claim, ruled: Claim) -> str:
    return (
        f"{writer.name} can write in {_meeting(writer, ruled)}, so {writer.name}, which has less than {ruled.name}, could "
        f"give {ruled.name} (in {ruled.workspace}) its rules: use one directory for both, directories apart, the same "
        f"network, allow-list, binds and variables, or `substratctl end` one of them"
    )


def _meeting(writer: Claim, ruled: Claim) -> str:
    return next(path for path in writer.writable if _within(path, ruled.workspace) or _within(ruled.workspace, path))


def refusal_of_mixed(claim: Claim, found: Iterable[Overlap]) -> str | None:
    """Say why an agent may not share directories where `sandbox.shared_networks` is false, None when it may."""
    mixed = next((overlap for overlap in found if overlap.is_mixed), None)
    if mixed is None:
        return None
    apart = "a clone instead of a worktree" if mixed.is_git else "a directory of its own"
    return (
        f"{claim.name} would share {mixed.path} with {mixed.other.name}, which has {_network(mixed.other.policy)}: agents "
        f"that share a directory can pass each other connections, and sandbox.shared_networks is false; give both the same "
        f"network and allow-list, or {claim.name} {apart}"
    )


def beside(names: Sequence[str]) -> str:
    """Say that other agents work in the same checkout as a new one."""
    return (
        f"works in the same directory as {_listed(names)}, and each can overwrite the other's files: "
        "`--clone` gives an agent a clone of its own"
    )


def linked(names: Sequence[str]) -> str:
    """Say that other agents work in other worktrees of the repository of a new one."""
    return (
        f"works in another worktree of the repository of {_listed(names)}, and they have one stash: "
        "`--clone` gives an agent a clone of its own"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


def notes(found: Iterable[Overlap]) -> Iterator[str]:
    """Give a sentence about those that share directories and have other networks, and one about the others."""
    every = tuple(found)
    for is_mixed, words in (
        (True, "a connection of one can be passed to the other, so each reaches what either reaches"),
        (False, "each can change the other's files"),
    ):
        overlapping = [overlap for overlap in every if overlap.is_mixed is is_mixed]
        if overlapping:
            named = [f"{overlap.path} with {_named(overlap)}" for overlap in overlapping[:_MOST_NAMED]]
            more = f", and with {len(overlapping) - _MOST_NAMED} more" if len(overlapping) > _MOST_NAMED else ""
            yield f"shares {', '.join(named)}{more}: {words}"


def _named(overlap: Overlap) -> str:
    return f"{overlap.other.name} ({_network(overlap.other.policy)})" if overlap.is_mixed else overlap.other.name


def _network(policy: Policy) -> str:
    more = " with another list" if policy.network is Network.FILTERED else ""
    return f"the network {policy.network.value}{more}"


def roots(claim: Claim, others: Iterable[Claim]) -> tuple[str, ...]:
    """Return the workspaces of other agents that an agent can write to, its own left out.

    The names that are protected at the top of a workspace have to be protected at the top of these too, also where they
    don't exist yet.
    """
    inner = {other.workspace for other in others if any(_within(other.workspace, path) for path in claim.writable)}
    return tuple(sorted(inner - {claim.workspace}))


def _within(path: str, directory: str) -> bool:
    if not path.startswith(directory):
        return False
    return len(path) == len(directory) or directory.endswith("/") or path[len(directory)] == "/"
