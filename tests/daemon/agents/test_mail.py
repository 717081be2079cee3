"""Limits on messages: shares of inboxes, sizes of deliveries, rings of agents that wake each other."""

import pytest

from substrat.core.agents.records import Intent
from substrat.daemon.agents import mail
from substrat.daemon.agents.due import end_due
from substrat.daemon.agents.reminders import Reminders, ReminderWish
from substrat.errors import LimitReached, NotFound


def write(house, sender, to, text):
    """Send a message that wakes its addressee, and that no turn's result answers."""
    return house.supervisor.message(house.agent(sender), to, text, Intent.REPLY)


def asleep(house, name):
    return mail.asleep_until(house.registry, house.agent(name))


def test_one_agent_fills_no_inbox(new_house):
    house = new_house(limits={"waiting_from_one": 2})
    house.spawn("eve")
    house.spawn("anna")
    house.spawn("bob")
    house.supervisor.suspend("bob")
    for _ in range(2):
        write(house, "eve", "bob", "x")
        write(house, "eve", "operator", "x")
    for to, whom in (("bob", "bob"), ("operator", "the operator")):
        with pytest.raises(LimitReached, match=f"2 messages of eve wait for {whom} already"):
            write(house, "eve", to, "x")
        write(house, "anna", to, "others are not in its way")
    house.supervisor.send("bob", "nor is the operator")


def test_messages_and_questions_to_the_operator_have_one_end(new_house):
    house = new_house(limits={"waiting_items": 2})
    house.spawn("eve")
    write(house, "eve", "operator", "x")
    write(house, "eve", "operator", "x")
    with pytest.raises(LimitReached, match="2 questions and messages wait for the operator already"):
        write(house, "eve", "operator", "x")


def test_a_delivery_has_a_size(house):
    house.spawn("eve")
    house.spawn("bob")
    house.supervisor.suspend("bob")
    for _ in range(20):
        write(house, "eve", "bob", "x" * 60_000)
    house.supervisor.resume("bob", None)
    assert len(house.prompt("bob")) < 10_000, "of a stranger"
    assert house.agent("bob").waiting == 20 - 2
    assert len(house.supervisor.take_inbox("bob")) == 2
    assert house.agent("bob").waiting == 20 - 4
    house.supervisor.message(house.agent("eve"), "bob", "the last", Intent.INFORM)
    prompt = "y" * 300_000
    house.supervisor.send("bob", prompt)
    house.finish("bob")
    for _ in range(8):
        house.finish("bob")
    assert prompt in house.prompt("bob"), "a person's prompt is whole"


def test_ten_strangers_leave_room_for_the_family(house):
    house.spawn("lead")
    house.spawn("kid", parent="lead")
    house.supervisor.suspend("lead")
    for number in range(10):
        house.spawn(f"eve{number}")
        house.supervisor.message(house.agent(f"eve{number}"), "lead", "x" * 60_000, Intent.INFORM)
    write(house, "kid", "lead", "the child's words")
    house.supervisor.resume("lead", None)
    assert len(house.prompt("lead")) < 40 * 1024
    assert "the child's words" in house.prompt("lead")
    (waiting, *_) = house.supervisor.peek_inbox("lead")
    assert house.supervisor.message_for("lead", waiting.id).text == "x" * 60_000
    with pytest.raises(NotFound, match=f"no message {waiting.id} has come for you"):
        house.supervisor.message_for("kid", waiting.id)


def ring(house, turns):
    """Let two agents wake each other, so many turns each."""
    for _ in range(turns):
        write(house, "anna", "bob", "your turn")
        house.finish("bob")
        write(house, "bob", "anna", "your turn")
        house.finish("anna")


@pytest.fixture
def pair(new_house):
    house = new_house(limits={"wakes": 3, "wake_window": 100.0})
    house.spawn("anna")
    house.spawn("bob")
    return house


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


def remind(house, name):
    reminders = Reminders(house.registry)
    reminders.add(house.agent(name), ReminderWish("of something", 0))
    house.clock.time += 1
    end_due(house.registry, reminders.tell_due)


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


def test_reminders_that_are_due_at_once_fill_no_inbox(new_house):
    house = new_house(limits={"waiting_items": 3})
    house.spawn("bob")
    house.supervisor.suspend("bob")
    for _ in range(3):
        remind(house, "bob")
    with pytest.raises(LimitReached, match="bob has 3 messages waiting: read them first"):
        remind(house, "bob")


def test_no_limit_of_wakes(new_house):
    house = new_house(limits={"wakes": 0})
    house.spawn("anna")
    house.spawn("bob")
    ring(house, 10)
    assert house.turn("bob").number == 10


def test_a_family_has_an_end(new_house):
    house = new_house(limits={"family": 3})
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.spawn("grandkid", "task", parent="kid")
    house.spawn("other", "task", parent="boss")
    with pytest.raises(LimitReached, match="boss has 3 descendants already"):
        house.spawn("more", "task", parent="grandkid")
    house.supervisor.end("other")
    house.fall("other")
    house.spawn("more", "task", parent="grandkid")
    house.spawn("stranger")


def test_a_reminder_that_is_due_on_a_full_disk_is_told_later(house):
    reminders = Reminders(house.registry)
    house.spawn("bob")
    reminders.add(house.agent("bob"), ReminderWish("stretch", 10.0))
    house.clock.time += 20
    house.store.failing = True
    end_due(house.registry, reminders.tell_due)
    assert house.runner.admissions[-1] > house.clock.time
    house.store.failing = False
    end_due(house.registry, reminders.tell_due)
    assert house.state("bob") == "running"
    assert "stretch" in house.prompt("bob")
