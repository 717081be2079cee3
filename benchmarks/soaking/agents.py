"""Makes random requests for agents, with random prompts; each accepted prompt or message holds a token for the ledger."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING

import trio
from harness import BIN

from soaking.ledger import repeated_tokens, tokens
from soaking.link import AWAY, LOOK_S, PATIENCE
from soaking.server import BODY
from soaking.workspaces import FILES, OURS
from substrat import errors

if TYPE_CHECKING:
    import random
    from collections import Counter

    from soaking.ledger import Ledger
    from soaking.link import DaemonLink
    from soaking.server import Server
    from soaking.workspaces import Workspace

MOST_UNREAD = 20
"""The most messages that wait for an agent; it then gets no more for a while, because the machine is too slow for them."""
NOT_STARTED = re.compile("the sandbox couldn't be made|substrat: can't mount")
"""The beginning of `exec`'s sentence when bubblewrap failed before the command, or the late mounts did (`bwrap.GATE`)."""
KINDS = {
    "send": 12, "suspend": 2, "freeze": 2, "interrupt": 2, "kill sandbox": 2, "exec": 2, "exec in terminal": 1,
    "exec killed": 1, "allow": 2, "replace": 1, "interrupted wait": 1, "inbox": 1, "retire children": 1,
}  # fmt: skip
"""The kinds of requests, with their weights in the random choice."""


