"""Defines the sections of the configuration file, each as a frozen Struct with the keys' types, defaults and meanings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sandbox.spec import Network
from substrat.core.agents.records import Restore
from substrat.core.families.tasks import ATTEMPTS, MOST_ATTEMPTS
from substrat.core.programs.table import CURSOR

MIB = 1024 * 1024


class AgentKeys(msgspec.Struct, frozen=True):
    """`[agent]`: the agent program."""

    program: Annotated[str, Meta(description="that of agents that name none: `cursor`, `claude` or `codex`")] = CURSOR.id
    model: Annotated[str, Meta(min_length=1, description="the model of agents that name none")] = "auto"
    restore: Annotated[
        Restore, Meta(description="what agents do whose turn is lost: `hold` (wait for a person) or `auto` (go on)")
    ] = Restore.HOLD
    bind_ro: Annotated[tuple[str, ...], Meta(description="further absolute paths that every sandbox sees read-only")] = ()
    workspace: Annotated[
        Literal["in-place", "clone"],
        Meta(
            description="where agents work that name neither `--in-place` nor `--clone`: in a private clone of your "
            "checkout where one can be made, or in the checkout itself"
        ),
    ] = "clone"
    path: Annotated[
        tuple[str, ...],
        Meta(description="absolute directories that every sandbox sees read-only and has on its PATH before the system's"),
    ] = ()
    env: Annotated[
        dict[str, str], Meta(description="variables that every agent gets; their values are shown nowhere else")
    ] = msgspec.field(default_factory=dict)


class ProgramKeys(msgspec.Struct, frozen=True):
    """`[programs.NAME]`: one agent program."""

    binary: Annotated[str, Meta(description="the program: a path, or a name on PATH; empty: the name that it has")] = ""
    model: Annotated[str, Meta(description="the model of its agents that name none; empty: `agent.model`")] = ""
    allow: Annotated[
        tuple[str, ...],
        Meta(description="the hosts that it needs, in the form of `sandbox.allow`; empty: those that it is known to need"),
    ] = ()
    env: Annotated[
        dict[str, str],
        Meta(description="variables that its agents get, such as a key, before `agent.env`; they are shown nowhere else"),
    ] = msgspec.field(default_factory=dict)
    children: Annotated[bool, Meta(description="whether agents of other programs may start its agents")] = False


class SandboxKeys(msgspec.Struct, frozen=True):
    """`[sandbox]`: settings of every sandbox."""

    bwrap: Annotated[str, Meta(description="bubblewrap's path; empty: found by itself")] = ""
    network: Annotated[Network, Meta(description="the network of agents that name none: `none`, `filtered` or `host`")] = (
        Network.FILTERED
    )
    allow: Annotated[
        tuple[str, ...],
        Meta(
            description="what `filtered` lets every agent reach besides its program's hosts: `HOST[:PORT][=private]`, "
            "`*.HOST`, a network, `@PRESET`"
        ),
    ] = ()
    upstream_proxy: Annotated[
        str,
        Meta(
            description="a company's proxy, `http://[USER:PASSWORD@]HOST:PORT`, through which `filtered` reaches the names "
            "that are allowed, but for those that are `=private`; empty: directly"
        ),
    ] = ""
    ca: Annotated[
        str, Meta(description="a file of certificates (PEM) that agents trust besides the system's; empty: none")
    ] = ""
    filtered: Annotated[
        str,
        Meta(
            pattern="^(auto|transparent|proxy)$",
            description="how `filtered` is made: `transparent`, `proxy`, or `auto`: transparent where that can be made",
        ),
    ] = "auto"
    shared_networks: Annotated[
        bool,
        Meta(
            description="whether agents with different networks may share a directory, and so each other's connections; "
            "`false`: such a spawn is refused; the git directory that worktrees share counts, at each turn's start too"
        ),
    ] = True
    memory_dir_bytes: Annotated[
        int, Meta(ge=MIB, description="how much each of the sandbox's in-memory directories (`/tmp`, home) may hold")
    ] = 1024 * MIB
    memory: Annotated[
        int,
        Meta(
            ge=0,
            description="how many bytes of memory a sandbox may have, or each process in it where there are no cgroups; "
            "0: three quarters of the machine's",
        ),
    ] = 0
    process_memory: Annotated[
        bool,
        Meta(
            description="whether each process has the limit `sandbox.memory` where there are no cgroups; "
            "`false` for programs that reserve terabytes: with AddressSanitizer or ThreadSanitizer"
        ),
    ] = True
    open_files: Annotated[int, Meta(ge=256, description="how many files each process in a sandbox may have open")] = 16384
    processes: Annotated[
        int,
        Meta(
            ge=64,
            description="how many processes and threads a sandbox may have "
            "(without cgroups not for root, and from Linux 5.14)",
        ),
    ] = 4096
    cpus: Annotated[
        float, Meta(ge=0, description="how many processors' time a sandbox may use, where there are cgroups; 0: all")
    ] = 0.0


class TurnKeys(msgspec.Struct, frozen=True):
    """`[turns]`: how turns run."""

    max_running: Annotated[
        int,
        Meta(
            ge=0,
            description="how many run at once; more wait as `queued`; 0: one for each 512 MiB of the machine's memory, "
            "from 8 to 256",
        ),
    ] = 0
    stop_grace: Annotated[
        float, Meta(gt=0, description="seconds between SIGINT, SIGTERM and the kill when a turn is stopped")
    ] = 5.0
    result_grace: Annotated[
        float, Meta(gt=0, description="seconds a program may go on after its result before it is stopped")
    ] = 10.0
    time_limit: Annotated[
        float,
        Meta(ge=0, description="seconds a turn may take, without those of a freeze or of the machine's sleep; 0: no limit"),
    ] = 0.0
    silence_limit: Annotated[
        float, Meta(ge=0, description="seconds a turn may get no further while no tool call of it is open; 0: no limit")
    ] = 900.0
    tool_limit: Annotated[
        float, Meta(ge=0, description="seconds a turn may print nothing while a tool call of it is open; 0: no limit")
    ] = 0.0
    stuck_after: Annotated[
        float, Meta(ge=0, description="seconds without progress after which a running turn is shown as stuck; 0: never")
    ] = 300.0
    tool_stuck_after: Annotated[
        float, Meta(ge=0, description="the same while a tool call of it is open, such as a build or a test; 0: never")
    ] = 3600.0
    restores: Annotated[int, Meta(ge=0, description="how often `auto` lets an agent go on within the window")] = 3
    restore_window: Annotated[float, Meta(gt=0, description="the window, in seconds")] = 600.0


class LimitKeys(msgspec.Struct, frozen=True):
    """`[limits]`: limits on agents that protect the others."""

    message_bytes: Annotated[int, Meta(ge=1, description="the longest message an agent may send")] = 64 * 1024
    waiting_items: Annotated[int, Meta(ge=1, description="how many prompts and messages may wait for one agent")] = 1000
    waiting_from_one: Annotated[
        int, Meta(ge=1, description="how many messages of one agent may wait for another, or for the operator")
    ] = 100
    wakes: Annotated[
        int,
        Meta(ge=0, description="how many turns in a row messages alone may start within the window; 0: no limit"),
    ] = 100
    wake_window: Annotated[float, Meta(gt=0, description="the window, in seconds")] = 3600.0
    children: Annotated[int, Meta(ge=0, description="how many children of an agent may be queued, running or waiting")] = 16
    depth: Annotated[int, Meta(ge=0, description="how many generations agents may spawn")] = 4
    family: Annotated[int, Meta(ge=0, description="how many living descendants an agent of the operator's may have")] = 100
    agents: Annotated[int, Meta(ge=1, description="how many agents there may be")] = 10_000
    memory: Annotated[
        int,
        Meta(
            ge=0,
            description="how many bytes of memory all sandboxes together may have, where there are cgroups; "
            "0: seven eighths of the machine's",
        ),
    ] = 0
    processes: Annotated[
        int,
        Meta(
            ge=0, description="how many processes and threads all sandboxes may have, where there are cgroups; 0: no limit"
        ),
    ] = 16384
    cpus: Annotated[
        float, Meta(ge=0, description="how many processors' time all sandboxes may use, where there are cgroups; 0: all")
    ] = 0.0


class DiskKeys(msgspec.Struct, frozen=True):
    """`[disk]`: limits on the space that agents' output takes."""

    turn_output: Annotated[
        int,
        Meta(
            ge=0,
            description="bytes a turn may write to its standard output and error before it is stopped; 0: no limit",
        ),
    ] = 1024 * MIB
    agent: Annotated[
        int, Meta(ge=0, description="bytes on disk that one agent's turns may have; older ones are dropped; 0: no limit")
    ] = 4096 * MIB
    agent_home: Annotated[
        int,
        Meta(
            ge=0,
            description="bytes on disk that one agent's own `~/.cache`, `~/.cursor` and chats may have while a turn of it "
            "runs; 0: no limit",
        ),
    ] = 4096 * MIB
    state: Annotated[
        int, Meta(ge=0, description="bytes on disk that all turns may have; older ones are dropped; 0: no limit")
    ] = 32768 * MIB
    compress_after: Annotated[
        float, Meta(ge=0, description="seconds after its end until a turn's output is compressed")
    ] = 86400.0
    keep: Annotated[float, Meta(ge=0, description="seconds after its end until a turn is dropped; 0: kept for ever")] = (
        90 * 86400.0
    )
    free: Annotated[
        int,
        Meta(
            ge=0,
            description="bytes that must be free where the state is for a turn to start, and for a check to "
            "begin and to go on, and where a repository is when the unfolded work of a turn comes in; 0: it isn't looked "
            "at",
        ),
    ] = 512 * MIB


