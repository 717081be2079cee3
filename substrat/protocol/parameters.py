"""The parameters of the operator's methods; `make generate` writes it from the daemon's Structs.

Each has its kind, whether it is required, and its description.
"""

from __future__ import annotations

PARAMETERS: dict[str, dict[str, tuple[str, bool, str]]] = {
    "hello": {
        "protocol": ("integer", True, "the newest version the client speaks"),
        "client": ("string", False, "who is calling, in a few words; events name `web` and `ssh:HOST` as such, others as `ctl`"),
    },
    "agent.spawn": {
        "workspace": ("string", True, "the absolute path of the directory it works in"),
        "name": ("string", False, "its name; one is made up when it is left out"),
        "program": ("string", False, "the agent program; default: `agent.program` of the configuration"),
        "model": ("string", False, "the model; default: `programs.NAME.model`, else `agent.model`, of the configuration"),
        "network": ("string", False, "`none`, `filtered` or `host`; default: `sandbox.network` of the configuration"),
        "allow": ("strings", False, "entries that `filtered` lets through besides the configured list: `HOST[:PORT][=private]`, `*.HOST` for the subdomains, a network, `@PRESET`; asks for `filtered` by itself"),
        "bind": ("strings", False, "absolute paths of further files and directories that it may write to"),
        "bind_ro": ("strings", False, "absolute paths of further files and directories that it may read"),
        "prompt": ("string", False, "its first prompt"),
        "session": ("string", False, "the id of a chat of this workspace that it takes over; its model is the default then"),
        "restore": ("string", False, "its fate when its turn is lost: `hold` (it waits for a person) or `auto` (it goes on by itself); default: `agent.restore` of the configuration"),
        "priority": ("string", False, "`high`, `normal` (the default) or `low`: which agents that wait it goes before"),
        "env": ("strings", False, "variables of its own, `NAME=VALUE`; they go before those of `agent.env`"),
        "ssh_agent": ("string", False, "the absolute path of an ssh-agent's socket, which it may ask for signatures"),
        "time_limit": ("number", False, "seconds that a turn of it may take, 0 for no limit; default: `turns.time_limit`"),
        "silence_limit": ("number", False, "seconds that it may print nothing while no tool call is open, 0 for no limit; default: `turns.silence_limit`"),
        "check": ("string", False, "a shell command: the agent's work is done when it succeeds on the files of a turn's end"),
        "retries": ("integer", False, "how often the agent is sent back when the check fails for its work; default 2"),
        "budget": ("strings", False, "what it may use with its descendants, `KEY=NUMBER`, as `limits` of `agent.budget`"),
        "clone": ("boolean", False, "whether it works in a private clone of its own; default: `agent.workspace` of the configuration, and in place where no clone can be made or a chat is taken over"),
        "branch": ("string", False, "the branch of its clone, which may exist; default: `substrat/NAME`"),
        "base": ("string", False, "the commit that its clone starts at; default: HEAD"),
        "wip": ("boolean", False, "whether its clone has your uncommitted changes, as a first commit"),
    },
    "agent.send": {
        "agent": ("string", True, "the agent's name or id"),
        "prompt": ("string", True, "the prompt"),
        "now": ("boolean", False, "whether it is for the turn that runs, after its next tool call, if the program takes words meanwhile"),
    },
    "agent.list": {
        "fields": ("strings", False, "the members each object is to have; default: all. A name that is none of an agent object's fails with `InvalidParams`. Only here there are `heard_at` too, when a running turn last had an event, null for any other agent; and `together`, whether it was suspended with all others rather than by its name"),
        "names": ("strings", False, "only these agents, by name or id; those that there aren't are left out; default: all"),
        "family": ("boolean", False, "whether those that descend from `names` are listed too"),
        "after": ("string", False, "the name or the id of the agent to read on after; default: the beginning"),
        "limit": ("integer", False, "how many at most, at least 1; default: all, because an array doesn't say that there are more"),
    },
    "agent.show": {
        "agent": ("string", True, "the agent's name or id"),
    },
    "agent.wait": {
        "agents": ("strings", True, "the agents' names or ids"),
        "until": ("states", False, "the states. Default, also for an empty array: until it is neither `queued` nor `running`, waits for no other agent and has asked the operator nothing, or until neither it nor any that it waits for works and one of them has an urgent attention"),
        "timeout": ("number", False, "seconds, from 0 to 1000000000; default: no limit"),
    },
    "agent.wait_message": {
        "agent": ("string", True, "the agent's name or id"),
        "message": ("integer", False, "the prompt's number; default: the newest prompt"),
        "timeout": ("number", False, "seconds, from 0 to 1000000000; default: no limit"),
    },
    "agent.suspend": {
        "agent": ("string", True, "the agent's name or id"),
        "freeze": ("boolean", False, "stop the turn's processes in memory instead of ending them; `agent.resume` lets them go on"),
        "together": ("boolean", False, "whether all agents are being suspended, see `together` of `agent.list`"),
    },
    "agent.resume": {
        "agent": ("string", True, "the agent's name or id"),
        "prompt": ("string", False, "a prompt to send instead"),
    },
    "agent.interrupt": {
        "agent": ("string", True, "the agent's name or id"),
    },
    "agent.end": {
        "agent": ("string", True, "the agent's name or id"),
        "family": ("boolean", False, "whether all that descend from it are finished too, the deepest first"),
    },
    "agent.rm": {
        "agent": ("string", True, "the agent's name or id"),
    },
    "agent.explain": {
        "agent": ("string", True, "the agent's name or id"),
    },
    "agent.exec": {
        "agent": ("string", True, "the agent's name or id"),
        "command": ("strings", True, "the program and its arguments, as seen from inside"),
        "descriptors": ("string", True, "absolute path of a Unix stream socket that the client listens at"),
        "terminal": ("string", False, "the value of `TERM` for a command on a terminal; default: it is on none"),
    },
    "agent.turns": {
        "agent": ("string", True, "the agent's name or id"),
        "after": ("integer", False, "the number of the turn to read after; default: 0, the beginning"),
        "limit": ("integer", False, "how many at most, from 1 to 100; default: 100; a number outside counts as the nearest"),
    },
    "agent.usage": {
        "agent": ("string", True, "the agent's name or id"),
    },
    "usage.list": {
        "after": ("string", False, "the name or the id of the agent to read on after; default: the beginning"),
        "limit": ("integer", False, "how many at most, from 1 to 1000; default: 1000; a number outside counts as the nearest"),
    },
    "usage.sum": {
        "by": ("string", True, "what is told apart: `agent`, `day`, `model` or `repository`"),
        "agents": ("strings", False, "only these agents' turns, by name or id; default: all agents'"),
        "since": ("string", False, "only turns that were started at this time or later, such as `2026-01-31T18:00:00Z`; default: all"),
    },
    "agent.network": {
        "agent": ("string", True, "the agent's name or id"),
        "allow": ("strings", False, "put these on the list"),
        "remove": ("strings", False, "take these off it; each must be on it"),
    },
    "agent.accept": {
        "agent": ("string", True, "the agent's name or id"),
        "what": ("integers", False, "the numbers of the findings; default: all of them, the failed turn, and work that has not landed"),
    },
    "agent.rename": {
        "agent": ("string", True, "the agent's name or id"),
        "name": ("string", True, "the new name"),
    },
    "agent.set": {
        "agent": ("string", True, "the agent's name or id"),
        "program": ("string", False, "the agent program: a new chat begins, with its model and its hosts unless others are given"),
        "model": ("string", False, "the model"),
        "network": ("string", False, "`none`, `filtered` or `host`"),
        "allow": ("strings", False, "all that `filtered` lets through, in place of the list that it has"),
        "priority": ("string", False, "`high`, `normal` or `low`: which agents that wait it goes before"),
        "time_limit": ("number", False, "seconds that a turn of it may take; 0: no limit"),
        "silence_limit": ("number", False, "seconds that it may print nothing while no tool call is open; 0: no limit"),
        "check": ("string", False, "a shell command that says whether its work is done"),
        "retries": ("integer", False, "how often it is sent back when the check fails for its work"),
        "defaults": ("strings", False, "which of `model`, `network`, `allow`, `priority`, `time_limit`, `silence_limit`, `check`, `retries` go back to their defaults"),
        "env": ("strings", False, "variables of its own, `NAME=VALUE`, besides those it has"),
        "without": ("strings", False, "the names of variables that it loses"),
        "workspace": ("string", False, "where the repository is now that its clone is of"),
    },
    "agent.budget": {
        "agent": ("string", True, "the agent's name or id"),
        "limits": ("strings", False, "limits that it gets, `KEY=NUMBER`: `usd`, `turns`, `minutes`, `input_tokens`, `output_tokens`, `tool_calls`, and `running`, the turns that may run at once"),
        "more": ("strings", False, "what is added to its limits, `KEY=NUMBER`"),
        "clear": ("boolean", False, "whether it has no budget any more; stands alone"),
    },
    "run.start": {
        "plan": ("string", True, "the family as JSON, see [its members](#a-plan)"),
        "file": ("string", True, "the file that the plan is from, for people"),
        "workspace": ("string", True, "the directory that the family works on"),
    },
    "run.show": {
        "run": ("string", True, "the run's name, which is its family's"),
        "seen": ("string", False, "the member `seen` of the last answer; default: answer at once"),
    },
    "run.list": {
    },
    "run.end": {
        "run": ("string", True, "the run's name, which is its family's"),
    },
    "task.list": {
        "agent": ("string", False, "an agent of the family, by name or id; default: all families"),
        "states": ("strings", False, "`blocked`, `ready`, `claimed`, `succeeded`, `failed`, `skipped`: only tasks in these; default: any"),
        "after": ("integer", False, "the number of the task to read on after; default: 0, the beginning"),
        "limit": ("integer", False, "how many at most, at least 1; default: all, because an array doesn't say that there are more"),
    },
    "task.add": {
        "agent": ("string", True, "the agent's name or id"),
        "tasks": ("string", True, "an array as JSON: objects with `title`, `description`, `id`, `needs`, `label`, `attempts`"),
    },
    "task.retry": {
        "agent": ("string", True, "the agent's name or id"),
        "task": ("string", True, "the task's id in the family"),
    },
    "task.skip": {
        "agent": ("string", True, "the agent's name or id"),
        "task": ("string", True, "the task's id in the family"),
    },
    "agent.forward": {
        "agent": ("string", True, "the agent's name or id"),
        "known": ("integers", False, "the pids of the last answer; default: answer at once"),
    },
    "agent.setup": {
        "agent": ("string", True, "the agent's name or id"),
    },
    "agent.diff": {
        "agent": ("string", True, "the agent's name or id"),
        "wip": ("boolean", False, "whether uncommitted files count"),
        "turn": ("integer", False, "the number of the turn whose changes alone are wanted"),
        "text": ("boolean", False, "whether the patch is wanted"),
    },
    "agent.merge": {
        "agents": ("strings", True, "the agents' names or ids"),
        "into": ("string", False, "the branch; default: the one that was checked out when the agent was spawned"),
        "squash": ("boolean", False, "whether the work becomes one commit"),
        "ff_only": ("boolean", False, "whether it lands only where the branch is an ancestor of it"),
        "message": ("string", False, "the message of the commit"),
        "check": ("string", False, "a shell command that must succeed on the merged files, in a sandbox without network and login; default: the agent's own. Where that has passed on the very files that land it isn't run again"),
        "accept": ("strings", False, "files, or directories of files, that a person has looked at, at `at`"),
        "at": ("string", False, "the agent's head that a person has looked at, at least 7 digits of it; with another one the work is `held`"),
        "unattended": ("boolean", False, "whether a refusal goes to the operator's inbox too"),
        "request": ("string", False, "an id of the client's own; asking again with it, for example after a restart, hears the same outcomes"),
        "outcomes": ("boolean", False, "whether a refusal of a single agent's work is an outcome too, not an error"),
        "wait": ("boolean", False, "whether to wait until each is decided; one that isn't has the outcome `queued` else"),
    },
    "agent.restore": {
        "agent": ("string", True, "the agent's name or id"),
        "turn": ("integer", True, "the number of the turn"),
    },
    "agent.checkout": {
        "agent": ("string", True, "the agent's name or id"),
        "directory": ("string", True, "the absolute path of the working copy"),
        "accept": ("strings", False, "files, or directories of files, that a person has looked at"),
    },
    "clone.list": {
        "sizes": ("boolean", False, "whether `bytes` is looked at anew, file by file"),
    },
    "clone.prune": {
        "names": ("strings", False, "agents' names or ids, also of removed ones; default: all that are over"),
        "unlanded": ("boolean", False, "whether clones go that hold work which is in no branch of the user's, or nowhere else at all"),
        "dry_run": ("boolean", False, "whether nothing is removed, and the answer says which would go"),
    },
    "clone.prune_refs": {
        "names": ("strings", False, "agents' names or ids, also of removed ones; default: all that are over"),
        "unlanded": ("boolean", False, "whether refs go that hold work which is in no branch of the user's"),
        "dry_run": ("boolean", False, "whether nothing is deleted, and the answer says which refs would go"),
    },
    "session.list": {
        "workspace": ("string", True, "the absolute path of the directory"),
    },
    "session.read": {
        "workspace": ("string", True, "the absolute path of the directory"),
        "session": ("string", True, "the chat's id"),
        "after": ("integer", False, "the number to read after; default: 0, the beginning"),
    },
    "agent.why": {
        "agent": ("string", True, "the agent's name or id"),
    },
    "events.read": {
        "agent": ("string", False, "only this agent's events; default: all agents'"),
        "since": ("integer", False, "the cursor to read after; default: 0, the beginning"),
        "limit": ("integer", False, "how many at most, from 1 to 1000; default: 1000; a number outside counts as the nearest"),
        "lines": ("boolean", False, "add `line` and `line_size` to events"),
        "journal": ("string", False, "the id of the journal that has the cursor `since`, which fails in another one; default: not looked at"),
    },
    "events.subscribe": {
        "agent": ("string", False, "only this agent's events; default: all agents'"),
        "since": ("integer", False, "the cursor to start after; default: the newest event's"),
        "lines": ("boolean", False, "add `line` and `line_size` to events"),
        "journal": ("string", False, "the id of the journal that has the cursor `since`, which fails in another one; default: not looked at"),
    },
    "events.unsubscribe": {
        "subscription": ("integer", True, "its number"),
    },
    "inbox.list": {
        "after": ("integer", False, "answer with a page: the number of the item to read after; 0 is the beginning"),
        "limit": ("integer", False, "how many at most, from 1 to 1000; default: 1000; a number outside counts as the nearest"),
    },
    "inbox.show": {
        "id": ("integer", True, "the item's number"),
    },
    "inbox.answer": {
        "id": ("integer", True, "the item's number"),
        "text": ("string", True, "the answer"),
    },
    "inbox.dismiss": {
        "id": ("integer", True, "the item's number"),
    },
    "message.list": {
        "agent": ("string", True, "its name or id"),
        "after": ("integer", False, "the number of the message to read after; 0 is the beginning"),
    },
    "message.drop": {
        "agent": ("string", True, "its name or id"),
        "id": ("integer", True, "the message's number"),
    },
    "wait.list": {
        "agents": ("strings", False, "the names or ids of those whose waits are listed; default: all"),
        "after": ("integer", False, "the id of the wait to read on after; default: 0, the beginning"),
        "limit": ("integer", False, "how many at most, at least 1; default: all, because an array doesn't say that there are more"),
    },
    "queue.list": {
        "after": ("string", False, "the name or the id of the agent to read on after; default: the beginning"),
        "limit": ("integer", False, "how many at most, at least 1; default: all, because an array doesn't say that there are more"),
    },
    "queue.gates": {
    },
    "queue.try": {
    },
    "daemon.status": {
    },
    "daemon.metrics": {
    },
    "notify.test": {
    },
    "daemon.check": {
    },
    "daemon.shutdown": {
        "suspend": ("boolean", False, "suspend every agent first; default: false"),
    },
}  # fmt: skip
