"""What the model's agents are told of the ends of others' turns."""

# mypy: disable-error-code="attr-defined"

from tests.model.admission import PAUSES

GATHERED = {"starts_turn": False, "gathered": True}
"""What is told of the end of a child's task."""


class Reports:
    """The part of `reference.World` that tells them."""

    def report(self, child, turn):
        """Tell the agent that gave a child its prompt, and those that await an answer, how the turn ended.

        A turn that was only suspended isn't over, nor is the work of an agent that will be woken. One that asks the
        operator hasn't done it yet: that is told to all but those who wait for it, and the result later. Each agent is
        told the result once, and what else it answers.
        """
        goes_on = child.state not in {"failed", "ended"}
        asks = goes_on and child in self.questions
        if goes_on and (self.waits_of(child) or any(item.wakes for item in child.inbox)):
            turn.unsettled = True
            return
        turn.unsettled = asks
        if turn.stop in PAUSES and turn.outcome == "interrupted":
            return
        told = set()
        requests = [item for item in child.given if item.awaited]
        for item in sorted(turn.tasks + requests, key=lambda item: item.number):
            answers = item.kind == "message"
            if not answers and item.sender in told:
                continue
            head = f"answer:{child.name}" if answers else f"report:{child.name}:{turn.number}:{self.said(child)}"
            about, tokens = (child, turn.number), [head, *(turn.result if item.sender not in told else ())]
            told.add(item.sender)
            item.awaited = item.awaited and asks
            waits = [wait for wait in self.waits_of(item.sender) if child in wait.members]
            if not waits:
                gathers = not answers and item.sender.name == child.parent
                self.tell(item.sender, *tokens, about=about, **GATHERED if gathers else {})
            for wait in waits if not asks else ():
                wait.reports.append((*about, tokens))
        self.tell_parent(child, turn, told)

    def tell_parent(self, child, turn, told):
        """A child that has failed at another one's task is its parent's to hear of."""
        parent = self.agents.get(child.parent)
        if child.state != "failed" or parent is None or parent in told:
            return
        about, tokens = (child, turn.number), [f"report:{child.name}:{turn.number}:{self.said(child)}", *turn.result]
        waits = [wait for wait in self.waits_of(parent) if child in wait.members]
        if not waits:
            self.tell(parent, *tokens, about=about, **GATHERED)
        for wait in waits:
            wait.reports.append((*about, tokens))

    def is_urged(self, agent):
        """Whether a message of an ancestor's waits for an agent."""
        above = self.lineage(agent)[1:]
        return any(item.kind == "message" and item.starts_turn and item.sender in above for item in agent.inbox)
