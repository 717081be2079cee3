"""Reads git's configuration syntax, and says which settings make git run a program or read a further file. Pure.

The syntax is that of git-config(1), "SYNTAX"; its tests compare the parser with git itself. A setting counts
as harmless only if it stands in a table here, so a setting of a newer git counts as one that runs something.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Setting(NamedTuple):
    """One line of a configuration.

    Args:
        section: in lower case.
        subsection: as written, None when there is none.
        key: in lower case.
        value: None for a key without `=`, which git takes for true.
    """

    section: str
    subsection: str | None
    key: str
    value: str | None

    @property
    def name(self) -> str:
        """The setting as `git config` spells it, for example `filter.lfs.clean`."""
        return ".".join(part for part in (self.section or None, self.subsection, self.key) if part is not None)


class Parsed(NamedTuple):
    """A configuration file.

    Args:
        settings: in the file's order.
        is_whole: whether git would read it to its end; at a line that it can't read git stops with an error.
    """

    settings: tuple[Setting, ...]
    is_whole: bool


class _Broken(Exception):
    """A line that git can't read."""


class _Reader:
    """Takes characters from the front of a text; CR LF counts as LF, as git has it."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        self._at = 0

    def next(self) -> str:
        """Take one character, "" at the end."""
        self._at += 1
        return self._text[self._at - 1 : self._at]

    def back(self) -> None:
        """Put the last character back."""
        self._at -= 1

    def skip_line(self) -> None:
        """Go to the next line."""
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end + 1


def parse(data: bytes) -> Parsed:
    """Read a configuration file; lines that git can't read are left out."""
    reader = _Reader(data.decode("utf-8", "surrogateescape"))
    found: list[Setting] = []
    is_whole = b"\0" not in data  # where a null ends a line, versions of git differ
    section: tuple[str, str | None] = ("", None)
    while character := reader.next():
        if character.isspace():
            continue
        if character in "#;":
            reader.skip_line()
            continue
        try:
            if character == "[":
                section = _section(reader)
            else:
                reader.back()
                found.append(Setting(*section, *_assignment(reader)))
        except _Broken:
            is_whole = False
            reader.skip_line()
    return Parsed(tuple(found), is_whole)


def _section(reader: _Reader) -> tuple[str, str | None]:
    name = ""
    while (character := reader.next()) != "]":
        if character and character in " \t":
            return name.lower(), _subsection(reader)
        if not character.isascii() or not (character.isalnum() or character in "-.") or not character:
            raise _Broken
        name += character
    section, dot, rest = name.lower().partition(".")
    if not name:
        raise _Broken
    return section, rest if dot else None


def _subsection(reader: _Reader) -> str:
    while (character := reader.next()) and character in " \t":
        pass
    if character != '"':
        raise _Broken
    name = ""
    while (character := reader.next()) != '"':
        if character == "\\":
            character = reader.next()
        if character in {"", "\n"}:
            raise _Broken
        name += character
    if reader.next() != "]":
        raise _Broken
    return name


def _assignment(reader: _Reader) -> tuple[str, str | None]:
    key = ""
    while (character := reader.next()) and character.isascii() and (character.isalnum() or character == "-"):
        key += character
    if not key[:1].isalpha():
        raise _Broken
    while character and character in " \t":
        character = reader.next()
    if character in {"", "\n"}:
        return key.lower(), None
    if character != "=":
        raise _Broken
    return key.lower(), _value(reader)


_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\", "\n": "", "": ""}


def _value(reader: _Reader) -> str:
    value, blanks, is_quoted = "", "", False
    while (character := reader.next()) not in {"", "\n"}:
        if not is_quoted and character in "#;":
            reader.skip_line()
            return value
        if not is_quoted and character.isspace():
            blanks += character if value else ""
            continue
        value, blanks = value + blanks, ""
        if character == '"':
            is_quoted = not is_quoted
        elif character == "\\":
            escaped = _ESCAPES.get(reader.next())
            if escaped is None:
                raise _Broken
            value += escaped
        else:
            value += character
    if is_quoted:
        reader.back()
        raise _Broken
    return value


