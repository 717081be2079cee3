"""`spawn --budget`: a pool of an agent and its descendants pauses them, and they go on by themselves when there is more."""

import json

from tests.support.daemon import PRELUDE
from tests.support.waiting import wait_until

# Touches a file in each turn, and in its first one stays until it is stopped.
STAYS = (
    PRELUDE
    + """\
begin()
turns = pathlib.Path.home() / ".cache/turns"
turns.mkdir(parents=True, exist_ok=True)
number = len(os.listdir(turns))
(turns / str(number)).write_text(prompt)
while number == 0:
    time.sleep(0.05)
finish("All done.")
"""
)


def test_prompts_wait_at_the_end_of_a_budget_and_start_when_there_is_more(daemon):
    daemon.start()
    work = daemon.workspace()
    daemon.ok("spawn", "lead", "-w", work, "--budget", "turns=1", "/say one", "--wait")
    refused = daemon.ctl("send", "lead", "/say two", "--wait")
    used_up = "1 of 1 turns of the budget of lead are used: `substratctl budget lead --add turns=1` lets it go on"
    assert (refused.code, refused.err) == (5, f"substratctl: lead waits: {used_up}\n")
    (lead,) = daemon.ok("ls")
    assert (lead["attention"]["kind"], lead["attention"]["level"]) == ("budget", "action")
    assert lead["attention"]["text"] == "1 of 1 turns: budget lead --add turns=1"
    used = lead["budget"].pop("used")
    assert (used["turns"], lead["budget"]) == (1, {"limits": {"turns": 1}, "left": {"turns": 0}, "state": "out"})
    shown = daemon.ctl("ls").out
    assert "budget lead --add turns=1" in shown
    assert daemon.ctl("wait", "lead").code == 0
    daemon.kill()
    daemon.start()
    assert daemon.show("lead")["state"] == "queued"
    assert daemon.ok("budget", "lead", "--add", "turns=2")["left"] == {"turns": 1}, "one has begun"
    assert daemon.wait("lead", "idle")["turn"]["result"] == "two"
    daemon.ok("budget", "lead", "--set", "turns=3")
    daemon.ok("send", "lead", "/say three", "--wait")
    (prompt,) = (daemon.state / "agents" / lead["id"] / "turns").glob("*3/prompt")
    told = "From Substrat: 3 of 3 turns of the budget of lead and its descendants are used. At its end all of them pause."
    assert prompt.read_text().startswith(told)
    assert daemon.ctl("set", "lead", "budget=turns=9,minutes=5").out.startswith("lead: 3 of 9 turns, 0.")
    assert "3 of 9 turns" in daemon.ctl("show", "lead").out
    assert daemon.ctl("set", "lead", "budget=").out == "lead: no budget\n"
    assert daemon.show("lead")["budget"] is None


def test_a_turn_that_runs_is_stopped_when_its_minutes_are_over_and_goes_on_in_its_chat(daemon):
    program = daemon.program(STAYS)
    daemon.start(agent=program)
    daemon.ok("spawn", "lead", "-w", daemon.workspace(), "--budget", "minutes=0.02", "Do it.")
    daemon.wait("lead", "queued")
    wait_until(lambda: daemon.show("lead")["attention"]["kind"] == "budget", "the pause")
    before = daemon.show("lead")
    assert (before["turn"]["outcome"], before["turn"]["error"].startswith("stopped: budget: ")) == ("interrupted", True)
    daemon.kill()
    daemon.start(agent=program)
    daemon.ok("budget", "lead", "--add", "minutes=10")
    after = daemon.wait("lead", "idle")
    assert (after["turn"]["number"], after["turn"]["result"]) == (2, "All done.")
    assert after["session_id"] == before["session_id"]
    prompt = (daemon.state / "agents" / after["id"] / "cache" / "turns" / "1").read_text()
    assert prompt.startswith("You were stopped in the middle of the task below")
    kinds = [event["kind"] for event in daemon.events("lead") if event["kind"].startswith("budget:")]
    assert kinds[0] == "budget:out"
    assert "budget:changed" in kinds


def test_a_lead_gives_a_child_a_part_and_both_wait_as_one(daemon):
    daemon.start()
    work = daemon.workspace()
    calls: tuple[tuple[str, dict[str, object]], ...] = (
        ("spawn_agent", {"name": "kid", "prompt": "/say one", "budget": {"turns": 2}}),
        ("spawn_agent", {"name": "kid", "prompt": "/say one", "budget": {"turns": 1}}),
        ("spawn_agent", {"name": "second", "prompt": "/say two"}),
        ("whoami", {}),
        ("wait_agents", {}),
    )
    script = "\n".join(f"/tool {tool} {json.dumps(arguments)}" for tool, arguments in calls)
    daemon.ok("spawn", "lead", "-w", work, "--budget", "turns=2", "--prompt-file", "-", stdin=script.encode())
    wait_until(lambda: len(daemon.tool("lead")) == 5, "the tools")
    refused, started, _, who, _ = daemon.tool("lead")
    assert "turns can be 1 at most, the rest of lead's budget" in refused
    assert "kid" in started
    assert json.loads(who)["budgets"][0]["of"] == "lead"
    wait_until(lambda: daemon.show("lead")["attention"]["kind"] == "budget", "the end of the budget")
    listed = {agent["name"]: agent["attention"]["kind"] for agent in daemon.ok("ls", "--tree")}
    assert sorted(listed.values()).count("budget") == 1
    found = daemon.ok("budget", "lead")
    assert {member["agent"] for member in found["members"]} >= {"second"}
    daemon.ok("budget", "lead", "--set", "turns=20")
    daemon.wait("lead", "idle")
    assert daemon.ctl("budget", "lead", "--clear").out.startswith("lead has no budget")


def test_dollars_pause_an_agent_whose_model_has_a_price(daemon):
    daemon.start()
    daemon.ok("spawn", "lead", "-w", daemon.workspace(), "--model", "gpt-5", "--budget", "usd=0.01", "--wait", "/say one")
    waits = daemon.ctl("send", "lead", "/say two", "--wait")
    assert (waits.code, "of $0.01 of the budget of lead are used" in waits.err) == (5, True), waits
    spent = daemon.ok("budget", "lead")
    assert spent["used"]["usd"] == daemon.ok("usage", "lead")["usd"] > 0
    assert daemon.ctl("set", "lead", "model=auto").err.startswith("substratctl: the model 'auto' has no list price")
    assert daemon.ctl("budget", "lead", "--add", "usd=1").out.endswith(" of $1.01\n")
    daemon.ok("wait", "lead")
    assert daemon.show("lead")["turn"]["number"] == 2


def test_what_a_budget_cannot_be(daemon):
    daemon.start()
    work = daemon.workspace()
    for words, problem in {
        ("spawn", "a", "-w", str(work), "--budget", "eur=3"): "a budget has no 'eur'",
        ("spawn", "a", "-w", str(work), "--budget", "usd=3"): "the model 'auto' has no list price",
        ("spawn", "a", "-w", str(work), "--budget", "turns"): "'turns' is no KEY=NUMBER of a budget",
    }.items():
        refused = daemon.ctl(*words)
        assert (refused.code, problem in refused.err) == (2, True), refused
    assert daemon.ok("ls") == []
    daemon.ok("spawn", "a", "-w", work)
    refused = daemon.ctl("budget", "a", "--clear", "--add", "turns=1")
    assert (refused.code, "--clear stands alone" in refused.err) == (2, True), refused
    assert daemon.ctl("budget", "nobody").code == 4
