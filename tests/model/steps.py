"""What the steps of a daemon's walk are made of: what the stand-in does by their prompts, and what is found of these."""

import functools
import json
import re

from tests.model import conftest

CALLS = re.compile(r"^(> )*/tool .*$", re.MULTILINE)


def where(condition):
    """Make a step do nothing where a condition doesn't hold.

    With Hypothesis's own preconditions another step would be drawn. What a killed daemon had done depends on the moment,
    and Hypothesis fails a test that draws differently after the same beginning.
    """

    def conditional(step):
        @functools.wraps(step)
        def taken(walk, **drawn):
            if condition(walk):
                step(walk, **drawn)

        return taken

    return conditional


def tokens_in(text, *, quoted):
    """The tokens of a prompt, in the model's form, without those of the texts that it quotes."""
    lines = [line.removeprefix("> ") if quoted else line for line in CALLS.sub("", text).splitlines()]
    said = "\n".join(line for line in lines if not line.startswith("> "))
    return list(map(shortened, conftest.tokens_in(said)))


def shortened(token):
    """A token without the turn that it tells of, whose number and outcome depend on the moment of a kill."""
    return ":".join(token.split(":")[:2])


class Script:
    """The action that a prompt makes the stand-in perform."""

    def __init__(self, kind, number, **arguments):
        self.kind, self.number, self.arguments = kind, number, arguments

    def text(self, token):
        match self.kind:
            case "hold":
                hold = f"touch ready-{self.number}; while [ ! -e go-{self.number} ]; do sleep 0.02; done"
                return f"{token}\n/shell {hold}"
            case "message":
                call = {"to": self.arguments["to"], "text": f"hello {self.arguments['token']}"}
                return f"{token}\n/tool send_message {json.dumps(call)}"
            case "spawn":
                call = {"name": self.arguments["name"], "prompt": self.arguments["token"]}
                return f"{token}\n/tool spawn_agent {json.dumps(call)}"
            case "delegate":
                name, child = self.arguments["name"], self.arguments["token"]
                call = {"name": name, "prompt": self.arguments["script"].text(child)}
                wait = {"names": [name]}
                return f"{token}\n/tool spawn_agent {json.dumps(call)}\n/tool wait_agents {json.dumps(wait)}"
            case "exit":
                return f"{token}\n/exit 3"
        return token
