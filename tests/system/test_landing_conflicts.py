"""Several agents' work in conflict with one branch: one at a time is sent to rebase."""

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit
from tests.system.test_landing import me

__all__ = ["app"]


def test_one_agent_at_a_time_is_sent_to_rebase(daemon, app):
    me(daemon, app)
    daemon.start(config="[turns]\nmax_running = 1\n")
    for name in ("one", "two", "three"):
        daemon.spawn(name, app, commit("same.txt", name), "--clone")
    busy = daemon.workspace()
    daemon.ok("spawn", "busy", "-w", busy, "/shell while [ ! -e go ]; do sleep 0.02; done")
    wait_until(lambda: daemon.show("busy")["state"] == "running", "the turn that two waits for")
    said = daemon.ctl("merge", "one", "two", "three")
    assert "; two was told, and is to solve it\n" in said.err, said
    later = "; two solves its own conflict with main first; when that has landed: substratctl merge three\n"
    assert later in said.err, said
    assert (daemon.show("two")["state"], daemon.show("three")["state"]) == ("queued", "idle")
    (busy / "go").touch()
    daemon.ok("wait", "busy", "two")
    assert "; three was told, and is to solve it\n" in daemon.ctl("merge", "three").err, "two has done nothing about it"
