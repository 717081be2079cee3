"""What becomes of a turn in which cursor-agent fails, in each way it is known to; the stand-in fails on request."""

import subprocess

HURRY = "[turns]\nresult_grace = 0.2\nstop_grace = 0.2\n"

FINAL = {
    "auth": (1, "cursor-agent login"),
    "auth-old": (1, "cursor-agent login"),
    "api-key": (1, "CURSOR_API_KEY"),
    "model": (1, "no-such-model"),
    "plan": (1, "--model auto"),
    "trust": (1, "doesn't trust the workspace"),
    "trust-zero": (0, "doesn't trust the workspace"),
    "admin": (1, "administrator"),
    "chat-id": (1, "isn't a UUID"),
    "in-use": (1, "in use"),
    "system-prompt": (1, "--system-prompt"),
    "too-long": (1, "spawn another agent"),
    "model-gone": (1, "cursor-agent models"),
    "login-expired": (1, "cursor-agent login"),
    "certificate": (1, "sandbox.ca"),
    "memory": (134, "memory"),
    "silent": (0, "status 0 without a result"),
    "no-result": (0, "status 0 without a result"),
    "crash": (1, "TypeError"),
    "cut": (1, "status 1 without a result"),
    "kill": (137, "was killed by SIGKILL, or exited with its status 137, without a result"),
    "segv": (139, "status 139 without a result"),
}


def spawn_failing(shared, names):
    """Let an agent for each failure run into it, all in one workspace."""
    work = shared.workspace()
    for name in names:
        shared.ok("spawn", name, "-w", work, "--network", "none", f"/fail {name}")


def test_a_failure_that_stays_is_told_once_and_fails_the_agent(shared):
    spawn_failing(shared, FINAL)
    odd = {}
    for name, (code, words) in FINAL.items():
        agent = shared.wait(name)
        turn = agent["turn"]
        found = (agent["state"], turn["outcome"], turn["exit_code"], turn["result"])
        if found != ("failed", "error", code, None) or words not in turn["error"] or "\n" in turn["error"]:
            odd[name] = agent
        if shared.events(name, "turn:retry"):
            odd[name] = "was tried again"
    assert odd == {}
    assert not shared.sandboxed()
    # A failed agent works again when its cause is gone.
    for name in ("auth", "plan", "no-result"):
        done = shared.ctl("send", name, "--wait", "again")
        assert (done.code, done.out.strip()) == (0, "again")


PASSING = {
    "busy": "another process still holds this chat",
    "network": "PING timed out",
    "network-zero": "Connection failed repeatedly",
    "network-reset": "ECONNRESET",
    "settings": "wrote their settings at once",
    "transport": "the connection to Cursor was lost",
    "rate": "Cursor takes no more for now",
    "rate-answer": "Cursor takes no more for now",
    "bad-gateway": "Cursor's service failed",
}


def test_a_failure_that_passes_is_tried_again(shared, until):
    spawn_failing(shared, PASSING)
    odd = {}
    for name, words in PASSING.items():
        (retry, *_) = until(lambda name=name: shared.events(name, "turn:retry"), f"the second try after {name}")
        ended = shared.events(name, "turn:ended")[0]
        if words not in ended["text"] or shared.show(name)["state"] not in {"queued", "running"}:
            odd[name] = ended
        if name == "rate" and "trying again in 30 s" not in retry["text"]:
            odd[name] = retry
        shared.ok("end", name)
    assert odd == {}


def test_what_passed_succeeds_when_it_is_tried_again(shared, until):
    shared.ok("spawn", "anna", "-w", shared.workspace(), "--prompt-file", "-", stdin=b"/fail network 1\ndone")
    until(lambda: (shared.show("anna")["turn"] or {}).get("outcome") == "success", "the second try")
    agent = shared.show("anna")
    assert (agent["state"], agent["turn"]["number"], agent["turn"]["result"]) == ("idle", 2, "done")


def test_a_chat_that_somebody_else_holds_is_waited_for(shared, until):
    work = shared.workspace()
    session = shared.spawn("anna", work, "one")["session_id"]
    command = [shared.agent, "-p", "--trust", "--force", "--workspace", work, "--resume", session]
    prompt = work / "prompt"
    prompt.write_text("/shell touch held; while ! test -e free; do sleep 0.01; done")
    with prompt.open() as script:
        holder = subprocess.Popen(command, stdin=script, stdout=subprocess.DEVNULL, env=shared.environment())
    try:
        until((work / "held").exists, "the other process")
        shared.ok("send", "anna", "two")
        until(lambda: shared.events("anna", "turn:retry"), "the refusal")
        (work / "free").touch()
        assert holder.wait(20) == 0
        until(lambda: shared.show("anna")["turn"]["result"] == "two", "the second try")
    finally:
        holder.kill()
        holder.wait()
    assert "I remember 3 earlier turns" in shared.ctl("send", "anna", "--wait", "/recall").out