# Settings that run nothing and lead nowhere, by section: the keys, "*" for all of a section's.
_HARMLESS = {
    "advice": {"*"},
    "author": {"name", "email"},
    "branch": {"remote", "merge", "rebase", "pushremote", "description", "mergeoptions", "autosetuprebase",
               "autosetupmerge", "sort", "vscode-merge-base", "github-pr-owner-number", "gh-merge-base"},
    "color": {"*"},
    "column": {"*"},
    "commit": {"gpgsign", "verbose", "cleanup", "status"},
    "committer": {"name", "email"},
    "core": {"abbrev", "autocrlf", "bare", "bigfilethreshold", "checkstat", "commentchar", "compression", "eol",
             "filemode", "fscache", "ignorecase", "logallrefupdates", "precomposeunicode", "preloadindex", "protecthfs",
             "protectntfs", "quotepath", "repositoryformatversion", "safecrlf", "sharedrepository", "sparsecheckout",
             "sparsecheckoutcone", "symlinks", "trustctime", "untrackedcache", "whitespace"},
    "diff": {"algorithm", "colormoved", "colormovedws", "context", "indentheuristic", "mnemonicprefix", "noprefix",
             "relative", "renames", "renamelimit", "submodule", "wordregex"},
    "difftool": {"prompt", "trustexitcode"},
    "fetch": {"*"},
    "gc": {"auto", "autodetach", "autopacklimit", "aggressivedepth", "aggressivewindow", "cruftpacks", "logexpiry",
           "packrefs", "pruneexpire", "reflogexpire", "reflogexpireunreachable", "rerereresolved", "rerereunresolved",
           "worktreepruneexpire", "writecommitgraph"},
    "gui": {"wmstate", "geometry", "diffcontext", "spellingdictionary", "encoding"},
    "index": {"*"},
    "init": {"defaultbranch"},
    "lfs": {"repositoryformatversion", "locksverify", "access"},
    "log": {"*"},
    "maintenance": {"auto", "autodetach", "strategy", "enabled", "schedule"},
    "merge": {"ff", "conflictstyle", "renames", "stat", "log"},
    "mergetool": {"prompt", "keepbackup", "keeptemporaries", "hideresolved", "trustexitcode", "writetotemp"},
    "pack": {"*"},
    "pull": {"*"},
    "push": {"*"},
    "rebase": {"autosquash", "autostash", "stat", "updaterefs", "missingcommitscheck"},
    "remote": {"url", "pushurl", "pushdefault", "fetch", "push", "tagopt", "mirror", "prune", "prunetags",
               "skipdefaultupdate", "skipfetchall", "followremotehead", "gh-resolved"},
    "rerere": {"*"},
    "stash": {"*"},
    "status": {"*"},
    "submodule": {"active", "url", "branch", "recurse", "ignore", "fetchrecursesubmodules", "fetchjobs"},
    "tag": {"*"},
    "user": {"*"},
}  # fmt: skip


_EDITOR = re.compile(r"(vi|vim|nvim|nano|micro|hx|emacs|emacs -nw|(code|cursor|codium|subl) (-w|--wait))")
_TOOL = re.compile(
    r"(araxis|bc|bc[34]|codecompare|deltawalker|diffmerge|diffuse|ecmerge|emerge|examdiff|guiffy|kdiff3|kompare|meld|opendiff"
    r"|p4merge|smerge|tkdiff|tortoisemerge|vscode|winmerge|xxdiff|(g|n)?vimdiff[123]?)"
)
"""The tools that git knows (`git mergetool --tool-help`). Another name may be a path to a script."""
_BOOLEAN = re.compile(r"true|false")
_HARMLESS_VALUES = {
    "core.editor": _EDITOR,
    "sequence.editor": _EDITOR,
    "core.pager": re.compile(r"(less|more|cat|delta)( -[A-Z]+)?"),
    "core.fsmonitor": _BOOLEAN,  # git's own daemon; anything else is a command
    "credential.helper": re.compile(r"(store|cache|osxkeychain|libsecret|manager)?"),
    "extensions.worktreeconfig": _BOOLEAN,  # `config.worktree`, which it makes git read, is protected and judged itself
    "filter.lfs.clean": re.compile(r"git-lfs clean -- %f"),
    "filter.lfs.process": re.compile(r"git-lfs filter-process( --skip)?"),
    "filter.lfs.required": _BOOLEAN,
    "filter.lfs.smudge": re.compile(r"git-lfs smudge( --skip)? -- %f"),
    "gpg.format": re.compile(r"openpgp|x509|ssh"),
    "gpg.ssh.allowedsignersfile": re.compile(r"~/\.(ssh|config/git)/allowed_signers"),
    **dict.fromkeys(("diff.tool", "diff.guitool", "merge.tool", "merge.guitool"), _TOOL),
}
"""Values that run nothing of the workspace: their programs are git's own, or come from the person's own PATH."""
_PLAIN_ALIAS = re.compile(r"[a-z][a-z-]*( --[a-z-]+)*")
"""A command of git's with long options that have no value: `co = checkout`, `lg = log --oneline --graph`."""


