"""Reads what a person's git configuration says for a landing, and judges the programs in it that files select. Pure.

Attributes of a file select a filter or a merge driver, and the configuration says which program that is (gitattributes(5)).
An agent chooses attributes, names and contents of files, so only a program runs that none of these can make another one:
git-lfs's own filters, and programs of the system that change their input and do nothing else. For example
`filter.tidy.clean = indent -kr` runs; `python3 tools/tidy.py` doesn't, because it takes modules from beside its script.
"""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

_CHANGES_ITS_INPUT = frozenset({
    "age", "base32", "base64", "black", "bunzip2", "bzip2", "cat", "clang-format", "column", "cut", "diff3", "dos2unix",
    "expand", "false", "fmt", "fold", "git-merge-changelog", "gofmt", "gpg", "gpg2", "gunzip", "gzip", "head", "iconv",
    "indent", "jq", "merge", "nbstripout", "nl", "openssl", "paste", "recode", "rev", "rustfmt", "sort", "tac", "tail",
    "tidy", "tr", "true", "truncate", "unexpand", "uniq", "unix2dos", "unxz", "unzstd", "xmllint", "xz", "zcat", "zstd",
})  # fmt: skip
"""Programs that change their input and run nothing else, whatever it says and whatever lies beside it. Others do: `sqlite3`
runs `.shell` lines of a file, `prettier` a configuration, `sed` its own `e`, `make` a `Makefile`."""
_PLAIN = re.compile(r"""(["']?)(\w[\w.+-]*)\1((?:[ \t]+[^\s"']+)*)""")
"""A bare name, which may be in quotes, and words without any: git puts a file's name for `%f` in quotes of its own."""
_SHELLS_SYNTAX = re.compile(r"[;&|<>()$`*?\[\]{}~#!\\]")
_PLACEHOLDER = re.compile(r"%[A-Za-z]|[^%]*")
_TAKES_A_PROGRAM = frozenset({"-f", "-e", "-c", "-m"})
LFS = re.compile(r"git-lfs (clean|smudge)( --skip)?( --)? %f|git-lfs filter-process( --skip)?")
"""As `git lfs install` writes them."""
_CRYPT = re.compile(r"""("?)git-crypt\1 (clean|smudge|diff)( --key-name=[\w-]+)?""")
"""As `git-crypt init` writes them."""
_COMMANDS = ("clean", "smudge", "process")
_TRUE = frozenset({"true", "yes", "on", "1"})
_FOLLOWED = frozenset({
    "merge.default", "merge.renames", "merge.renamelimit", "merge.directoryrenames", "merge.renormalize", "diff.renames",
    "diff.renamelimit", "core.autocrlf", "core.eol", "core.filemode", "core.ignorecase", "status.showuntrackedfiles",
})  # fmt: skip
"""Settings of a person's that decide how git in a sandbox merges, and what it takes for a change."""
_CRUD = "".join(map(chr, range(33))) + ".,:;<>\"\\'"
"""git takes these from both ends of names and addresses (ident.c)."""
_SUBSTRAT = "Substrat <substrat@localhost>"
"""The author of commits of uncommitted files."""
FORMS = {"lfs": b"version https://git-lfs.github.com/spec/", "git-crypt": b"\0GITCRYPT\0"}
"""How a file begins in a repository that its filter has been applied to, by the filter's name."""


class GitSettings(NamedTuple):
    """The settings of a person that count for a landing.

    Args:
        name: `user.name`; empty: none.
        email: `user.email`; empty: none.
        people: all names that the settings give to a commit's author or committer, as `name <address>`.
        signs: whether commits are to be signed.
        attributes: `core.attributesFile`, as it is written; None: git's own place for it.
        excludes: `core.excludesFile`, likewise.
        filters: each filter's commands.
        mergers: each merge driver's command.
        remotes: the remotes' names, the one first that branches are pushed to unless another is named.
        lfs_addresses: the settings that give git-lfs an address.
        followed: settings that hold in a sandbox as they are.
    """

    name: str = ""
    email: str = ""
    people: frozenset[str] = frozenset()
    signs: bool = False
    attributes: str | None = None
    excludes: str | None = None
    filters: Mapping[str, tuple[str, ...]] = {}
    mergers: Mapping[str, str] = {}
    remotes: tuple[str, ...] = ()
    lfs_addresses: frozenset[str] = frozenset()
    followed: Mapping[str, str] = {}


