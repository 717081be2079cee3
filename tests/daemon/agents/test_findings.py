"""Findings: what is accepted is the content that was found, and nothing that comes later."""

import os

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from substrat.daemon.agents import findings
from substrat.daemon.agents.findings import INCOMPARABLE, Findings, Found, found_in, listing, roots_of
from substrat.daemon.kernel import fingerprint
from substrat.daemon.kernel.inotify import EntryWatcher
from substrat.errors import DescriptorsUsedUp, NotFound, Refused


class Desk:
    """An agent with a file in its workspace that is found again and again."""

    def __init__(self, agents, files, directory):
        self.agents, self.files = agents, files
        agents.spawn("anna")
        self.findings = Findings(agents.registry, files)
        self.file = directory / "evil"
        self.file.write_text("one")

    @property
    def agent(self):
        return self.agents.agent("anna")

    @property
    def numbers(self):
        return [finding.number for finding in self.agent.findings]

    def find(self):
        found = found_in(
            str(self.file), "made by the agent", [str(self.file)], (str(self.file.parent), *roots_of(self.agent))
        )
        return self.findings.record(self.agent.id, None, [found])

    async def until_closed(self, number):
        await self.until(lambda: number not in self.numbers)

    async def until(self, is_so):
        while not is_so():
            await self.agents.registry.change_of(self.agent.id).wait()

    async def accept(self, *numbers):
        await self.findings.accept("anna", numbers, "ctl")


@pytest.fixture
def desk(agents, files, tmp_path):
    return Desk(agents, files, tmp_path)


def test_paths_are_listed_as_far_as_there_is_room():
    assert (listing(["/w/a"]), listing(["/w/a", "/w/b"])) == ("", "/w/a\n/w/b")
    *shown, last = listing([f"/w/{number}" + "x" * 4000 for number in range(1000)]).splitlines()
    assert (len(shown), last) == (3, "… 997 more")


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
    desk.agents.open()
    desk.findings = Findings(desk.agents.registry, desk.files)
    assert not desk.find()
    with desk.agents.store.transaction():
        desk.agents.store._db.execute("UPDATE findings SET digest = NULL, files = '[]'")
    assert desk.find()


async def test_a_finding_whose_file_is_gone_or_as_it_was_closes_by_itself(desk, nursery):
    desk.find()
    other = desk.file.with_name("rules")
    other.write_text("mine")
    was = (fingerprint.content_at(str(other), roots_of(desk.agent), fingerprint.Budget()),)
    other.write_text("the agent's")
    found = found_in(str(other), "changed by the agent", [str(other)], roots_of(desk.agent))
    desk.findings.record(desk.agent.id, None, [found._replace(was=was), Found("/w", "told each time")])
    first, second, third = desk.numbers
    nursery.start_soon(desk.findings.run)
    await wait_all_tasks_blocked()
    desk.file.unlink()
    await desk.until_closed(first)
    kept = other.with_name("kept")
    kept.write_text("mine")
    kept.replace(other)
    await desk.until_closed(second)
    assert desk.numbers == [third]
    told = [text for _, text in desk.agents.told("anna", "workspace:closed")]
    assert told == [f"gone, or as it was before: {path}" for path in (desk.file, other)]
    desk.file.write_text("two")
    await desk.findings.look_again()
    assert desk.numbers == [third], "nobody has found that"
    desk.file.write_text("one")
    await desk.until(lambda: desk.numbers == [third, first])
    desk.agents.open()
    assert set(desk.numbers) == {third, first}


async def test_the_newest_of_an_agents_closed_findings_can_open_again_and_the_others_are_forgotten(desk, monkeypatch):
    monkeypatch.setattr(findings, "_MOST", 2)
    for number in range(3):
        desk.file.write_text(f"{number}")
        desk.find()
        desk.file.rename(desk.file.with_name(f"kept{number}"))
        await desk.findings.look_again()
    assert [one.number for one in desk.agents.store.closed_findings()] == [2, 3]
    for number, opened in ((0, []), (1, [2]), (2, [3])):
        desk.agents.open()
        desk.findings = Findings(desk.agents.registry, desk.files)
        desk.file.with_name(f"kept{number}").replace(desk.file)
        await desk.findings.look_again()
        assert desk.numbers == opened
        desk.file.unlink()
        await desk.findings.look_again()
    desk.agents.supervisor.end("anna")
    desk.agents.supervisor.remove("anna")
    await desk.findings.look_again()
    monkeypatch.setattr(trio.to_thread, "run_sync", None)
    await desk.findings.look_again()  # without a thread, for there is nothing to look at


