"""Generates the files that a sandbox shows of its agent: `.cursor`, MCP configuration, rules, `/etc` and git's files.

They are made anew for each turn in the agent's own directory (`state.layout`); the workspace itself is only read.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING

from sandbox.netlaunch import NAMESERVER
from substrat.core.agents import prompts
from substrat.core.programs.table import CURSOR, chats_folder, companion, mcp_config_of, program_of
from substrat.core.workspaces import person_git
from substrat.core.workspaces.person_git import ATTRIBUTES, EXCLUDES
from substrat.daemon.kernel import nofollow
from substrat.daemon.sandboxes.overlay import copy_cursor_directory
from substrat.daemon.state.layout import COMPANION_IN_SANDBOX, MOST_RECORD, OWN_MCP_IN_SANDBOX, SOCKET_IN_SANDBOX
from substrat.errors import WorkspaceUnusable
from substrat.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from substrat.core.agents.records import Agent
    from substrat.core.programs.program import ProgramPlaces
    from substrat.daemon.sandboxes.person_git import PersonGit
    from substrat.daemon.state.layout import AgentDir
    from substrat.daemon.workspaces.checking import DirectoryId
    from substrat.daemon.workspaces.user import User


def generate(
    agent_dir: AgentDir,
    agent: Agent,
    parent: str | None,
    limits: Mapping[str, float | None],
    user: User,
    python: str,
    person: PersonGit,
    git_directories: tuple[str, ...] = (),
    chat: str | None = None,
    workspace: DirectoryId | None = None,
    read_only: tuple[str, ...] = (),
) -> str | None:
    """Make everything anew that a turn's sandbox shows of this agent.

    Args:
        agent_dir: the agent's directories.
        agent: the agent.
        parent: its parent's name.
        limits: its limits, for the rules (`spawning.limits_of`).
        user: who it is inside.
        python: the companion's interpreter.
        person: the operator's git configuration, as far as it holds inside.
        git_directories: where else than in its `.git` the workspace's repository is.
        chat: the session whose directory among the user's chats is bound, if one is.
        workspace: which directory the agent's workspace was when it was checked.
        read_only: git directories that are read-only as wholes.

    Returns:
        A sentence about files that were left out, or None.

    Raises:
        WorkspaceUnusable: its `.cursor` can't be shown, or another directory has taken the workspace's place.
    """
    program = program_of(agent)
    own_home = agent_dir.home(program.places.home)
    for directory in (
        own_home,
        agent_dir.chats,
        agent_dir.cache,
        agent_dir.etc,
        agent_dir.git,
        agent_dir.socket_dir,
    ):
        os.makedirs(directory, mode=0o700, exist_ok=True)
    os.makedirs(os.path.join(agent_dir.chats, chats_folder(agent.workspace)), exist_ok=True)
    if chat is not None:
        _make_mount_point(agent_dir.chat(agent.workspace, chat))
    left_out = _copy_cursor_directory(agent_dir, agent, workspace)
    rules, instructions = prompts.rules(agent, parent, limits, [*map(visible, read_only)]), prompts.instructions(agent)
    _write_rules(os.path.join(agent_dir.cursor, CURSOR.places.rules), rules)
    _write_rules(os.path.join(agent_dir.cursor, CURSOR.places.instructions), instructions)
    found = nofollow.read_own(agent_dir.mcp_json, MOST_RECORD)  # copied from the workspace, which bounds it
    own = found.decode("utf-8", "replace") if found is not None else None
    ours = companion(python, COMPANION_IN_SANDBOX, agent.id, SOCKET_IN_SANDBOX)
    text, problem = mcp_config_of(own, ours)
    _write(agent_dir.mcp_json, text)
    if program.generate is not None:
        _write_program(agent_dir.program, program.generate(ours, "\n".join(map(_without_head, (rules, instructions)))))
    for path in _shown_in_home(program.places, user):
        _make_mount_file(own_home, path)
    _write_ignored(os.path.join(agent_dir.cursor, ".gitignore"))
    _write_etc(agent_dir, user, agent)
    _write_git(agent_dir, user, (f"{agent.workspace}/.git", *git_directories), person, own, agent.name)
    return problem or left_out


def _copy_cursor_directory(agent_dir: AgentDir, agent: Agent, workspace: DirectoryId | None) -> str | None:
    shutil.rmtree(agent_dir.cursor, ignore_errors=True)
    os.makedirs(agent_dir.cursor, mode=0o755)
    try:
        return copy_cursor_directory(os.path.join(agent.workspace, CURSOR.places.workspace), agent_dir.cursor, workspace)
    except OSError as obstacle:
        if obstacle.errno not in {errno.ELOOP, errno.ENOTDIR, errno.ENOENT}:
            raise
        raise WorkspaceUnusable(
            f"{agent.workspace}/{CURSOR.places.workspace} has become a link, or lies behind one: put back what was there"
        ) from None


def _write_rules(path: str, text: str) -> None:
    """Write a file of rules; without a text there is none, not even the workspace's own of that name."""
    rules = os.path.dirname(path)
    if os.path.isfile(rules):
        os.unlink(rules)
    os.makedirs(rules, mode=0o755, exist_ok=True)
    if text:
        _write(path, text)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _write_program(directory: str, files: Mapping[str, str]) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory, mode=0o755)
    for name, text in files.items():
        _write(os.path.join(directory, name), text)


