"""Finds what a run of tests has left behind: processes, mounts and files. A namespace lasts as long as its processes.

    python3 tests/support/leftovers.py begin FILE     before the run, which gets SUBSTRAT_TEST_RUN=FILE
    python3 tests/support/leftovers.py check FILE     after it: a line for each leftover, and status 1 if there are any

Each pytest of the run adds to the file its own directory and those that it makes with `tempfile`. Other runs may go on
beside it: a process, a mount or a directory counts only if it is one of these or has to do with one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

PATIENCE = 10.0
"""Seconds: the last process of a run may take a moment to end."""


def watch() -> None:
    """Note each temporary directory that this process makes from now on, if the run is one that is looked at afterwards."""
    if os.environ.get("SUBSTRAT_TEST_RUN"):
        sys.addaudithook(lambda event, words: note(words[0], made=True) if event == "tempfile.mkdtemp" else None)


def note(path: str, *, made: bool = False) -> None:
    """Note a directory of the run; one that was `made` is gone at the end of the run."""
    file = os.environ.get("SUBSTRAT_TEST_RUN")
    if file and os.path.exists(file):
        with open(file, "a") as output:
            output.write(json.dumps([os.path.abspath(path), made]) + "\n")


def begin(file: str) -> None:
    with open(file, "w"):
        pass  # `note` adds to it


def check(file: str) -> list[str]:
    """The leftovers, each as one line."""
    with open(file) as lines:
        noted = list(map(json.loads, lines))
    deadline = time.monotonic() + PATIENCE
    while True:
        places = [path for path, _ in noted]
        found = [*_processes(file, places), *_mounts(places)]
        found += [f"directory {path}" for path, made in noted if made and os.path.lexists(path) and not _below(path, noted)]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _below(path: str, noted: list[tuple[str, bool]]) -> bool:
    """Whether a directory lies in one of pytest's own."""
    return any(path.startswith(f"{other}/") for other, made in noted if not made)


def _processes(file: str, places: list[str]) -> list[str]:
    """Those that have a file of the run: as an argument, a directory, a descriptor, or named in their environment."""
    mark = f"SUBSTRAT_TEST_RUN={file}\0".encode()
    pattern = re.compile(b"|".join(re.escape(os.fsencode(place)) + rb"(?![^/\0\s:'\")])" for place in places) or rb"(?!)")
    above = _above(os.getpid())
    found = []
    for pid in _listed("/proc"):
        if not pid.isdigit() or int(pid) in above:
            continue
        at = f"/proc/{pid}"
        command = _read(f"{at}/cmdline")
        links = [f"{at}/cwd", f"{at}/exe", f"{at}/root", *(f"{at}/fd/{number}" for number in _listed(f"{at}/fd"))]
        environment = _read(f"{at}/environ")
        if mark in environment or pattern.search(b"\0".join([command, environment, *map(_link, links)])):
            words = command.decode(errors="replace").replace("\0", " ").strip() or _link(f"{at}/exe").decode()
            found.append(f"process {pid} {words[:200]}")
    return found


def _above(pid: int) -> set[int]:
    """A process and those that it descends from: they have the run's mark, too, if the run was started so."""
    found = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        pid = int(fields[1]) if fields else 0  # it has ended meanwhile
    return found


def _mounts(places: list[str]) -> list[str]:
    points = [os.fsdecode(line.split(b" ")[4]) for line in _read("/proc/self/mountinfo").splitlines()]
    return [f"mount {point}" for point in points if any(f"{point}/".startswith(f"{place}/") for place in places)]


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _link(path: str) -> bytes:
    try:
        return os.fsencode(os.readlink(path))
    except OSError:
        return b""


def main(words: list[str]) -> int:
    if len(words) != 2 or words[0] not in {"begin", "check"}:
        sys.stderr.write("usage: leftovers.py begin|check FILE\n")
        return 2
    file = os.path.abspath(words[1])
    if words[0] == "begin":
        begin(file)
        return 0
    found = check(file)
    sys.stdout.writelines(f"left behind: {line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