def is_command(setting: Setting) -> bool:
    """Say whether a setting names a command, of those that are harmless as a person sets them."""
    return setting.name in _HARMLESS_VALUES


def is_harmless(setting: Setting) -> bool:
    """Say whether a setting makes git neither run a program nor read or write another place.

    `remote.x.url = ext::sh -c …` names a program although it stands in the table (git-remote-ext(1)).
    """
    known = _HARMLESS_VALUES.get(setting.name)
    if known is not None:
        return known.fullmatch(setting.value or "") is not None
    if setting.section == "alias":
        return _PLAIN_ALIAS.fullmatch(setting.value or "") is not None
    if setting.section == "branch" and setting.key.startswith("gk-"):  # GitLens'
        return True
    keys = _HARMLESS.get(setting.section, set())
    if setting.key not in keys and "*" not in keys:
        return False
    is_address = setting.section in {"remote", "submodule"} and setting.key in {"url", "pushurl"}
    return not (is_address and ("::" in (setting.value or "") or (setting.value or "").startswith("-")))


class Reference(NamedTuple):
    """A place that a configuration makes git read or run.

    Args:
        setting: its name, for example `core.hooksPath`.
        path: as written.
        base: the start of a relative path: `worktree` or `file`, the directory of the configuration file.
        kind: `hooks` (a directory), `config` (a configuration file), `file`, `program`, `command` (a program
            even if it isn't there yet), `script` (a file beside
            which its interpreter looks for modules), `modules` (a directory in which an interpreter looks for
            modules) or `value` (it may be a path or not).
    """

    setting: str
    path: str
    base: str
    kind: str


_COMMANDS = {
    ("core", "fsmonitor"), ("core", "sshcommand"), ("core", "pager"), ("core", "editor"), ("core", "askpass"),
    ("core", "gitproxy"), ("core", "alternaterefscommand"), ("diff", "external"), ("diff", "command"), ("diff", "textconv"),
    ("filter", "clean"), ("filter", "smudge"), ("filter", "process"), ("merge", "driver"), ("credential", "helper"),
    ("gpg", "program"), ("gpg", "defaultkeycommand"), ("sequence", "editor"), ("interactive", "difffilter"),
    ("uploadpack", "packobjectshook"), ("remote", "uploadpack"), ("remote", "receivepack"), ("difftool", "cmd"),
    ("mergetool", "cmd"), ("trailer", "command"), ("trailer", "cmd"), ("hook", "command"), ("tar", "command"),
    ("gc", "recentobjectshook"), ("submodule", "update"),
    ("sendemail", "smtpserver"), ("sendemail", "tocmd"), ("sendemail", "cccmd"), ("browser", "cmd"), ("man", "cmd"),
}  # fmt: skip
_COMMAND_KEY = re.compile(
    r".*(path|cmd|command|program|prog|helper|driver|hook|editor|pager|browser|askpass|tunnel|clean|smudge|process|textconv)"
)
"""Further keys, in any section, whose value is a program: `difftool.meld.path`, `lfs.customtransfer.x.path`."""
_READ_ONLY = {
    ("commit", "template"), ("blame", "ignorerevsfile"), ("core", "excludesfile"), ("core", "worktree"),
    ("mailmap", "file"), ("submodule", "path"),
    ("safe", "directory"), ("maintenance", "repo"), ("gui", "recentrepo"), ("lfs", "storage"),
    ("lfs", "fetchinclude"), ("lfs", "fetchexclude"), ("lfs", "url"), ("url", "insteadof"), ("url", "pushinsteadof"),
}  # fmt: skip
"""Settings that name files that git reads and doesn't run."""
_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*(\.exe)?|node|nodejs|tsx|ts-node|lua[0-9.]*|Rscript")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
_BOOLEANS = frozenset({"", "true", "false", "yes", "no", "on", "off", "1", "0"})
_TOP = re.compile(r"\$\(git rev-parse --show-toplevel\)|`git rev-parse --show-toplevel`|\$PWD\b|\$\{PWD\}")
"""How commands call the worktree's top, which git runs them in."""
_ANY_KEY = frozenset({"pager", "alias"})
"""Sections whose every key is a command."""