def read(listing: bytes) -> GitSettings:
    r"""Read the output of `git config --list -z --show-scope`; settings of the command line are the daemon's own.

    An example of an entry is `global\0user.name\nMe\0` (git-config(1)).
    """
    fields = os.fsdecode(listing).split("\0")
    values: dict[str, str | None] = {}
    for scope, entry in zip(fields[::2], fields[1::2], strict=False):
        key, newline, text = entry.partition("\n")
        if scope != "command":
            values[key] = text if newline else None
    filters: dict[str, tuple[str, ...]] = {}
    mergers: dict[str, str] = {}
    remotes: list[str] = []
    lfs_addresses: set[str] = set()
    followed: dict[str, str] = {}
    for key, value in values.items():
        section, _, rest = key.partition(".")
        name, _, last = rest.rpartition(".")
        if key in _FOLLOWED or (section == "merge" and last == "recursive"):
            followed[key] = "true" if value is None else value
        elif section == "filter" and last in _COMMANDS and value:
            filters[name] = (*filters.get(name, ()), value)
        elif section == "merge" and last == "driver" and value:
            mergers[name] = value
        elif section == "remote" and last == "url":
            remotes.append(name)
            lfs_addresses.add(f"remote.{name}.lfsurl")
        elif (section == "lfs" and last == "url") or (section == "remote" and last in {"lfsurl", "lfspushurl"}):
            lfs_addresses.add(key)
    names, addresses = (
        {given for role in ("user", "author", "committer") if (given := values.get(f"{role}.{part}"))}
        for part in ("name", "email")
    )
    return GitSettings(
        values.get("user.name") or "", values.get("user.email") or "",
        frozenset(person(name, address) for name in names for address in addresses),
        signs=(values.get("commit.gpgsign", "no") or "true").lower() in _TRUE,
        attributes=values.get("core.attributesfile"), excludes=values.get("core.excludesfile"),
        filters=filters, mergers=mergers,
        remotes=tuple(sorted(remotes, key=lambda name: name != (values.get("remote.pushdefault") or "origin"))),
        lfs_addresses=frozenset(lfs_addresses), followed=followed,
    )  # fmt: skip


def person(name: str, address: str) -> str:
    """Return the author or committer that git writes for a name and an address: `Me <me@example.org>`."""
    bare, place = ("".join(letter for letter in one.strip(_CRUD) if letter not in "<>\n") for one in (name, address))
    return f"{bare} <{place}>"


class NamesGiven(NamedTuple):
    """The names of the agents of a family, and the variables that one of them was given."""

    family: tuple[str, ...]
    variables: Mapping[str, str]

    def people(self, settings: GitSettings) -> frozenset[str]:
        """Return the names that commits of the person's and of these agents' have unless they choose others."""
        names, addresses = (
            {own, *(self.variables.get(f"GIT_{role}_{part}", own) for role in ("AUTHOR", "COMMITTER"))}
            for part, own in (("NAME", settings.name), ("EMAIL", settings.email))
        )
        chosen = (person(name, address) for name in names for address in addresses)
        own = (f"{name} <{name}@localhost>" for name in self.family)  # where the person's git has no name
        return settings.people.union(own, chosen, (_SUBSTRAT,))


class Programs(NamedTuple):
    """Judges programs.

    Args:
        is_of_system: whether a bare name is found in a directory of the system first.
        names: the names at the top of the files that a program would run among.
    """

    is_of_system: Callable[[str], bool]
    names: Collection[str] = ()

    def is_plain(self, command: str) -> bool:
        """Say whether a command is one plain program of the system, which no file of a repository makes another one."""
        if _CRYPT.fullmatch(command):
            return self.is_of_system("git-crypt")
        match = _PLAIN.fullmatch(command)
        if match is None or _SHELLS_SYNTAX.search(command):
            return False
        words = [match[2], *match[3].split()]
        if words[0] not in _CHANGES_ITS_INPUT or not self.is_of_system(words[0]):
            return False
        return not any(
            "/" in word or "=" in word or word in {".", ".."} or word in self.names or before in _TAKES_A_PROGRAM
            or not _PLACEHOLDER.fullmatch(word)
            for before, word in pairwise(words)
        )  # fmt: skip

    def may_filter(self, commands: Iterable[str]) -> bool:
        """Say whether a filter's commands may run."""
        return all(LFS.fullmatch(command) or self.is_plain(command) for command in commands)


