"""Members of runs as agents without places of their own."""

import trio

from substrat.core.families import plans
from substrat.daemon.agents.spawning import SpawnRequest


class FakeMembers:
    """Starts members and gives them tasks without sandboxes and clones, or fails as a test wants."""

    def __init__(self, agents):
        self.agents = agents
        self.failing = []
        self.asked = []
        self.is_lead_ready = True

    async def start(self, run, member, also):
        self.asked.append(member.name)
        await trio.lowlevel.checkpoint()
        if self.failing:
            raise self.failing.pop(0)
        lead = self.agents.registry.get(run.lead) if member.name != run.plan.lead else None
        prompt = None if member.name == run.plan.lead and run.plan.is_lead_last else member.prompt
        request = SpawnRequest(
            "/w", f"{run.name}.{member.name}", prompt=prompt, also=also, is_operators=not run.plan.hears(member)
        )
        self.agents.supervisor.spawn(request, lead)

    async def listed(self, run, member):
        await trio.lowlevel.checkpoint()
        if self.failing:
            raise self.failing.pop(0)
        return plans.with_group(run.plan, member.name, ["x", "y"])

    def is_ready(self, run, member):
        return self.is_lead_ready or member.name == run.plan.lead

    def check_size(self, plan):
        pass

    def give_task(self, run, member):
        self.agents.supervisor.send(f"{run.name}.{member.name}", member.prompt)

    def give_back(self, run, member):
        self.agents.supervisor.send(f"{run.name}.{member.returns_to}", "mend it")
