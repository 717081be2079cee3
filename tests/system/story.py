"""The standard scenario, told by an operator who goes on whatever happens to the daemon, and what must be true after it.

Every effect is a line in a file that an agent's shell appends to, so that doing something twice, or not at all, shows.
"""

import json
import os
import signal
import sqlite3
import time
from collections import Counter

from tests.support.waiting import PATIENCE, wait_until
from tests.support.wire import Wire

CONFIG = "[turns]\nstop_grace = 0.2\n"
CROWDED = CONFIG + "[disk]\nfree = 1000000000000000\n"
HUSH = CONFIG + "silence_limit = 0.3\n"

MESSAGE = json.dumps({"to": "parent", "text": "/shell echo message >> log"})
CHILD = json.dumps({"name": "kid", "prompt": f"/shell echo child >> log\n/tool send_message {MESSAGE}"})
ANNA = f"""/shell echo anna >> log
/tool whoami {{}}
/tool list_agents {{}}
/tool report_status {{"text": "working"}}
/tool check_inbox {{}}
/tool send_message {{"to": "operator", "text": "a note"}}
/tool ask_operator {{"question": "which way?"}}
/tool remind_me {{"text": "now\\n/shell echo reminder >> log", "seconds": 0.1}}
/tool remind_me {{"text": "/shell echo never >> log", "seconds": 99999}}
/tool cancel_reminder {{"reminder": 2}}
/tool spawn_agent {CHILD}
"""
HOLD = "/shell touch {mark}; while [ ! -e never ]; do sleep 0.02; done"
# The agent program is the second process of its namespace; its standard output is the turn's file.
CUT = "/shell : > /proc/2/fd/1; echo cut >> log"
EFFECTS = ["anna", "answer", "child", "cut", "held", "message", "reminder", "room", "sent"]
"""What stands in the file at the end, each once."""


