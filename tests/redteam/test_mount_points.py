"""Mount points that bubblewrap makes below directories that agents write, where it follows links (CVE-2026-87766)."""

import pytest

from sandbox import host
from tests.support.optional import present


@pytest.fixture
def followed(house):
    """A house whose bubblewrap follows links; one that is mended needs none of these refusals."""
    if not host.follows_links(present(host.find_bubblewrap())):
        pytest.skip("this bubblewrap follows no links")
    return house.start()


def test_nothing_is_bound_below_a_directory_that_an_agent_may_write(followed):
    work = followed.workspace()
    (work / "inner" / "deep").mkdir(parents=True)
    refused = followed.ctl("spawn", "a", "-w", work, "--bind-ro", work / "inner" / "deep")
    assert (refused.code, "because a may write there" in refused.error) == (1, True), refused
    assert "install bubblewrap 0.12.0 or newer" in refused.error
    assert followed.ok("ls") == []
    assert "CVE-2026-87766" in followed.log


def test_an_agent_whose_bind_another_can_lead_elsewhere_by_now_has_no_more_turns(followed):
    data = followed.workspace("data")
    (data / "x" / "y").mkdir(parents=True)
    binds = ("--bind-ro", data, "--bind-ro", data / "x" / "y")
    followed.ok("spawn", "reader", "-w", followed.workspace(), *binds, "--wait", "/shell true")
    assert followed.show("reader")["turn"]["outcome"] == "success"
    followed.ok("spawn", "writer", "-w", data / "x")
    followed.ctl("send", "reader", "--wait", "/shell true")
    found = followed.show("reader")
    assert (found["attention"]["kind"], "because writer may write there" in found["turn"]["error"]) == ("failed", True)
    refused = followed.ctl("exec", "reader", "--", "true")
    assert (refused.code, "because writer may write there" in refused.error) == (1, True)
    followed.ok("end", "writer")
    assert followed.ok("send", "reader", "--wait", "/shell true")["turn"]["outcome"] == "success"
