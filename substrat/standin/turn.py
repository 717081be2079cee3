"""One turn: the values that its actions work with, and its end; `actions` performs them."""

from __future__ import annotations

import os
import signal

from substrat.standin import mcp, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from substrat.standin.mcp import Servers
    from substrat.standin.permissions import Permissions
    from substrat.standin.places import Places
    from substrat.standin.processes import ShellCommand
    from substrat.standin.reactor import Reactor
    from substrat.standin.store import OpenChat
    from substrat.standin.stream import Json, Stream


class TurnEnding:
    """How a turn ends.

    Args:
        single_turn: Do not wait for background commands.
        background_seconds: The longest wait for them; None is for ever.
        show_thinking: Thinking is part of the `json` format's result.
    """

    def __init__(self, *, single_turn: bool, background_seconds: float | None, show_thinking: bool) -> None:
        self.single_turn: Final = single_turn
        self.background_seconds: Final = background_seconds
        self.show_thinking: Final = show_thinking


class TurnContext:
    """Everything an action may use. It owns none of it; `main` opens and closes.

    Args:
        prompt: The whole prompt.
        stream: Where the turn is shown.
        chat: Where it is kept.
        reactor: Through which everything waits.
        servers: The MCP servers.
        permissions: The tool calls that are allowed.
        run_places: The run's directories.
        environ: The process's environment.
        limits: How the turn ends.
    """

    def __init__(
        self,
        *,
        prompt: str,
        stream: Stream,
        chat: OpenChat,
        reactor: Reactor,
        servers: Servers,
        permissions: Permissions,
        run_places: Places,
        environ: Mapping[str, str],
        limits: TurnEnding,
    ) -> None:
        self.prompt: Final = prompt
        self.stream: Final = stream
        self.chat: Final = chat
        self.reactor: Final = reactor
        self.servers: Final = servers
        self.permissions: Final = permissions
        self.places: Final = run_places
        self.environ: Final = environ
        self.limits: Final = limits
        self.background: list[ShellCommand] = []
        self.described_tools: set[str] = set()
        self.call_seconds = mcp.CALL_SECONDS
        self.background_seconds = limits.background_seconds
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
        """Note a tool call for the transcript."""
        self._tool_uses.append({"type": "tool_use", "name": name, "input": arguments})

    def finish(self) -> None:
        """End the turn as a success: it is on disk before its result is out."""
        self._wait_for_background()
        self.servers.wait_connected()
        self.stream.final_flush()
        earlier = len(self.chat.prompts())
        usage = _usage(self.prompt, self.stream.text, earlier)
        self.chat.keep(self.prompt, self._content(), sum(usage.values()))
        self.write_transcript("success")
        self.stream.result({**usage}, show_thinking=self.limits.show_thinking)

    def write_transcript(self, status: str) -> None:
        """Add the turn, as far as it came, to the chat's transcript."""
        user: Json = {"role": "user", "message": {"content": [{"type": "text", "text": self.prompt}]}}
        assistant: Json = {"role": "assistant", "message": {"content": self._content()}}
        places.append_transcript(self.places, self.chat.id, (user, assistant), status)

    def _content(self) -> list[Json]:
        return [{"type": "text", "text": self.stream.text}, *self._tool_uses]

    def _wait_for_background(self) -> None:
        if self.limits.single_turn:
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
