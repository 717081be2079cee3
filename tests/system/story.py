"""The standard scenario: an operator goes on through each death of the daemon, and the outcome is checked.

Every effect is a line in a file that an agent's shell appends to, so that doing something twice, or not at all, shows.
"""

import contextlib
import json
import os
import signal
import sqlite3
from collections import Counter

from tests.support.hearing import HEARING
from tests.support.waiting import PATIENCE, wait_until
from tests.system.persistent_operator import PersistentOperator
from tests.system.story_prompts import ANNA, CUT, DIGGER, FAMILY, HOLD

RING = """read -r line
printf '%s' "$line" | grep -qE '"name": "(spent|mute|keeper)"' && exit 1
printf '%s\\n' "$line" >> "$HOME/bells"
"""
BELL = f"[notify]\ncommand = {json.dumps(['sh', '-c', RING])}\n"
"""It fails for three agents: such a failure is told, and tried again."""
CONFIG = BELL + "[turns]\nstop_grace = 0.2\n"
CROWDED = CONFIG + "[disk]\nfree = 1000000000000000\n"
HUSH = CONFIG + "silence_limit = 0.3\n"

EFFECTS = [
    "anna", "answer", "child", "cut", "dug", "elder", "heard", "heir", "held", "message", "one", "reminder", "room",
    "sent", "tried", "two", "waited",
]  # fmt: skip
"""The words in the file at the end of the part `AGENTS`, each once."""
AGENTS, CLONES = "agents", "clones"
"""The scenario's parts. Each point of a kill belongs to one of them, which takes half as long as both."""
OF_CLONES = frozenset({
    "clone made", "clone set up", "clone failed", "clone kept", "agent renamed", "renaming finished", "settings changed",
    "address given", "prune intended", "tree pruned", "restore intended", "clone restored", "restore failed",
    "landing asked", "landing intended", "landing noted", "landing decided", "tree made", "base noted",
    "bundle made", "bundle imported", "branch moved", "refs copied", "old refs deleted", "tree removed",
    "earlier work noted", "tree restored", "agent.diff", "agent.why", "agent.setup", "agent.merge", "agent.set",
    "agent.forward", "agent.rename", "agent.restore", "agent.checkout", "clone.list", "clone.prune",
    "clone.prune_refs", "refs noted", "agent relocated", "check begun", "check judged",
})  # fmt: skip
"""The commits, acts and answers that the part `CLONES` alone comes to."""


def part_of(point):
    """The part of the scenario that comes to a failpoint, such as `before commit: clone made`."""
    return CLONES if point.partition(": ")[2] in OF_CLONES else AGENTS