async def test_what_could_not_be_read_before_and_cannot_be_now_is_not_as_it_was(desk):
    found = found_in(str(desk.file), "changed by the agent", [str(desk.file)], roots_of(desk.agent))
    desk.findings.record(desk.agent.id, None, [found._replace(was=(fingerprint.UNREAD,))])
    desk.file.unlink()
    os.mkfifo(desk.file)
    await desk.findings.look_again()
    assert desk.numbers


async def test_a_look_without_descriptors_is_taken_again_at_the_next_change(desk, nursery, monkeypatch):
    desk.find()
    (number,) = desk.numbers
    failed = trio.Event()

    def short(*_):
        failed.set()
        raise DescriptorsUsedUp("none is left")

    with monkeypatch.context() as patched:
        patched.setattr(fingerprint, "of", short)
        nursery.start_soon(desk.findings.run)
        await failed.wait()
    desk.file.unlink()
    await desk.until_closed(number)


async def test_the_directory_of_a_finding_is_watched_no_longer_than_its_agent_is_there(desk, nursery, monkeypatch):
    watched, forgotten = trio.Event(), trio.Event()

    async def watch(*_):
        watched.set()
        return {"": 1}

    monkeypatch.setattr(EntryWatcher, "watch", watch)
    monkeypatch.setattr(EntryWatcher, "forget", lambda *_: forgotten.set())
    nursery.start_soon(desk.findings.run)
    await wait_all_tasks_blocked()
    desk.find()
    with trio.fail_after(10):
        await watched.wait()
        desk.agents.supervisor.end("anna")
        desk.agents.supervisor.remove("anna")
        await forgotten.wait()


async def test_nothing_closes_while_an_agent_that_could_put_it_back_works(desk, nursery):
    desk.find()
    desk.agents.spawn("bert", "go")
    nursery.start_soon(desk.findings.run)
    desk.file.unlink()
    await desk.findings.look_again()
    assert desk.numbers
    desk.agents.begin("bert")
    desk.agents.finish("bert")
    await desk.until_closed(desk.numbers[0])


async def test_what_is_gone_is_not_refused(desk):
    desk.find()
    (number,) = desk.numbers
    desk.file.unlink()
    await desk.accept(number)
    assert desk.numbers == []
    assert desk.agents.told("anna", "workspace:closed")
    assert not desk.agents.told("anna", "workspace:accepted")


async def test_a_refusal_rings_no_second_bell(desk):
    desk.find()
    (before,) = desk.agent.findings
    desk.agents.clock.time += 60
    desk.file.write_text("two")
    with pytest.raises(Refused):
        await desk.accept()
    (after,) = desk.agent.findings
    assert (after.number != before.number, after.time) == (True, before.time)


async def test_the_same_finding_of_all_who_share_the_workspace_is_accepted(desk):
    desk.agents.spawn("bert", "go")
    desk.agents.spawn("cleo", "go")
    bert, cleo = desk.agents.agent("bert"), desk.agents.agent("cleo")
    found = found_in(str(desk.file), "made by the agent", [str(desk.file)], (str(desk.file.parent), *roots_of(bert)))
    desk.findings.record(bert.id, None, [found, Found("/w", "of its own")])
    desk.find()
    await desk.accept()
    assert [one.text for one in desk.agents.agent("bert").findings] == ["of its own"]
    assert desk.agents.told("bert", "workspace:accepted") == [("workspace:accepted", f"accepted: {desk.file}")]
    assert not desk.findings.record(cleo.id, None, [found]), "found by a turn that ended later"
    desk.agents.spawn("dora", "go", workspace="/elsewhere")
    assert desk.findings.record(desk.agents.agent("dora").id, None, [found]), "it doesn't share the workspace"
    desk.file.write_text("two")
    assert desk.findings.record(cleo.id, None, [found_in(*found[:2], found.files, roots_of(cleo))])
