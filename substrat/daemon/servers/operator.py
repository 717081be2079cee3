"""The operator socket: who may come in, and what each method of `wire.methods` does; deciding is the supervisor's."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import structlog
import trio

from sandbox.spec import Network
from substrat import __version__
from substrat.core.agents import environment
from substrat.core.agents.environment import BadVariable
from substrat.core.agents.lifecycle import LIVE_PHASES, RUNNING_PHASES, STATE_OF, Phase
from substrat.core.agents.prompts import timestamp
from substrat.core.agents.records import Restore
from substrat.core.agents.usage import Total, family, together, total
from substrat.core.programs.table import PROGRAM
from substrat.core.workspaces import overlap
from substrat.daemon.agents.overview import Overview, finding_object
from substrat.daemon.agents.requests import SpawnRequest, bounded
from substrat.daemon.kernel import sockets
from substrat.daemon.servers import rpc, slices
from substrat.daemon.turns.exec import Call
from substrat.errors import InvalidParams, NotFound, Refused, SessionDamaged
from substrat.protocol import methods

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

    from substrat.core.agents.environment import Variables
    from substrat.core.agents.records import Agent, Item, Turn
    from substrat.daemon.agents.allow_list import AllowLists
    from substrat.daemon.agents.findings import Findings
    from substrat.daemon.agents.inbox import Inbox
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.kernel.cgroups import Cgroups
    from substrat.daemon.sandboxes.chats import Chats
    from substrat.daemon.sandboxes.prepare import SandboxPreparer
    from substrat.daemon.sandboxes.sessions import Sessions
    from substrat.daemon.servers.rpc import Connection, Params
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.turns.exec import ExecSessions
    from substrat.daemon.turns.runner import TurnRunner

log = structlog.get_logger("substrat.operator_door")

MAX_CONNECTIONS = 512
_MAX_PAGE = 1000
_PAGE_BYTES = 1024 * 1024
"""A page ends with the event or the turn that exceeds it: small enough that encoding it is a matter of milliseconds."""
_FEED_BYTES = 64 * 1024
"""A subscription's page: all that a client that doesn't read costs besides its socket and what is on its way there."""
_FEED_EVENTS = 256
_MAX_TURNS = 100
_MOST_SHARES = 100  # of agents that share a directory with one: a list that a person can still read
_LISTED_ERROR = 200
"""Characters of a turn's error in a list: enough for its sentence, and a thousand of them are still a small answer."""
_LISTED_TEXT = 2000
"""Characters of a question or a message in a list: the most are shorter, and sixteen of them are encoded at once."""
_MOST_ITEMS = 1000
_USAGES = 256
"""How many turns' usages are added up at once."""
_LONGEST_WAIT = 1e9


def agent_object(agent: Agent) -> dict[str, object]:
    """Return an agent as people see it."""
    return {
        "id": agent.id,
        "name": agent.name,
        "state": STATE_OF[agent.phase],
        "session_id": agent.session.id if agent.session else None,
        "workspace": agent.workspace,
        "model": agent.model,
        "network": agent.policy.network.value,
        "parent": agent.parent,
        "created_at": timestamp(agent.created_at),
        "unread": agent.waiting,
        "turn": turn_object(agent.turn) if agent.turn else None,
    }


def listed(shown: dict[str, object]) -> dict[str, object]:
    """Shorten an agent object for every answer but those that show one agent's turn: no result, no usage, a short error.

    Args:
        shown: what `agent_object` returned.
    """
    turn = shown["turn"]
    if not isinstance(turn, dict):
        return shown
    error = turn["error"]
    if isinstance(error, str) and len(error) > _LISTED_ERROR:
        error = error[: _LISTED_ERROR - 1] + "…"
    return {**shown, "turn": {**turn, "result": None, "usage": None, "error": error}}


def turn_object(turn: Turn) -> dict[str, object]:
    """Return a turn as people see it."""
    return {
        "id": turn.id,
        "number": turn.number,
        "outcome": turn.outcome.value if turn.outcome else None,
        "started_at": timestamp(turn.started_at),
        "ended_at": timestamp(turn.ended_at) if turn.ended_at is not None else None,
        "exit_code": turn.exit_code,
        "result": turn.result,
        "usage": dict(turn.usage) if turn.usage is not None else None,
        "error": turn.error,
    }


def item_object(item: Item) -> dict[str, object]:
    """Return a question or a message as people see it."""
    return {
        "id": item.id,
        "from": item.sender_name,
        "time": timestamp(item.time),
        "text": item.text,
        "kind": item.kind.value,
    }


