"""Lists the verbs of `substratctl` with one line about each; `verbs/` has a file for each."""

from __future__ import annotations

COMMAND_NAME = "substratctl"

VERBS = {
    "spawn": "create an agent, and start its first turn when there is a prompt",
    "send": "queue a prompt for an agent",
    "ls": "list the agents",
    "show": "everything about agents",
    "exec": "run a command, or a shell, in an agent's sandbox",
    "forward": "reach ports of an agent's sandbox from this machine",
    "explain": "the command that would start an agent's next turn",
    "logs": "agents' events, and with -f those that come",
    "transcript": "agents' prompts, words and tool calls, turn by turn",
    "diff": "the changes that agents have made in their private clones",
    "merge": "land agents' work in your branch",
    "restore": "put an agent's private clone back to a turn",
    "checkout": "a working copy of an agent's commits for you",
    "clones": "the private clones on disk, and removing old ones",
    "why": "what started agents' newest turns, back to the person who began it",
    "usage": "the tokens that agents used",
    "budget": "what an agent may use with its descendants, and giving it more",
    "run": "start a family of agents from a file, and follow it",
    "runs": "the families that were started from files",
    "tasks": "the parts of a family's work that its agents claim",
    "events": "all agents' events, in order",
    "wait": "block until agents are in a state",
    "queue": "which agents wait for their turns, in order, and why",
    "suspend": "stop agents' turns, keep their sessions",
    "resume": "continue where suspended agents stopped",
    "interrupt": "stop agents' turns",
    "end": "finish agents",
    "rm": "forget agents that aren't running, with their files and events",
    "sessions": "the chats of a workspace",
    "export": "a chat as Markdown",
    "inbox": "agents' questions and messages to you, or an agent's messages",
    "answer": "answer a question of the inbox",
    "accept": "note that you have seen the reasons for attention",
    "allow": "an agent's allow-list, and changes to it",
    "set": "change an agent's name, model, network, limits or variables",
    "web": "a page of the agents in your browser, and its API",
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
    "send", "show", "exec", "logs", "transcript", "usage", "wait", "inbox", "suspend", "resume", "interrupt",
    "end", "rm", "export", "accept", "allow", "explain", "diff", "merge", "why", "set", "forward", "clones", "restore",
    "checkout", "budget", "tasks",
)  # fmt: skip
