"""An agent in a git workspace that tries what a test orders; prepares the workspace."""

import json

from tests.support.waiting import wait_until

# Obeys files called go-1, go-2 …: tries to append to each path, and reports the result.
OBEDIENT = """
begin()
mark("ready")
number = 0
while True:
    number += 1
    wait_for(f"go-{number}")
    orders = json.loads(pathlib.Path(f"go-{number}").read_text())
    if not orders:
        break
    results = []
    for path, text in orders:
        try:
            with open(path, "a") as file:
                file.write(text)
            results.append("written")
        except OSError as problem:
            results.append(type(problem).__name__ + " " + os.strerror(problem.errno))
    mark(f"result-{number}", json.dumps(results))
finish()
"""


class Agent:
    """An agent whose turn runs in a git workspace with a remote."""

    def __init__(self, daemon, name="agent"):
        self.daemon = daemon
        self.name = name
        self.work = daemon.directory / "work"
        self._number = 0

    def start(self, prompt="go"):
        self.daemon.ok("spawn", self.name, "-w", self.work, prompt)
        wait_until((self.work / "ready").exists, "the start of the turn")
        return self

    def git(self, *arguments):
        return self.daemon.git(self.work, *arguments)

    def tries(self, *orders):
        """Let the agent append to paths, and return each result."""
        self._number += 1
        done = self.work / f"result-{self._number}"
        order = self.work / f"go-{self._number}"
        order.with_suffix(".part").write_text(json.dumps([(str(self.work / path), text) for path, text in orders]))
        order.with_suffix(".part").rename(order)
        wait_until(done.exists, "the agent's answer")
        return json.loads(done.read_text())

    def finish(self):
        """Let the agent come to its end."""
        self._number += 1
        order = self.work / f"go-{self._number}"
        order.with_suffix(".part").write_text("[]")
        order.with_suffix(".part").rename(order)
        assert self.daemon.wait(self.name)["turn"]["outcome"] == "success"

    def told(self, kind):
        return [event["text"] for event in self.daemon.events(self.name, kind)]

    def wait_told(self, kind, count=1):
        wait_until(lambda: len(self.told(kind)) >= count, f"{count} times {kind}")
        return self.told(kind)

    @property
    def attention(self):
        return self.daemon.show(self.name)["attention"]


def prepare(daemon):
    """Make a repository with a remote and a branch that has files which the host would run."""
    daemon.workspace("origin", git=True)
    work = daemon.directory / "work"
    daemon.git(daemon.directory, "clone", "-q", daemon.directory / "origin", work)
    daemon.git(daemon.directory / "origin", "config", "receive.denyCurrentBranch", "ignore")
    daemon.git(daemon.directory / "origin", "branch", "elsewhere")
    daemon.git(work, "fetch", "-q")
    daemon.git(work, "checkout", "-q", "-b", "tooled")
    (work / ".envrc").write_text("export A=1\n")
    (work / ".vscode").mkdir()
    (work / ".vscode" / "settings.json").write_text("{}\n")
    daemon.git(work, "add", "-f", ".")
    daemon.git(work, "commit", "-q", "-m", "tools")
    daemon.git(work, "checkout", "-q", "main")
    return work
