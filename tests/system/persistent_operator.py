"""An operator who goes on through the death of the daemon: asks again, starts the next daemon, and looks at the state."""

import contextlib
import signal
import sqlite3
import time

from tests.support.waiting import PATIENCE, wait_until
from tests.support.wire import Wire


class PersistentOperator:
    """An operator who doesn't give up.

    Args:
        daemon: the daemon that is started, asked, and started again.
        environment: the first daemon's further variables; those after its death are started without.
    """

    def __init__(self, daemon, environment):
        self.daemon = daemon
        self.environment = environment
        self.deaths = 0
        self.work = daemon.workspace()
        self.log = self.work / "log"

    def start(self, config):
        """Start a daemon; one that dies before it answers is followed by another."""
        self.daemon.process = self.daemon.launch(config=config, environment=self.environment if not self.deaths else None)
        wait_until(lambda: self._answers() or self._is_dead(), "the daemon")
        self.revive()

    def _answers(self):
        try:
            with Wire(self.daemon.socket) as wire:
                return wire.call("daemon.status")["pid"] == self.daemon.process.pid
        except (OSError, AssertionError):
            return False

    def _is_dead(self):
        return self.daemon.process.poll() is not None

    def revive(self):
        """If the daemon is dead, see that it was killed, and start the next one."""
        if self._is_dead():
            assert self.daemon.process.returncode == -signal.SIGKILL, self.daemon.log
            assert self.deaths == 0, "killed twice"
            self.deaths += 1
            self.daemon.start()

    def ask(self, *words, done=lambda: False, stdin=b""):
        """Give a command until it is carried out; after a death, `done` says whether it was.

        Returns:
            Its output, None when the answer was lost.
        """
        while True:
            result = self.daemon.ctl(*words, "--json", stdin=stdin)
            if result.code == 0:
                return result.json if result.out else None
            if "try again in a moment" not in result.err:  # the next daemon goes on with it
                assert result.code == 3, result
                wait_until(self._is_dead, "the daemon's death")
                self.revive()
            if done():
                return None

    def call(self, method, **params):
        """Make a request until it is answered."""
        while True:
            try:
                with Wire(self.daemon.socket) as wire:
                    if method == "events.unsubscribe":
                        params["subscription"] = wire.call("events.subscribe")["subscription"]
                    return wire.call(method, **params)
            except (OSError, AssertionError):
                wait_until(self._is_dead, f"the daemon's death at {method}")
                self.revive()

    def until(self, condition, what):
        """Wait for a condition, with a daemon there all the while."""
        deadline = time.monotonic() + 2 * PATIENCE
        while not (value := condition()):
            self.revive()
            assert time.monotonic() < deadline, (
                f"{what} did not come true: {self.effects()} {self.call('agent.list')}\n{self.daemon.log}"
            )
            time.sleep(0.02)
        return value

    # Looks at the state

    def agents(self):
        return {agent["name"]: agent for agent in self.call("agent.list")}

    def state(self, name):
        return self.agents().get(name, {}).get("state")

    def accepted(self, text):
        """Whether the state holds an inbox item with a text."""
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.state}/substrat.db?mode=ro", uri=True)) as db:
            return db.execute("SELECT count(*) FROM items WHERE instr(text, ?)", (text,)).fetchone()[0] > 0

    def effects(self):
        return sorted(self.log.read_text().split()) if self.log.exists() else []
