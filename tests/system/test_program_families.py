"""A family of cursor, claude and codex: they start each other, are suspended, write to each other and look alike.

tests/real/test_programs.py runs it with the real claude and codex.
"""

import json

from tests.support import waiting
from tests.support.printing_programs import PRINTING

BUSY = "go\n/shell echo begun > begun; until test -e end; do sleep 0.1; done\n"


def wait_until(condition, what):
    """Wait longer than other tests: several agents' programs start at once, and each of their failures takes its time."""
    return waiting.wait_until(condition, what, patience=200)


def test_it_works_with_programs_that_print_the_lines_of_claude_and_codex(daemon):
    binary = daemon.program(PRINTING)
    daemon.start(config="".join(f'[programs.{it}]\nbinary = "{binary}"\nchildren = true\n' for it in ("claude", "codex")))
    lead_a_family(daemon)


def lead_a_family(daemon):
    """Let cursor start claude, which starts codex; suspend and resume them in a turn, and let each write to the next."""
    work, family = daemon.workspace(), ("cursor", "claude", "codex")

    def task(name, prompt="go"):
        return f"go\n/tool spawn_agent {json.dumps({'name': name, 'program': name, 'prompt': prompt})}"

    daemon.ok("spawn", "cursor", "-w", work, task("claude", task("codex")))
    wait_until(lambda: len(daemon.ok("ls")) == len(family), "the family")
    daemon.ok("wait", *family, "--timeout", "200")
    agents = [daemon.show(name) for name in family]
    assert [agent["parent"] for agent in agents] == [None, agents[0]["id"], agents[1]["id"]]
    assert [agent["program"] for agent in agents] == [*family]
    assert len({tuple(agent) for agent in agents}) == 1

    for name in family:
        daemon.ok("send", name, BUSY.replace("begun", f"begun-{name}"))
    wait_until(lambda: all((work / f"begun-{name}").exists() for name in family), "their turns")
    daemon.ok("suspend", *family)
    (work / "end").touch()
    daemon.ok("resume", *family)
    daemon.ok("wait", *family, "--timeout", "200")
    assert [daemon.show(name)["session_id"] for name in family] == [agent["session_id"] for agent in agents]

    for name, to in zip(family, family[1:] + family[:1], strict=True):
        words = json.dumps({"to": to, "text": f"hello from {name}", "intent": "inform"})
        daemon.ok("send", name, f"go\n/tool send_message {words}")
    for name, sender in zip(family, family[-1:] + family[:-1], strict=True):
        came = f"from {sender}: hello from {sender}"
        wait_until(lambda name=name, came=came: came in texts(daemon, name, "message:received"), came)
    daemon.ok("wait", *family, "--timeout", "200")
    for name, to in zip(family, family[1:] + family[:1], strict=True):
        steps = next(turn["steps"] for turn in daemon.ok("transcript", name)["turns"] if f"to {to}: hello" in str(turn))
        assert {step["kind"] for step in steps} == {"prompt", "text", "tool", "note"}
        assert (steps[0]["kind"], steps[0]["text"].splitlines()[0], steps[-1]["event"]) == ("prompt", "go", "turn:ended")
        call = [step for step in steps if step["kind"] == "tool"][-1]
        assert call["text"].startswith(f'mcp send_message: {{"to": "{to}", '), call
        assert f" to {to} is accepted" in call["tool"]["output"], call
    used = {agent["name"]: agent["usage"] for agent in daemon.ok("usage")}
    assert all(used[name]["inputTokens"] >= 500 and used[name]["outputTokens"] >= 100 for name in family), used


def texts(daemon, name, kind):
    """Return the texts of an agent's events of a kind."""
    return [event["text"] for event in daemon.events(name, kind)]
