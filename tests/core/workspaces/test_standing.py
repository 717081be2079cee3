"""How an agent's head stands to a branch, and how the branch then takes its work."""

import pytest

from substrat.core.workspaces import standing
from substrat.core.workspaces.branch_holders import Holder
from substrat.core.workspaces.clones import Clone, PastLandings
from substrat.core.workspaces.landing import Landing, LandingMode
from substrat.core.workspaces.standing import AS_IS, MERGE, ONE, Standing

MOVED = Standing("tip", "tip", frozenset(), (), *[False] * 8)
SINCE = MOVED._replace(extends_begin=True)
LANDED = MOVED._replace(has_landed_commit=True, extends_landed=True)


def clone(**more):
    return Clone("id", "fix", "/t", "/app", "/app/.git", "/app", "substrat/fix", "main", "base", **more)


@pytest.mark.parametrize(
    ("found", "more", "mode", "start", "way"),
    [
        (SINCE, {}, LandingMode.MERGE, None, AS_IS),
        (SINCE, {}, LandingMode.SQUASH, None, ONE),
        (MOVED, {}, LandingMode.MERGE, None, MERGE),
        (MOVED._replace(begin=None), {}, LandingMode.SQUASH, None, AS_IS),
        # Work that has landed as one commit: what came after it lands as one, unless the agent has left that work behind.
        (LANDED, {"landings": PastLandings(landed_head="head")}, LandingMode.MERGE, "head", ONE),
        (
            LANDED._replace(extends_landed=False),
            {"landings": PastLandings(landed_head="head")},
            LandingMode.MERGE,
            None,
            MERGE,
        ),
        (
            LANDED._replace(has_landed_head=True),
            {"landings": PastLandings(landed_head="head")},
            LandingMode.MERGE,
            None,
            MERGE,
        ),
        (
            LANDED._replace(has_landed_commit=False),
            {"landings": PastLandings(landed_head="head")},
            LandingMode.MERGE,
            None,
            MERGE,
        ),
        # A person's uncommitted changes, which went along, don't land.
        (MOVED._replace(extends_base=True), {"with_wip": True}, LandingMode.MERGE, "base", ONE),
        (MOVED._replace(extends_base=True), {}, LandingMode.MERGE, None, MERGE),
    ],
)
def test_how_a_branch_takes_work(found, more, mode, start, way):
    assert (found.start(clone(**more)), found.way(Landing(1, "id", "main", mode), start)) == (start, way)


def test_a_branch_has_the_head_that_landed_as_another_commit_as_long_as_it_has_that_commit():
    earlier = clone(landings=PastLandings(landed_head="head", landed_commit="one"))
    assert LANDED.has_work(earlier, "head")
    assert not LANDED.has_work(earlier, "next")
    assert not MOVED.has_work(earlier, "head")


def test_what_git_says_is_read_and_half_of_it_is_refused():
    said = b"tip\ntip\n-\nyes\n" + b"-\n" * 6 + b"a\0b c\0\0end\0worktree /app\0branch refs/heads/main\0\0"
    found = standing.parse(said, "main", "/app/.git")
    assert (found.tip, found.has_intended, found.has_head, found.has_content) == ("tip", False, True, False)
    assert (found.names, found.holders) == ({"a", "b c"}, (Holder("/app", "checked out"),))
    assert standing.parse(b"-\n" * 10 + b"\0end\0", "main", "/app/.git").begin is None
    with pytest.raises(ValueError, match="tip"):
        standing.parse(said[:12], "main", "/app/.git")
