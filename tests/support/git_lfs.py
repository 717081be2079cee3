"""A stand-in for git-lfs, which the machines of the tests needn't have, and which notes what it is told.

It filters single files, and, as `filter-process`, many in a conversation (gitattributes(5), "Long Running Filter Process").

It takes an object from the repository. Where there is none it asks its server, as `seen` tells, and fails; with
`GIT_LFS_SKIP_DOWNLOAD_ERRORS` it writes the pointer (git-lfs-smudge(1)).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILTERS = {"filter.lfs.clean": "git-lfs clean -- %f", "filter.lfs.smudge": "git-lfs smudge -- %f"}
INSTALLED = {**FILTERS, "filter.lfs.process": "git-lfs filter-process", "filter.lfs.required": "true"}
"""The settings that `git lfs install` makes."""
_PROCESS = """#!/usr/bin/python3
import subprocess, sys
def read():
    size = int(sys.stdin.buffer.read(4) or b"0", 16)
    return sys.stdin.buffer.read(size - 4) if size else b""
def lines():
    return list(iter(read, b""))
def write(*packets):
    for packet in packets:
        for at in range(0, len(packet), 65516):
            piece = packet[at : at + 65516]
            sys.stdout.buffer.write(b"%04x" % (len(piece) + 4) + piece)
    sys.stdout.buffer.write(b"0000")
    sys.stdout.buffer.flush()
assert lines() == [b"git-filter-client\\n", b"version=2\\n"]
write(b"git-filter-server\\n", b"version=2\\n")
lines()
write(b"capability=clean\\n", b"capability=smudge\\n")
while told := lines():
    command = dict(line.rstrip(b"\\n").split(b"=", 1) for line in told)[b"command"].decode()
    done = subprocess.run((sys.argv[1], command), input=b"".join(lines()), capture_output=True)
    if done.returncode:
        write(b"status=error\\n")
        continue
    write(b"status=success\\n")
    write(done.stdout)
    write()
"""
_PROGRAM = """#!/bin/bash
objects=$(git rev-parse --git-common-dir)/lfs/objects
case $1 in
filter-process) exec DIRECTORY/git-lfs-process "$0";;
clean)
    content=$(mktemp); cat >"$content"
    if head -n 1 "$content" | grep -q '^version https://git-lfs'; then cat "$content"; exit; fi
    oid=$(sha256sum <"$content" | cut -d ' ' -f 1)
    mkdir -p "$objects/${oid:0:2}/${oid:2:2}"; cp "$content" "$objects/${oid:0:2}/${oid:2:2}/$oid"
    printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize %s\\n' "$oid" "$(stat -c %s "$content")";;
smudge)
    pointer=$(mktemp); cat >"$pointer"
    oid=$(sed -n 's/^oid sha256://p' "$pointer")
    # The objects of a repository from which others are borrowed lie beside those (git-lfs, fs/fs.go).
    while read -r lender; do
        found=${lender%/*}/lfs/objects/${oid:0:2}/${oid:2:2}/$oid
        if [ -e "$found" ]; then cat "$found"; exit; fi
    done < <(echo "${objects%/lfs/objects}/objects"; cat "${objects%/lfs/objects}/objects/info/alternates" 2>/dev/null)
    # The settings of git come before those of .lfsconfig (git-lfs-config(5)).
    {
        git config lfs.url || git config -f .lfsconfig lfs.url
        git config remote.origin.lfsurl || git config remote.origin.url
    } >DIRECTORY/seen
    [ -n "$GIT_LFS_SKIP_DOWNLOAD_ERRORS" ] || { echo "git-lfs: can't reach $(head -n 1 DIRECTORY/seen)" >&2; exit 2; }
    cat "$pointer";;
esac
"""


def install(directory: Path) -> Path:
    """Put it in a directory, which is to be on the search path, and return the file in which it notes what it asks."""
    directory.mkdir(exist_ok=True)
    (directory / "git-lfs").write_text(_PROGRAM.replace("DIRECTORY", str(directory)))
    (directory / "git-lfs").chmod(0o755)
    (directory / "git-lfs-process").write_text(_PROCESS)
    (directory / "git-lfs-process").chmod(0o755)
    return directory / "seen"


def pointer(content: bytes) -> str:
    """Return the pointer that stands for a content in a commit."""
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"


def store(common: Path, content: bytes) -> None:
    """Put an object in a repository, given its git directory."""
    oid = hashlib.sha256(content).hexdigest()
    path = common / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
