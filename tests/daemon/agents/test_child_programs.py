"""Children of another program than their parent: who may have them, and what they have besides their parent's rights."""

from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.spec import Network
from substrat.core.netfilter.names import AllowList
from substrat.daemon.agents.allow_list import AllowLists
from substrat.daemon.agents.settings import Settings, WantedSettings
from substrat.errors import PolicyDenied, Refused

PROGRAMS = {"cursor": {"allow": ["c.net"]}, "claude": {"allow": ["a.com"], "model": "opus", "children": True}}


@pytest.fixture
def agents(new_agents):
    agents = new_agents(programs=PROGRAMS)
    agents.spawn("anna", allow=("x.org",))
    return agents


@pytest.fixture
def lists(agents):
    networks: Any = SimpleNamespace(allow=lambda *_: None)
    return AllowLists(agents.registry, networks)


def allowed(agents, name):
    return set(agents.agent(name).policy.allow)


def test_it_takes_the_operators_word(agents):
    with pytest.raises(PolicyDenied, match=r"anna may not start agents of codex.*programs.codex.children = true"):
        agents.spawn("kid", parent="anna", program="codex")
    agents.spawn("kid", parent="anna", program="claude")
    with pytest.raises(PolicyDenied, match=r"kid may not start agents of cursor, because it runs claude"):
        agents.spawn("grandkid", parent="kid", program="cursor")
    agents.spawn("grandkid", parent="kid")
    assert agents.agent("grandkid").settings.program == "claude"


def test_it_has_its_own_hosts_and_model_beside_its_parents_rights(agents):
    agents.spawn("kid", parent="anna", program="claude")
    agents.spawn("twin", parent="anna")
    assert allowed(agents, "kid") == {"c.net", "x.org", "a.com"}
    assert allowed(agents, "twin") == {"c.net", "x.org"}
    assert (agents.agent("kid").model, agents.agent("twin").model) == ("opus", "auto")
    with pytest.raises(PolicyDenied):
        agents.spawn("more", parent="anna", program="claude", allow=("y.org",))


def test_a_parent_without_a_network_gives_none(agents):
    agents.spawn("bert", network=Network.NONE)
    assert agents.spawn("kid", parent="bert", program="claude").policy.network is Network.NONE
    with pytest.raises(PolicyDenied):
        agents.spawn("more", parent="bert", program="claude", network=Network.FILTERED)


def test_its_hosts_stay_when_its_parent_loses_its_own(agents, lists):
    agents.spawn("kid", parent="anna", program="claude")
    lists.change("anna", (), ("x.org",))
    assert allowed(agents, "kid") == {"c.net", "a.com"}
    settings = Settings(agents.registry, lists)
    settings.change("anna", WantedSettings(allow=("z.org",)), "operator")
    assert allowed(agents, "kid") == {"a.com"}
    settings.change("kid", WantedSettings(allow=("a.com", "z.org")), "operator")
    lists.change("kid", (), ("a.com",))
    lists.change("kid", ("a.com",), ())
    assert AllowList.of(agents.agent("kid").policy.allow).covers(AllowList.of(("a.com",)))
    with pytest.raises(PolicyDenied):
        lists.change("kid", ("x.org",), ())


def test_another_program_begins_a_new_chat_with_its_model_and_its_hosts(agents, lists):
    settings = Settings(agents.registry, lists)
    agents.spawn("work", "x", allow=("x.org",))
    session = agents.begin("work")
    agents.finish("work")
    settings.change("work", WantedSettings(program="claude"), "ctl")
    now = agents.agent("work")
    assert (now.settings.program, now.model, now.session) == ("claude", "opus", None)
    assert set(now.policy.allow) == {"x.org", "a.com"}
    told = [text for _, text in agents.told("work")]
    assert f"a new chat begins, because claude can't go on with {session}, which stays" in told
    settings.change("work", WantedSettings(program="cursor", model="auto", allow=("y.org",)), "ctl")
    now = agents.agent("work")
    assert (now.settings.program, now.model, now.policy.allow) == ("cursor", "auto", ("y.org",))
    agents.supervisor.send("work", "more")
    with pytest.raises(Refused, match="work keeps its program until its turn is over"):
        settings.change("work", WantedSettings(program="claude"), "ctl")
    settings.change("work", WantedSettings(program="cursor"), "ctl")