class CloneKeys(msgspec.Struct, frozen=True):
    """`[clone]`: agents' private clones."""

    dir: Annotated[
        str, Meta(description="the absolute path of the directory that they lie in; empty: `trees` in the state directory")
    ] = ""
    bundle_bytes: Annotated[
        int, Meta(ge=1 << 20, description="bytes that the new work of one turn may unfold to when it is kept")
    ] = 1024 * MIB
    turns: Annotated[
        int, Meta(ge=1, description="of how many last turns each agent's work stays in `refs/substrat/NAME/turns`")
    ] = 50
    forget_days: Annotated[
        float,
        Meta(
            ge=0,
            description="days until the refs of an agent that has ended or is removed go, counted from when its work is "
            "found in a branch of yours; 0: never",
        ),
    ] = 7.0
    setup_seconds: Annotated[
        float, Meta(gt=0, description="seconds that the commands which set a clone up may take in all")
    ] = 600.0
    check_seconds: Annotated[float, Meta(gt=0, description="seconds that a check may take")] = 1800.0
    check_room: Annotated[
        Literal["clone", "setup"],
        Meta(
            description="where `merge --check` runs: in the merged files with the clone's ignored ones, or in the merged "
            "files alone, after the clone's set-up has run there"
        ),
    ] = "clone"


class NotifyKeys(msgspec.Struct, frozen=True):
    """`[notify]`: telling a person that an agent needs them."""

    command: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            description="the program, and its arguments, that is run when agents need a person, with who and why on its "
            "standard input; empty: none"
        ),
    ] = ()


class TaskKeys(msgspec.Struct, frozen=True):
    """`[tasks]`: the parts of a family's work."""

    attempts: Annotated[
        int,
        Meta(
            ge=1, le=MOST_ATTEMPTS, description="how many agents may have a task, one after the other, until it has failed"
        ),
    ] = ATTEMPTS


class LogKeys(msgspec.Struct, frozen=True):
    """`[log]`: the daemon's own log."""

    level: Annotated[
        str, Meta(pattern="^(debug|info|warning|error)$", description="`debug`, `info`, `warning` or `error`")
    ] = "info"
    format: Annotated[
        str, Meta(pattern="^(auto|json|text)$", description="`json`, `text`, or `auto`: JSON unless on a terminal")
    ] = "auto"
