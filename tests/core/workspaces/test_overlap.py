"""Who may work beside whom, where directories overlap: no agent writes the rules of one that has more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat.core.agents.rights import Policy, SharedPath
from substrat.core.workspaces import overlap
from substrat.core.workspaces.overlap import Claim

NONE, HOST = Policy(Network.NONE), Policy(Network.HOST)
LESS, MORE = Policy(Network.FILTERED, ("a.test",)), Policy(Network.FILTERED, ("a.test", "b.test"))
OTHER = Policy(Network.FILTERED, ("c.test",))


def bound(policy, path, *, writable):
    return Policy(policy.network, policy.allow, (*policy.binds, SharedPath(path, writable)))


def claim(name, workspace, policy=NONE):
    return Claim(name, workspace, policy)


def said(found):
    return [(one.other.name, one.path, one.is_same, one.is_mixed) for one in found]


@pytest.mark.parametrize(("mine", "theirs", "found"), [
    (("/p", NONE), ("/p", HOST), [("b", "/p", True, True)]),
    (("/p", LESS), ("/p", MORE), [("b", "/p", True, True)]),
    (("/p", LESS), ("/p", Policy(Network.FILTERED, ("a.test",))), [("b", "/p", True, False)]),
    (("/p", NONE), ("/p/sub", NONE), [("b", "/p/sub", False, False)]),
    (("/p/sub", NONE), ("/p", NONE), [("b", "/p/sub", False, False)]),
    (("/p", NONE), ("/pp", HOST), []),
    (("/p", NONE), ("/q", bound(HOST, "/p/x", writable=True)), [("b", "/p/x", False, True)]),
    (("/p", NONE), ("/q", bound(HOST, "/p", writable=False)), [("b", "/p", False, True)]),
    (("/p", bound(NONE, "/d", writable=True)), ("/q", bound(HOST, "/d/e", writable=False)), [("b", "/d/e", False, True)]),
    (("/p", bound(NONE, "/d", writable=False)), ("/q", bound(HOST, "/d", writable=False)), []),
])  # fmt: skip
def test_what_is_shared(mine, theirs, found):
    assert said(overlap.overlaps(claim("a", *mine), [claim("b", *theirs)])) == found


REFUSED = {
    "less around": (("/p", NONE), ("/p/sub", HOST)),
    "less inside": (("/p/sub", NONE), ("/p", HOST)),
    "far inside": (("/p/x/y/z", LESS), ("/p", MORE)),
    "other lists": (("/p", OTHER), ("/p/sub", LESS)),
    "in what it may write": (("/q", bound(NONE, "/p", writable=True)), ("/p/sub", HOST)),
    "what it may write is inside": (("/q", bound(NONE, "/p/sub", writable=True)), ("/p", HOST)),
    "the workspace itself": (("/q", bound(NONE, "/p", writable=True)), ("/p", HOST)),
    "the other sees more": (("/p", NONE), ("/p/sub", bound(NONE, "/d", writable=False))),
}


@pytest.mark.parametrize(("less", "more"), REFUSED.values(), ids=REFUSED)
def test_who_has_less_never_writes_the_rules_of_who_has_more(less, more):
    less, more = claim("less", *less), claim("more", *more)
    told = {overlap.refusal_of_new(less, [more]), overlap.refusal_of_new(more, [less]), overlap.refusal(more, [less])}
    assert None not in told
    assert all("less" in text and "more" in text and "`substratctl end`" in text for text in told)


@pytest.mark.parametrize(("mine", "theirs"), [
    (("/p", NONE), ("/p", HOST)),
    (("/p", LESS), ("/p/sub", LESS)),
    (("/p", NONE), ("/q", HOST)),
    (("/q", bound(NONE, "/p", writable=False)), ("/p", HOST)),
    (("/p", NONE), ("/q", bound(HOST, "/p/sub", writable=True))),
])  # fmt: skip
def test_what_may_be(mine, theirs):
    mine, theirs = claim("a", *mine), claim("b", *theirs)
    assert overlap.refusal_of_new(mine, [theirs]) is overlap.refusal_of_new(theirs, [mine]) is None


policies = st.sampled_from(
    [NONE, HOST, LESS, MORE, OTHER, bound(NONE, "/p", writable=True), bound(HOST, "/p/s", writable=False)]
)
claims = st.builds(Claim, st.sampled_from("abc"), st.sampled_from(["/p", "/p/s", "/p/s/t", "/pp", "/q"]), policies)


@given(claims, claims)
def test_both_orders_are_judged_alike(mine, theirs):
    assert (overlap.refusal_of_new(mine, [theirs]) is None) == (overlap.refusal_of_new(theirs, [mine]) is None)
    assert [one.path for one in overlap.overlaps(mine, [theirs])] == [one.path for one in overlap.overlaps(theirs, [mine])]


@given(claims, st.lists(claims, max_size=6))
def test_what_isnt_refused_is_covered_told_or_apart(mine, others):
    if overlap.refusal_of_new(mine, others) is None:
        for other in others:
            for writer, ruled in ((mine, other), (other, mine)):
                reaches = any(
                    (path + "/").startswith(ruled.workspace + "/") or (ruled.workspace + "/").startswith(path + "/")
                    for path in writer.writable
                )
                assert not reaches or writer.workspace == ruled.workspace or writer.policy.allows(ruled.policy)


def test_the_sentences_are_bounded():
    many = [claim(f"b{number}", "/p", HOST) for number in range(30)]
    (note,) = overlap.notes(overlap.overlaps(claim("a", "/p"), many))
    assert note.startswith("shares /p with b0 (the network host), /p with b1")
    assert "and with 25 more" in note
    assert len(note) < 400
    assert list(overlap.notes(())) == []


def test_mixed_networks():
    found = overlap.overlaps(claim("a", "/p"), [claim("b", "/p", NONE), claim("c", "/p", HOST)])
    assert "c, which has the network host" in overlap.refusal_of_mixed(claim("a", "/p"), found)
    assert overlap.refusal_of_mixed(claim("a", "/p"), found[:1]) is None


@pytest.mark.parametrize(("mine", "theirs", "found"), [
    (("/a", NONE, ("/p/.git",)), ("/b", HOST, ("/p/.git",)), [("b", "/p/.git", False, True)]),
    (("/a", NONE, ("/p/.git",)), ("/p", HOST), [("b", "/p/.git", False, True)]),
    (("/a", NONE, ("/p/.git",)), ("/q", bound(HOST, "/p", writable=False)), [("b", "/p/.git", False, True)]),
    (("/a", NONE, ("/p/.git",)), ("/b", NONE, ("/p/.git",)), []),
    (("/a", NONE, ("/p/.git",)), ("/b", HOST, ("/q/.git",)), []),
])  # fmt: skip
def test_worktrees_of_one_repository_share_its_git_directory(mine, theirs, found):
    mine, theirs = Claim("a", *mine), Claim("b", *theirs)
    assert said(overlap.overlaps(mine, [theirs])) == found
    assert bool(overlap.overlaps(theirs, [mine])) == bool(found)
    # No rules lie there, so no agent is refused for those.
    assert overlap.refusal_of_new(mine, [theirs]) is overlap.refusal_of_new(theirs, [mine]) is None
    refused = overlap.refusal_of_mixed(mine, overlap.overlaps(mine, [theirs]))
    assert (refused is not None) == bool(found)
    assert not found or ("share /p/.git with b, which has the network host" in refused and "a clone" in refused)


def test_roots():
    others = [claim("b", "/p/s"), claim("c", "/d/e"), claim("d", "/q"), claim("e", "/p")]
    assert overlap.roots(claim("a", "/p", bound(NONE, "/d", writable=True)), others) == ("/d/e", "/p/s")
    assert overlap.roots(claim("a", "/p", bound(NONE, "/d", writable=False)), others) == ("/p/s",)
