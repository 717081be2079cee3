"""Limits on messages: shares of inboxes, sizes of deliveries, rings of agents that wake each other."""

import pytest

from substrat.core.agents.records import Intent
from substrat.core.families.waits import WaitMode
from substrat.daemon.agents import mail
from substrat.daemon.agents.due import end_due
from substrat.daemon.agents.reminders import Reminders, ReminderWish
from substrat.errors import LimitReached, NotFound, Refused


def write(agents, sender, to, text):
    """Send a message that wakes its addressee, and that no turn's result answers."""
    return agents.supervisor.message(agents.agent(sender), to, text, Intent.REPLY)


def asleep(agents, name):
    return mail.asleep_until(agents.registry, agents.agent(name))


def test_one_agent_fills_no_inbox(new_agents):
    agents = new_agents(limits={"waiting_from_one": 2})
    agents.spawn("eve")
    agents.spawn("anna")
    agents.spawn("bob")
    agents.supervisor.suspend("bob")
    for _ in range(2):
        write(agents, "eve", "bob", "x")
        write(agents, "eve", "operator", "x")
    for to, whom in (("bob", "bob"), ("operator", "the operator")):
        with pytest.raises(LimitReached, match=f"2 messages of eve wait for {whom} already"):
            write(agents, "eve", to, "x")
        write(agents, "anna", to, "others are not in its way")
    agents.supervisor.send("bob", "nor is the operator")


def test_messages_and_questions_to_the_operator_have_one_end(new_agents):
    agents = new_agents(limits={"waiting_items": 2})
    agents.spawn("eve")
    write(agents, "eve", "operator", "x")
    write(agents, "eve", "operator", "x")
    with pytest.raises(LimitReached, match="2 questions and messages wait for the operator already"):
        write(agents, "eve", "operator", "x")


def test_a_delivery_has_a_size(agents):
    agents.spawn("eve")
    agents.spawn("bob")
    agents.supervisor.suspend("bob")
    for _ in range(20):
        write(agents, "eve", "bob", "x" * 60_000)
    agents.supervisor.resume("bob", "go on")
    assert len(agents.prompt("bob")) < 10_000, "of a stranger"
    assert agents.supervisor.unread(agents.agent("bob")) == 20 - 2
    assert len(agents.supervisor.take_inbox("bob")) == 2
    assert agents.supervisor.unread(agents.agent("bob")) == 20 - 4
    prompt = "y" * 300_000
    agents.supervisor.send("bob", prompt)
    agents.finish("bob")
    assert prompt in agents.prompt("bob"), "a person's prompt is whole"


def test_a_stranger_wakes_an_agent_only_by_the_answer_that_it_awaits(agents):
    agents.spawn("anna")
    agents.spawn("eve")
    asked = agents.supervisor.message(agents.agent("eve"), "anna", "may I?", Intent.REQUEST)
    write(agents, "eve", "anna", "well?")
    assert (agents.state("anna"), agents.agent("anna").waiting) == ("idle", 0)
    agents.restart()
    assert agents.agent("anna").waiting == 0
    agents.supervisor.send("anna", "my work")
    prompt = agents.prompt("anna")
    assert prompt.index("my work") < prompt.index("may I?") < prompt.index("well?")
    agents.supervisor.message(agents.agent("anna"), "eve", "yes", Intent.REPLY, asked)
    agents.finish("eve")
    agents.supervisor.message(agents.agent("anna"), "eve", "and yes again", Intent.REPLY, asked)
    agents.finish("anna")
    assert (agents.state("eve"), agents.turn("eve").number) == ("idle", 1), "nothing else answers"


def test_ten_strangers_leave_room_for_the_family(agents):
    agents.spawn("lead")
    agents.spawn("kid", parent="lead")
    agents.supervisor.suspend("lead")
    for number in range(10):
        agents.spawn(f"eve{number}")
        agents.supervisor.message(agents.agent(f"eve{number}"), "lead", "x" * 60_000, Intent.INFORM)
    write(agents, "kid", "lead", "the child's words")
    agents.supervisor.resume("lead", None)
    assert len(agents.prompt("lead")) < 40 * 1024
    assert "the child's words" in agents.prompt("lead")
    (waiting, *_) = agents.supervisor.peek_inbox("lead")
    assert agents.supervisor.message_for("lead", waiting.id).text == "x" * 60_000
    with pytest.raises(NotFound, match=f"no message {waiting.id} has come for you"):
        agents.supervisor.message_for("kid", waiting.id)


def ring(agents, turns):
    """Let two agents wake each other, so many turns each."""
    for _ in range(turns):
        write(agents, "anna", "bob", "your turn")
        agents.finish("bob")
        write(agents, "bob", "anna", "your turn")
        agents.finish("anna")


@pytest.fixture
def pair(new_agents):
    agents = new_agents(limits={"wakes": 3, "wake_window": 100.0})
    agents.spawn("anna")
    agents.spawn("bob", parent="anna")
    return agents


def test_a_ring_of_agents_that_wake_each_other_ends_with_an_error_to_the_sender(pair):
    ring(pair, 3)
    with pytest.raises(LimitReached, match=r"messages alone have started the last 3 turns of bob: it takes none for \d+ s"):
        write(pair, "anna", "bob", "once more")
    assert pair.state("bob") == "idle"
    pair.clock.time += 100
    write(pair, "anna", "bob", "after the window")
    assert pair.state("bob") == "running"


def test_a_persons_prompt_counts_anew(pair):
    ring(pair, 3)
    pair.supervisor.send("bob", "go on")
    write(pair, "anna", "bob", "now it may be written to")
    pair.finish("bob")
    assert pair.state("bob") == "running"
    pair.finish("bob")
    assert asleep(pair, "bob") is None