class Story(PersistentOperator):
    """One run of the scenario.

    Args:
        daemon: where it plays.
        environment: the first daemon's further variables; those after its death are started without.
        part: the part that is played, `AGENTS` or `CLONES`.
    """

    def __init__(self, daemon, environment, part):
        super().__init__(daemon, environment)
        self.part = part
        self.other = daemon.workspace("other")
        (self.other / ".cursor").mkdir()
        (self.other / ".cursor" / "link").symlink_to("/etc")
        self.repository = daemon.workspace("repository")
        daemon.git(self.repository, "init", "-q", ".")
        self.cloned = daemon.workspace("cloned", git=True)
        for branch, command in (("broken", "false"), ("main", "true")):
            daemon.git(self.cloned, "checkout", "-q", "-B", branch)
            (self.cloned / ".cursor").mkdir(exist_ok=True)
            (self.cloned / ".cursor" / "worktrees.json").write_text(json.dumps({"setup-worktree": [command]}))
            daemon.git(self.cloned, "add", "-A")
            daemon.git(self.cloned, "commit", "-qm", f"set up with {command}")

    # The scenario

    def play(self):
        self.start(CONFIG)
        if self.part == CLONES:
            self.two_that_have_clones()
        else:
            self.an_agent_with_a_child()
            self.one_that_is_frozen_suspended_and_adopted()
            self.one_that_hears_words_amid_its_turn()
            self.one_that_waits_too_long()
            self.one_whose_account_is_spent()
            self.one_that_does_not_listen()
            self.one_that_cuts_its_output()
            self.what_people_look_at()
            self.a_family_from_a_file()
            self.one_that_works_tasks_off()
            self.one_that_finds_no_room()
            self.one_that_says_nothing()
            self.one_whose_repository_somebody_changes()
            self.one_that_steers_its_child()
            self.the_bell_has_rung()
        self.the_end()

    def spawn(self, name, workspace, prompt, *options):
        words = ("spawn", name, "-w", workspace, *options, "--prompt-file", "-")
        self.ask(*words, stdin=prompt.encode(), done=lambda: name in self.agents())

    def an_agent_with_a_child(self):
        self.spawn("anna", self.work, ANNA)
        self.until(lambda: len(self.call("inbox.list")) == 2, "the question and the note")
        items = {item["kind"]: str(item["id"]) for item in self.call("inbox.list")}
        assert self.call("inbox.show", id=int(items["question"]))["kind"] == "question"
        answered = lambda: not self.waits(items["question"])  # noqa: E731 - it is said once
        self.ask("answer", items["question"], "/shell echo answer >> log", done=answered)
        self.ask("inbox", "--dismiss", items["message"], done=lambda: not self.waits(items["message"]))
        self.ask("send", "anna", "/shell echo sent >> log", done=lambda: self.accepted("echo sent"))
        wanted = ["anna", "answer", "child", "message", "reminder", "sent"]
        self.until(lambda: self.effects() == wanted, f"{wanted} in {self.log}")
        self.until(lambda: {self.state("anna"), self.state("kid")} == {"idle"}, "the end of their turns")

    def waits(self, number):
        return number in {str(item["id"]) for item in self.call("inbox.list")}

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
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.state}/substrat.db?mode=ro", uri=True)) as db:
            row = db.execute(
                "SELECT stop FROM turns JOIN agents ON agents.id = agent WHERE name = ? ORDER BY number DESC", (name,)
            ).fetchone()
        return row is not None and row[0] is not None

    def restart(self):
        """Kill the daemon in the middle of a turn, whether or not it dies elsewhere too."""
        self.revive()
        self.daemon.kill()
        self.start(CONFIG)

    def one_that_hears_words_amid_its_turn(self):
        """Words that a death has made come twice do nothing twice: they end the turn that hears them, or the next one."""
        binary = f"programs.claude.binary = {json.dumps(str(self.daemon.program(HEARING, 'hearing')))}\n"
        self.configure(binary + CONFIG)
        self.spawn("ear", self.work, "listen", "--program", "claude")
        self.until(lambda: self.state("ear") == "running", "the turn")
        self.ask("send", "ear", "stop", "--now", done=lambda: self.accepted("stop"))
        self.until(lambda: self.state("ear") == "idle", "the end of the turn")
        self.log.write_text(self.log.read_text() + "heard\n")
        self.configure(CONFIG)

    def one_that_waits_too_long(self):
        """The note that comes back with the wake is an action, and the child that isn't done is ended."""
        late = json.dumps({"name": "late", "prompt": HOLD.format(mark="late")})
        wait = json.dumps({"timeout_s": 0.5, "note": "\n/shell echo waited >> log"})
        self.spawn("lead", self.work, f"/tool spawn_agent {late}\n/tool wait_agents {wait}")
        assert {wait["agent"] for wait in self.call("wait.list")} <= {"lead"}
        self.until(lambda: "waited" in self.effects(), "the wake")
        self.until(lambda: self.state("lead") == "idle" and self.state("late") == "running", "the end of its turn")
        for name in ("late", "lead"):
            self.ask("end", name, done=lambda name=name: self.stopping(name) or self.state(name) == "ended")
            self.until(lambda name=name: self.state(name) == "ended", "the end")
            self.ask("rm", name, done=lambda name=name: name not in self.agents())

    def one_whose_account_is_spent(self):
        """Another one of its login tries when a person lets it, and has a child that needs the other."""
        spent, elder = ("--env", "CURSOR_API_KEY=spent"), "/shell echo elder >> log\n/say done"
        heir = {"name": "heir", "prompt": "/shell echo heir >> log\n/say done", "needs": ["elder"]}
        script = f"/tool spawn_agent {json.dumps({'name': 'elder', 'prompt': elder})}\n/tool spawn_agent {json.dumps(heir)}"
        self.spawn("spent", self.other, "/shell true\n/fail quota", *spent)
        self.until(lambda: self.state("spent") == "failed", "the limit")
        self.spawn("patient", self.work, f"/shell echo tried >> log\n{script}", *spent)
        assert [place["agent"] for place in self.call("queue.list")] == ["patient"]
        assert self.call("queue.gates")[0]["failures"] == 1
        assert "tried" not in self.effects()
        self.call("queue.try")
        self.until(lambda: "heir" in self.effects(), "the turns of the login")
        family = ("patient", "elder", "heir")
        self.until(lambda: {self.state(name) for name in family} == {"idle"}, "the end of their turns")

    def one_that_does_not_listen(self):
        self.spawn("mule", self.work, "/ignore-signals\n" + HOLD.format(mark="three"))
        self.until((self.work / "three").exists, "the turn")
        self.ask("end", "mule", done=lambda: self.stopping("mule"))
        self.until(lambda: self.state("mule") == "ended", "the end")

    def one_that_cuts_its_output(self):
        self.spawn("cutter", self.other, CUT)
        self.until(lambda: self.told("cutter", "tool-call-started"), "output that is read, so that it can be cut")
        (self.other / "cut").touch()
        self.until(lambda: self.state("cutter") in {"idle", "failed"}, "the end of the turn")
        self.log.write_text(self.log.read_text() + (self.other / "log").read_text())

    def what_people_look_at(self):
        session = self.agents()["anna"]["session_id"]
        where = {"workspace": str(self.work)}
        assert self.call("agent.show", agent="anna")["name"] == "anna"
        assert self.call("agent.wait", agents=["anna"])[0]["state"] == "idle"
        assert self.call("agent.wait_message", agent="anna")["turn"]["outcome"] == "success"
        assert "--resume" in self.call("agent.explain", agent="anna")["command"]
        self.execute("anna", "true")
        assert self.call("agent.turns", agent="anna")["turns"]
        assert self.call("agent.usage", agent="anna")["family"]["agents"] == 2
        assert len(self.call("usage.list")) == len(self.call("agent.list"))
        assert "auto" in [one["key"] for one in self.call("usage.sum", by="model")]
        assert self.call("agent.budget", agent="anna", limits=["turns=1000"])["limits"] == {"turns": 1000}
        assert session in [chat["session"] for chat in self.call("session.list", **where)]
        assert self.call("session.read", session=session, **where)["messages"]
        assert self.call("events.read")["events"]
        assert self.call("events.subscribe")["subscription"] == 1
        self.call("events.unsubscribe")
        self.call("inbox.list")
        self.call("daemon.status")
        assert self.call("daemon.metrics")["turns"]["success"] > 0
        self.call("notify.test")
        assert self.call("daemon.check")["obstacle"] is None
        self.ask("rm", "kid", done=lambda: "kid" not in self.agents())

    def a_family_from_a_file(self):
        file = self.daemon.directory / "family.toml"
        file.write_text(FAMILY)
        self.ask("run", file, "-w", self.work, "--detach", done=lambda: self.call("run.list"))
        self.until(lambda: self.call("run.show", run="team")["outcome"] == "succeeded", "the end of the run")
        assert [run["family"] for run in self.call("run.list")] == ["team"]
        assert [agent["outcome"] for agent in self.call("run.end", run="team")["agents"]] == ["succeeded"] * 3
        names = ("team.one.1", "team.two", "team.judge")
        self.until(lambda: {self.state(name) for name in names} == {"ended"}, "the end of its agents")

    def one_that_works_tasks_off(self):
        """It waits for one that then is skipped, which ends its wait."""
        self.spawn("digger", self.work, DIGGER)
        self.until(lambda: self.state("digger") == "idle" and self.waits_of("digger"), "its wait for a task")
        states = lambda: {task["id"]: task["state"] for task in self.call("task.list", agent="digger")}  # noqa: E731
        assert states() == {"x": "succeeded", "y": "ready", "z": "blocked"}
        self.call("task.add", agent="digger", tasks='[{"title": "more", "id": "w", "label": "late", "needs": ["z"]}]')
        self.ask("tasks", "digger", "--skip", "y", done=lambda: states()["w"] == "skipped")
        self.until(lambda: self.agents()["digger"]["turn"]["number"] >= 2, "the wake")
        self.until(lambda: self.state("digger") == "idle", "the end of its turns")
        self.ask("tasks", "digger", "--retry", "y", done=lambda: states()["y"] == "ready")
        assert states() == {"x": "succeeded", "y": "ready", "z": "blocked", "w": "blocked"}

    def waits_of(self, name):
        return [wait for wait in self.call("wait.list") if wait["agent"] == name]

    def execute(self, name, *command):
        """Run a command in an agent's sandbox; one that a death cut short is given again."""
        while (result := self.daemon.ctl("exec", name, "--", *command)).code != 0:
            assert result.code == 3, result
            wait_until(self._is_dead, "the daemon's death")
            self.revive()

    def configure(self, config):
        self.daemon.configure(config)
        self.revive()
        told = self.daemon.log.count("configuration reloaded")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.until(lambda: self._is_dead() or self.daemon.log.count("configuration reloaded") > told, "the reload")
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
        self.spawn("keeper", self.repository, "/shell git init -q nested; touch .git/index.lock")
        self.until(lambda: self.attention("keeper") == "unsafe" and self.state("keeper") == "idle", "the finding")
        assert not (self.repository / ".git/index.lock").exists()
        (self.repository / "nested").rename(self.daemon.directory / "nested")
        self.until(lambda: self.attention("keeper") != "unsafe", "the end of the finding")
        self.ask("send", "keeper", HOLD.format(mark="four"), done=lambda: self.accepted("touch four"))
        self.until((self.repository / "four").exists, "the turn")
        for name, verb in (("Bert", "resume"), ("Carl", "interrupt")):
            self.daemon.git(self.repository, "config", "user.name", name)
            self.until(lambda: self.attention("keeper") == "unsafe" and self.state("keeper") == "suspended", "the freeze")
            self.ask(verb, "keeper", done=lambda: self.state("keeper") != "suspended")
        self.until(lambda: (self.state("keeper"), self.attention("keeper")) == ("idle", "unsafe"), "the interruption")
        self.ask("accept", "keeper", done=lambda: self.attention("keeper") != "unsafe")

    def two_that_have_clones(self):
        """One has a child in a clone, and its work is landed; the other's set-up fails."""
        work = "/shell echo new > a.txt; git add a.txt; git commit -qm 'add a.txt'; echo more > b.txt"
        pupil = json.dumps({"name": "pupil", "prompt": "/shell ls", "instructions": "Look only."})
        self.spawn("worker", self.cloned, f"{work}\n/tool spawn_agent {pupil}", "--clone")
        self.until(self.has_heard_of_its_pupil, "the turn with the child's result")
        assert [file["path"] for file in self.call("agent.diff", agent="worker")["files"]] == ["a.txt"]
        assert self.call("agent.why", agent="worker")["whole"]
        self.call("agent.setup", agent="worker")
        (outcome,) = self.call("agent.merge", agents=["worker"], request="one", outcomes=True)
        assert outcome["outcome"] in {"landed", "nothing"}  # the answer of the first may have been lost
        self.ask("set", "worker", "env.WORD=x", "network=none")
        assert self.call("agent.forward", agent="worker")["address"].startswith("127.0.77.")
        self.ask("set", "worker", "name=maker", done=lambda: "maker" in self.agents())
        self.ask("set", "maker", f"workspace={self.cloned}")
        self.spawn("broken", self.cloned, "/say never", "--clone", "--base", "broken")
        self.until(lambda: self.state("broken") == "failed", "the failed set-up")
        self.spawn("brief", self.cloned, "/shell echo brief > brief.txt", "--clone", "--check", "true")
        self.until(lambda: self.state("brief") == "idle", "the end of the turn")
        self.going_back("brief")
        self.ask("end", "brief", done=lambda: self.state("brief") == "ended")
        self.ask("clones", "prune", "brief", "--yes", "--unlanded", done=lambda: self.tree_is_gone("brief"))
        self.until(lambda: self.tree_is_gone("brief"), "the end of the prune")
        self.ask("rm", "brief", done=lambda: "brief" not in self.agents())
        asked = {"names": ["brief"], "unlanded": True, "dry_run": True}
        self.until(lambda: self.call("clone.prune_refs", **asked)[0]["id"] is None, "the end of its clone's record")
        assert self.daemon.git(self.cloned, "show", "refs/substrat/brief/wip:brief.txt") == "brief\n"
        self.ask("clones", "prune", "brief", "--refs", "--yes", "--unlanded", done=lambda: self.has_no_refs("brief"))

    def one_that_steers_its_child(self):
        """The child is interrupted with other words and ended; a question gets its default, a prompt is taken back."""
        child = json.dumps({"name": "apprentice", "prompt": HOLD.format(mark="five")})
        otherwise = json.dumps({"name": "apprentice", "text": HOLD.format(mark="six")})
        question = json.dumps({"question": "now?", "options": ["yes", "no"], "default": "yes", "deadline_s": 0.3})
        asleep = "/shell while [ ! -e {} ]; do sleep 0.02; done"
        lines = (
            f"/tool spawn_agent {child}", asleep.format("five"), f"/tool interrupt_agent {otherwise}", asleep.format("six"),
            '/tool end_agent {"name": "apprentice", "reason": "enough"}\n/tool ask_operator {"question": "so?"}',
            f"/tool cancel_question {{}}\n/tool ask_operator {question}", '/tool complete {"result": "all steered"}',
        )  # fmt: skip
        self.spawn("master", self.work, "\n".join(lines))
        self.until(lambda: self.told("master", "question:answered"), "the default answer")
        self.until(lambda: self.state("apprentice") == "ended" and self.state("master") == "idle", "the end of their turns")
        self.ask("suspend", "master", done=lambda: self.stopping("master") or self.state("master") == "suspended")
        self.until(lambda: self.state("master") == "suspended", "the suspension")
        self.ask("send", "master", "never mind", done=lambda: self.accepted("never mind"))
        dropped = lambda: self.messages("master")[-1]["state"] == "dropped"  # noqa: E731 - it is said once
        self.ask("inbox", "master", "--drop", str(self.messages("master")[-1]["id"]), done=dropped)
        assert dropped()
        for name in ("apprentice", "master"):
            self.ask("rm", name, done=lambda name=name: name not in self.agents())

    def messages(self, name):
        return self.call("message.list", agent=name)["messages"]

    def going_back(self, name):
        """A file that git ignores is in the way of a first restore, and not of the next one."""
        self.execute(name, "sh", "-c", "rm -f brief.txt; echo brief.txt > .gitignore; echo mine > brief.txt")
        while (done := self.daemon.ctl("restore", name, "--turn", "1")).code == 3:
            wait_until(self._is_dead, "the daemon's death")
            self.revive()
        assert done.code == 1, done
        self.until(lambda: self.told(name, "clone:not-restored"), "the refusal")
        self.execute(name, "rm", "-f", "brief.txt")
        self.ask("restore", name, "--turn", "1", done=lambda: self.told(name, "clone:restored"))
        self.until(lambda: self.told(name, "clone:restored"), "the turn's files")
        copy = self.daemon.directory / "copy"
        self.ask("checkout", "maker", copy, done=(copy / "a.txt").exists)
        assert (copy / "a.txt").read_text() == "new\n"

    def tree_is_gone(self, name):
        return name not in [tree["agent"] for tree in self.call("clone.list")]

    def has_no_refs(self, name):
        return self.daemon.git(self.cloned, "for-each-ref", f"refs/substrat/{name}/") == ""

    def has_heard_of_its_pupil(self):
        agents = self.agents()
        worker = agents.get("worker", {})
        turn = worker.get("turn") or {"number": 0}
        return worker.get("state") == "idle" and turn["number"] >= 2 and agents["pupil"]["state"] == "idle"

    def told(self, name, kind):
        return [event for event in self.call("events.read", agent=name)["events"] if event["kind"] == kind]

    def attention(self, name):
        return self.agents()[name]["attention"]["kind"]

    def the_bell_has_rung(self):
        self.until(lambda: self.told("mute", "notify:failed") or self.told("keeper", "notify:failed"), "the bell's failure")

    def the_end(self):
        self.ask("shutdown", done=lambda: False)
        if self.daemon.process.wait(PATIENCE) != 0:
            self.revive()
            self.ask("shutdown")
        self.daemon.process.wait(PATIENCE)

    # Checks at the end

    def check(self):
        daemon = self.daemon
        daemon.start(config=CONFIG)
        wait_until(lambda: not list((daemon.state / "trash").glob("*")), "the sweep")
        agents = daemon.ok("ls")
        states = {agent["name"]: agent["state"] for agent in agents}
        unread = {agent["name"] for agent in agents if agent["unread"]}
        if self.part == CLONES:
            assert states == {"maker": "idle", "pupil": "idle", "broken": "failed"}
            assert unread == {"broken"}
            self.check_clones(agents)
        else:
            assert self.effects() == EFFECTS, self.effects()
            # What was cut and written again while no daemon looked is read from where the last one stopped.
            assert states.pop("cutter") in {"idle", "failed"}
            assert states == {
                "anna": "idle", "held": "idle", "mule": "ended", "mute": "failed", "keeper": "idle",
                "spent": "failed", "patient": "idle", "elder": "idle", "heir": "idle", "ear": "idle", "digger": "idle",
                "team.one.1": "ended", "team.two": "ended", "team.judge": "ended",
            }  # fmt: skip
            assert not unread
        assert daemon.ok("inbox") == []
        assert not daemon.sandboxed()
        sessions = Counter(agent["session_id"] for agent in agents)
        assert max(count for session, count in sessions.items() if session is not None) == 1
        self.check_events(agents)
        self.check_leftovers(agents)
        self.check_bells()

    def check_bells(self):
        """No cause has rung the bell twice."""
        rung = self.daemon.home / "bells"
        lines = map(json.loads, rung.read_text().splitlines() if rung.exists() else ())
        told = Counter(
            (one["id"], one["attention"]["kind"], one["attention"]["since"])
            for line in lines if not line["test"] for one in line["agents"]
        )  # fmt: skip
        assert not told or max(told.values()) == 1, told

    def check_clones(self, agents):
        """The work has landed once, its uncommitted file is kept, and the user's repository is whole."""
        git, cloned = self.daemon.git, self.cloned
        assert git(cloned, "log", "--format=%s", "-2", "main").split("\n")[:2] == ["add a.txt", "set up with true"]
        assert git(cloned, "show", "refs/substrat/maker/wip:b.txt") == "more\n"
        wait_until(lambda: "substrat/worker/" not in git(cloned, "for-each-ref"), "the end of the former name's refs")
        assert self.has_no_refs("brief")
        assert (git(cloned, "status", "--short"), git(cloned, "fsck", "--no-dangling")) == ("", "")
        (maker, pupil) = [agent for agent in agents if agent["name"] in {"maker", "pupil"}]
        assert (maker["clone"]["files"], maker["clone"]["landed"]) == (1, False), "its uncommitted file stays"
        assert maker["attention"]["text"] == "1 file uncommitted", "its commits have landed"
        assert pupil["clone"]["base"] == maker["clone"]["head"]
        assert [len(self.daemon.events("maker", kind)) for kind in ("clone:landed", "agent:renamed")] == [1, 1]

    def check_events(self, agents):
        """Each line of each turn's output is one event, once and in order; turns begin and end once."""
        for agent in agents:
            events = self.daemon.events(agent["name"])
            cursors = [event["cursor"] for event in events]
            assert cursors == sorted(set(cursors))
            with self.daemon.wire() as wire:
                turns = wire.call("agent.turns", agent=agent["id"])["turns"]
            assert [turn["number"] for turn in turns] == list(range(1, len(turns) + 1))
            for turn in turns:
                assert turn["outcome"] is not None
                own = [event for event in events if event["turn"] == turn["id"]]
                kinds = Counter(event["kind"] for event in own)
                assert (kinds["turn:started"], kinds["turn:ended"]) == (1, 1), (agent["name"], turn, kinds)
                stdout = self.daemon.agents_directory(agent) / "turns" / str(turn["number"]) / "stdout"
                if agent["name"] != "cutter":
                    told = [event["raw"] for event in own if event["raw"] is not None]
                    assert told == [json.loads(line) for line in stdout.read_text().splitlines()]

    def check_leftovers(self, agents):
        state, runtime = self.daemon.state, self.daemon.runtime
        ids = {agent["id"] for agent in agents}
        wait_until(lambda: {path.name for path in (state / "agents").iterdir()} == ids, "the sweep")
        assert [path for path in runtime.rglob("*.sock") if path.name != "daemon.sock"] == []
        assert not (self.work / ".cursor").exists()
        assert sorted(os.listdir(self.other / ".cursor")) == ["link"]
        assert not list((state / "visits").glob("*"))
        odd = [path for path in state.rglob("*") if path.suffix in {".tmp", ".part"} or path.name.endswith("~")]
        assert odd == []