class Agents:
    """The soak's agents, and the random requests for them.

    Args:
        link: the connection to the daemon.
        ledger: the record of accepted and delivered tokens.
        server: the HTTP server that agents connect to.
        chance: the source of randomness.
        done: counts the requests by kind.
    """

    def __init__(self, link: DaemonLink, ledger: Ledger, server: Server, chance: random.Random, done: Counter[str]) -> None:
        self.link = link
        self.ledger = ledger
        self.server = server
        self.random = chance
        self.done = done
        self.names: list[str] = []
        self.busy: set[str] = set()
        self.cut_off: set[str] = set()  # agents with commands of `exec` whose callers were killed
        self.workspaces: dict[str, Workspace] = {}
        self._numbers = 0

    # Prompts

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def token(self, name: str) -> str:
        """Make a token, for example `tok17@plain-3`, for a prompt or message to an agent."""
        return f"tok{self._number()}@{name}"

    def prompt(self, name: str) -> tuple[str, str]:
        """Make up some work.

        Returns:
            A token, and the prompt that holds it.
        """
        token = self.token(name)
        makers = {self._say: 15, self._tool: 30, self._shell: 15, self._git: 15, self._connect: 20, self._slow: 15}
        (make,) = self.random.choices(list(makers), list(makers.values()))
        return token, f"{token}\n{make(name)}"

    def _say(self, _: str) -> str:
        return self.random.choice(["/say done", "/say done", "/exit 3"])

    def _slow(self, _: str) -> str:
        wait = f"/sleep {self.random.uniform(0.1, 2.0):.2f}"
        return self.random.choice([wait, wait, f"/emit {self.random.randint(1, 200)} 100"])

    def _shell(self, _: str) -> str:
        detached = "/shell sleep 0.3 & (setsid sleep 5 >/dev/null 2>&1 &); wait"
        return self.random.choice(["/shell ls -a; date", detached, "/shell id; cat /proc/mounts"])

    def _git(self, _: str) -> str:
        name = f"{OURS}agent-{self.random.randrange(FILES)}"
        identity = "-c user.name=agent -c user.email=agent@example.invalid"
        return (
            f"/shell git status --short | head -3; echo {self._number()} > {name} && git add {name} && "
            f"git {identity} commit -qm {name} -- {name}; git branch -f {name}"
        )

    def _connect(self, name: str) -> str:
        workspace = self.workspaces[name]
        host = self.random.choice(["127.0.0.1", "localhost"])
        curl = "curl -sS --noproxy '' --max-time 20 -o /dev/null -w '%{http_code} %{size_download}\\n'"
        near = f"http://{host}:{self.server.port}/{workspace.network}"
        held = f"http://127.0.0.1:{self.server.port}/held" if workspace.network != "none" else near
        return self.random.choice(
            [
                f"/shell {curl} {near}; head -c {BODY} /dev/zero | {curl} --data-binary @- {near}",
                f"/shell {curl} {near} & {curl} {near} & wait",
                f"/shell {curl} http://refused.invalid/ || {curl} {near}",
                f"/shell {curl} {held} & sleep {self.random.uniform(0.1, 1.0):.2f}",
            ]
        )

    def _tool(self, name: str) -> str:
        other, child = self.random.choice(self.names), f"c{self._number()}"
        first = self.token(child)
        kind = self.random.choice(["send", "send", "send", "spawn", "remind", "ask", "look"])
        task = f"{first}\n{self.random.choice(['/say done', '/sleep 0.5'])}"
        if kind == "spawn":
            self.ledger.expect_child(child, first)
        calls: dict[str, list[tuple[str, dict[str, object]]]] = {
            "send": [("send_message", {"to": other, "text": f"hello {self.token(other)}"})],
            "spawn": [("spawn_agent", {"name": child, "prompt": task})],
            "remind": [("remind_me", {"text": f"remember {self.token(name)}", "in_s": 0.3})],
            "ask": [("ask_operator", {"question": "left or right?"})],
            "look": [("whoami", {}), ("list_agents", {}), ("report_status", {"text": "busy"})],
        }
        return "\n".join(f"/tool {tool} {json.dumps(arguments)}" for tool, arguments in calls[kind])

    # Requests

    async def work(self, resting: trio.Event) -> None:
        """Do one random thing to one random agent after the other."""
        kinds, weights = list(KINDS), list(KINDS.values())
        while not resting.is_set():
            free = [name for name in self.names if name not in self.busy]
            if not free:
                await trio.sleep(LOOK_S)
                continue
            name = self.random.choice(free)
            (kind,) = self.random.choices(kinds, weights)
            self.busy.add(name)
            try:
                await self._do(kind, name)
            except errors.SubstratError as problem:
                self.link.broken.append(f"{kind} of {name}: {type(problem).__name__}: {problem.message}")
                await trio.sleep(0.1)
            finally:
                self.busy.discard(name)

    async def _do(self, kind: str, name: str) -> None:
        match kind:
            case "send":
                await self.send(name)
            case "suspend":
                await self.link.call(lambda client: client.suspend(name))
                await self.go_on(name)
            case "freeze":
                await self._freeze(name)
            case "interrupt":
                await self._interrupt(name)
            case "kill sandbox":
                await self._kill_sandbox(name)
            case "exec" | "exec in terminal" | "exec killed":
                await self._exec(name, terminal=kind == "exec in terminal", kill=kind == "exec killed")
            case "allow":
                await self._change_list(name)
            case "replace":
                await self._replace(name)
            case "inbox":
                await self.answer_all()
            case "retire children":
                await self.retire_children()
            case _:
                # A client that goes away while it waits.
                with trio.move_on_after(self.random.uniform(0, 0.3)):
                    await self.link.call(lambda client: client.wait(name))
        self.done[kind] += 1

    async def send(self, name: str) -> None:
        """Give an agent some work."""
        token, text = self.prompt(name)
        agent = await self.link.call(lambda client: client.show(name))
        if agent["state"] == "failed":  # a new prompt would replace the one that failed
            await self.go_on(name)
        if agent["unread"] > MOST_UNREAD:
            await self.link.call(lambda client: client.wait(name, timeout=PATIENCE))
            return
        with suppress(*AWAY):
            await self.link.call(lambda client: client.send(name, text), again=False)
            self.ledger.accept(name, token)

    async def go_on(self, name: str) -> None:
        """Let an agent go on where it stopped."""
        await self.link.call(lambda client: client.resume(name))

    async def _freeze(self, name: str) -> None:
        try:
            await self.link.call(lambda client: client.call("agent.suspend", agent=name, freeze=True))
        except errors.Refused:  # the daemon gives up after 5 s, which a busy machine may take to start or stop a turn
            self.done["freeze refused"] += 1
        await trio.sleep(self.random.uniform(0, 0.5))
        await self.go_on(name)

    async def _interrupt(self, name: str) -> None:
        before = await self.link.call(lambda client: client.show(name))
        with suppress(errors.Refused):  # its turn has ended meanwhile, or a daemon that was killed then had stopped it
            await self.link.call(lambda client: client.interrupt(name))
        after = await self.link.call(lambda client: client.show(name))
        first, last = (agent["turn"]["number"] if agent["turn"] else 1 for agent in (before, after))
        for turn in range(first, last + 1):
            prompt = self.link.place.prompt_of(before["id"], turn)
            self.ledger.excuse(tokens(name, prompt) + repeated_tokens(name, prompt))

    async def _kill_sandbox(self, name: str) -> None:
        agent = await self.link.call(lambda client: client.show(name))
        if agent["state"] != "running":
            return
        mine = [pid for pid, owner in self.link.place.sandboxed().items() if owner == agent["id"]]
        if not mine:
            return
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(mine), signal.SIGKILL)
        number = agent["turn"]["number"]
        while agent["state"] == "running" and agent["turn"]["number"] == number:
            await trio.sleep(LOOK_S)
            agent = await self.link.call(lambda client: client.show(name))
        if agent["state"] == "failed":
            await self.go_on(name)

    async def _change_list(self, name: str) -> None:
        if self.workspaces[name].network != "filtered":
            return
        entry = f"host{self._number()}.invalid:{self.random.choice([80, 443, 8443])}"
        for params in ({"allow": [entry]}, {"remove": [entry]}):
            # Made again after a restart it may have been done already.
            with suppress(errors.InvalidParams, errors.UsageError):
                await self.link.call(methodcaller("call", "agent.network", agent=name, **params))

    async def spawn(self, workspace: Workspace) -> None:
        """Create an agent with a first prompt."""
        name = f"a{self._number()}"
        self.names.append(name)
        self.busy.add(name)
        self.workspaces[name] = workspace
        token, text = self.prompt(name)
        filtered = workspace.network == "filtered"
        allow = [f"127.0.0.1:{self.server.port}", f"localhost:{self.server.port}"] if filtered else None
        while True:
            try:
                await self.link.call(
                    lambda client: client.spawn(
                        workspace.path, name=name, prompt=text, network=workspace.network, allow=allow, clone=False
                    ),
                    again=False,
                )
            except AWAY:
                continue
            except errors.NameTaken:
                pass  # an answer that got lost with its daemon
            break
        self.ledger.accept(name, token)
        self.busy.discard(name)

    async def remove(self, name: str) -> None:
        """End an agent and forget it; a request that is made again after a restart finds it gone."""
        with suppress(errors.NotFound):
            await self.link.call(lambda client: client.end(name))
            deadline = trio.current_time() + PATIENCE
            while True:
                try:
                    await self.link.call(lambda client: client.rm(name))
                except errors.Refused:
                    # A command whose caller was killed holds its agent until it has ended too.
                    if name not in self.cut_off or trio.current_time() > deadline:
                        raise
                    await trio.sleep(LOOK_S)
                else:
                    return

    async def _replace(self, name: str) -> None:
        await self.remove(name)
        self.names.remove(name)
        self.ledger.forget(name)
        await self.spawn(self.workspaces.pop(name))

    async def retire_children(self) -> None:
        """End and forget the children that have done their task; their tokens are still checked."""
        for agent in await self.link.call(lambda client: client.agents()):
            if agent["name"].startswith("c") and agent["state"] == "idle" and agent["turn"] is not None:
                await self.remove(agent["name"])

    async def answer_all(self) -> int:
        """Answer or dismiss agents' questions; an answer's token counts once it was accepted.

        Returns:
            How many questions there were.
        """
        items = await self.link.call(lambda client: client.call("inbox.list"))
        for item in items:
            token = self.token(item["from"])
            try:
                if item["from"] in self.names and self.random.random() < 0.5:
                    answer = {"id": item["id"], "text": f"left {token}"}
                    await self.link.call(methodcaller("call", "inbox.answer", **answer), again=False)
                    self.ledger.accept(item["from"], token)
                else:
                    await self.link.call(methodcaller("call", "inbox.dismiss", id=item["id"]))
            except (*AWAY, errors.NotFound, errors.Refused):
                continue  # another task was quicker, or the agent has ended
        return len(items)

    # Commands in their sandboxes

    async def _exec(self, name: str, *, terminal: bool, kill: bool) -> None:
        code, starts = self.random.randrange(40), self.link.starts
        script = self.random.choice(["git status --short | head -3", "ls /proc/self/fd", "sleep 0.2 & wait"])
        if kill:
            script = "sleep 60 & sleep 60"
        command = [f"{BIN}/substratctl", "exec", name, "--", "sh", "-c", f"{script}; echo said-so; exit {code}"]
        with trio.move_on_after(PATIENCE):
            status, said = await (self._on_terminal(command) if terminal else self._on_pipes(name, command, kill=kill))
            if kill or (status == code and "said-so" in said):
                return
            if NOT_STARTED.search(said):
                # A file that the person's git replaced meanwhile can't be mounted: the command has done nothing.
                self.done["exec not started"] += 1
            elif "was replaced on the host" in said:
                self.done["exec ended by the person's git"] += 1
            elif self.link.starts == starts and self.link.is_up:
                self.link.broken.append(f"exec in {name} ended with {status} instead of {code}: {said.strip()[-300:]}")
            return
        self.link.broken.append(f"exec in {name} didn't end within {PATIENCE:g} s")

    async def _on_pipes(self, name: str, command: list[str], *, kill: bool) -> tuple[int, str]:
        said = b""
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                lambda task_status: trio.run_process(  # noqa: ASYNC105 - `start` awaits it
                    command, env=self.link.place.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, check=False, task_status=task_status,
                )
            )  # fmt: skip
            assert process.stdout is not None
            with trio.move_on_after(self.random.uniform(0.0, 1.0) if kill else float("inf")):
                async for data in process.stdout:
                    said += data
            if kill:
                process.kill()
                self.cut_off.add(name)
        assert process.returncode is not None
        return process.returncode, said.decode("utf-8", "replace")

    async def _on_terminal(self, command: list[str]) -> tuple[int, str]:
        master, slave = os.openpty()
        said = b""
        async with trio.lowlevel.FdStream(master) as screen, trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                lambda task_status: trio.run_process(  # noqa: ASYNC105 - `start` awaits it
                    ["setsid", "--ctty", *command], env={**self.link.place.environment(), "TERM": "xterm"}, stdin=slave,
                    stdout=slave, stderr=slave, check=False, task_status=task_status,
                )
            )  # fmt: skip
            os.close(slave)
            with suppress(trio.BrokenResourceError):  # EIO: the terminal has no other end any more
                async for data in screen:
                    said += data
        assert process.returncode is not None
        return process.returncode, said.decode("utf-8", "replace")
