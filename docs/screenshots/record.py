"""Records `substratctl` on a terminal of its own, with the stand-in as agents, and writes a picture for each command.

`make screenshots` runs it. Two runs give the same files: ids, times, durations and the workspace's path are replaced.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from substrat.demo.stage import DemoStage

sys.path.insert(0, str(Path(__file__).parent))
import svg

COLUMNS, ROWS = 112, 40
"""Wide enough for `ls` with all that it shows first, narrow enough to be read in a page."""
SHOTS = (("ls",), ("logs", "fix-tests"), ("show", "review"))
FAMILY = Path(__file__).parents[2] / "examples/families/map-reduce.toml"
PART = '/shell echo "# typed" >> "$ITEM"; git commit -qam "Types of $ITEM"'
JOIN = '/shell for it in $(git for-each-ref --format="%(refname)" refs/remotes/agents); do git merge -q --no-edit $it; done'
SHOWN_AS = "/home/me/src/app"
WORKSPACE = ("app", "/tmp")  # noqa: S108 - `mkdtemp` makes a new directory of its own there
"""A name of as many characters as `SHOWN_AS` (`mkdtemp` adds 8): tables are laid out for the width of the text."""

FIX = """\
/think A test fails: greet() has no default.
/shell python3 -m unittest -q
/write greet.py def greet(name="world"): return f"Hello, {name}!"
/shell python3 -m unittest -q
/shell git commit -q -a -m "greet() has a default"
/tool send_message {"to": "review", "text": "greet.py is ready."}
The tests pass, and greet.py is committed."""
REVIEW = """\
/shell git log --format=%s -1
/tool ask_operator {"question": "May I rename greet() to hello()?"}
I wait for an answer."""
TEST = """\
import unittest
from greet import greet


class Greeting(unittest.TestCase):
    def test_default(self):
        self.assertEqual(greet(), "Hello, world!")
"""


def main() -> int:
    """Record every command into the directory of this file."""
    base = tempfile.mkdtemp(prefix=WORKSPACE[0], dir=WORKSPACE[1])
    assert len(base) == len(SHOWN_AS)
    try:
        with DemoStage(show=False, environ=os.environ) as stage:
            prepare(base)
            stage.start_daemon()
            stage.open_timeline()
            play(stage, base)
            for words in SHOTS:
                record(words, stage, base)
            run_family(stage, base)
            record(("runs", "types"), stage, base)
    finally:
        shutil.rmtree(base)
    return 0


def record(words: tuple[str, ...], stage: DemoStage, base: str) -> None:
    """Write the picture of a command."""
    text = f"\x1b[1m$ substratctl {' '.join(words)}\x1b[0m\n{steady(on_terminal(words, stage.environ), base)}"
    picture = svg.draw(text, columns=COLUMNS, title=f"substratctl {' '.join(words)}")
    Path(__file__).with_name(f"{words[0]}.svg").write_text(picture)


def prepare(work: str) -> None:
    """Make a repository whose test fails."""
    Path(work, "greet.py").write_text('def greet(name): return f"Hello, {name}!"\n')
    Path(work, "test_greet.py").write_text(TEST)
    identity = ("-c", "user.name=Demo", "-c", "user.email=demo@localhost")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-q", "-m", "Begin")):
        subprocess.run(["git", "-C", work, *words], check=True)


def play(stage: DemoStage, work: str) -> None:
    """Bring three agents to where the pictures show them: one works, one asks, one is suspended."""
    stage.command("spawn", "docs", "-w", work)
    stage.command("spawn", "review", "-w", work)
    stage.command("spawn", "fix-tests", "-w", work, FIX)
    stage.watch("the fixed tests", lambda event: _ended(event, "turn 1 success"))
    stage.watch("the message's turn", lambda event: _ended(event, "turn 1 success"))
    stage.command("send", "review", REVIEW)
    stage.watch("the review", lambda event: _ended(event, "turn 2 success"))
    stage.command("suspend", "docs")
    stage.command("send", "fix-tests", "/shell python3 -m unittest\n/sleep 60")
    stage.watch("the command", lambda event: event["kind"] == "tool-call-completed")


def run_family(stage: DemoStage, work: str) -> None:
    """Run an example of a family, whose agents change a file each."""
    stage.command("merge", "fix-tests")
    file = shutil.copy(FAMILY, work)
    given = (f"task={PART}", f"join={JOIN}", "test=python3 -m unittest -q")
    stage.command("run", file, "-w", work, *(word for value in given for word in ("--set", value)))


def _ended(event: dict[str, object], text: str) -> bool:
    return event["kind"] == "turn:ended" and text in str(event["text"])


def on_terminal(words: tuple[str, ...], environ: dict[str, str]) -> str:
    """Run `substratctl` with a terminal as its output and return all that it writes there."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        program = os.path.join(os.path.dirname(sys.executable), "substratctl")
        os.execve(program, [program, *words], {**environ, "TERM": "xterm-256color"})  # noqa: S606 - `pty.fork` starts no program
    written = b""
    try:
        while data := os.read(terminal, 65536):
            written += data
    except OSError:
        pass  # EIO: the last process that had the terminal has ended (pty(7))
    finally:
        os.close(terminal)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit(f"substratctl {' '.join(words)} ended with status {status}:\n{written.decode()}")
    return written.decode()


def steady(text: str, work: str) -> str:
    """Replace everything that differs between two runs, with texts of the same width."""
    text = text.replace(work, SHOWN_AS)
    ids = dict.fromkeys(re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", text))
    for number, found in enumerate(ids, 1):
        text = text.replace(found, f"{number:08x}-0000-4000-8000-{number:012x}")
    moments = sorted(set(re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)))
    for number, found in enumerate(moments):
        text = text.replace(found, f"2026-01-05T09:00:{number:02}.000Z")
    text = re.sub(r"\d{4}-\d\d-\d\d(\s+)\d\d:\d\d:\d\d", r"2026-01-05\g<1>09:00:01", text)
    text = re.sub(r"(?<=began at )[0-9a-f]{12}", "1f0e2d3c4b5a", text)
    text = re.sub(r"(?<=--- )[0-9a-f]{8}(?= message)", "5f2c91ab", text)
    seconds = iter(range(60))
    text = re.sub(r"(?<=• )\d\d:\d\d:\d\d", lambda _: f"09:00:{next(seconds):02}", text)
    text = re.sub(r"(?<!\d)\d\.\d(?= ?s\b)", "0.4", text)
    text = re.sub(r"(?<!\d)0\.\d{3}s", "0.001s", text)
    return re.sub(r"(?<![\d.])\ds\b", "2s", text)


if __name__ == "__main__":
    sys.exit(main())
