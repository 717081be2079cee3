"""The demo's story: agents work in one repository, one is suspended, the daemon dies, their work lands in your branch."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

from substrat import errors
from substrat.demo.stage import DemoStage, StageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from substrat.demo.stage import Event

_WRITE = """\
/think The task wants a program and a commit.
/write greet.py print("hello from the sandbox")
/shell git add greet.py && git commit -q -m "Add greet.py" && git log --oneline
/shell ls -A ~ && cat /etc/shadow
/tool send_message {"to": "bob", "text": "Please review greet.py.\\n/shell python3 greet.py\\n\
/tool send_message {\\"to\\": \\"ada\\", \\"text\\": \\"Reviewed: it greets.\\", \\"intent\\": \\"reply\\"}"}"""

_LONG = """\
/shell echo A long job begins
/sleep 60
/say This is never reached."""

_SURVIVE = """\
/shell echo The daemon may die now
/sleep 1.5
/tool whoami {}
/say I went on without it."""

_PAINT = "/shell echo {name} >> {file} && git add {file} && git commit -q -m 'Add {name}' && git log --oneline -1"
_REBASE = (
    r"/shell git rebase workspace/main || { printf 'red\nblue\n' > colours.txt && git add colours.txt && "
    "git rebase --continue; }"
)


class Story:
    """Plays the story and keeps its proofs.

    Args:
        stage: where it plays.
    """

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self._names: dict[str, str] = {}
        self.proved: list[str] = []

    def play(self) -> None:
        """Play all of it.

        Raises:
            StageFailed: it didn't go as told.
        """
        stage = self._stage
        work = self._make_repository()
        stage.chapter("2. Two sandboxed agents work in it and write to each other through MCP")
        self._work_together(work)
        stage.chapter("3. Suspended in the middle of a turn")
        session = self._suspend()
        stage.chapter("4. The daemon is killed while bob works, and started again")
        self._survive()
        stage.chapter("5. Resumed: the same session goes on")
        self._resume(session)
        stage.chapter(
            "6. Three agents, each in a clone of its own: two land, one conflicts, is told, and lands after a rebase"
        )
        self._land(work)
        self._check_workspace(work)

    def _make_repository(self) -> str:
        stage = self._stage
        origin, work = os.path.join(stage.root, "origin"), os.path.join(stage.root, "work")
        stage.chapter("1. A private daemon, and a clone of a small repository")
        stage.shell("git", "init", "-q", "-b", "main", origin)
        with open(os.path.join(origin, "README"), "w", encoding="utf-8") as file:
            file.write("A small repository.\n")
        stage.shell("git", "-C", origin, "add", "README")
        identity = ("-c", "user.name=Demo", "-c", "user.email=demo@localhost")
        stage.shell("git", *identity, "-C", origin, "commit", "-q", "-m", "Begin")
        stage.shell("git", "clone", "-q", origin, work)
        for key, value in (("user.name", "Demo"), ("user.email", "demo@localhost")):
            stage.shell("git", "-C", work, "config", key, value)
        stage.start_daemon()
        stage.say("$ substratd &")
        stage.open_timeline()
        return work

    def _work_together(self, work: str) -> None:
        stage = self._stage
        stage.command("spawn", "bob", "-w", work, "--in-place")
        stage.command("spawn", "ada", "-w", work, "--in-place", _WRITE)
        self._watch("ada", "the verdict on /etc/shadow", "tool-call-completed", "No such file")
        self._prove("a sandboxed agent sees its workspace and its own home: /etc/shadow isn't there")
        self._watch("bob", "ada's message to bob", "message:received", "Please review")
        # Ada is of another family, so its message alone starts no turn of bob's.
        stage.command("send", "bob", "Do what the message asks for.")
        self._watch("bob", "bob running the program", "tool-call-completed", "python3 greet.py → exit 0")
        self._watch("ada", "bob's answer", "message:received", "Reviewed")
        self._watch("ada", "the end of ada's second turn", "turn:ended", "turn 2 success")
        self._prove("two agents wrote to each other through MCP; the answer woke the one that had asked")

    def _suspend(self) -> object:
        stage = self._stage
        stage.command("send", "ada", _LONG)
        self._watch("ada", "the long job", "tool-call-completed", "A long job begins")
        began = time.monotonic()
        stage.command("suspend", "ada")
        took = time.monotonic() - began
        self._watch("ada", "the end of the turn", "agent:suspended", "")
        agent = stage.agent("ada")
        self._prove(f"a turn in its middle was stopped in {took:.1f} s, and its session {agent['session_id']} kept")
        return agent["session_id"]

    def _survive(self) -> None:
        stage = self._stage
        stage.command("send", "bob", _SURVIVE)
        self._watch("bob", "bob's turn", "tool-call-completed", "The daemon may die now")
        stage.kill_daemon()
        stage.start_daemon()
        stage.say("$ substratd &")
        self._watch("bob", "bob's turn after the restart", "assistant", "I went on without it")
        self._watch("bob", "the end of bob's turn", "turn:ended", "turn 2 success")
        cursors = [int(str(event["cursor"])) for event in stage.events]
        self._prove(
            "kill -9 of the daemon stopped no turn; the next one adopted it, no event lost or doubled",
            true=cursors == list(range(1, len(cursors) + 1)),
        )

    def _resume(self, session: object) -> None:
        stage = self._stage
        stage.command("resume", "ada", "--prompt", "/recall")
        self._watch("ada", "what ada remembers", "assistant", "I remember 2 earlier turns")
        self._watch("ada", "the end of ada's turn", "turn:ended", "success")
        same = stage.agent("ada")["session_id"] == session
        self._prove("the suspended agent, resumed by another daemon, is in the same session and remembers it", true=same)

    def _land(self, work: str) -> None:
        stage = self._stage
        painters = {"red": "colours.txt", "green": "leaves.txt", "blue": "colours.txt"}
        for name, file in painters.items():
            stage.command("spawn", name, "-w", work, _PAINT.format(name=name, file=file))
        for name in painters:
            self._watch(name, f"the end of {name}'s turn", "turn:ended", "turn 1 success")
        stage.command("diff", "red", "--stat")
        stage.command("merge", *painters, status=errors.FAILED)
        log = stage.shell("git", "-C", work, "log", "--format=%s")
        landed = [name for name in painters if f"Add {name}" in log]
        self._prove(
            "two landed in your branch one after the other; a conflict changed nothing", true=landed == ["red", "green"]
        )
        self._watch("blue", "blue told of the conflict", "turn:ended", "turn 2 success")
        stage.command("send", "blue", _REBASE)
        self._watch("blue", "the end of blue's rebase", "turn:ended", "turn 3 success")
        stage.command("merge", "blue")
        colours = stage.shell("cat", os.path.join(work, "colours.txt"))
        self._prove(
            "the agent in conflict was told, rebased onto workspace/main, and landed", true=colours == "red\nblue\n"
        )

    def _check_workspace(self, work: str) -> None:
        stage = self._stage
        stage.chapter("7. What is left in the workspace")
        clean = stage.shell("git", "-C", work, "status", "--porcelain") == "" and not os.path.exists(f"{work}/.cursor")
        log = stage.shell("git", "-C", work, "log", "--format=%s")
        self._prove(
            "the workspace holds the agents' commits and nothing of Substrat's", true=clean and "Add greet.py" in log
        )

    def _watch(self, agent: str, awaited: str, kind: str, text: str) -> Event:
        """Show the timeline up to an event of an agent."""
        if agent not in self._names:
            self._names[agent] = str(self._stage.agent(agent)["id"])

        def until(event: Event) -> bool:
            right = event["agent"] == self._names[agent] and str(event["kind"]).startswith(kind)
            return right and text in f"{event['text']} {event['raw']}"

        return self._stage.watch(awaited, until)

    def _prove(self, claim: str, *, true: bool = True) -> None:
        if not true:
            raise StageFailed(f"this is not so: {claim}")
        self.proved.append(claim)


def run(*, show: bool, environ: Mapping[str, str], report: Callable[[list[str]], None]) -> None:
    """Play the demo and clean up.

    Args:
        show: whether to print the story.
        environ: the environment to start from.
        report: is given the proofs.

    Raises:
        SubstratError: it didn't go as told; nothing is left behind all the same.
    """
    began = time.monotonic()
    with DemoStage(show=show, environ=environ) as stage:
        story = Story(stage)
        story.play()
        root = stage.root
    if os.path.exists(root):
        raise OSError(f"{root} could not be removed")
    stage.chapter(f"Proved in {time.monotonic() - began:.0f} s, with the stand-in in cursor-agent's place:")
    for claim in story.proved:
        stage.say(f"  ✓ {claim}")
    stage.say("Nothing is left: no process, no file.")
    doctor = "substratctl"
    if shutil.which(doctor) is None:  # from a checkout
        doctor = os.path.join(os.path.dirname(sys.executable), doctor)
    stage.say(f"Next: '{doctor} doctor' checks this machine, then README's first commands start an agent of your own.")
    report(story.proved)
