"""Findings: what is accepted is the content that was found, and nothing that comes later."""

import pytest

from substrat.daemon.agents.findings import INCOMPARABLE, Findings, Found, found_in, roots_of
from substrat.errors import NotFound, Refused


class Desk:
    """An agent with a file in its workspace that is found again and again."""

    def __init__(self, house, directory):
        self.house = house
        house.spawn("anna", "go")
        self.findings = Findings(house.registry)
        self.file = directory / "evil"
        self.file.write_text("one")

    @property
    def agent(self):
        return self.house.agent("anna")

    @property
    def numbers(self):
        return [finding.number for finding in self.agent.findings]

    def find(self):
        found = found_in(
            str(self.file), "made by the agent", [str(self.file)], (str(self.file.parent), *roots_of(self.agent))
        )
        return self.findings.record(self.agent.id, None, [found])

    async def accept(self, *numbers):
        await self.findings.accept("anna", numbers, "ctl")


@pytest.fixture
def desk(house, tmp_path):
    return Desk(house, tmp_path)


async def test_the_same_content_is_told_once_and_other_content_again(desk):
    assert desk.find()
    assert not desk.find(), "it waits already"
    await desk.accept()
    assert not desk.find()
    desk.file.write_text("two")
    assert desk.find()
    assert len(desk.agent.findings) == 1


async def test_content_that_changes_while_a_finding_waits_gets_another_number(desk):
    desk.find()
    (first,) = desk.numbers
    desk.file.write_text("two")
    desk.find()
    (second,) = desk.numbers
    assert second != first
    with pytest.raises(NotFound, match="show anna"):
        await desk.accept(first)
    await desk.accept(second)
    assert not desk.find()


async def test_what_was_changed_since_is_refused_and_told_anew(desk):
    desk.find()
    other = Found("/elsewhere", "another")
    desk.findings.record(desk.agent.id, None, [other])
    first, second = desk.numbers
    desk.file.write_text("two")
    with pytest.raises(Refused, match=r"`substratctl show anna`"):
        await desk.accept()
    assert len(desk.agent.findings) == 2, "nothing was accepted"
    assert second in desk.numbers
    with pytest.raises(NotFound):
        await desk.accept(first)
    await desk.accept()
    assert not desk.find()
    desk.file.write_text("one")
    assert desk.find(), "that one was never accepted"


async def test_what_was_changed_and_changed_back_is_refused_once(desk):
    """A person may have looked at it in between."""
    desk.find()
    desk.file.rename(desk.file.with_name("kept"))
    desk.file.write_text("one")
    with pytest.raises(Refused):
        await desk.accept()
    await desk.accept()


async def test_what_cannot_be_compared_asks_again_and_says_so(desk):
    desk.file.write_bytes(b"\0" * (17 << 20))
    desk.find()
    assert desk.agent.findings[0].text.endswith(INCOMPARABLE)
    await desk.accept()
    assert desk.agent.findings == ()
    assert desk.find()


async def test_what_has_happened_is_told_each_time(desk):
    for _ in range(2):
        assert desk.findings.record(desk.agent.id, None, [Found("/w", "its protection was off")])
        await desk.accept()


async def test_nothing_is_accepted_for_a_finding_that_was_replaced_during_the_look(desk, monkeypatch):
    desk.find()
    look = desk.findings._refuse_changed

    def late(agent, wanted, now):
        desk.file.write_text("two")
        desk.find()
        look(desk.agent, wanted, now)

    monkeypatch.setattr(desk.findings, "_refuse_changed", late)
    with pytest.raises(Refused):
        await desk.accept()
    assert len(desk.agent.findings) == 1


async def test_an_acceptance_outlives_the_daemon_and_an_older_ones_is_asked_for_again(desk):
    desk.find()
    await desk.accept()
    desk.house.open()
    desk.findings = Findings(desk.house.registry)
    assert not desk.find()
    with desk.house.store.transaction():
        desk.house.store._db.execute("UPDATE findings SET digest = NULL, files = '[]'")
    assert desk.find()