def _without_head(rules: str) -> str:
    """Return the text of a file of rules without the head that is for Cursor alone: `---`, its keys, `---`."""
    return rules.partition("\n---\n")[2].lstrip() if rules.startswith("---\n") else rules


def _shown_in_home(places: ProgramPlaces, user: User) -> Iterator[str]:
    """Give the files that are mounted in the program's own directory, relative to it."""
    yield from (path for _, path in places.shown)
    inside = (name for name in places.settings if name.startswith(f"{places.home}/"))
    yield from (name.removeprefix(f"{places.home}/") for name in inside if os.path.lexists(user.place(name)))


def _make_mount_file(directory: str, name: str) -> None:
    """Make an empty file to mount over, in place of any link or directory that the agent has put there."""
    path = os.path.join(directory, name)
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    with open(path, "ab", opener=nofollow.open_file):
        pass


def _write_ignored(path: str) -> None:
    """Hide our files beside this one from programs that read no `core.excludesFile`, unless the workspace has its own."""
    if not os.path.lexists(path):
        places = CURSOR.places
        _write(path, "".join(f"/{name}\n" for name in (places.mcp, places.rules, places.instructions, ".gitignore")))


def _write_git(
    agent_dir: AgentDir, user: User, git_directories: tuple[str, ...], person: PersonGit, own: str | None, name: str
) -> None:
    """Give git in the sandbox the person's settings, and the workspace's own files in `.cursor` instead of ours.

    Files that the workspace doesn't have are ignored, besides those that the person ignores; for its own `mcp.json`, which
    ours covers, a clean filter gives git the original. Both hold for the workspace's repository only.
    """
    there = f"{user.home}/.config/git"
    _write(agent_dir.own_mcp_json, own or "")
    _write(agent_dir.no_alternates, "")
    places = CURSOR.places
    mcp, *rules = (f"/{places.workspace}/{name}" for name in (places.mcp, places.rules, places.instructions))
    ours = {
        EXCLUDES: "\n".join((mcp, *rules, "")).encode(),
        ATTRIBUTES: f"{mcp} filter=substrat -text\n".encode() if own else b"",
    }
    written = {
        **person_git.files("person", person.layer, there, person.filters, {}),
        **person_git.files("workspace", person.layer, there, person.filters, ours),
    }
    written["workspace"] += f'[filter "substrat"]\n\tclean = cat {OWN_MCP_IN_SANDBOX}\n\tsmudge = cat\n'.encode()
    for left in set(os.listdir(agent_dir.git)) - set(written):
        os.unlink(os.path.join(agent_dir.git, left))
    for file, content in written.items():
        _write(os.path.join(agent_dir.git, file), content)
    include = f"[user]\n\tname = {name}\n\temail = {name}@localhost\n[include]\n\tpath = {there}/person\n"
    for path in git_directories:
        where = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        include += f'[includeIf "gitdir:{where}"]\n\tpath = {there}/workspace\n'
    _write(agent_dir.gitconfig, f"{include}[safe]\n\tdirectory = *\n")


def _write_etc(agent_dir: AgentDir, user: User, agent: Agent) -> None:
    user = user.inside
    _write(os.path.join(agent_dir.etc, "resolv.conf"), f"nameserver {NAMESERVER}\noptions timeout:2 attempts:2\n")
    _write(
        os.path.join(agent_dir.etc, "passwd"),
        ("root:x:0:0:root:/root:/bin/sh\n" if user.uid else "")
        + f"{user.name}:x:{user.uid}:{user.gid}::{user.home}:/bin/sh\n"
        + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    )
    _write(
        os.path.join(agent_dir.etc, "group"),
        ("root:x:0:\n" if user.gid else "") + f"{user.name}:x:{user.gid}:\nnogroup:x:65534:\n",
    )
    _write(
        os.path.join(agent_dir.etc, "hosts"),
        f"127.0.0.1 localhost {agent.name}\n::1 localhost ip6-localhost {agent.name}\n",
    )


def _make_mount_point(path: str) -> None:
    """Make a directory, replacing any other file that an agent has put there."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            os.mkdir(path, 0o700)


def _write(path: str, text: str | bytes) -> None:
    """Write a generated file, replacing the workspace's file or directory of that name.

    One that says the same already stays: most do from turn to turn, and making ten files costs a millisecond.
    """
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if nofollow.read_own(path, len(data)) == data:
        return
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    with open(path, "wb") as file:
        file.write(data)
