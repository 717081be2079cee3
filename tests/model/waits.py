"""Has the model's agents wait for others, for agents that must succeed first, and for the operator."""

# mypy: disable-error-code="attr-defined,has-type"

from tests.model.records import Refusal, Wait
from tests.model.reports import GATHERED


class Waits:
    """The part of `reference.World` that has agents wait, and tells the state of the agents that are waited for."""

    def wait(self, name, names=None, mode="all", timed=False):
        """An agent waits for others, by default its children; returns the tokens of their results if that is over."""
        agent = self.find(name)
        told = [item.about[0] for item in agent.inbox if item.about is not None]
        if names is None:
            members = [child for child in self.children_of(agent) if child.state != "ended" or child in told]
        else:
            members = self.those_awaited(agent, list(dict.fromkeys(names)))
        if not members or self.closes_circle(agent, members):
            raise Refusal("Refused")
        taken = [item for item in agent.inbox if item.about is not None and item.about[0] in members]
        older = [wait for wait in self.waits_of(agent) if set(wait.members) == set(members) and wait.mode == mode]
        wait = Wait(agent, members, mode, timed, [(*item.about, item.tokens) for item in taken])
        wait.reports += [report for other in older for report in other.reports]
        if taken or not self.is_over(wait):
            self.commit()
        agent.inbox = [item for item in agent.inbox if item not in taken]
        self.waits = [other for other in self.waits if other not in older]
        if self.is_over(wait):
            return self.results(wait)
        self.waits.append(wait)
        self.follow_up()
        return None

    def those_awaited(self, agent, names):
        found = [self.find(name) for name in names]
        root = self.root(agent)
        return [one for one in found if one not in self.lineage(agent) and self.root(one) == root]

    def closes_circle(self, agent, members):
        found = list(members)
        for one in found:
            awaited = [member for wait in self.waits_of(one) for member in wait.members]
            found += [other for other in awaited + one.needs * (one.state != "ended") if other not in found]
        return agent in found

    def end_due(self):
        """Wake the agents whose waits have lasted long enough; a wake that can't be stored is tried again."""
        for wait in [wait for wait in self.waits if wait.due]:
            if wait in self.waits:
                try:
                    self.commit()
                except Refusal:
                    return
                self.wake(wait)
                self.follow_up()

    def decide_waits(self):
        """Wake the agents whose waits are over, and say whether there were any."""
        before = len(self.waits)
        self.waits = [wait for wait in self.waits if self.works(wait.agent)]
        for wait in list(self.waits):
            if self.is_over(wait):
                self.wake(wait)
        return len(self.waits) < before

    def wake(self, wait):
        self.waits.remove(wait)
        self.accept(wait.agent, "message", *self.results(wait), wakes=True)

    def is_over(self, wait):
        finished = sum(map(self.has_finished, wait.members))
        held = sum(map(self.is_held, wait.members)) if wait.mode == "all" else 0
        return finished > 0 and (wait.mode == "any" or finished + held == len(wait.members))

    def is_held(self, agent):
        """Whether an agent goes on only when a person acts."""
        if agent.state == "suspended":
            return self.is_there(agent)
        if agent.state in {"idle", "failed"} and (waits := self.waits_of(agent)):
            return all(not wait.timed and all(map(self.is_held, wait.members)) for wait in waits)
        return agent.state in {"idle", "failed"} and agent in self.questions and not self.waits_of(agent)

    def has_finished(self, agent):
        """Whether an agent goes on no more by itself."""
        if not self.is_there(agent) or agent.state == "ended":
            return True
        return agent.state in {"idle", "failed"} and not self.waits_of(agent) and agent not in self.questions

    def results(self, wait):
        """Return the tokens of a wake: the result of each member's newest turn, and the reports on their earlier turns."""
        newest = [(member, member.turn.number) for member in wait.members if self.is_there(member) and member.turn]
        told = [self.result_of(member) for member in wait.members]
        told += [tokens for *about, tokens in wait.reports if tuple(about) not in newest]
        return [token for tokens in told for token in tokens]

    def result_of(self, agent):
        if not self.is_there(agent):
            return [f"removed:{agent.name}"]
        head = f"member:{agent.name}:{agent.state}:{agent.turn and agent.turn.number}:{self.said(agent)}"
        return [head, *(agent.turn.result if agent.turn else ())]

    def said(self, agent):
        """The outcome of an agent's newest turn, as others are told it."""
        if agent.turn is None:
            return "no turn" if agent.state == "failed" else "no turn yet"
        if agent.turn.outcome != "success":
            return agent.turn.outcome or "still running"
        if agent.state != "ended" and (agent in self.questions or self.waits_of(agent)):
            return "not done"
        if agent.judged[0] == agent.turn.number and agent.judged[1] != "passed":
            return "not done"
        return "failed" if agent.turn.completed == "failed" else "success"

    def decide_needs(self):
        """Let an agent fail that has a need which will never be met, and say whether there was one."""
        for agent in self.agents.values():
            if agent.state == "queued" and agent.needs:
                met = {need: self.has_succeeded(need) for need in agent.needs}
                agent.needs = [need for need in agent.needs if met[need] is None]
                if False in met.values():
                    agent.state, agent.needs = "failed", []
                    parent = self.agents.get(agent.parent)
                    if parent and not any(agent in wait.members for wait in self.waits_of(parent)):
                        self.tell(parent, f"nothing:{agent.name}", **GATHERED)
                    return True
        return False

    def has_succeeded(self, agent):
        """Say whether an agent that others need has succeeded; None: that isn't decided yet."""
        if not self.is_there(agent):
            return False
        if not self.has_finished(agent):
            return None
        is_stopped = agent.judged == (agent.turn and agent.turn.number, "stopped", agent.judged[2])
        if agent.state == "idle" and (is_stopped or self.said(agent) in {"no turn yet", "interrupted"}):
            return None
        return self.said(agent) == "success"

    def waits_of(self, agent):
        return [wait for wait in self.waits if wait.agent is agent]

    # Questions to the operator

    def ask(self, name):
        agent = self.find(name)
        if len(self.questions) + len(self.operator) >= self.waiting:
            raise Refusal("LimitReached")
        self.commit()
        self.questions.append(agent)

    def answer(self, index, token):
        agent = self.questions[index]
        self.check_takes(agent)
        self.commit()
        del self.questions[index]
        self.accept(agent, "message", token, decided=True)
        self.follow_up()

    def dismiss(self, index):
        self.commit()
        agent = self.questions.pop(index)
        turn, is_open = agent.turn, agent in self.questions or agent.unread or agent.checking or self.waits_of(agent)
        if agent.state in {"idle", "suspended"} and not is_open and turn.unsettled:
            if self.is_to_be_checked(agent):
                agent.state = "queued" if agent.state == "idle" else agent.state
            elif turn.outcome != "interrupted" or turn.stop != "suspend":
                self.report(agent, turn)
        self.follow_up()
