"""Mount points below directories that agents write: bubblewrap before 0.12.0 follows links there (CVE-2026-87766)."""

import os

from tests.support.waiting import wait_until

FLIP = """
import ctypes, os, sys, time
path, other = sys.argv[1].encode(), sys.argv[2].encode()
exchange = ctypes.CDLL(None).renameat2
open("flips", "w").close()
while os.path.exists("flips"):
    exchange(-100, path, -100, other, 2)
    time.sleep(0.0005)
"""


def flipping(daemon, writer, target):
    """Let an agent make `inner` a repository and exchange it for a link that leads out of sandboxes that are being made."""
    work = daemon.show(writer)["workspace"]
    os.symlink(f"/oldroot{target}", f"{work}/link")
    with open(f"{work}/flip.py", "w", encoding="utf-8") as file:
        file.write(FLIP)
    daemon.ok("send", writer, "/shell git init -q inner; python3 flip.py inner link")
    wait_until(lambda: os.path.exists(f"{work}/flips"), "the flips")
    return lambda: os.unlink(f"{work}/flips")


def test_a_bind_below_a_directory_that_an_agent_writes_is_made_and_holds(daemon):
    daemon.start()
    work = daemon.workspace()
    (work / "inner" / "deep").mkdir(parents=True)
    tries = "/shell touch inner/deep/x; touch inner/y"
    daemon.ok("spawn", "a", "-w", work, "--bind-ro", work / "inner" / "deep", "--wait", tries)
    assert (work / "inner" / "y").exists()
    assert not (work / "inner" / "deep" / "x").exists()
    assert daemon.ctl("exec", "a", "--", "touch", "inner/deep/x").code == 1


def test_a_link_that_flips_on_the_way_to_a_mount_point_leads_nothing_out(daemon):
    daemon.start()
    outside, work = daemon.workspace("outside"), daemon.workspace("data")
    (work / "inner" / "deep").mkdir(parents=True)
    daemon.ok("spawn", "writer", "-w", work, "--wait", "/shell true")
    binds = ("--bind", work, "--bind-ro", work / "inner" / "deep")
    daemon.ok("spawn", "reader", "-w", daemon.workspace(), *binds, "--wait", "/shell true")
    stop = flipping(daemon, "writer", outside)
    codes = [daemon.ctl("exec", "reader", "--", "true").code for _ in range(40)]
    stop()
    assert os.listdir(outside) == []
    assert set(codes) <= {0, 1}


def test_a_repository_that_is_made_and_flipped_during_a_turn_leads_nothing_out(daemon):
    daemon.start()
    outside, work = daemon.workspace("outside"), daemon.workspace("data")
    daemon.ok("spawn", "writer", "-w", work, "--wait", "/shell true")
    stop = flipping(daemon, "writer", outside)
    codes = [daemon.ctl("exec", "writer", "--", "true").code for _ in range(40)]
    stop()
    assert os.listdir(outside) == []
    assert set(codes) <= {0, 1}
