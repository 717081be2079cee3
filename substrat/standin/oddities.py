"""Actions for cursor-agent's occasional behaviour that a supervisor must cope with; the turn goes on after each."""

from __future__ import annotations

import os
import signal
import sys

from substrat.standin import processes, stream
from substrat.standin.errors import MalformedActionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.standin.stream import Json
    from substrat.standin.turn import TurnContext

_SKIPPED = "Questions skipped by the user, continue with the information you already have"
_REJECTED = "User Rejected"
_ENDPOINT = "https://agentn.global.api5.cursor.sh"
# The real one ends after about five idle minutes.
_WORKER = "import time; time.sleep(300)"


def completed_without_started(turn: TurnContext, text: str) -> None:
    """`/completed-without-started TERM`: a web search that is refused and never started; no arguments either."""
    call_id = turn.stream.next_call_id()
    turn.stream.flush()
    query: Json = {"args": {"searchTerm": text, "toolCallId": call_id}}
    _refused_query(turn, "webSearch", query)
    call = stream.ToolCall(turn.stream, call_id, "webSearch", {}, None)
    call.complete({"rejected": {"reason": _REJECTED}}, with_args=False)
    turn.stream.next_model_call()


def web(turn: TurnContext, text: str) -> None:
    """`/web URL`: a web fetch, which is refused because no person can allow it; nothing is ever fetched."""
    call_id = turn.stream.next_call_id()
    args: Json = {"url": text, "toolCallId": call_id}
    call = turn.stream.start_tool(call_id, "webFetch", args)
    _refused_query(turn, "webFetch", {"args": args, "skipApproval": False})
    call.complete({"rejected": {"reason": _REJECTED}}, with_args=False)
    turn.stream.next_model_call()


def ask(turn: TurnContext, text: str) -> None:
    """`/ask QUESTION`: a question to the user, always skipped; the query comes before its tool call."""
    call_id = turn.stream.next_call_id()
    turn.stream.flush()
    options = [{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}]
    question = {"id": "question", "prompt": text, "options": options, "allowMultiple": False}
    args: Json = {"title": text, "questions": [question], "runAsync": False, "asyncOriginalToolCallId": ""}
    rejected: Json = {"rejected": {"reason": _SKIPPED}}
    number = _next_query(turn)
    request = {"id": number, "askQuestionInteractionQuery": {"args": args, "toolCallId": call_id}}
    kind = {"query_type": "askQuestionInteractionQuery"}
    turn.stream.event("interaction_query", "request", {**kind, "query": request})
    response = {"id": number, "askQuestionInteractionResponse": {"result": rejected}}
    turn.stream.event("interaction_query", "response", {**kind, "response": response})
    turn.stream.start_tool(call_id, "askQuestion", args).complete(rejected)
    turn.stream.next_model_call()


def plan(turn: TurnContext, text: str) -> None:
    """`/plan TEXT`: a plan, approved at once; its text is in the query and not in the result."""
    call_id = turn.stream.next_call_id()
    args: Json = {"name": "Plan", "overview": "", "plan": text, "todos": []}
    call = turn.stream.start_tool(call_id, "createPlan", args)
    number = _next_query(turn)
    name: Json = {"query_type": "createPlanRequestQuery"}
    request = {"id": number, "createPlanRequestQuery": {"args": args, "toolCallId": call_id}}
    turn.stream.event("interaction_query", "request", name | {"query": request})
    response = {"id": number, "createPlanRequestResponse": {"result": {"success": {}}}}
    turn.stream.event("interaction_query", "response", name | {"response": response})
    call.complete({"success": {}})
    turn.stream.next_model_call()


def reconnect(turn: TurnContext, _text: str) -> None:
    """`/reconnect`: the connection is lost and comes back."""
    turn.stream.event("connection", "reconnecting", {"attempt": 1, "endpoint_url": _ENDPOINT})
    turn.stream.event("connection", "reconnected", {})
    turn.stream.event("retry", "starting", {"attempt": 1, "is_resume": True})
    turn.stream.event("retry", "resuming", {"checkpoint_turn_count": 1, "attempt": 1})


