"""The operator socket: who may come in, and what each method of `wire.methods` does; deciding is the supervisor's."""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, cast

import structlog
import trio

from sandbox.spec import Form, Network
from substrat import __version__
from substrat.core.lifecycle import RUNNING_PHASES, STATE_OF, Phase
from substrat.core.prompts import timestamp
from substrat.core.records import Restore
from substrat.core.usage import family, total
from substrat.daemon import journal, rpc, sockets
from substrat.daemon.supervisor import Wish, bounded
from substrat.daemon.visits import Call
from substrat.errors import InvalidParams, NotFound, Refused, SessionDamaged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.core.records import Agent, Turn
    from substrat.daemon.allowance import Allowances
    from substrat.daemon.chats import Chats
    from substrat.daemon.furnisher import Furnisher
    from substrat.daemon.journal import Encoded
    from substrat.daemon.places import Places
    from substrat.daemon.questions import Questions
    from substrat.daemon.rpc import Connection, Params
    from substrat.daemon.runner import TurnRunner
    from substrat.daemon.supervisor import Supervisor
    from substrat.daemon.visits import Visits

log = structlog.get_logger("substrat.operator_door")

MAX_CONNECTIONS = 512
_MAX_PAGE = 1000
_PAGE_BYTES = 8 * 1024 * 1024
_MAX_TURNS = 100
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