class Story:
    """One run of the scenario.

    Args:
        house: where it plays.
        environment: what the first daemon is started with; after its death, others are started without.
    """

    def __init__(self, house, environment):
        self.house = house
        self.environment = environment
        self.deaths = 0
        self.work = house.workspace()
        self.other = house.workspace("other")
        (self.other / ".cursor").mkdir()
        (self.other / ".cursor" / "link").symlink_to("/etc")
        self.repository = house.workspace("repository")
        house.git(self.repository, "init", "-q", ".")
        self.log = self.work / "log"

    # An operator who doesn't give up

    def start(self, config=CONFIG):
        """Start a daemon; one that dies before it answers is followed by another."""
        self.house.daemon = self.house.launch(config=config, environment=self.environment if not self.deaths else None)
        wait_until(lambda: self._answers() or self._is_dead(), "the daemon")
        self.revive()

    def _answers(self):
        try:
            with Wire(self.house.socket) as wire:
                return wire.call("daemon.status")["pid"] == self.house.daemon.pid
        except (OSError, AssertionError):
            return False

    def _is_dead(self):
        return self.house.daemon.poll() is not None

    def revive(self):
        """If the daemon is dead, see that it was killed, and start the next one."""
        if self._is_dead():
            assert self.house.daemon.returncode == -signal.SIGKILL, self.house.log
            assert self.deaths == 0, "killed twice"
            self.deaths += 1
            self.house.start()

    def ask(self, *words, done=lambda: False, stdin=b""):
        """Give a command until it is carried out; after a death, `done` says whether it was.

        Returns:
            What it printed, None when the answer was lost.
        """
        while True:
            result = self.house.ctl(*words, "--json", stdin=stdin)
            if result.code == 0:
                return result.json if result.out else None
            assert result.code == 3, result
            wait_until(self._is_dead, "the daemon's death")
            self.revive()
            if done():
                return None

    def call(self, method, **params):
        """Make a request until it is answered."""
        while True:
            try:
                with Wire(self.house.socket) as wire:
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
                f"{what} did not come true: {self.effects()} {self.ask('ls')}\n{self.house.log}"
            )
            time.sleep(0.02)
        return value

    # What it looks at

    def agents(self):
        return {agent["name"]: agent for agent in self.ask("ls")}

    def state(self, name):
        return self.agents().get(name, {}).get("state")

    def accepted(self, text):
        """Whether the state holds an inbox item with a text."""
        with sqlite3.connect(f"file:{self.house.state}/substrat.db?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM items WHERE instr(text, ?)", (text,)).fetchone()[0] > 0

    def effects(self):
        return sorted(self.log.read_text().split()) if self.log.exists() else []

    # The scenario

    def play(self):
        self.start()
        self.an_agent_with_a_child()
        self.one_that_is_frozen_suspended_and_adopted()
        self.one_that_does_not_listen()
        self.one_that_cuts_its_output()
        self.what_people_look_at()
        self.one_that_finds_no_room()
        self.one_that_says_nothing()
        self.one_whose_repository_somebody_changes()
        self.the_end()

    def spawn(self, name, workspace, prompt):
        words = ("spawn", name, "-w", workspace, "--prompt-file", "-")
        self.ask(*words, stdin=prompt.encode(), done=lambda: name in self.agents())

    def an_agent_with_a_child(self):
        self.spawn("anna", self.work, ANNA)
        self.until(lambda: len(self.ask("inbox")) == 2, "the question and the note")
        items = {item["kind"]: str(item["id"]) for item in self.ask("inbox")}
        assert self.call("inbox.show", id=int(items["question"]))["kind"] == "question"
        answered = lambda: not self.waits(items["question"])  # noqa: E731 - it is said once
        self.ask("answer", items["question"], "/shell echo answer >> log", done=answered)
        self.ask("inbox", "--dismiss", items["message"], done=lambda: not self.waits(items["message"]))
        self.ask("send", "anna", "/shell echo sent >> log", done=lambda: self.accepted("echo sent"))
        wanted = ["anna", "answer", "child", "message", "reminder", "sent"]
        self.until(lambda: self.effects() == wanted, f"{wanted} in {self.log}")
        self.until(lambda: {self.state("anna"), self.state("kid")} == {"idle"}, "the end of their turns")

    def waits(self, number):
        return number in {str(item["id"]) for item in self.ask("inbox")}

    def one_that_is_frozen_suspended_and_adopted(self):
        self.spawn("held", self.work, HOLD.format(mark="one"))
        self.until((self.work / "one").exists, "the turn")
        self.ask("allow", "held", "added.test:8080", done=lambda: "added.test:8080" in self.ask("allow", "held")["allow"])
        self.ask("suspend", "held", "--freeze", done=lambda: self.state("held") == "suspended")
        self.ask("resume", "held", done=lambda: self.state("held") == "running")
        self.restart()
        self.ask("interrupt", "held", done=lambda: self.state("held") in {"idle", "running"} and self.stopping("held"))
        self.until(lambda: self.state("held") == "idle", "the interruption")
        self.ask("send", "held", HOLD.format(mark="two"), done=lambda: self.accepted("touch two"))
        self.until((self.work / "two").exists, "the next turn")
        self.ask("suspend", "held", done=lambda: self.stopping("held"))
        self.until(lambda: self.state("held") == "suspended", "the suspension")
        self.ask("resume", "held", "/shell echo held >> log", done=lambda: self.accepted("echo held"))
        self.until(lambda: self.state("held") == "idle", "the last turn")

    def stopping(self, name):
        """Whether the agent's turn is being stopped or was."""
        with sqlite3.connect(f"file:{self.house.state}/substrat.db?mode=ro", uri=True) as db:
            row = db.execute(
                "SELECT stop FROM turns JOIN agents ON agents.id = agent WHERE name = ? ORDER BY number DESC", (name,)
            ).fetchone()
        return row is not None and row[0] is not None

    def restart(self):
        """Kill the daemon in the middle of a turn, whatever else happens to it."""
        self.revive()
        self.house.kill()
        self.start()

    def one_that_does_not_listen(self):
        self.spawn("mule", self.work, "/ignore-signals\n" + HOLD.format(mark="three"))
        self.until((self.work / "three").exists, "the turn")
        self.ask("end", "mule", done=lambda: self.stopping("mule"))
        self.until(lambda: self.state("mule") == "ended", "the end")

    def one_that_cuts_its_output(self):
        self.spawn("cutter", self.other, CUT)
        self.until(lambda: self.state("cutter") in {"idle", "failed"}, "the end of the turn")
        self.log.write_text(self.log.read_text() + (self.other / "log").read_text())

    def what_people_look_at(self):
        session = self.agents()["anna"]["session_id"]
        where = {"workspace": str(self.work)}
        assert self.call("agent.show", agent="anna")["name"] == "anna"
        assert self.call("agent.list")
        assert self.call("agent.wait", agents=["anna"])[0]["state"] == "idle"
        assert self.call("agent.wait_message", agent="anna")["turn"]["outcome"] == "success"
        assert "--resume" in self.call("agent.explain", agent="anna")["command"]
        self.execute("anna", "true")
        assert self.call("agent.turns", agent="anna")["turns"]
        assert self.call("agent.usage", agent="anna")["family"]["agents"] == 2
        assert session in [chat["session"] for chat in self.call("session.list", **where)]
        assert self.call("session.read", session=session, **where)["messages"]
        assert self.call("events.read")["events"]
        assert self.call("events.subscribe")["subscription"] == 1
        self.call("events.unsubscribe")
        self.call("inbox.list")
        self.call("daemon.status")
        assert self.call("daemon.check")["obstacle"] is None
        self.ask("rm", "kid", done=lambda: "kid" not in self.agents())

    def execute(self, name, *command):
        """Run a command in an agent's sandbox; one that a death cut short is given again."""
        while (result := self.house.ctl("exec", name, "--", *command)).code != 0:
            assert result.code == 3, result
            wait_until(self._is_dead, "the daemon's death")
            self.revive()

    def configure(self, config):
        self.house.config.write_text(config)
        self.revive()
        told = self.house.log.count("configuration reloaded")
        self.house.daemon.send_signal(signal.SIGHUP)
        self.until(lambda: self._is_dead() or self.house.log.count("configuration reloaded") > told, "the reload")
        self.revive()

    def one_that_finds_no_room(self):
        self.configure(CROWDED)
        self.ask("send", "held", "/shell echo room >> log", done=lambda: self.accepted("echo room"))
        self.until(lambda: self.call("daemon.status")["waiting_for"], "the wait")
        self.configure(CONFIG)
        self.until(lambda: "room" in self.effects() and self.state("held") == "idle", "room")

    def one_that_says_nothing(self):
        self.configure(HUSH)
        self.spawn("mute", self.work, "/sleep 1000")
        self.until(lambda: self.state("mute") == "failed", "the limit")

    def one_whose_repository_somebody_changes(self):
        self.configure(CONFIG)
        self.spawn("keeper", self.repository, "/shell git init -q nested")
        self.until(lambda: self.attention("keeper") == "unsafe" and self.state("keeper") == "idle", "the finding")
        self.ask("accept", "keeper", done=lambda: self.attention("keeper") != "unsafe")
        self.ask("send", "keeper", HOLD.format(mark="four"), done=lambda: self.accepted("touch four"))
        self.until((self.repository / "four").exists, "the turn")
        self.house.git(self.repository, "config", "user.name", "Somebody")
        self.until(lambda: self.told("keeper", "workspace:protected-again"), "the protection")
        self.house.git(self.repository, "config", "core.hooksPath", "tools")
        self.until(lambda: self.state("keeper") == "failed", "the end of the turn")
        self.until(lambda: "hooksPath" not in (self.repository / ".git/config").read_text(), "the copy that was kept")
        self.until(lambda: self.attention("keeper") == "unsafe", "the finding")
        self.ask("accept", "keeper", done=lambda: self.attention("keeper") != "unsafe")

    def told(self, name, kind):
        return [event for event in self.call("events.read", agent=name)["events"] if event["kind"] == kind]

    def attention(self, name):
        return self.agents()[name]["attention"]["kind"]

    def the_end(self):
        self.ask("shutdown", done=lambda: False)
        if self.house.daemon.wait(PATIENCE) != 0:
            self.revive()
            self.ask("shutdown")
        self.house.daemon.wait(PATIENCE)

    # What must be true

    def check(self):
        house = self.house
        house.start(config=CONFIG)
        wait_until(lambda: not list((house.state / "trash").glob("*")), "the sweep")
        assert self.effects() == EFFECTS
        agents = house.ok("ls")
        states = {agent["name"]: agent["state"] for agent in agents}
        assert states == {
            "anna": "idle", "held": "idle", "mule": "ended", "cutter": "idle", "mute": "failed", "keeper": "failed",
        }  # fmt: skip
        assert {agent["unread"] for agent in agents} == {0}
        assert house.ok("inbox") == []
        assert not house.sandboxed()
        sessions = Counter(agent["session_id"] for agent in agents)
        assert max(count for session, count in sessions.items() if session is not None) == 1
        self.check_events(agents)
        self.check_leftovers(agents)

    def check_events(self, agents):
        """Each line of each turn's output is one event, once and in order; turns begin and end once."""
        for agent in agents:
            events = self.house.events(agent["name"])
            cursors = [event["cursor"] for event in events]
            assert cursors == sorted(set(cursors))
            with self.house.wire() as wire:
                turns = wire.call("agent.turns", agent=agent["id"])["turns"]
            assert [turn["number"] for turn in turns] == list(range(1, len(turns) + 1))
            for turn in turns:
                assert turn["outcome"] is not None
                own = [event for event in events if event["turn"] == turn["id"]]
                kinds = Counter(event["kind"] for event in own)
                assert (kinds["turn:started"], kinds["turn:ended"]) == (1, 1), (agent["name"], turn, kinds)
                stdout = self.house.agents_directory(agent) / "turns" / str(turn["number"]) / "stdout"
                if agent["name"] != "cutter":
                    told = [event["raw"] for event in own if event["raw"] is not None]
                    assert told == [json.loads(line) for line in stdout.read_text().splitlines()]

    def check_leftovers(self, agents):
        state, runtime = self.house.state, self.house.runtime
        ids = {agent["id"] for agent in agents}
        wait_until(lambda: {path.name for path in (state / "agents").iterdir()} == ids, "the sweep")
        assert [path for path in runtime.rglob("*.sock") if path.name != "daemon.sock"] == []
        assert not (self.work / ".cursor").exists()
        assert sorted(os.listdir(self.other / ".cursor")) == ["link"]
        assert not list((state / "visits").glob("*"))
        odd = [path for path in state.rglob("*") if path.suffix in {".tmp", ".part"} or path.name.endswith("~")]
        assert odd == []
