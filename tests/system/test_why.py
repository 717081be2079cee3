"""`why`: the chain of events from an agent's newest turn back to the person who began it."""

from tests.support.waiting import wait_until


def kinds(house, name):
    return [(event["agent"], event["kind"]) for event in house.ok("why", name)]


def test_a_childs_turn_leads_back_to_the_person(house):
    house.start()
    house.spawn("lead", house.workspace("w"), '/tool spawn_agent {"prompt": "/say hi", "name": "child"}')
    house.ok("wait", "child", "lead")
    assert kinds(house, "child") == [
        ("child", "turn:started"), ("child", "agent:spawned"), ("lead", "turn:started"), ("lead", "agent:spawned"),
    ]  # fmt: skip
    # The child's report has woken the lead.
    assert kinds(house, "lead")[:4] == [
        ("lead", "turn:started"), ("lead", "message:received"), ("child", "turn:ended"), ("child", "turn:started"),
    ]  # fmt: skip
    said = house.ctl("why", "lead", "child")
    assert said.out.startswith("== lead ==")
    assert "spawned by the operator" in said.out.splitlines()[-1]


def test_answers_and_reminders_are_where_chains_end(house):
    house.start()
    house.spawn("anna", house.workspace("w"), '/tool ask_operator {"question": "shall I?"}')
    (question,) = house.ok("inbox")
    house.ok("answer", str(question["id"]), "yes")
    house.wait("anna")
    assert [kind for _, kind in kinds(house, "anna")][:3] == ["turn:started", "question:answered", "question:asked"]
    house.ok("send", "anna", "--wait", '/tool remind_me {"text": "later", "seconds": 0}')
    wait_until(lambda: len(house.events("anna", "turn:started")) == 4, "the turn that the reminder starts")
    assert kinds(house, "anna") == [("anna", "turn:started"), ("anna", "message:received")]


def test_a_chain_ends_where_an_agent_was_removed(house):
    house.start()
    house.spawn("lead", house.workspace("w"), '/tool spawn_agent {"prompt": "/say hi", "name": "child"}')
    house.ok("wait", "child", "lead")
    house.ok("end", "lead")
    house.ok("rm", "lead")
    assert kinds(house, "child") == [("child", "turn:started"), ("child", "agent:spawned")]
    assert "was removed" in house.ctl("why", "child").err