def lose_connection(turn: TurnContext) -> None:
    """The lines of a connection that does not come back, on both outputs."""
    for attempt in (1, 2, 3):
        turn.stream.event("connection", "reconnecting", {"attempt": attempt, "endpoint_url": _ENDPOINT})
        say_on_stderr(f"Connection lost, reconnecting to {_ENDPOINT} (attempt {attempt})...")
        turn.stream.event("retry", "starting", {"attempt": attempt, "is_resume": False})
        say_on_stderr(f"Retry attempt {attempt}...")


def new_events(turn: TurnContext, _text: str) -> None:
    """`/new-events`: an event type, a subtype and a tool that no release has shown yet."""
    turn.stream.event("weather", "forecast", {"sky": {"clouds": 3}})
    turn.stream.event("system", "mood", {"mood": "curious"})
    call = turn.stream.start_tool(turn.stream.next_call_id(), "levitate", {"height": 2})
    call.complete({"postponed": {"until": "later"}})
    turn.stream.next_model_call()


def garbage(turn: TurnContext, text: str) -> None:
    """`/garbage [TEXT]`: a line that is no JSON and one that is no UTF-8, on stdout."""
    turn.stream.raw((text or "Using worktree: /nowhere").encode("utf-8", "replace") + b"\n")
    turn.stream.raw(b'{"type":"\xff\xfe"\n')


def line(turn: TurnContext, text: str) -> None:
    """`/line TEXT`: a line of stdout that is exactly TEXT, as another build might print it."""
    turn.stream.raw(text.encode("utf-8", "replace") + b"\n")


def long_line(turn: TurnContext, text: str) -> None:
    """`/long-line BYTES`: one line of at least that many bytes, as after the edit of a large file."""
    if not text.strip().isdecimal():
        raise MalformedActionError("BYTES must be a whole number")
    path = turn.path("large.txt")
    call = turn.stream.start_tool(turn.stream.next_call_id(), "read", {"path": path})
    size = int(text)
    content = {
        "content": "x" * size,
        "isEmpty": False,
        "exceededLimit": False,
        "totalLines": 1,
        "fileSize": size,
        "path": path,
    }
    call.complete({"success": content | {"readRange": {"startLine": 1, "endLine": 1}}})
    turn.stream.next_model_call()


def worker(turn: TurnContext, _text: str) -> None:
    """`/worker`: leave a detached `worker-server` behind, which outlives this process by up to five minutes."""
    log = os.open(
        os.path.join(turn.places.project, "worker.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    argv = (sys.executable, "-I", "-S", "-c", _WORKER, "cursor-agent-standin", "worker-server", turn.workspace)
    try:
        processes.spawn(argv, turn.environ, "/", (null, log, log), new_session=True)
    finally:
        os.close(log)
        os.close(null)


def ignore_signals(_turn: TurnContext, _text: str) -> None:
    """`/ignore-signals`: SIGINT and SIGTERM do nothing from here on, as in a process that is stuck."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def say_on_stderr(text: str) -> None:
    """One line on stderr."""
    stream.write_all(2, text.encode("utf-8", "replace") + b"\n")


def _refused_query(turn: TurnContext, kind: str, query: Json) -> None:
    number = _next_query(turn)
    name: Json = {"query_type": f"{kind}RequestQuery"}
    turn.stream.event("interaction_query", "request", name | {"query": {"id": number, f"{kind}RequestQuery": query}})
    response = {"id": number, f"{kind}RequestResponse": {"rejected": {"reason": _REJECTED}}}
    turn.stream.event("interaction_query", "response", name | {"response": response})


def _next_query(turn: TurnContext) -> int:
    turn.queries += 1
    return turn.queries - 1