def listed_item(item: Item) -> dict[str, object]:
    """Return a question or a message with its text shortened, and whether it was."""
    cut = len(item.text) > _LISTED_TEXT
    text = item.text[: _LISTED_TEXT - 1] + "…" if cut else item.text
    return {**item_object(replace(item, text=text)), "cut": cut}


class OperatorServer:
    """Answers the operator.

    Args:
        supervisor: the agents.
        runner: what runs turns.
        furnisher: what can be found out about starting them.
        groups: what limits whole sandboxes.
        places: the daemon's directories.
        chats: the user's chats.
        sessions: what moves agents' chats to them.
        questions: what waits for the operator.
        allowances: what `filtered` networks let through.
        visits: the operator's commands in agents' sandboxes.
        findings: what a person has to look at.
        stop: stops the daemon.
    """

    def __init__(
        self,
        supervisor: AgentRequests,
        runner: TurnRunner,
        preparer: SandboxPreparer,
        groups: Cgroups,
        places: Layout,
        chats: Chats,
        sessions: Sessions,
        questions: Inbox,
        allowances: AllowLists,
        visits: ExecSessions,
        findings: Findings,
        stop: Callable[[], None],
    ) -> None:
        self._requests = supervisor
        self._registry = supervisor.registry
        self._runner = runner
        self._preparer = preparer
        self._groups = groups
        self._places = places
        self._chats = chats
        self._agents_chats = sessions
        self._questions = questions
        self._allowances = allowances
        self._exec_sessions = visits
        self._findings = findings
        self._overview = Overview(self._registry)
        self._stop = stop
        self._handlers: dict[str, Callable[[Connection, Params], Awaitable[object]]] = {
            "agent.spawn": self._spawn,
            "agent.send": self._send,
            "agent.list": self._list,
            "agent.show": self._show,
            "agent.wait": self._wait,
            "agent.wait_message": self._wait_message,
            "agent.suspend": self._suspend,
            "agent.resume": self._resume,
            "agent.interrupt": self._interrupt,
            "agent.end": self._end,
            "agent.rm": self._rm,
            "agent.explain": self._explain,
            "agent.exec": self._exec,
            "agent.turns": self._turns,
            "agent.usage": self._usage,
            "agent.network": self._network,
            "agent.accept": self._accept,
            "session.list": self._sessions,
            "session.read": self._session,
            "events.read": self._read,
            "events.subscribe": self._subscribe,
            "events.unsubscribe": self._unsubscribe,
            "inbox.list": self._inbox,
            "inbox.show": self._inbox_show,
            "inbox.answer": self._inbox_answer,
            "inbox.dismiss": self._inbox_dismiss,
            "daemon.status": self._status,
            "daemon.check": self._check,
            "daemon.shutdown": self._shutdown,
        }

    async def serve(
        self, listener: trio.SocketListener, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve the operator socket until cancelled."""
        task_status.started()
        await sockets.accept_forever(listener, MAX_CONNECTIONS, self.serve_stream)

    async def serve_stream(self, stream: trio.SocketStream, greeted: Callable[[], None]) -> None:
        """Serve one client, if it is the daemon's own user or root; `greeted` is called after its `hello`."""
        if (uid := sockets.peer_uid(stream)) not in {os.geteuid(), 0}:
            log.warning("refused a client of another user", uid=uid)
            return
        await rpc.Connection(stream, self, greeted).serve()

    def handler(self, method: str) -> Callable[[Connection, Params], Awaitable[object]]:
        """Return what performs a method (`rpc.Handlers`)."""
        handle = self._handlers[method]

        async def perform(connection: Connection, params: Params) -> object:
            result = await handle(connection, params)
            self._registry.points.answering(method)
            return result

        return perform

    def greeting(self) -> dict[str, object]:
        """Return what `hello` tells besides versions (`rpc.Handlers`)."""
        return {"pid": os.getpid(), "state_dir": self._places.state}

    # Agents

    def _object(self, agent: Agent) -> dict[str, object]:
        return self._objects([agent])[0]

    def _objects(self, agents: Sequence[Agent]) -> list[dict[str, object]]:
        more = self._overview.of(agents)
        return [{**listed(agent_object(agent)), **added} for agent, added in zip(agents, more, strict=True)]

    async def _encode(self, agents: Sequence[Agent], wanted: Collection[str] = ()) -> rpc.Encoded:
        """Encode any number of agents. Their records are values: what changes meanwhile isn't seen."""
        return rpc.Encoded(await slices.encode_list(self._shown(some, wanted) for some in slices.sliced(agents)))

    def _shown(self, agents: Sequence[Agent], wanted: Collection[str]) -> list[dict[str, object]]:
        if not wanted:
            return self._objects(agents)
        found = (
            [listed(agent_object(agent)) for agent in agents] if _LOOKED_UP.isdisjoint(wanted) else self._objects(agents)
        )
        if not _EXTRAS.isdisjoint(wanted):
            found = [{**shown, **self._overview.extras(agent)} for agent, shown in zip(agents, found, strict=True)]
        return [{name: shown[name] for name in wanted} for shown in found]

    def _whole_object(self, agent: Agent) -> dict[str, object]:
        """Return an agent object with its turn's result; `agent` has been read with it."""
        return {**agent_object(agent), **self._overview.of([agent])[0]}

    async def _spawn(self, _connection: Connection, params: Params) -> object:
        network = _network(params)
        await self._preparer.check()
        workspace, model, session = self._preparer.check_workspace(_text(params, "workspace")), params.get("model"), None
        if (adopted := _optional(params, "session")) is not None:
            session = adopted.lower()
            if PROGRAM.is_session_id(session):
                await self._agents_chats.rescue(workspace, session)
            head, _ = await self._chats.read(workspace, session)
            if head.damage is not None:
                raise SessionDamaged(f"the session {session} is damaged: {head.damage}; nothing was changed")
            model = model or head.model
        shown = self._preparer.check_binds(_strings(params, "bind"), _strings(params, "bind_ro"), workspace)
        ssh_agent = _optional(params, "ssh_agent")
        if ssh_agent is not None:
            ssh_agent = self._preparer.check_ssh_agent(ssh_agent, workspace, shown)
        wish = SpawnRequest(
            workspace, _optional(params, "name"), cast("str | None", model), network, _optional(params, "prompt"),
            session, _restore(params), _strings(params, "allow"), shown, _variables(params), ssh_agent,
        )  # fmt: skip
        await self._preparer.protector.find_git(workspace)
        agent = self._requests.spawn(wish)
        message = self._registry.store.newest_prompt(agent.id) if wish.prompt is not None else None
        notes = list(overlap.notes(self._requests.shared(agent)))
        added: dict[str, object] = {"message": message} if message is not None else {}
        return {**self._object(agent), **added, **({"notes": notes} if notes else {})}

    async def _send(self, _connection: Connection, params: Params) -> object:
        agent, item = self._requests.send(_text(params, "agent"), _text(params, "prompt"))
        return {"agent": self._object(agent), "message": item}

    async def _list(self, _connection: Connection, params: Params) -> object:
        wanted = dict.fromkeys(_strings(params, "fields"))
        known = (*methods.AGENT_FIELDS, *methods.AGENT_EXTRAS)
        if odd := [name for name in wanted if name not in known]:
            there_are = ", ".join(known)
            raise InvalidParams(f"agent.list: {odd[0]!r} is no member of an agent object; there are {there_are}")
        return await self._encode(tuple(self._registry.agents), wanted)

    async def _show(self, _connection: Connection, params: Params) -> object:
        agent = self._whole(self._requests.find(_text(params, "agent")))
        binds = [shown._asdict() for shown in agent.policy.binds]
        use = self._runner.use(agent)
        shares = (
            [
                {"agent": found.other.name, "path": found.path, "network": found.other.policy.network.value}
                for found in self._requests.shared(agent)[:_MOST_SHARES]
            ]
            if agent.phase != Phase.ENDED
            else []
        )
        shown = slices.encoded({
            **self._whole_object(agent),
            **({"shares": shares} if shares else {}),
            **({"binds": binds} if binds else {}),
            **({"environment": [name for name, _ in agent.environment]} if agent.environment else {}),
            **({"ssh_agent": agent.ssh_agent} if agent.ssh_agent is not None else {}),
            **({"use": use._asdict()} if use is not None else {}),
        })  # fmt: skip
        if not agent.findings:
            return rpc.Encoded([shown])
        findings = await slices.encode_list([finding_object(finding)] for finding in agent.findings)
        return rpc.Encoded([shown[:-1], b',"findings":', *findings, b"}"])

    def _whole(self, agent: Agent) -> Agent:
        """Return an agent with its turn's result and usage, which only the store holds."""
        turn = self._registry.store.turn(agent.turn.id) if agent.turn is not None else None
        return replace(agent, turn=turn) if turn is not None else agent

    async def _wait(self, _connection: Connection, params: Params) -> object:
        names = cast("list[str]", params["agents"])
        states = cast("list[str] | None", params.get("until"))
        found = await bounded(_timeout(params), ", ".join(names), lambda: self._requests.wait_states(names, states))
        return await self._encode(found)

    async def _wait_message(self, _connection: Connection, params: Params) -> object:
        name, item = _text(params, "agent"), cast("int | None", params.get("message"))
        return self._whole_object(
            await bounded(_timeout(params), f"the turn of {name}", lambda: self._requests.wait_item(name, item))
        )

    async def _suspend(self, _connection: Connection, params: Params) -> object:
        name = _text(params, "agent")
        if params.get("freeze"):
            return self._object(await self._freeze(name))
        agent = self._requests.suspend(name)
        return self._object(await self._requests.wait_settled(agent.id))

    async def _freeze(self, name: str) -> Agent:
        agent = self._requests.freeze(name)
        if agent.phase == Phase.FROZEN and not await self._runner.frozen(agent):
            has_begun = self._runner.has_begun(agent)
            self._requests.resume(agent.id, None)
            if not has_begun:
                raise Refused(
                    f"{agent.name}'s sandbox has no process yet that could be frozen: suspend it without freezing"
                )
            raise Refused(f"{agent.name} makes processes faster than they can be stopped: suspend it without freezing")
        return await self._requests.wait_settled(agent.id)

    async def _interrupt(self, _connection: Connection, params: Params) -> object:
        agent = self._requests.interrupt(_text(params, "agent"))
        return self._object(await self._requests.wait_settled(agent.id))

    async def _end(self, _connection: Connection, params: Params) -> object:
        agent = self._requests.end(_text(params, "agent"))
        return self._object(await self._requests.wait_settled(agent.id))

    async def _resume(self, _connection: Connection, params: Params) -> object:
        agent, item = self._requests.resume(_text(params, "agent"), _optional(params, "prompt"))
        return {"agent": self._object(agent), "message": item}

    async def _rm(self, _connection: Connection, params: Params) -> object:
        agent = self._requests.find(_text(params, "agent"))
        self._exec_sessions.check_none(agent)
        if agent.phase not in LIVE_PHASES:
            await self._agents_chats.keep(agent)
        self._requests.remove(agent.id)
        return None

    async def _explain(self, _connection: Connection, params: Params) -> object:
        return (await self._preparer.explain(self._requests.find(_text(params, "agent"))))._asdict()

    async def _exec(self, _connection: Connection, params: Params) -> object:
        agent, command = self._requests.find(_text(params, "agent")), cast("list[str]", params["command"])
        call = Call(tuple(command), _text(params, "descriptors"), _optional(params, "terminal"))
        return {"exit_code": await self._exec_sessions.run(agent, call)}

    async def _accept(self, _connection: Connection, params: Params) -> object:
        numbers = cast("list[int]", params.get("what") or [])
        return self._object(self._findings.accept(_text(params, "agent"), numbers))

    async def _turns(self, _connection: Connection, params: Params) -> object:
        agent, after = self._requests.find(_text(params, "agent")), cast("int", params.get("after", 0))
        turns = self._registry.store.turns_after(agent.id, after, _MAX_TURNS, _PAGE_BYTES)
        pieces = await slices.encode_list([turn_object(turn)] for turn in turns)
        return rpc.Encoded([b'{"turns":', *pieces, b',"after":%d}' % (turns[-1].number if turns else after)])

    async def _usage(self, _connection: Connection, params: Params) -> object:
        agent = self._requests.find(_text(params, "agent"))
        members = family(agent, self._registry.agents)
        totals = [await self._total(member) for member in members]
        return {**totals[0]._asdict(), "family": {"agents": len(members), **together(totals)._asdict()}}

    async def _total(self, agent: Agent) -> Total:
        found, after = Total(0, {}), 0
        while page := self._registry.store.usages(agent.id, after, _USAGES):
            found, after = together([found, total(usage for _, usage in page)]), page[-1][0]
            await trio.lowlevel.checkpoint()
        return found

    # Sessions

    async def _network(self, _connection: Connection, params: Params) -> object:
        name = _text(params, "agent")
        add, remove = (tuple(cast("list[str]", params.get(key) or ())) for key in ("allow", "remove"))
        agent = self._allowances.change(name, add, remove) if add or remove else self._requests.find(name)
        turn = agent.turn
        form = self._places.agent(agent.id).turn(turn.number).read_network_mode() if turn is not None else None
        return {
            "network": agent.policy.network.value,
            "form": form.value if form is not None else None,
            "process": self._runner.first_process(agent),
            "allow": list(agent.policy.allow),
            "decisions": [
                {"time": timestamp(row.time), "allowed": row.kind == "network:allowed", "text": row.text}
                for row in self._allowances.decisions(agent)
            ],
        }

    async def _sessions(self, _connection: Connection, params: Params) -> object:
        holders = {agent.session.id: agent.name for agent in self._registry.agents if agent.session is not None}
        found = await self._chats.list_all(_directory(params))
        objects = (
            {
                "session": chat.session,
                "title": chat.title,
                "model": chat.model,
                "created_at": timestamp(chat.created_ms / 1000) if chat.created_ms is not None else None,
                "updated_at": timestamp(chat.updated_at),
                "size": chat.size,
                "agent": holders.get(chat.session),
                "damage": chat.damage,
            }
            for chat in found
        )
        return rpc.Encoded(await slices.encode_list([one] for one in objects))

    async def _session(self, _connection: Connection, params: Params) -> object:
        session, after = _text(params, "session").lower(), max(0, cast("int", params.get("after", 0)))
        head, messages = await self._chats.read(_directory(params), session, after)
        return {
            "session": session,
            "title": head.title,
            "model": head.model,
            "created_at": timestamp(head.created_ms / 1000) if head.created_ms is not None else None,
            "damage": head.damage,
            "messages": [{"role": message.role, "text": message.text, "calls": message.calls} for message in messages],
            "after": messages[-1].number if messages else after,
        }

    # The operator's inbox

    async def _inbox(self, _connection: Connection, params: Params) -> object:
        if "after" not in params:
            return rpc.Encoded(await slices.encode_list(self._items(0, None)))
        last = max(0, cast("int", params["after"]))

        def page() -> Iterator[list[dict[str, object]]]:
            nonlocal last
            for items in self._items(last, _PAGE_BYTES):
                last = cast("int", items[-1]["id"])
                yield items

        pieces = await slices.encode_list(page())
        more = json.dumps(bool(self._questions.waiting(last, 1))).encode()
        return rpc.Encoded([b'{"items":', *pieces, b',"after":%d,"more":%s}' % (last, more)])

    def _items(self, after: int, most: int | None) -> Iterator[list[dict[str, object]]]:
        """Read the inbox slice by slice.

        Args:
            after: the number of the item before the first one.
            most: the bytes of text after which there is no further slice; None is no bound.
        """
        size = count = 0
        while count < _MOST_ITEMS and (most is None or size < most):
            if not (items := self._questions.waiting(after, slices.OBJECTS)):
                return
            shown = [listed_item(item) for item in items]
            yield shown
            after, count = items[-1].id, count + len(items)
            size += sum(len(slices.encoded(one["text"])) for one in shown)

    async def _inbox_show(self, _connection: Connection, params: Params) -> object:
        return item_object(self._questions.item(cast("int", params["id"])))

    async def _inbox_answer(self, _connection: Connection, params: Params) -> object:
        agent, item = self._questions.answer(cast("int", params["id"]), _text(params, "text"))
        return {"agent": self._object(agent), "message": item}

    async def _inbox_dismiss(self, _connection: Connection, params: Params) -> object:
        self._questions.dismiss(cast("int", params["id"]))
        return None

    # Events

    async def _read(self, _connection: Connection, params: Params) -> object:
        agent = self._agent_filter(params)
        cursor = self._registry.journal.start_of(cast("int", params.get("since", 0)), agent)
        limit = max(1, min(_MAX_PAGE, cast("int", params.get("limit", _MAX_PAGE))))
        events = await self._registry.journal.read(cursor, agent, limit, _PAGE_BYTES, lines=bool(params.get("lines")))
        cursor = events[-1].cursor if events else cursor
        page = b",".join(event.json for event in events)
        return rpc.Encoded([b'{"events":[', page, b'],"cursor":%d}' % cursor])

    async def _subscribe(self, connection: Connection, params: Params) -> object:
        agent = self._agent_filter(params)
        start = self._registry.journal.start_of(cast("int | None", params.get("since")), agent)
        number = connection.subscribe(lambda number: self._follow(connection, number, start, agent, params))
        return {"subscription": number, "cursor": start}

    async def _unsubscribe(self, connection: Connection, params: Params) -> object:
        number = cast("int", params["subscription"])
        if not connection.unsubscribe(number):
            raise NotFound(f"this connection has no subscription {number}")
        return None

    async def _follow(self, connection: Connection, number: int, cursor: int, agent: str | None, params: Params) -> None:
        """Send every event after a cursor, at the speed of the client."""
        head = b'{"jsonrpc":"2.0","method":"event","params":{"subscription":%d,"event":' % number
        read = partial(self._registry.journal.read, lines=bool(params.get("lines")))
        with self._registry.journal.following(agent) as next_event:
            while True:
                more = next_event()
                # Most events come one by one, and then there is no further page to look for.
                while cursor < self._registry.journal.last_cursor:
                    # A page is made when there is room for it: what a client doesn't take isn't held for it either.
                    async with connection.room_for_page():
                        events = await read(cursor, agent, _FEED_EVENTS, _FEED_BYTES)
                        if events:
                            await connection.send(b"".join(head + event.json + b"}}\n" for event in events))
                    if not events:
                        break
                    cursor = events[-1].cursor
                await more.wait()

    def _agent_filter(self, params: Params) -> str | None:
        name = _optional(params, "agent")
        return self._requests.find(name).id if name is not None else None

    # The daemon

    async def _status(self, _connection: Connection, _params: Params) -> object:
        return {
            "version": __version__,
            "pid": os.getpid(),
            "state_dir": self._places.state,
            "runtime_dir": self._places.runtime,
            "agents": len(self._registry.agents),
            "running": self._registry.running,
            "network": self._registry.config.sandbox.network.value,
            "waiting_for": self._registry.admission.obstacle,
            "cgroups": sorted(self._groups.controllers) if self._groups.are_there else None,
            "damaged": self._registry.store.damaged_agents(),
            "reserve": reserve.held
            if (reserve := self._registry.store.reserve) is not None and reserve.is_possible
            else None,
        }

    async def _check(self, _connection: Connection, _params: Params) -> object:
        return {"obstacle": await self._preparer.obstacle(), "environment": self._preparer.surroundings()}

    async def _shutdown(self, _connection: Connection, params: Params) -> object:
        if params.get("suspend"):
            self._registry.admission.close()
            for agent in [agent for agent in self._registry.agents if agent.phase in _AWAKE]:
                self._requests.suspend(agent.id)
            for agent in [agent for agent in self._registry.agents if agent.phase in RUNNING_PHASES]:
                await self._requests.wait_settled(agent.id)
        return rpc.Last(None, self._stop)


_LOOKED_UP = frozenset({"attention", "reason", "activity"})
"""Members of an agent object that its record doesn't hold."""
_EXTRAS = frozenset(methods.AGENT_EXTRAS)
_AWAKE = frozenset({Phase.IDLE, Phase.QUEUED, Phase.RUNNING, Phase.INTERRUPTING, Phase.FROZEN})


def _network(params: Params) -> Network | None:
    name = _optional(params, "network")
    if name is None:
        return None
    try:
        network = Network(name)
    except ValueError:
        raise InvalidParams(f"agent.spawn: {name!r} is no network; the networks are none, filtered, host") from None
    return network


def _variables(params: Params) -> Variables:
    try:
        return environment.read(_strings(params, "env"))
    except BadVariable as problem:
        raise InvalidParams(str(problem)) from None


def _restore(params: Params) -> Restore | None:
    name = _optional(params, "restore")
    try:
        return Restore(name) if name is not None else None
    except ValueError:
        raise InvalidParams(f"agent.spawn: {name!r} is no way to restore; there are hold and auto") from None


def _directory(params: Params) -> str:
    """Return a workspace's physical path, which is what cursor-agent files its chats under."""
    path = _text(params, "workspace")
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidParams(f"{path!r} isn't an absolute path")
    try:
        return os.path.realpath(path)
    except OSError as problem:
        raise InvalidParams(f"{path} can't be looked at: {problem.strerror}; give the directory itself") from None


def _text(params: Params, name: str) -> str:
    return cast("str", params[name])


def _strings(params: Params, name: str) -> tuple[str, ...]:
    return tuple(cast("list[str]", params.get(name) or ()))


def _optional(params: Params, name: str) -> str | None:
    return cast("str | None", params.get(name))


def _timeout(params: Params) -> float | None:
    seconds = cast("float | None", params.get("timeout"))
    if seconds is not None and not 0 <= seconds <= _LONGEST_WAIT:
        raise InvalidParams(f"'timeout' must be a number of seconds from 0 to {_LONGEST_WAIT:g}")
    return seconds