def remind(agents, name):
    reminders = Reminders(agents.registry)
    reminders.add(agents.agent(name), ReminderWish("of something", 0))
    agents.clock.time += 1
    end_due(agents.registry, reminders.tell_due)


def test_what_cannot_be_refused_is_put_off_and_told(pair):
    """A reminder, a child's report: nothing accepted is lost."""
    ring(pair, 3)
    remind(pair, "bob")
    assert pair.state("bob") == "queued"
    (told,) = [text for _, text in pair.told("bob", "turn:waiting")]
    assert "messages alone have started its last 3 turns" in told
    pair.registry.admit()
    remind(pair, "bob")
    assert len(pair.told("bob", "turn:waiting")) == 1
    pair.restart()
    assert pair.state("bob") == "queued"
    pair.clock.time += 100
    pair.registry.admit()
    assert pair.state("bob") == "running"
    assert "of something" in pair.prompt("bob")


def test_a_person_wakes_one_that_was_put_off(pair):
    ring(pair, 3)
    remind(pair, "bob")
    pair.supervisor.send("bob", "now")
    assert pair.state("bob") == "running"


def test_reminders_that_are_due_at_once_fill_no_inbox(new_agents):
    agents = new_agents(limits={"waiting_items": 3})
    agents.spawn("bob")
    agents.supervisor.suspend("bob")
    for _ in range(3):
        remind(agents, "bob")
    with pytest.raises(LimitReached, match="bob has 3 messages waiting: read them first"):
        remind(agents, "bob")


def test_no_limit_of_wakes(new_agents):
    agents = new_agents(limits={"wakes": 0})
    agents.spawn("anna")
    agents.spawn("bob", parent="anna")
    ring(agents, 10)
    assert agents.turn("bob").number == 10


def test_a_family_has_an_end(new_agents):
    agents = new_agents(limits={"family": 3})
    agents.spawn("boss")
    agents.spawn("kid", "task", parent="boss")
    agents.spawn("grandkid", "task", parent="kid")
    agents.spawn("other", "task", parent="boss")
    with pytest.raises(LimitReached, match="boss has 3 descendants already"):
        agents.spawn("more", "task", parent="grandkid")
    agents.supervisor.end("other")
    agents.fall("other")
    agents.spawn("more", "task", parent="grandkid")
    agents.spawn("stranger")


def test_a_reminder_that_is_due_on_a_full_disk_is_told_later(agents):
    reminders = Reminders(agents.registry)
    agents.spawn("bob")
    reminders.add(agents.agent("bob"), ReminderWish("stretch", 10.0))
    agents.clock.time += 20
    agents.store.failing = True
    end_due(agents.registry, reminders.tell_due)
    assert agents.runner.admissions[-1] > agents.clock.time
    agents.store.failing = False
    end_due(agents.registry, reminders.tell_due)
    assert agents.state("bob") == "running"
    assert "stretch" in agents.prompt("bob")


@pytest.fixture
def failed(agents):
    """An agent `kid` that has failed, a child of `lead`, which is one of `top`; its sibling `peer` works."""
    for name, parent in [("top", None), ("lead", "top"), ("peer", "lead"), ("kid", "lead")]:
        agents.spawn(name, f"task of {name}", parent=parent)
    agents.fall("kid", errors="it broke")
    return agents


@pytest.mark.parametrize("ancestor", ["lead", "top"])
def test_a_message_of_an_ancestor_lets_a_failed_agent_work_again(failed, ancestor):
    failed.supervisor.message(failed.agent(ancestor), "kid", "try it so")
    assert failed.state("kid") == "running"
    assert "task of kid" in failed.prompt("kid"), "its program never heard it"
    assert "try it so" in failed.prompt("kid")


def test_others_are_told_who_can_let_a_failed_agent_work_again(failed):
    for intent in (Intent.REQUEST, Intent.REPLY):
        with pytest.raises(Refused, match="kid has failed: a message of its parent lead or the operator"):
            failed.supervisor.message(failed.agent("peer"), "kid", "hi", intent)
    failed.supervisor.message(failed.agent("peer"), "kid", "for later", Intent.INFORM)
    assert failed.state("kid") == "failed"


def test_the_third_equal_failure_ends_an_ancestors_tries(failed):
    for _ in range(2):
        failed.supervisor.message(failed.agent("lead"), "kid", "again")
        failed.fall("kid", errors="it broke")
    with pytest.raises(LimitReached, match=r"last 3 turns of kid have failed alike \('.*it broke'\)"):
        failed.supervisor.message(failed.agent("lead"), "kid", "again")
    failed.supervisor.send("kid", "a person decides")
    failed.fall("kid", errors="something else")
    failed.supervisor.message(failed.agent("lead"), "kid", "another failure, another try")
    assert failed.state("kid") == "running"


def test_a_message_of_the_parents_that_waits_when_a_turn_fails_is_the_next_turn(failed):
    failed.families.waits.register(failed.agent("lead"), None, WaitMode.ALL, None, None)
    failed.finish("lead")
    failed.supervisor.message(failed.agent("lead"), "peer", "and this")
    failed.supervisor.message(failed.agent("top"), "peer", "from above")
    failed.fall("peer")
    assert (failed.state("peer"), failed.state("lead")) == ("running", "idle"), "it has not finished"
    assert failed.prompt("peer") == "task of peer", "its program never heard it"
    failed.finish("peer")
    assert "and this" in failed.prompt("peer")
    failed.finish("peer")
    assert "turn 3, success" in failed.prompt("lead")
