"""The methods of the operator socket without a socket, for agents that have no daemon."""

import json
from types import SimpleNamespace
from typing import Any

import msgspec

from substrat.daemon.agents.findings import Findings
from substrat.daemon.agents.inbox import Inbox
from substrat.daemon.sandboxes.person_git import PersonGit
from substrat.daemon.servers.kept_objects import KeptObjects
from substrat.daemon.servers.methods.request import Encoded, parse
from substrat.daemon.servers.methods.services import Services
from substrat.daemon.servers.methods.table import BY_NAME
from substrat.daemon.servers.objects import AgentObjects
from substrat.daemon.servers.operator import OperatorServer
from tests.support.files_here import FilesHere


async def _nothing(_agent):
    return {}


async def _no_look():
    """Look at no branches: no task does that here, and a list would wait for it each time."""


async def _no_settings(_agent):
    return PersonGit()


class OperatorMethods:
    """The methods for agents; `parts` are those of their room that a test needs beside the usual ones."""

    def __init__(self, agents, layout, **parts):
        self.agents = agents
        self.questions = Inbox(agents.registry)
        agents.families.targets.look = _no_look
        preparer: Any = SimpleNamespace(
            protector=SimpleNamespace(unfinished=_nothing),
            person=SimpleNamespace(read=_no_settings),
            machine=SimpleNamespace(filtered=None),
        )
        used: Any = {
            "state": SimpleNamespace(
                registry=agents.registry, layout=layout, findings=Findings(agents.registry, FilesHere()),
            ),
            "agents": SimpleNamespace(requests=agents.supervisor, inbox=self.questions, **parts),
            "families": agents.families, "objects": AgentObjects(
                agents.registry, agents.families.overview, KeptObjects(agents.registry, agents.families.waits)
            ),
            "sandboxes": SimpleNamespace(preparer=preparer, cgroups=SimpleNamespace(are_there=False)),
            "turns": SimpleNamespace(
                questions=SimpleNamespace(use=lambda _agent: None, first_process=lambda _agent: None)
            ),
        }  # fmt: skip
        self.server = OperatorServer(Services(**{**dict.fromkeys(Services._fields), **used}))

    async def ask(self, method, **params):
        no_connection: Any = None
        result = await self.server.perform(parse(BY_NAME[method], params), no_connection)
        return json.loads(b"".join(result.pieces) if isinstance(result, Encoded) else msgspec.json.encode(result))
