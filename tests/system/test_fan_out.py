"""A lead with fifty children, two of which have children of their own, beside a daemon that is killed again and again."""

import pytest

from tests.system.test_messages import prompts, tool

CONFIG = "[limits]\nchildren = 50\nfamily = 60\n[turns]\nmax_running = 12\n"
PLAIN = [f"kid{number:02}" for number in range(48)]
LEADS = {"east": ["east.a", "east.b"], "west": ["west.a", "west.b"]}
LEAVES = [name for names in LEADS.values() for name in names]
KILLS = (4, 14, 24, 34, 44)
"""How many of the plain children have finished at each kill; the first comes while the lead still spawns others."""


def task(name):
    """A child's script: it waits for its file, and says its own result."""
    return f"/shell while [ ! -e {name} ]; do sleep 0.1; done\n/say the result of {name}"


def lead_of(names, said):
    """A lead's script: a child for each name, and a wait for all of them."""
    children = [tool("spawn_agent", name=name, prompt=task(name)) for name in names]
    return "\n".join([*children, tool("wait_agents", note=f"all\n{tool('complete', result=said)}")])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_fifty_children_cost_their_lead_two_turns_beside_five_kills(daemon, until):
    daemon.start(config=CONFIG)
    work = daemon.workspace()
    for name in [*PLAIN[:4], *LEAVES]:
        (work / name).touch()
    branches = [tool("spawn_agent", name=name, prompt=lead_of(names, f"both of {name}")) for name, names in LEADS.items()]
    script = "\n".join([*branches, lead_of(PLAIN, "the synthesis")])
    daemon.ok("spawn", "lead", "-w", work, "--prompt-file", "-", stdin=script.encode())
    for done in KILLS:
        for name in PLAIN[:done]:
            (work / name).touch()
        until(lambda done=done: sum(one["state"] == "idle" for one in plain(daemon)) >= done, f"{done} results", 90.0)
        daemon.kill()
        daemon.start(config=CONFIG)
    for name in PLAIN:
        (work / name).touch()
    assert daemon.ctl("wait", "lead", "--timeout", "200").code == 0
    check(daemon)


def plain(daemon):
    return [one for one in daemon.ok("ls") if one["name"] in PLAIN]


def check(daemon):
    first, wake = prompts(daemon, "lead")
    assert daemon.show("lead")["turn"]["number"] == 2
    assert "wait_agents" in first
    for name in PLAIN:
        assert wake.count(f"{name} (idle): turn 1, success\n\n> the result of {name}\n") == 1
    for name in LEADS:
        assert wake.count(f"{name} (idle): turn 2, success\n\n> both of {name}\n") == 1
    assert wake.count("\n> ") == 50, "the results of the children, and no others"
    for name, leaves in LEADS.items():
        (_, told) = prompts(daemon, name)
        assert all(told.count(f"> the result of {leaf}\n") == 1 for leaf in leaves)
        assert told.count("\n> ") == 2
    turns = {name: len(daemon.events(name, "turn:ended")) for name in ("lead", *PLAIN, *LEADS, *LEAVES)}
    assert turns == {**dict.fromkeys(turns, 1), **dict.fromkeys(("lead", *LEADS), 2)}
    assert [len(daemon.events(name, "wait:woke")) for name in ("lead", *LEADS)] == [1, 1, 1]
    assert daemon.tool("lead")[-1].startswith("noted"), "the result of the second turn"
    assert daemon.waits() == []
