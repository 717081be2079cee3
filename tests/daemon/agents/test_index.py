"""Agents that change are found as if all had been loaded as they are now."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Agent, Outcome, Session, Turn
from substrat.core.agents.rights import Policy
from substrat.core.workspaces.clones import Clone
from substrat.daemon.agents.index import Index

IDS, NAMES, PLACES = "abcd", ("anna", "Anna", "bert"), ("/w", "/w/sub", "/x")
clones = st.builds(
    lambda place, former: Clone("a", "anna", place, "/r", "/r/.git", "/w", "substrat/anna", None, former_name=former),
    st.sampled_from(PLACES), st.none() | st.sampled_from(NAMES),
)  # fmt: skip
fields = st.fixed_dictionaries({
    "name": st.sampled_from(NAMES), "phase": st.sampled_from(Phase), "workspace": st.sampled_from(PLACES),
    "parent": st.none() | st.sampled_from(IDS), "clone": st.none() | clones,
})  # fmt: skip
changes = st.tuples(st.sampled_from(IDS), fields, st.sampled_from([None, "1", "2"]), st.sampled_from([None, *Outcome]))
steps = st.lists(changes | st.sampled_from(IDS) | st.sampled_from(PLACES), max_size=10)


def changed(agent, fields, number, outcome):
    """An agent's next record; no two agents have one turn or one session."""
    if number is None:
        return replace(agent, **fields, session=None, turn=None)
    turn = Turn(agent.id + number, agent.id, int(number), 0.0, outcome=outcome)
    return replace(agent, **fields, session=Session(agent.id + number), turn=turn)


def answers(index):
    return {
        "agents": {agent: index.claim(one) for agent, one in index.agents.items()},
        "called": {name: {agent.id for agent in index.like(name) if agent.name == name} for name in NAMES},
        "like": {name: {agent.id for agent in index.like(name)} for name in NAMES},
        "children": {agent: {one.id for one in index.children(agent)} for agent in IDS},
        "phases": {phase: {agent.id for agent in index.in_phases([phase])} for phase in Phase},
        "oldest first": [agent.id for agent in index.in_phases(Phase)] == list(index.agents),
        "turns": {agent + number: index.of_turn(agent + number) for agent in IDS for number in "12"},
        "sessions": {agent + number: index.of_session(agent + number) for agent in IDS for number in "12"},
        "places": {place: {agent.id for agent in index.meeting([place])} for place in (*PLACES, "/x/.git")},
        "claims": (set(index.claims), set(index.of_ended)),
    }


@given(steps)
def test_it_answers_as_if_it_had_been_made_anew(steps):
    index = Index([])
    git = {}
    for step in steps:
        if isinstance(step, tuple):
            agent, *change = step
            one = Agent(agent, "", Phase.IDLE, "", "auto", Policy(Network.NONE), 0.0)
            index.put(changed(index.agents.get(agent, one), *change))
        elif step in PLACES:
            git[step] = ("/x/.git",)
            index.note_git(step, git[step])
        elif step in index.agents:
            for child in index.children(step):
                index.put(replace(child, parent=None))
            index.drop(step)
    anew = Index(index.agents.values())
    for workspace, found in git.items():
        anew.note_git(workspace, found)
    assert answers(index) == answers(anew)
