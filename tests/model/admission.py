"""How the model's turns begin, and what budgets hold back."""

# mypy: disable-error-code="attr-defined"

from collections import Counter

from tests.model.records import Item, Refusal

PAUSES = {"suspend", "budget"}
"""Why turns are stopped that are gone on with."""


class Admission:
    """The part of `reference.World` that lets turns begin, and stops those whose tool calls are used up.

    A budget is a pool of an agent and all below it: of turns, counted as they begin, and of tool calls.
    """

    def begin_turns(self):
        """Let agents that wait begin, as many as there is room for.

        First one of the family whose last turn began longest ago; in it the one that has waited longest.
        """
        self.begin_those_that_may()
        self.stop_turns()

    def begin_those_that_may(self):
        while len(self.running) < self.room:
            queued = [agent for agent in self.agents.values() if agent.state == "queued" and not self.is_out(agent)]
            ready = [agent for agent in queued if not agent.retry and not agent.needs and not agent.checking]
            if not ready:
                return
            try:
                self.commit()
            except Refusal:
                return  # it stays queued, the next change tries again
            first = min(ready, key=lambda agent: (self.last_of_family(agent), self.waits_since(agent)))
            self.begin(first)
            self.spend(first, "turns")

    def root(self, agent):
        return self.lineage(agent)[-1].name

    def last_of_family(self, agent):
        return max(other.begun for other in self.agents.values() if self.root(other) == self.root(agent))

    def waits_since(self, agent):
        return min(item.number for item in agent.inbox if item.starts_turn)

    # Budgets

    def budget(self, name, key):
        """Give an agent one more of something, or take its budget away."""
        agent = self.find(name)
        family = [one for one in self.agents.values() if agent in self.lineage(one)]
        if all(one.state == "ended" for one in family):
            raise Refusal("Refused")
        self.commit()
        if not agent.limits:
            agent.used = Counter()
        agent.limits = {**agent.limits, key: agent.limits.get(key, agent.used[key]) + 1} if key != "none" else {}
        self.follow_up()

    def owners(self, agent):
        return [one for one in self.lineage(agent) if one.limits]

    def spend(self, agent, key):
        for owner in self.owners(agent):
            owner.used[key] += 1

    def is_out(self, agent, *keys):
        spent = ((key, owner.used[key] >= most) for owner in self.owners(agent) for key, most in owner.limits.items())
        return any(is_out for key, is_out in spent if not keys or key in keys)

    def stop_turns(self):
        """Stop the turns that run where tool calls are used up, with a commit for each budget; a failed one comes later."""
        owners = {owner.name: owner for agent in self.running for owner in self.owners(agent)}
        for owner in owners.values():
            below = [agent for agent in self.running if owner in self.lineage(agent)]
            found = [agent for agent in below if agent.turn.stop is None and agent.stopping is None]
            if found and "tool_calls" in owner.limits and owner.used["tool_calls"] >= owner.limits["tool_calls"]:
                try:
                    self.commit()
                except Refusal:
                    continue
                for agent in found:
                    agent.turn.stop = "budget"

    def pause(self, agent):
        """A turn that was stopped for a budget is over: its agent waits to go on with it."""
        turn = agent.turn
        turn.unsettled, agent.state = True, "queued"
        if turn.knows:
            agent.ends.append((turn.outcome, None))
            asker = next((item.sender for item in turn.tasks), None)
            self.put(agent, Item(self.number(), "continuation", tuple(turn.tokens), quoted=True, sender=asker))
        else:
            agent.inbox += turn.items
            agent.given = [item for item in agent.given if item not in turn.items]
            turn.items = []

    def goes_on_already(self, agent):
        """Whether the prompt to go on with its last turn waits for an agent."""
        return any(item.kind == "continuation" for item in agent.inbox)