def quiet_filters(settings: GitSettings, programs: Programs) -> dict[str, str]:
    """Return the settings under which git runs no filter but those that may run; files stand as they are committed then."""
    found: dict[str, str] = {}
    for name, commands in settings.filters.items():
        if not programs.may_filter(commands):
            found |= {f"filter.{name}.{key}": "" for key in _COMMANDS} | {f"filter.{name}.required": "false"}
    return found


LFS_OFFLINE = {"GIT_LFS_SKIP_DOWNLOAD_ERRORS": "1"}
"""Lets git-lfs write the pointer of a file whose object it can't get."""
_NOWHERE = "http://127.0.0.1:0/"
"""An address that answers at once: no program listens at port 0, and no proxy is asked for this machine itself."""


def lfs_offline(settings: GitSettings) -> dict[str, str]:
    """Return the settings under which git-lfs asks no server: it writes the objects that the repository has.

    They come before those of `.lfsconfig`, which an agent may have written (git-lfs-config(5)).
    """
    addresses = dict.fromkeys(sorted({"lfs.url", "lfs.pushurl", *settings.lfs_addresses}), _NOWHERE)
    return {**addresses, "lfs.standalonetransferagent": ""}


def lfs_files(selected: Mapping[str, str], settings: GitSettings) -> list[str]:
    """Return the files among those for which attributes name a filter whose filter is git-lfs's."""
    lfs = {name for name, commands in settings.filters.items() if any(map(LFS.fullmatch, commands))}
    return [path for path, name in selected.items() if name in lfs]


def mergers(settings: GitSettings, programs: Programs) -> dict[str, str]:
    """Return the settings under which git runs the merge drivers that may run; another one leaves a conflict."""
    return {
        f"merge.{name}.driver": command if programs.is_plain(command) else "false"
        for name, command in settings.mergers.items()
    }


def unrun_mergers(selected: Mapping[str, str], settings: GitSettings, programs: Programs) -> str:
    """Say for which file in conflict a merge driver wasn't run that may not run; empty: for none."""
    plain = {name for name, command in settings.mergers.items() if programs.is_plain(command)}
    found = [(path, name) for path, name in selected.items() if name in settings.mergers.keys() - plain]
    if not found:
        return ""
    path, name = found[0]
    return (
        f"{_shown(path)} selects your git's merge driver {name}, {shlex.quote(settings.mergers[name])}, which isn't a "
        f"program that only changes its input, so the daemon doesn't run it"
    )


class Selected(NamedTuple):
    """A file for which attributes name a filter.

    Args:
        path: its path from the top level.
        filter: the filter's name.
        begin: the first bytes of its content as it is committed.
    """

    path: str
    filter: str
    begin: bytes


def doubtful(selected: Mapping[str, str], settings: GitSettings, programs: Programs) -> list[str]:
    """Return the files among those for which attributes name a filter that `refusal` may refuse."""
    return [
        path
        for path, name in selected.items()
        if _form(name) or path.startswith("-") or not programs.may_filter(settings.filters.get(name, ()))
    ]


def refusal(selected: Iterable[Selected], settings: GitSettings, programs: Programs) -> str | None:
    """Say why files can't be written to a checkout as the person's own git would; None: they can."""
    for one in selected:
        commands = settings.filters.get(one.filter, ())
        if one.path.startswith("-") and any("%f" in command and " -- " not in command for command in commands):
            return f"{_shown(one.path)} begins with a dash, which your git's filter {one.filter} would take for an option"
        if not programs.may_filter(commands):
            return (
                f"{_shown(one.path)} selects your git's filter {one.filter}, {shlex.quote(commands[0])}, which is neither "
                f"git-lfs's nor a program that only changes its input, so the daemon doesn't run it"
            )
        if one.begin and not one.begin.startswith(_form(one.filter)):
            form = "unencrypted" if one.filter.startswith("git-crypt") else "unfiltered"
            return (
                f"{_shown(one.path)} would land {form}: its attributes name the filter {one.filter}, which didn't run "
                f"where it was committed"
            )
    return None


def _form(name: str) -> bytes:
    """Return how files begin that a filter has been applied to; empty where that isn't known."""
    return next((form for known, form in FORMS.items() if name == known or name.startswith(f"{known}-")), b"")


def _shown(path: str) -> str:
    """Return a path for a sentence: in quotes where it isn't of printable letters."""
    return path if path.isprintable() else repr(os.fsencode(path))[1:]
