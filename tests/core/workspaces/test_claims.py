"""The index finds the same claims as a comparison with each of them."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat.core.agents.rights import Policy, SharedPath
from substrat.core.workspaces import overlap
from substrat.core.workspaces.claims import Claims
from substrat.core.workspaces.overlap import Claim

paths = st.lists(st.sampled_from(["p", "p-", "p0", "q"]), max_size=4).map(lambda names: "/" + "/".join(names))
policies = st.builds(
    Policy,
    st.sampled_from([Network.NONE, Network.HOST]),
    st.just(()),
    st.lists(st.builds(SharedPath, paths, st.booleans()), max_size=2).map(tuple),
)
claims = st.builds(Claim, st.sampled_from("xyz"), paths, policies, st.lists(paths, max_size=1).map(tuple))
steps = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | claims), max_size=20)


def is_in(path, directory):
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


@given(st.dictionaries(st.sampled_from("abc"), claims), steps, claims, paths)
def test_it_answers_like_a_look_at_each_claim(first, steps, mine, path):
    index, kept = Claims(first), dict(first)
    for agent, claim in steps:
        if claim is None:
            index.drop(agent)
            kept.pop(agent, None)
        else:
            index.put(agent, claim)
            kept[agent] = claim
    others = [claim for agent, claim in kept.items() if agent != "b"]
    near = index.beside(mine, "b")
    for judge in (overlap.overlaps, overlap.ruling, overlap.roots, overlap.refusal_of_new):
        assert judge(mine, near) == judge(mine, others)
    assert set(index) == set(kept.values())
    assert set(index.holders(path)) == {
        agent for agent, one in kept.items() if path in {one.workspace, *one.git, *(bind.path for bind in one.policy.binds)}
    }
    around = {root for one in kept.values() for root in (*one.writable, *one.git) if is_in(path, root)}
    assert index.writable_around(path) == max(around, key=len, default=None)
