"""Turns that are frozen because a protected path was replaced go on together; no process runs here."""

from dataclasses import replace

from substrat.core.agents.lifecycle import Event, Phase


def freeze(house, name, *paths):
    house.spawn(name, "work")
    house.begin(name)
    agent = house.agent(name)
    with house.registry.change("protected path replaced") as change:
        change.step(change.put_turn(agent, replace(agent.turn, replaced=paths)), Event.FREEZE)


def test_resuming_one_resumes_all_that_are_frozen_for_the_same_path_and_no_other(house):
    for name, path in (("anna", "/w/.envrc"), ("bob", "/w/.envrc"), ("carl", "/w/.vscode")):
        freeze(house, name, path)
    house.spawn("dora", "work")
    house.begin("dora")
    house.supervisor.freeze("dora")
    house.supervisor.resume("bob", None)
    phases = [house.agent(name).phase for name in ("anna", "bob", "carl", "dora")]
    assert phases == [Phase.RUNNING, Phase.RUNNING, Phase.FROZEN, Phase.FROZEN]
    assert house.turn("anna").replaced is None
    assert house.told("anna")[-1] == ("agent:resumed", "resumed with bob")
    house.supervisor.resume("dora", None)
    assert house.agent("carl").phase == Phase.FROZEN


def test_resuming_one_resumes_those_that_share_any_of_its_paths(house):
    freeze(house, "anna", "/w/.envrc", "/w/.git/config")
    freeze(house, "bob", "/w/.git/config", "/v/.envrc")
    freeze(house, "carl", "/v/.envrc")
    house.supervisor.resume("anna", None)
    assert [house.agent(name).phase for name in ("anna", "bob", "carl")] == [Phase.RUNNING, Phase.RUNNING, Phase.FROZEN]
