"""One turn: the values that its actions work with, and its end; `actions` performs them."""

from __future__ import annotations

import os
import signal

from substrat.standin import mcp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from substrat.standin.main import CheckedRun
    from substrat.standin.mcp import Servers
    from substrat.standin.processes import ShellCommand
    from substrat.standin.reactor import Reactor
    from substrat.standin.store import OpenChat
    from substrat.standin.stream import Json, Stream


class TurnContext:
    """Everything an action may use. It owns none of it; `main` opens and closes.

    Args:
        plan: The run.
        output: Where the turn is shown.
        chat: Where it is kept.
        reactor: Through which everything waits.
        servers: The MCP servers.
    """

    def __init__(
        self,
        plan: CheckedRun,
        output: Stream,
        chat: OpenChat,
        *,
        reactor: Reactor,
        servers: Servers,
    ) -> None:
        self.arguments: Final = plan.arguments
        self.prompt: Final = plan.prompt
        self.places: Final = plan.places
        self.environ: Final = plan.environ
        self.stream: Final = output
        self.chat: Final = chat
        self.reactor: Final = reactor
        self.servers: Final = servers
        self.may_edit: Final = not (plan.arguments.has("mode") or plan.arguments.has("plan"))
        """Whether files may be changed, for which print mode has nobody to ask."""
        self.may_act: Final = self.may_edit and (plan.arguments.has("force") or plan.arguments.has("yolo"))
        """Whether commands may be run and tools called."""
        self.background: list[ShellCommand] = []
        self.described_tools: set[str] = set()
        self.call_seconds = mcp.CALL_SECONDS
        self.background_seconds = float(plan.arguments.text("background-shell-timeout", "0")) or None
        self.queries = 0
        self._tool_uses: list[Json] = []

    @property
    def workspace(self) -> str:
        """The physical path of the workspace."""
        return self.places.workspace

    def path(self, name: str) -> str:
        """A path of the script, relative to the workspace."""
        return os.path.normpath(os.path.join(self.workspace, name))

    def record_tool(self, name: str, arguments: Json) -> None:
        """Note a tool call for the chat."""
        self._tool_uses.append({"type": "tool_use", "name": name, "input": arguments})

    def finish(self) -> None:
        """End the turn as a success: it is on disk before its result is out."""
        self._wait_for_background()
        self.servers.wait_connected()
        self.stream.final_flush()
        earlier = len(self.chat.prompts())
        usage = _usage(self.prompt, self.stream.text, earlier)
        self.chat.keep(self.prompt, self._content(), sum(usage.values()))
        self.stream.result({**usage}, show_thinking=self.arguments.has("show-thinking"))

    def _content(self) -> list[Json]:
        return [{"type": "text", "text": self.stream.text}, *self._tool_uses]

    def _wait_for_background(self) -> None:
        if self.arguments.has("single-turn"):
            return
        if self.reactor.run_until(self._background_ended, self.background_seconds):
            return
        self.stream.event("system", "background_shell_timeout", {})
        for number in (signal.SIGTERM, signal.SIGKILL):
            for command in self.background:
                if command.status is None:
                    os.killpg(command.pid, number)
            self.reactor.run_until(self._background_ended, mcp.STOP_SECONDS)

    def _background_ended(self) -> bool:
        return all(command.status is not None for command in self.background)


def _usage(prompt: str, answer: str, earlier_turns: int) -> dict[str, int]:
    """Plausible numbers: about four characters a token, and the chat's earlier tokens come from a cache."""
    return {
        "inputTokens": (15_000 if not earlier_turns else 200) + len(prompt) // 4,
        "outputTokens": 1 + len(answer) // 4,
        "cacheReadTokens": 15_000 if earlier_turns else 0,
        "cacheWriteTokens": 0,
    }
