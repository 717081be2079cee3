"""Turns that are frozen because a protected path was replaced go on together; no process runs here."""

from dataclasses import replace

from substrat.core.agents.lifecycle import Event, Phase


def freeze(agents, name, *paths):
    agents.spawn(name, "work")
    agents.begin(name)
    agent = agents.agent(name)
    with agents.registry.change("protected path replaced") as change:
        change.step(change.put_turn(agent, replace(agent.turn, replaced=paths)), Event.FREEZE)


def test_resuming_one_resumes_all_that_are_frozen_for_the_same_path_and_no_other(agents):
    for name, path in (("anna", "/w/.envrc"), ("bob", "/w/.envrc"), ("carl", "/w/.vscode")):
        freeze(agents, name, path)
    agents.spawn("dora", "work")
    agents.begin("dora")
    agents.supervisor.freeze("dora")
    agents.supervisor.resume("bob", None)
    phases = [agents.agent(name).phase for name in ("anna", "bob", "carl", "dora")]
    assert phases == [Phase.RUNNING, Phase.RUNNING, Phase.FROZEN, Phase.FROZEN]
    assert agents.turn("anna").replaced is None
    assert agents.told("anna")[-1] == ("agent:resumed", "resumed with bob")
    agents.supervisor.resume("dora", None)
    assert agents.agent("carl").phase == Phase.FROZEN


def test_resuming_one_resumes_those_that_share_any_of_its_paths(agents):
    freeze(agents, "anna", "/w/.envrc", "/w/.git/config")
    freeze(agents, "bob", "/w/.git/config", "/v/.envrc")
    freeze(agents, "carl", "/v/.envrc")
    agents.supervisor.resume("anna", None)
    assert [agents.agent(name).phase for name in ("anna", "bob", "carl")] == [Phase.RUNNING, Phase.RUNNING, Phase.FROZEN]