class OperatorDoor:
    """Answers the operator.

    Args:
        supervisor: the agents.
        runner: what runs turns.
        furnisher: what can be found out about starting them.
        places: the daemon's directories.
        chats: the user's chats.
        questions: what waits for the operator.
        allowances: what `filtered` networks let through.
        visits: the operator's commands in agents' sandboxes.
        stop: stops the daemon.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        runner: TurnRunner,
        furnisher: Furnisher,
        places: Places,
        chats: Chats,
        questions: Questions,
        allowances: Allowances,
        visits: Visits,
        stop: Callable[[], None],
    ) -> None:
        self._supervisor = supervisor
        self._registry = supervisor.registry
        self._runner = runner
        self._furnisher = furnisher
        self._places = places
        self._chats = chats
        self._questions = questions
        self._allowances = allowances
        self._visits = visits
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
            "session.list": self._sessions,
            "session.read": self._session,
            "events.read": self._read,
            "events.subscribe": self._subscribe,
            "events.unsubscribe": self._unsubscribe,
            "inbox.list": self._inbox,
            "inbox.answer": self._inbox_answer,
            "inbox.dismiss": self._inbox_dismiss,
            "daemon.status": self._status,
            "daemon.shutdown": self._shutdown,
        }

    async def serve(
        self, listener: trio.SocketListener, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve the operator socket until cancelled."""
        task_status.started()
        await sockets.accept_forever(listener, MAX_CONNECTIONS, self.serve_stream)

    async def serve_stream(self, stream: trio.SocketStream) -> None:
        """Serve one client, if it is the daemon's own user or root."""
        if (uid := sockets.peer_uid(stream)) not in {os.geteuid(), 0}:
            log.warning("refused a client of another user", uid=uid)
            return
        await rpc.Connection(stream, self).serve()

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

    async def _spawn(self, _connection: Connection, params: Params) -> object:
        network = _network(params)
        await self._furnisher.check()
        workspace, model, session = self._furnisher.check_workspace(_text(params, "workspace")), params.get("model"), None
        if (adopted := _optional(params, "session")) is not None:
            session = adopted.lower()
            head, _ = await self._chats.read(workspace, session)
            if head.damage is not None:
                raise SessionDamaged(f"the session {session} is damaged: {head.damage}; nothing was changed")
            model = model or head.model
        wish = Wish(
            workspace, _optional(params, "name"), cast("str | None", model), network, _optional(params, "prompt"),
            session, _restore(params), _strings(params, "allow"),
            self._furnisher.check_binds(_strings(params, "bind"), _strings(params, "bind_ro"), workspace),
        )  # fmt: skip
        return agent_object(self._supervisor.spawn(wish))

    async def _send(self, _connection: Connection, params: Params) -> object:
        agent, item = self._supervisor.send(_text(params, "agent"), _text(params, "prompt"))
        return {"agent": agent_object(agent), "message": item}

    async def _list(self, _connection: Connection, _params: Params) -> object:
        return [agent_object(agent) for agent in self._registry.agents]

    async def _show(self, _connection: Connection, params: Params) -> object:
        agent = self._supervisor.find(_text(params, "agent"))
        binds = [shown._asdict() for shown in agent.policy.binds]
        form = self._places.agent(agent.id).turn(agent.turn.number).read_form() if agent.turn is not None else None
        more = {"binds": binds} if binds else {}
        return {**agent_object(agent), **more, **({"network_form": form.value} if form is Form.PROXY else {})}

    async def _wait(self, _connection: Connection, params: Params) -> object:
        names = cast("list[str]", params["agents"])
        states = cast("list[str] | None", params.get("until"))
        found = await bounded(_timeout(params), ", ".join(names), lambda: self._supervisor.wait_states(names, states))
        return [agent_object(agent) for agent in found]

    async def _wait_message(self, _connection: Connection, params: Params) -> object:
        name, item = _text(params, "agent"), cast("int | None", params.get("message"))
        return agent_object(
            await bounded(_timeout(params), f"the turn of {name}", lambda: self._supervisor.wait_item(name, item))
        )

    async def _suspend(self, _connection: Connection, params: Params) -> object:
        name = _text(params, "agent")
        if params.get("freeze"):
            return agent_object(await self._freeze(name))
        agent = self._supervisor.suspend(name)
        return agent_object(await self._supervisor.wait_settled(agent.id))

    async def _freeze(self, name: str) -> Agent:
        agent = self._supervisor.freeze(name)
        if agent.phase == Phase.FROZEN and not await self._runner.frozen(agent):
            self._supervisor.resume(agent.id, None)
            raise Refused(f"{agent.name} makes processes faster than they can be stopped: suspend it without freezing")
        return await self._supervisor.wait_settled(agent.id)

    async def _interrupt(self, _connection: Connection, params: Params) -> object:
        agent = self._supervisor.interrupt(_text(params, "agent"))
        return agent_object(await self._supervisor.wait_settled(agent.id))

    async def _end(self, _connection: Connection, params: Params) -> object:
        agent = self._supervisor.end(_text(params, "agent"))
        return agent_object(await self._supervisor.wait_settled(agent.id))

    async def _resume(self, _connection: Connection, params: Params) -> object:
        agent, item = self._supervisor.resume(_text(params, "agent"), _optional(params, "prompt"))
        return {"agent": agent_object(agent), "message": item}

    async def _rm(self, _connection: Connection, params: Params) -> object:
        self._visits.check_none(self._supervisor.find(_text(params, "agent")))
        self._supervisor.remove(_text(params, "agent"))
        return None

    async def _explain(self, _connection: Connection, params: Params) -> object:
        return (await self._furnisher.explain(self._supervisor.find(_text(params, "agent"))))._asdict()

    async def _exec(self, _connection: Connection, params: Params) -> object:
        agent, command = self._supervisor.find(_text(params, "agent")), cast("list[str]", params["command"])
        call = Call(tuple(command), _text(params, "descriptors"), _optional(params, "terminal"))
        return {"exit_code": await self._visits.run(agent, call)}

    async def _turns(self, _connection: Connection, params: Params) -> object:
        agent, after = self._supervisor.find(_text(params, "agent")), cast("int", params.get("after", 0))
        turns, size = [], 0
        for turn in self._registry.store.turns_after(agent.id, after, _MAX_TURNS):
            turns.append(turn_object(turn))
            after = turn.number
            size += len(turn.result or "")
            if size > _PAGE_BYTES:
                break
        return {"turns": turns, "after": after}

    async def _usage(self, _connection: Connection, params: Params) -> object:
        agent = self._supervisor.find(_text(params, "agent"))
        members = family(agent, self._registry.agents)
        usages = [self._registry.store.usages(member.id) for member in members]
        return {
            **total(usages[0])._asdict(),
            "family": {"agents": len(members), **total(chain.from_iterable(usages))._asdict()},
        }

    # Sessions

    async def _network(self, _connection: Connection, params: Params) -> object:
        name = _text(params, "agent")
        add, remove = (tuple(cast("list[str]", params.get(key) or ())) for key in ("allow", "remove"))
        agent = self._allowances.change(name, add, remove) if add or remove else self._supervisor.find(name)
        return {
            "network": agent.policy.network.value,
            "allow": list(agent.policy.allow),
            "decisions": [
                {"time": timestamp(row.time), "allowed": row.kind == "network:allowed", "text": row.text}
                for row in self._allowances.decisions(agent)
            ],
        }

    async def _sessions(self, _connection: Connection, params: Params) -> object:
        holders = {agent.session.id: agent.name for agent in self._registry.agents if agent.session is not None}
        return [
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
            for chat in await self._chats.list_all(_directory(params))
        ]

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

    async def _inbox(self, _connection: Connection, _params: Params) -> object:
        return [
            {
                "id": item.id,
                "from": item.sender_name,
                "time": timestamp(item.time),
                "text": item.text,
                "kind": item.kind.value,
            }
            for item in self._questions.waiting()
        ]

    async def _inbox_answer(self, _connection: Connection, params: Params) -> object:
        agent, item = self._questions.answer(cast("int", params["id"]), _text(params, "text"))
        return {"agent": agent_object(agent), "message": item}

    async def _inbox_dismiss(self, _connection: Connection, params: Params) -> object:
        self._questions.dismiss(cast("int", params["id"]))
        return None

    # Events

    async def _read(self, _connection: Connection, params: Params) -> object:
        agent = self._agent_filter(params)
        cursor = self._registry.journal.start_of(cast("int", params.get("since", 0)), agent)
        limit = max(1, min(_MAX_PAGE, cast("int", params.get("limit", _MAX_PAGE))))
        events, size = [], 0
        for event in self._registry.journal.page(cursor, agent, limit):
            events.append(self._readable(event, params))
            cursor = event.cursor
            size += len(events[-1])
            if size > _PAGE_BYTES:
                break
        return rpc.Encoded(b'{"events":[' + b",".join(events) + b'],"cursor":' + str(cursor).encode() + b"}")

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
        with self._registry.journal.following(agent) as next_event:
            while True:
                more = next_event()
                while events := self._registry.journal.page(cursor, agent):
                    await connection.send(b"".join(head + self._readable(event, params) + b"}}\n" for event in events))
                    cursor = events[-1].cursor
                await more.wait()

    def _readable(self, event: Encoded, params: Params) -> bytes:
        if not params.get("lines"):
            return event.json
        return journal.with_line(event, self._registry.journal.line_of(event.row))

    def _agent_filter(self, params: Params) -> str | None:
        name = _optional(params, "agent")
        return self._supervisor.find(name).id if name is not None else None

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
            "waiting_for": self._registry.gate.reason if self._registry.gate is not None else None,
            "damaged": self._registry.store.damaged_agents(),
        }

    async def _shutdown(self, _connection: Connection, params: Params) -> object:
        if params.get("suspend"):
            self._registry.admit = None  # nothing starts any more
            for agent in [agent for agent in self._registry.agents if agent.phase in _AWAKE]:
                self._supervisor.suspend(agent.id)
            for agent in [agent for agent in self._registry.agents if agent.phase in RUNNING_PHASES]:
                await self._supervisor.wait_settled(agent.id)
        return rpc.Last(None, self._stop)


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
    return os.path.realpath(path)


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