def references(settings: Iterable[Setting]) -> Iterator[Reference]:
    """Yield the places that settings make git read or run.

    Each word of a command that could be a path is one, because `python3 tools/filter.py` runs the second word.
    Conditions (`includeIf`) count as true: an agent could make them so.
    """
    for setting in settings:
        value = setting.value or ""
        match setting.section, setting.key:
            case ("include" | "includeif", "path"):
                yield Reference(setting.name, value, "file", "config")
            case ("core", "hookspath"):
                yield Reference(setting.name, value, "worktree", "hooks")
            case ("core", "attributesfile"):
                yield Reference(setting.name, value, "worktree", "file")
            case ("init", "templatedir"):
                yield Reference(setting.name, value, "worktree", "hooks")
            case section, key if section in _ANY_KEY or (section, key) in _COMMANDS:
                yield from _words(setting, value)
            case section, key if not is_harmless(setting) and (section, key) not in _READ_ONLY:
                if _COMMAND_KEY.fullmatch(key):
                    yield from _words(setting, value)
                elif "/" in value and value.isprintable() and not any(letter in value for letter in " :*"):
                    yield Reference(setting.name, value, "worktree", "value")


def _words(setting: Setting, value: str) -> Iterator[Reference]:
    if value.lower() in _BOOLEANS or (setting.section == "alias" and not value.startswith("!")):
        return
    command = _TOP.sub(".", value.removeprefix("!")).replace("$", " ")
    try:
        words = shlex.split(command, comments=False)
    except ValueError:  # an unclosed quote: a shell would complain, so the words as they stand are as good as any
        words = command.split()
    is_first = "$" not in value
    for number, word in enumerate(words):
        path = word.rpartition("=")[2].strip(";&|()<>`'\"")
        if path and not path.startswith("-"):
            is_command = is_first and "/" in path and not _DRIVE.match(path)
            yield Reference(setting.name, path, "worktree", "command" if is_command else "program")
            is_first = False
        if _INTERPRETER.fullmatch(path.rpartition("/")[2]):
            yield from _imports(setting, words[number + 1 :])
        if number and word.count(" ") and re.fullmatch(r"-[a-z]*c", words[number - 1]):  # `sh -c 'tools/clean %f'`
            yield from _words(Setting(setting.section, setting.subsection, setting.key, f"!{word}"), f"!{word}")


def _imports(setting: Setting, arguments: list[str]) -> Iterator[Reference]:
    """Yield where an interpreter looks for modules: beside its script, or with `-m` and `-c` where it is started."""
    for word in arguments:
        if re.match(r"-[bBdEiOqsSuvx]*[IP]", word):  # Python's isolated mode and safe path
            return
        if re.match(r"-[bBdEiOqsSuvx]*[mcer]", word) or word in {"-", "--eval", "--require"}:
            yield Reference(setting.name, ".", "worktree", "modules")
            return
        if not word.startswith("-"):
            yield Reference(setting.name, word.strip(";&|()<>`'\""), "worktree", "script")
            return


RUNS_THE_WORKSPACE = frozenset({
    "make", "gmake", "just", "task", "npm", "npx", "pnpm", "yarn", "bun", "tox", "nox", "poetry", "pdm", "hatch", "cargo",
    "go", "bundle", "rake", "gradle", "mvn", "ant", "pre-commit", "lefthook", "husky", "lint-staged", "composer", "dotnet",
})  # fmt: skip
"""Programs that run files of the directory they are started in, which their command line doesn't name."""
