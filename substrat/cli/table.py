"""The verbs of `substratctl` and one line about each; what a verb takes and does stands in its own file."""

from __future__ import annotations

PROGRAM = "substratctl"

VERBS = {
    "spawn": "create an agent, and start its first turn when there is a prompt",
    "send": "queue a prompt for an agent",
    "ls": "list the agents",
    "show": "everything about agents",
    "exec": "run a command, or a shell, in an agent's sandbox",
    "explain": "the command that would start an agent's next turn",
    "tree": "which agent spawned which",
    "logs": "what agents did, and with -f what they do",
    "transcript": "what agents were asked, said and did, turn by turn",
    "usage": "the tokens that agents used",
    "events": "what all agents did, in order",
    "wait": "block until agents are in a state",
    "suspend": "stop agents' turns, keep their sessions",
    "resume": "continue where suspended agents stopped",
    "interrupt": "stop agents' turns",
    "end": "finish agents",
    "rm": "forget agents that aren't running, with their files and events",
    "sessions": "the chats of a workspace",
    "export": "a chat as Markdown",
    "inbox": "what agents ask or tell you",
    "answer": "answer a question of the inbox",
    "accept": "note that you have seen what asks for your attention",
    "allow": "what an agent's filtered network lets through, and changes to it",
    "doctor": "check what this machine offers",
    "demo": "show the main job with a stand-in agent",
    "shutdown": "stop the daemon; turns go on",
    "service": "install the daemon as a systemd user service",
    "help": "this list, or all about one command",
    "version": "the versions of this program and of the daemon",
    "completion": "a completion script for a shell",
}

# Verbs whose arguments are names of agents, for the completion scripts.
TAKES_AGENTS = (
    "send", "show", "exec", "logs", "transcript", "usage", "wait", "suspend", "resume", "interrupt", "end", "rm", "export",
    "accept", "allow", "explain",
)  # fmt: skip
