"""A lead's day, led from tool answers and prompts alone: what these say to do is done, and nothing of that is refused.

Four children start at once in clones. Two change the same file, one doesn't commit, one fails and is written to. The lead
takes their work by the commits that it was told, resolves the conflict, asks the operator, and hands in.
"""

import json

import pytest

from tests.redteam.hostile import DOOR
from tests.support.daemon import PRELUDE
from tests.support.waiting import wait_until
from tests.system.test_clones import app, git
from tests.system.test_landing import me

__all__ = ["app"]

LEADING = (
    PRELUDE
    + DOOR
    + r"""
import re

begin()
door = Door(relay="the lead's day")
notes = pathlib.Path.home() / ".cache"
answers = []


def ask(tool, **arguments):
    answers.append(door.call(tool, **arguments))
    with open(notes / "answers", "a") as file:
        file.write(json.dumps([tool, answers[-1]]) + "\n")
    return answers[-1]


def run(*words):
    return subprocess.run(words, check=False, capture_output=True, text=True).returncode


def child():
    '''The first line of a child's task is a command; it is done when that ends with 0.'''
    task = prompt.splitlines()[0]
    if task == "fail at first":
        (notes / "failed").touch()
        sys.exit(3)
    if (notes / "failed").exists():
        task = "echo d > d.txt; git add d.txt; git commit -qm d"
    if run("sh", "-c", task):
        sys.exit(4)
    finish("It is done.")


def start():
    write = "echo {0} > same.txt; git add same.txt; git commit -qm {0}"
    ask("spawn_agent", agents=[
        {"name": "a", "prompt": write.format("a"), "check": "test -e same.txt"},
        {"name": "b", "prompt": write.format("b")},
        {"name": "c", "prompt": "echo c > c.txt"},
        {"name": "d", "prompt": "fail at first"},
    ])
    ask("wait_agents")
    finish("I wait.")


def take():
    '''Take what the wake tells of: commits by their ids, uncommitted files by theirs; the failed child is written to.'''
    for name, state, rest in re.findall(r"^(\w) \((\w+)\): (.*)$", prompt, re.MULTILINE):
        if state == "failed":
            ask("send_message", to=name, text="Try once more.")
            ask("wait_agents", names=[name])
            continue
        for commit in re.findall(r"\+1 commit, (\w{7})|\(wip (\w{7})\)", rest):
            if run("git", "merge", "-q", "-m", f"take {name}", "".join(commit)):
                assert ask("get_agent", name=name, what="stat").endswith("added same.txt +1 -0")
                pathlib.Path("same.txt").write_text("a and b\n")
                assert run("git", "add", "same.txt") == run("git", "commit", "-qm", f"take {name}") == 0
    if not (notes / "asked").exists():
        (notes / "asked").touch()
        ask("ask_operator", question="Which one?", options=["both", "neither"])
    if "both" not in prompt:
        return finish("I wait.")
    ask("complete", result="all taken: " + ", ".join(sorted(path.name for path in pathlib.Path(".").glob("*.txt"))))
    finish("Handed in.")


who = json.loads(door.call("whoami"))
if who["role"] == "child":
    child()
elif who["children"]:
    take()
else:
    start()
"""
)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_leads_day(daemon, app):
    me(daemon, app)
    daemon.start(agent=daemon.program(LEADING))
    daemon.ok("spawn", "lead", "-w", app, "--clone", "Have it done.")
    (question,) = wait_until(lambda: daemon.ok("inbox"), "the question")
    wait_until(lambda: daemon.show("d")["state"] == "idle" and daemon.show("d")["turn"]["number"] == 2, "the second try")
    daemon.ok("answer", str(question["id"]), "both")
    assert daemon.ctl("wait", "lead").code == 0
    lead = daemon.show("lead")
    said = (daemon.state / "agents" / lead["id"] / "cache" / "answers").read_text()
    answers = [json.loads(line) for line in said.splitlines()]
    assert not [answer for answer in answers if answer[1].startswith("!")], answers
    assert lead["completed"] == {"status": "succeeded", "text": "all taken: c.txt, d.txt, same.txt"}
    assert {agent["name"]: agent["attention"]["kind"] for agent in daemon.ok("ls")} == {
        "lead": "merge", "a": "idle", "b": "idle", "c": "idle", "d": "idle",
    }  # fmt: skip
    daemon.ok("merge", "lead")
    assert git(daemon, app, "show", "main:same.txt") == "a and b"
    assert [git(daemon, app, "show", f"main:{name}.txt") for name in "cd"] == ["c", "d"]
