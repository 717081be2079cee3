"""A run on the binary itself, read event by event: lines decoded, and a name for a run that ends without a result."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from substrat.core.programs.cursor import failures
from substrat.core.programs.failures import last_words
from substrat.cursor_api import command, decode
from substrat.cursor_api.model import AgentEvent, EventType, OutputFormat
from substrat.cursor_api.run import Run
from substrat.cursor_api.shell import BLOCKING, finish

if TYPE_CHECKING:
    from substrat.cursor_api.command import RunRequest
    from substrat.cursor_api.model import AgentConfig
    from substrat.cursor_api.run_record import RunRecord
    from substrat.cursor_api.shell import Shell


class Direct(Run):
    """A run whose events are taken one at a time.

    Args:
        shell: how it waits.
        config: how cursor-agent is run.
        request: the prompt and its options.

    Raises:
        AgentNotFound: there is no agent program that could be started.
    """

    def __init__(self, shell: Shell, config: AgentConfig, request: RunRequest) -> None:
        program = command.find_binary(config)
        arguments = [program, *command.arguments(config, request)]
        self._request = request
        self._decoder = decode.Decoder()
        self._plain = request.output_format is not OutputFormat.STREAM_JSON
        self._printed: list[bytes] = []
        self._answered = False
        try:
            super().__init__(shell, arguments, command.environment(config), request.prompt, request.timeout)
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise command.AgentNotFound(f"the agent program {program} can't be started: {reason}") from problem

    async def next(self) -> AgentEvent | None:
        """Wait for the next event and return it; None when the run is over."""
        while (event := self._at_hand()) is None and not self.over:
            await self.turn()
        return event

    async def settle(self) -> None:
        """Let a run that has answered come to its end by itself, which it is given a moment for."""
        while self._answered and not self.over:
            await self.turn()
            self.lines.clear()

    async def cancel(self, number: int) -> None:
        """End the process and everything under it."""
        await self.close(number)

    def abandon(self) -> None:
        """Give everything up at once, blocking."""
        self.shell = BLOCKING
        finish(self.close(signal.SIGKILL))

    def _at_hand(self) -> AgentEvent | None:
        while self.lines:
            line = self.lines.popleft()
            if self._plain:
                self._printed.append(line.data)
            if self._request.output_format is OutputFormat.TEXT:
                continue
            if (event := self._decoder.line(line)) is not None:
                if event.type in {EventType.RESULT_SUCCESS, EventType.RESULT_ERROR}:
                    self._answered = True
                    self.expect_end()
                return event
        return None

    def conclude(self, record: RunRecord) -> AgentEvent | None:
        """Account for a run that is over, to be called when it is closed.

        Returns:
            The event that tells of a failure the program didn't report in its output.
        """
        if record.final is not None:
            return None
        if self._plain and not self.timed_out and self._take_printed(record):
            return None
        return record.fail(self._problem())

    def _take_printed(self, record: RunRecord) -> bool:
        """Take the printed text for the answer, if it can be one."""
        text = b"\n".join(self._printed).decode("utf-8", "replace")
        if self._request.output_format is OutputFormat.TEXT:
            if self.process.returncode == 0 and text.strip():
                record.printed(text)
                return True
            return False
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if isinstance(body, dict):
            record.add(self._decoder.body(body))
        return record.final is not None

    def _problem(self) -> str:
        if self.timed_out:
            return f"Request timed out after {self._request.timeout:g} s"
        errors = self.errors()
        if (known := failures.recognise(errors)) is not None:
            # The names are the daemon's, too; here there is only one environment.
            return known.sentence.replace(" in the daemon's environment", "")
        code = self.process.returncode
        ended = f"was ended by {_signal_name(-code)}" if code < 0 else f"exited with status {code}"
        words = last_words(errors)
        said = f": {words}" if words else "" if self.anything else " and without any output"
        return f"the agent program {ended} without a result{said}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
