"""The failures of `/fail NAME [TIMES]` that happen when the script reaches them, as the real program shows them.

Those that come before the session are in `refusals`. With TIMES only the first TIMES runs of that line in this
workspace fail.
"""

from __future__ import annotations

import os
import signal

from substrat.standin import oddities, refusals
from substrat.standin.errors import LeaveError, RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.standin.turn import TurnContext


def fail(turn: TurnContext, text: str) -> None:
    """`/fail NAME [TIMES]`: fail in the way that is named; with TIMES only so many runs in this workspace."""
    name, times = refusals.parse(text, DURING)
    if name in refusals.BEFORE or not refusals.is_due(turn.places, text, times):
        return
    DURING[name](turn)


def _lose_network(turn: TurnContext) -> None:
    oddities.lose_connection(turn)
    raise RefusalError("RetriableError: [unavailable] PING timed out")


def _lose_network_quietly(turn: TurnContext) -> None:
    oddities.lose_connection(turn)
    raise RefusalError("Connection failed repeatedly", 0)


def _reset_connection(turn: TurnContext) -> None:
    oddities.lose_connection(turn)
    raise RefusalError("RetriableError: [aborted] read ECONNRESET")


def _reject_option(turn: TurnContext, option: str) -> None:
    """The server doesn't take it, which the program takes for something that passes."""
    for attempt in (1, 2, 3):
        turn.stream.event("retry", "starting", {"attempt": attempt, "is_resume": False})
    raise RefusalError(f"RetriableError: [invalid_argument] unknown option '{option}'")


def _need_a_plan(_turn: TurnContext) -> None:
    raise RefusalError("ActionRequiredError: Named models unavailable Free plans can only use Auto.")


def _run_out_of_quota(_turn: TurnContext) -> None:
    raise RefusalError(
        "ActionRequiredError: You're out of usage. Switch to Auto, or ask your admin to raise your spend limit."
    )


def _say_the_error(turn: TurnContext) -> None:
    turn.stream.speak("RetriableError: [aborted] read ECONNRESET")


def _say_the_rate(turn: TurnContext) -> None:
    turn.stream.speak("\nError: RetriableError: [resource_exhausted] Error")


def _be_refused(words: str) -> Callable[[TurnContext], None]:
    """The server refuses after the session has begun, with the same words each time."""

    def refuse(_turn: TurnContext) -> None:
        raise RefusalError(words)

    return refuse


def _end_without_result(_turn: TurnContext) -> None:
    raise LeaveError(0)


def _hang_without_result(turn: TurnContext) -> None:
    turn.stream.final_flush()
    turn.reactor.run_until(lambda: False)


def _crash(_turn: TurnContext) -> None:
    raise RefusalError("TypeError: Cannot read properties of undefined (reading 'stand-in')\n    at run (index.js:1:1)")


def _cut_a_line(turn: TurnContext) -> None:
    turn.stream.raw(b'{"type":"assistant","message":{"role":"assistant","content":[{"type":"te')
    raise LeaveError(1)


def _run_out_of_memory(_turn: TurnContext) -> None:
    oddities.say_on_stderr("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory")
    _die(signal.SIGABRT)


def _die(number: signal.Signals) -> None:
    import resource

    # A death that was asked for should not fill the disk with core files.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.kill(os.getpid(), number)


DURING: dict[str, Callable[[TurnContext], None]] = {
    "plan": _need_a_plan,
    "quota": _run_out_of_quota,
    "network": _lose_network,
    "network-zero": _lose_network_quietly,
    "network-reset": _reset_connection,
    "system-prompt": lambda turn: _reject_option(turn, "--system-prompt"),
    "exclude-workspace-context": lambda turn: _reject_option(turn, "--exclude-workspace-context"),
    "transport": _say_the_error,
    "rate": _be_refused("RetriableError: [resource_exhausted] Error"),
    "rate-answer": _say_the_rate,
    "too-long": _be_refused("ConnectError: [invalid_argument] prompt is too long: 208310 tokens > 200000 maximum"),
    "model-gone": _be_refused("ConnectError: [not_found] AI Model Not Found"),
    "login-expired": _be_refused("Error: ConnectError: [unauthenticated] Error"),
    "certificate": _be_refused("RetriableError: [unavailable] self-signed certificate in certificate chain"),
    "bad-gateway": _be_refused("ConnectError: [unknown] HTTP 502"),
    "no-result": _end_without_result,
    "hang": _hang_without_result,
    "crash": _crash,
    "cut": _cut_a_line,
    "memory": _run_out_of_memory,
    "kill": lambda _turn: _die(signal.SIGKILL),
    "segv": lambda _turn: _die(signal.SIGSEGV),
}
