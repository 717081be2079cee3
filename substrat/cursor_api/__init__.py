"""cursor-agent from Python: queries, streams and conversations, direct or in a sandbox; not the daemon's own client.

A program written for `cursor_agent_api` runs with its import changed to this package. Importing it starts nothing and
doesn't need Trio; the same for Trio programs is `substrat.cursor_api.aio`.

    from substrat.cursor_api import query

    print(query("What is 2+2?").result)
"""

from substrat.cursor_api.client import CursorAgentClient, query, query_stream
from substrat.cursor_api.command import AgentNotFound
from substrat.cursor_api.model import (
    AgentConfig,
    AgentEvent,
    AgentResult,
    EventType,
    OutputFormat,
    collect_text,
)
from substrat.cursor_api.session import ConversationSession
from substrat.cursor_api.stream import StreamingResponse

__all__ = [
    "AgentConfig",
    "AgentEvent",
    "AgentNotFound",
    "AgentResult",
    "ConversationSession",
    "CursorAgentClient",
    "EventType",
    "OutputFormat",
    "StreamingResponse",
    "collect_text",
    "query",
    "query_stream",
]
