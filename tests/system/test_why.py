"""`why`: the chain of events from an agent's newest turn back to the person who began it."""

from tests.support.waiting import wait_until


def kinds(daemon, name):
    return [(event["agent"], event["kind"]) for event in daemon.ok("why", name)]


def test_a_childs_turn_leads_back_to_the_person(daemon):
    daemon.start()
    daemon.spawn("lead", daemon.workspace("w"), '/tool spawn_agent {"prompt": "/say hi", "name": "child"}')
    daemon.ok("wait", "child", "lead")
    assert kinds(daemon, "child") == [
        ("child", "turn:started"), ("child", "agent:spawned"), ("lead", "turn:started"), ("lead", "agent:spawned"),
    ]  # fmt: skip
    # The child's report has woken the lead.
    assert kinds(daemon, "lead")[:4] == [
        ("lead", "turn:started"), ("lead", "message:received"), ("child", "turn:ended"), ("child", "turn:started"),
    ]  # fmt: skip
    said = daemon.ctl("why", "lead", "child")
    assert said.out.startswith("== lead ==")
    assert "spawned by the operator" in said.out.splitlines()[-1]


def test_answers_and_reminders_are_where_chains_end(daemon):
    daemon.start()
    daemon.spawn("anna", daemon.workspace("w"), '/tool ask_operator {"question": "shall I?"}')
    (question,) = daemon.ok("inbox")
    daemon.ok("answer", str(question["id"]), "yes")
    daemon.wait("anna")
    assert [kind for _, kind in kinds(daemon, "anna")][:3] == ["turn:started", "question:answered", "question:asked"]
    daemon.ok("send", "anna", "--wait", '/tool remind_me {"text": "later", "in_s": 0}')
    wait_until(lambda: len(daemon.events("anna", "turn:started")) == 4, "the turn that the reminder starts")
    assert kinds(daemon, "anna") == [("anna", "turn:started"), ("anna", "message:received")]


def test_a_chain_ends_where_an_agent_was_removed(daemon):
    daemon.start()
    daemon.spawn("lead", daemon.workspace("w"), '/tool spawn_agent {"prompt": "/say hi", "name": "child"}')
    daemon.ok("wait", "child", "lead")
    daemon.ok("end", "lead")
    daemon.ok("rm", "lead")
    assert kinds(daemon, "child") == [("child", "turn:started"), ("child", "agent:spawned")]
    assert "was removed" in daemon.ctl("why", "child").err
