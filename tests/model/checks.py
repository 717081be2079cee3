"""How the model's agents are checked: a command decides whether their work is done."""

# mypy: disable-error-code="attr-defined"

from tests.model.admission import PAUSES
from tests.model.records import Item


class Checks:
    """The part of `reference.World` that has agents checked.

    An agent is queued while its check is still to come, whose outcome is `passed`, `failed` or `broken`: the last says
    nothing about the work, so the agent isn't sent back.
    """

    @property
    def checked(self):
        """The names of the agents whose checks wait or run."""
        return sorted(agent.name for agent in self.agents.values() if agent.checking and agent.state == "queued")

    def turn_over(self, agent, stopping):
        """Have the work of a turn that has succeeded checked: not while the agent waits, nor if it was stopped."""
        number, before, failures = agent.judged
        if agent.turn.outcome == "interrupted" and agent.turn.stop not in PAUSES and before == "again":
            agent.judged = (number, "stopped", failures)
        if agent.turn.outcome == "success" and agent.turn.completed == "failed":
            agent.judged = (0, "passed", 0)
        elif stopping in {"interrupt", "end"} and agent.turn.outcome == "success" and agent.retries is not None:
            agent.judged = (agent.turn.number, "stopped", failures if before == "again" else 0)
        elif not (agent in self.questions or self.waits_of(agent) or any(item.wakes for item in agent.inbox)):
            self.is_to_be_checked(agent)

    def is_to_be_checked(self, agent):
        """Have the check of an agent's work come next, and say whether there is one."""
        turn, (_, before, failures) = agent.turn, agent.judged
        if turn.outcome != "success" or turn.completed == "failed" or agent.retries is None:
            return False
        agent.judged = (turn.number, "waiting", failures if before == "again" else 0)
        turn.unsettled = True
        return True

    def judge(self, name, outcome, token):
        """The check has run; `token` is in what it has printed."""
        agent = self.agents[name]
        number, _, failures = agent.judged
        self.commit()
        if outcome == "failed" and failures < agent.retries:
            agent.judged = (number, "again", failures + 1)
            asker = next((item.sender for item in agent.turn.tasks), None)
            self.put(agent, Item(self.number(), "continuation", (token,), sender=asker))
            agent.state = "queued"
        else:
            agent.judged = (number, outcome, failures + (outcome != "passed"))
            if outcome == "passed":
                self.go_on(agent)
            else:
                agent.state = "queued" if self.is_urged(agent) and not agent.fails_alike else "failed"
            self.report(agent, agent.turn)
        self.follow_up()

    def stop_check(self, agent):
        """Who is interrupted or ended before the verdict has not done its work."""
        number, _, failures = agent.judged
        agent.judged = (number, "stopped", failures)
        self.report(agent, agent.turn)

    def check_again(self, agent):
        """A person lets an agent go on that may have failed for its check."""
        number, how, _ = agent.judged
        if how in {"failed", "broken"} and number == agent.turn.number:
            agent.judged, agent.turn.unsettled = (number, "waiting", 0), True
