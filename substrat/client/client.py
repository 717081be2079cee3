"""The daemon's methods as methods of a class, `Client`; many requests may be in flight at once."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal, cast

from substrat import errors
from substrat.client.connection import BACK_WITHIN_S, Object
from substrat.client.events import follow
from substrat.client.families import FamilyMethods, array, pairs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from substrat.client.events import Events
    from substrat.protocol.clone_objects import (
        CheckoutObject,
        DiffObject,
        LandingObject,
        PrunedCloneObject,
        PrunedRefsObject,
        RestoredObject,
        SetupObject,
        StoredCloneObject,
    )
    from substrat.protocol.objects import (
        AgentAfterTurnObject,
        AgentObject,
        AgentUsageObject,
        CauseObject,
        CheckObject,
        EventObject,
        ExplainedObject,
        ForwardedObject,
        GateObject,
        InboxItemObject,
        MessageObject,
        MetricsObject,
        NetworkObject,
        QueuedObject,
        RemovedObject,
        SessionMessageObject,
        SessionObject,
        SpawnedAgentObject,
        StatusObject,
        TurnObject,
        UsageObject,
        UsageSumObject,
        WaitObject,
        WholeAgentObject,
    )


class Client(FamilyMethods):
    """A conversation with the daemon; make one with `connect`. It runs under asyncio and Trio.

    Every method raises the errors of `substrat.errors` that the daemon answers with, and `ConnectionLost` when it goes
    away; waits and events outlast a restart of the daemon. Agents are named by name or id. `docs/protocol.md` describes
    each method under the name in parentheses, with its parameters, its result and its errors. `agent.exec` and the
    subscriptions of one connection are for `call`.
    """

    # Agents

    async def spawn(
        self,
        workspace: str,
        *,
        name: str | None = None,
        program: str | None = None,
        model: str | None = None,
        network: str | None = None,
        allow: Sequence[str] | None = None,
        bind: Sequence[str] | None = None,
        bind_ro: Sequence[str] | None = None,
        prompt: str | None = None,
        session: str | None = None,
        restore: str | None = None,
        priority: str | None = None,
        env: Mapping[str, str] | None = None,
        ssh_agent: str | None = None,
        time_limit: float | None = None,
        silence_limit: float | None = None,
        check: str | None = None,
        retries: int | None = None,
        budget: Mapping[str, float] | None = None,
        clone: bool | None = None,
        branch: str | None = None,
        base: str | None = None,
        wip: bool | None = None,
    ) -> SpawnedAgentObject:
        """Create an agent; with a prompt its first turn starts, with a session it takes that chat over (`agent.spawn`)."""
        found = await self.call(
            "agent.spawn", workspace=workspace, name=name, program=program, model=model, network=network,
            allow=array(allow), bind=array(bind), bind_ro=array(bind_ro), prompt=prompt, session=session,
            restore=restore, priority=priority, env=pairs(env), ssh_agent=ssh_agent,
            time_limit=time_limit, silence_limit=silence_limit, check=check, retries=retries, budget=pairs(budget),
            clone=clone, branch=branch, base=base, wip=wip,
        )  # fmt: skip
        return cast("SpawnedAgentObject", found)

    async def agents(self, after: str | None = None, limit: int | None = None) -> list[AgentObject]:
        """Return agent objects, oldest first: all, or at most `limit` of those after one (`agent.list`)."""
        return cast("list[AgentObject]", await self.call("agent.list", after=after, limit=limit))

    async def show(self, agent: str) -> WholeAgentObject:
        """Return one agent object, whole (`agent.show`)."""
        return cast("WholeAgentObject", await self.call("agent.show", agent=agent))

    async def explain(self, agent: str) -> ExplainedObject:
        """Return how the agent's next turn would be started (`agent.explain`)."""
        return cast("ExplainedObject", await self.call("agent.explain", agent=agent))

    async def rename(self, agent: str, name: str) -> AgentObject:
        """Give an agent another name (`agent.rename`)."""
        return cast("AgentObject", await self.call("agent.rename", agent=agent, name=name))

    async def set(
        self,
        agent: str,
        *,
        program: str | None = None,
        model: str | None = None,
        network: str | None = None,
        allow: Sequence[str] | None = None,
        priority: str | None = None,
        time_limit: float | None = None,
        silence_limit: float | None = None,
        check: str | None = None,
        retries: int | None = None,
        env: Mapping[str, str] | None = None,
        without: Sequence[str] | None = None,
        defaults: Sequence[str] | None = None,
        workspace: str | None = None,
    ) -> AgentObject:
        """Change an agent's settings, all or none, from its next turn on (`agent.set`)."""
        found = await self.call(
            "agent.set", agent=agent, program=program, model=model, network=network, allow=array(allow),
            priority=priority, time_limit=time_limit, silence_limit=silence_limit, check=check, retries=retries,
            env=pairs(env), without=array(without), defaults=array(defaults), workspace=workspace,
        )  # fmt: skip
        return cast("AgentObject", found)

    async def allow(self, agent: str, *hosts: str, remove: Sequence[str] = ()) -> NetworkObject:
        """Put hosts on an agent's allow-list and take others off it (`agent.network`)."""
        found = await self.call("agent.network", agent=agent, allow=list(hosts), remove=list(remove))
        return cast("NetworkObject", found)

    async def network(self, agent: str) -> NetworkObject:
        """Return an agent's allow-list and the decisions of its network (`agent.network`)."""
        return cast("NetworkObject", await self.call("agent.network", agent=agent))

    async def forwarded(self, agent: str) -> ForwardedObject:
        """Return the running sandboxes of an agent, whose networks can be joined (`agent.forward`)."""
        return cast("ForwardedObject", await self.call("agent.forward", agent=agent))

    # Turns

    async def send(self, agent: str, prompt: str) -> int:
        """Queue a prompt (`agent.send`). Returns the inbox item's number, for `wait_message`."""
        return cast("int", cast("Object", await self.call("agent.send", agent=agent, prompt=prompt))["message"])

    async def wait(
        self,
        *agents: str,
        until: Sequence[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the daemon's, and with a second of grace this client's
        reconnect: float = BACK_WITHIN_S,
    ) -> list[AgentObject]:
        """Wait until each agent is in one of the states (default: neither queued nor running) (`agent.wait`).

        Args:
            agents: names or ids.
            until: the states.
            timeout: the longest to wait, in seconds, also for a daemon that doesn't answer.
            reconnect: how many seconds a daemon that has gone away may take to come back. The wait then goes on over a
                connection of its own; for other calls this conversation has ended.

        Raises:
            WaitTimedOut: it took longer than `timeout` seconds.
            ConnectionLost: the daemon went away, and `reconnect` is 0.
            DaemonNotRunning: the daemon went away and didn't come back in time.
        """
        params: Object = {"agents": list(agents), "until": array(until)}
        return cast("list[AgentObject]", await self.call_waiting("agent.wait", params, timeout, reconnect))

    async def wait_message(
        self,
        agent: str,
        message: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the daemon's, and with a second of grace this client's
        reconnect: float = BACK_WITHIN_S,
    ) -> AgentAfterTurnObject:
        """Wait until the turn that carries an inbox item has ended (default: the newest prompt) (`agent.wait_message`).

        `timeout`, `reconnect` and the errors are those of `wait`.

        Returns:
            The agent object, whose `turn` is that turn.
        """
        params: Object = {"agent": agent, "message": message}
        return cast("AgentAfterTurnObject", await self.call_waiting("agent.wait_message", params, timeout, reconnect))

    async def suspend(self, agent: str, *, freeze: bool | None = None) -> AgentObject:
        """Stop the turn and keep the session; returns when the process is gone (`agent.suspend`)."""
        return cast("AgentObject", await self.call("agent.suspend", agent=agent, freeze=freeze))

    async def resume(self, agent: str, prompt: str | None = None) -> int | None:
        """Go on where it stopped (`agent.resume`). Returns the inbox item's number, None when nothing was left to do."""
        answer = cast("Object", await self.call("agent.resume", agent=agent, prompt=prompt))
        return cast("int | None", answer["message"])

    async def interrupt(self, agent: str) -> AgentObject:
        """Stop the turn (`agent.interrupt`)."""
        return cast("AgentObject", await self.call("agent.interrupt", agent=agent))

    async def end(self, agent: str, *, family: bool | None = None) -> AgentObject:
        """Finish the agent for good, with `family` all that descend from it too (`agent.end`)."""
        return cast("AgentObject", await self.call("agent.end", agent=agent, family=family))

    async def rm(self, agent: str) -> RemovedObject:
        """Forget an agent that isn't running (`agent.rm`)."""
        return cast("RemovedObject", await self.call("agent.rm", agent=agent))

    async def accept(self, agent: str, *numbers: int) -> AgentObject:
        """Note that a person has seen findings, by default all reasons for attention (`agent.accept`)."""
        return cast("AgentObject", await self.call("agent.accept", agent=agent, what=list(numbers) or None))

    async def turns(self, agent: str, after: int = 0, limit: int | None = None) -> list[TurnObject]:
        """Return a page of an agent's turn objects after a number; an empty page is the end (`agent.turns`)."""
        page = cast("Object", await self.call("agent.turns", agent=agent, after=after, limit=limit))
        return cast("list[TurnObject]", page["turns"])

    async def usage(self, agent: str) -> UsageObject:
        """Return the tokens of an agent's turns, and of its family's (`agent.usage`)."""
        return cast("UsageObject", await self.call("agent.usage", agent=agent))

    async def usage_by(
        self, by: Literal["agent", "day", "model", "repository"], agents: Sequence[str] | None = None,
        since: str | None = None,
    ) -> list[UsageSumObject]:  # fmt: skip
        """Return agents' tokens by day, model, repository or agent; `since` is a time (`usage.sum`)."""
        return cast("list[UsageSumObject]", await self.call("usage.sum", by=by, agents=agents, since=since))

    async def usages(self, after: str | None = None, limit: int | None = None) -> list[AgentUsageObject]:
        """Return a page of agents' tokens after one; fewer than `limit` (1,000) are the end (`usage.list`)."""
        return cast("list[AgentUsageObject]", await self.call("usage.list", after=after, limit=limit))

    async def why(self, agent: str) -> CauseObject:
        """Return the events that led to the agent's newest turn (`agent.why`)."""
        return cast("CauseObject", await self.call("agent.why", agent=agent))

    # Private clones

    async def setup(self, agent: str) -> SetupObject:
        """Return the output of the commands that set an agent's clone up (`agent.setup`)."""
        return cast("SetupObject", await self.call("agent.setup", agent=agent))

    async def diff(
        self, agent: str, *, wip: bool | None = None, turn: int | None = None, text: bool | None = None
    ) -> DiffObject:
        """Compare the work in an agent's clone with its base (`agent.diff`)."""
        return cast("DiffObject", await self.call("agent.diff", agent=agent, wip=wip, turn=turn, text=text))

    async def merge(
        self,
        *agents: str,
        into: str | None = None,
        squash: bool | None = None,
        ff_only: bool | None = None,
        message: str | None = None,
        check: str | None = None,
        accept: Sequence[str] | None = None,
        at: str | None = None,
    ) -> list[LandingObject]:
        """Land the commits of agents' clones in a branch, and return each one's outcome (`agent.merge`)."""
        found = await self.call(
            "agent.merge", agents=list(agents), into=into, squash=squash, ff_only=ff_only, message=message, check=check,
            accept=array(accept), at=at, outcomes=True,
        )  # fmt: skip
        return cast("list[LandingObject]", found)

    async def restore(self, agent: str, turn: int) -> RestoredObject:
        """Put an agent's clone back to how a turn left it (`agent.restore`)."""
        return cast("RestoredObject", await self.call("agent.restore", agent=agent, turn=turn))

    async def checkout(self, agent: str, directory: str, *, accept: Sequence[str] | None = None) -> CheckoutObject:
        """Make a working copy of the commits of an agent's clone (`agent.checkout`)."""
        found = await self.call("agent.checkout", agent=agent, directory=directory, accept=array(accept))
        return cast("CheckoutObject", found)

    async def clones(self, *, sizes: bool | None = None) -> list[StoredCloneObject]:
        """Return the private clones that are on disk, with `sizes` measured anew (`clone.list`)."""
        return cast("list[StoredCloneObject]", await self.call("clone.list", sizes=sizes))

    async def prune_clones(
        self, *names: str, unlanded: bool | None = None, dry_run: bool | None = None
    ) -> list[PrunedCloneObject]:
        """Remove the clones of agents that are over (`clone.prune`)."""
        found = await self.call("clone.prune", names=list(names) or None, unlanded=unlanded, dry_run=dry_run)
        return cast("list[PrunedCloneObject]", found)

    async def prune_refs(
        self, *names: str, unlanded: bool | None = None, dry_run: bool | None = None
    ) -> list[PrunedRefsObject]:
        """Delete the refs of agents that are over from users' repositories (`clone.prune_refs`)."""
        found = await self.call("clone.prune_refs", names=list(names) or None, unlanded=unlanded, dry_run=dry_run)
        return cast("list[PrunedRefsObject]", found)

    # Inbox, messages, waits and the queue

    async def inbox(self) -> list[InboxItemObject]:
        """Return everything that waits for the operator, oldest first, with whole texts (`inbox.list`, `inbox.show`).

        Items that are answered or dismissed meanwhile are left out.
        """
        found: list[InboxItemObject] = []
        after: int | None = 0
        while after is not None:
            items, after = await self.inbox_page(after)
            found += items
        return found

    async def inbox_page(self, after: int = 0, limit: int | None = None) -> tuple[list[InboxItemObject], int | None]:
        """Return some of what `inbox` does, after an item's number, and the number to read on after; None: the end."""
        found: list[InboxItemObject] = []
        page = cast("Object", await self.call("inbox.list", after=after, limit=limit))
        for item in cast("list[Object]", page["items"]):
            with suppress(errors.NotFound, errors.Refused):
                cut = item.pop("cut")
                whole = await self.call("inbox.show", id=item["id"]) if cut else item
                found.append(cast("InboxItemObject", whole))
        return found, cast("int", page["after"]) if page["more"] else None

    async def answer(self, item: int, text: str) -> int:
        """Answer a question or a message (`inbox.answer`). Returns the number that carries it, for `wait_message`."""
        return cast("int", cast("Object", await self.call("inbox.answer", id=item, text=text))["message"])

    async def dismiss(self, item: int) -> None:
        """Take a question or a message off the inbox (`inbox.dismiss`)."""
        await self.call("inbox.dismiss", id=item)

    async def messages(self, agent: str) -> list[MessageObject]:
        """Return everything that was sent to an agent and by it, oldest first (`message.list`)."""
        found: list[MessageObject] = []
        page: Object = {"after": 0, "more": True}
        while page["more"]:
            page = cast("Object", await self.call("message.list", agent=agent, after=page["after"]))
            found += cast("list[MessageObject]", page["messages"])
        return found

    async def drop(self, agent: str, message: int) -> None:
        """Take back a message that still waits (`message.drop`)."""
        await self.call("message.drop", agent=agent, id=message)

    async def waits(self, *agents: str) -> list[WaitObject]:
        """Return the open waits of agents for others, by default of all (`wait.list`)."""
        return cast("list[WaitObject]", await self.call("wait.list", agents=list(agents) or None))

    async def queue(self) -> list[QueuedObject]:
        """Return the agents that wait for their turns, with reasons (`queue.list`)."""
        return cast("list[QueuedObject]", await self.call("queue.list"))

    async def gates(self) -> list[GateObject]:
        """Return the logins whose turns are held (`queue.gates`)."""
        return cast("list[GateObject]", await self.call("queue.gates"))

    async def try_gates(self) -> list[GateObject]:
        """Let one turn of each held login try now (`queue.try`)."""
        return cast("list[GateObject]", await self.call("queue.try"))

    # Chats

    async def sessions(self, workspace: str) -> list[SessionObject]:
        """Return the chats of a workspace, newest first (`session.list`)."""
        return cast("list[SessionObject]", await self.call("session.list", workspace=workspace))

    async def read_session(self, workspace: str, session: str, after: int = 0) -> tuple[list[SessionMessageObject], int]:
        """Return a page of a chat's messages, and the number to read on after; an empty one is the end (`session.read`)."""
        page = cast("Object", await self.call("session.read", workspace=workspace, session=session, after=after))
        return cast("list[SessionMessageObject]", page["messages"]), cast("int", page["after"])

    # Events

    async def read_events(
        self, agent: str | None = None, since: int = 0, limit: int | None = None, journal: str | None = None
    ) -> tuple[list[EventObject], int]:
        """Return a page of events after a cursor, and the cursor to read on from; empty is the end (`events.read`)."""
        page = cast("Object", await self.call("events.read", agent=agent, since=since, limit=limit, journal=journal))
        return cast("list[EventObject]", page["events"]), cast("int", page["cursor"])

    @asynccontextmanager
    async def events(
        self,
        agent: str | None = None,
        since: int | None = None,
        reconnect: float = BACK_WITHIN_S,
        journal: str | None = None,
    ) -> AsyncIterator[Events]:
        """Follow events: `async with client.events() as events: async for event in events: ...` (`events.subscribe`).

        Opens a connection of its own and closes it with the context. The loop ends by `break` or with `ConnectionLost`.

        Args:
            agent: only this agent's.
            since: the cursor to start after; None: only later events.
            reconnect: how many seconds a daemon that has gone away may take to come back. The events then go on where
                they were.
            journal: the id of the cursor's journal, from `events.journal`: with another state it fails then.
        """
        followed = follow(self._path, client=self._client, agent=agent, since=since, journal=journal, reconnect=reconnect)
        async with followed as events:
            yield events

    # The daemon

    async def status(self) -> StatusObject:
        """Return the daemon's state (`daemon.status`)."""
        return cast("StatusObject", await self.call("daemon.status"))

    async def metrics(self) -> MetricsObject:
        """Return numbers for monitoring (`daemon.metrics`)."""
        return cast("MetricsObject", await self.call("daemon.metrics"))

    async def check(self) -> CheckObject:
        """Return whether agents can run under this daemon (`daemon.check`)."""
        return cast("CheckObject", await self.call("daemon.check"))

    async def test_notification(self) -> None:
        """Run `notify.command` with a made-up agent (`notify.test`)."""
        await self.call("notify.test")

    async def shutdown(self, *, suspend: bool = False) -> None:
        """Stop the daemon; turns go on unless every agent is suspended first (`daemon.shutdown`)."""
        await self.call("daemon.shutdown", suspend=suspend)