def test_what_called_a_tool_is_not_tried_again(shared):
    agent = shared.spawn("anna", shared.workspace(), "/shell true\n/fail network")
    assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "error")
    assert "PING timed out" in agent["turn"]["error"]
    assert shared.events("anna", "turn:retry") == []


def test_a_usage_limit_fails_only_a_turn_that_has_acted(shared, until):
    work, spent = shared.workspace(), ("--env", "CURSOR_API_KEY=used-up")
    agent = shared.spawn("anna", work, "/shell true\n/fail quota", *spent)
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["exit_code"]) == ("failed", "error", 1)
    assert "You're out of usage" in agent["turn"]["error"]
    shared.ok("spawn", "bert", "-w", work, "/fail quota", *spent)
    shared.ok("queue", "--try")
    until(lambda: shared.events("bert", "turn:retry"), "the end of its turn")
    assert [shared.show("bert")[member] for member in ("state", "last")] == ["queued", None]
    assert [item["state"] for item in shared.ok("inbox", "bert")] == ["accepted"]
    shared.ok("end", "bert")


def test_an_option_that_a_turn_can_do_without_is_left_out(daemon):
    daemon.start()
    daemon.ok("spawn", "anna", "-w", daemon.workspace(), "--prompt-file", "-", stdin=b"/fail option 1\ndone")
    agent = daemon.wait("anna", "idle", "failed")
    assert (agent["state"], agent["turn"]["number"], agent["turn"]["result"]) == ("idle", 2, "done")
    assert "--approve-mcps" in daemon.events("anna", "turn:ended")[0]["text"]


def test_an_option_that_stays_unknown_is_named(daemon):
    daemon.start()
    daemon.ok("spawn", "anna", "-w", daemon.workspace(), "/fail option")
    agent = daemon.wait("anna", "idle", "failed")
    assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "error")
    assert "--approve-mcps" in agent["turn"]["error"]


def test_an_answer_that_tells_of_a_transport_error_is_an_answer(shared):
    agent = shared.spawn("anna", shared.workspace(), "/say I saw this:\n/fail transport")
    assert agent["turn"]["outcome"] == "success"
    assert "RetriableError: [aborted] read ECONNRESET" in agent["turn"]["result"]


def test_an_error_said_after_a_tool_call_fails_the_turn(shared):
    agent = shared.spawn("anna", shared.workspace(), "I look\n/shell true\n/fail transport")
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["result"]) == ("failed", "error", None)
    assert "ECONNRESET" in agent["turn"]["error"]


def test_what_was_said_before_a_failure_is_kept(shared):
    agent = shared.spawn("anna", shared.workspace(), "half of it\n/think hm\n/fail crash")
    assert agent["turn"]["outcome"] == "error"
    said = "".join(event["text"] for event in shared.events("anna", "assistant:delta"))
    assert said == "half of it"


def test_a_lost_connection_that_comes_back_is_no_failure(shared):
    agent = shared.spawn("anna", shared.workspace(), "/reconnect\ndone")
    assert (agent["state"], agent["turn"]["result"]) == ("idle", "done")
    kinds = [event["kind"] for event in shared.events("anna")]
    for kind in ("connection:reconnecting", "connection:reconnected", "retry:starting", "retry:resuming"):
        assert kind in kinds


def test_every_call_the_stand_in_shows_goes_through(shared):
    kinds = ["shell timeout", "read error", "edit", "task", "await", "mcp toolNotFound", "updateTodos", "createPlan"]
    agent = shared.spawn("anna", shared.workspace(), "".join(f"/show {kind}\n" for kind in kinds) + "/new-events\ndone")
    assert agent["turn"]["result"] == "done"
    assert len(shared.events("anna", "tool-call-completed")) == len(kinds) + 1
    assert "unknown" in [event["kind"] for event in shared.events("anna")]


def test_a_finished_program_that_prints_no_result_runs_into_its_time(daemon):
    daemon.start(config=HURRY + "time_limit = 1\n")
    agent = daemon.spawn("anna", daemon.workspace(), "here\n/fail hang")
    assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "timed_out")
    assert not daemon.sandboxed()


def test_what_is_left_behind_does_not_outlive_the_turn(daemon):
    daemon.start(config=HURRY)
    work = daemon.workspace()
    agent = daemon.spawn("anna", work, "/worker\n/background-timeout 0.05\n/background sleep 1000\ndone\n/hang")
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["result"]) == ("idle", "success", "done")
    assert daemon.events("anna", "system:background_shell_timeout")
    assert not daemon.sandboxed()
