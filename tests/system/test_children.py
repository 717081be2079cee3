"""Where children of agents work: in clones that start at their parent's commit, in its directory, in one of their own."""

import json
import os

import pytest

from tests.system.test_clones import commit, git
from tests.system.test_messages import prompts, settled, tool


@pytest.fixture
def app(daemon):
    return daemon.workspace("app", git=True)


def idle(daemon, until, *names):
    until(lambda: all(daemon.show(name)["state"] == "idle" for name in names), f"the end of the turns of {names}")


def test_a_childs_clone_starts_at_its_parents_head_and_the_parent_takes_its_work_with_git(daemon, app, until):
    daemon.start()
    child = tool("spawn_agent", name="kid", prompt=f"/shell cat a.txt; ls; git log -1 --format=%s\n{commit('kid.txt')}")
    daemon.spawn("lead", app, f"{commit('a.txt')}\n/shell echo wip > wip.txt\n{child}", "--clone")
    idle(daemon, until, "lead", "kid")
    assert daemon.shell("kid").split()[:4] == ["new", "README.md", "a.txt", "add"]
    said = next(text for text in map(str, daemon.tool("lead")) if "kid" in text)
    assert "1 uncommitted file of yours is not in it" in said
    assert "workspace: clone" in said
    head = git(daemon, app, "rev-parse", "refs/substrat/kid/head")
    look = "/shell git branch -r; git merge -q agents/kid; ls; git cat-file -t " + head
    daemon.ok("send", "lead", "--wait", look)
    assert "agents/kid" in daemon.shell("lead")
    assert "kid.txt" in daemon.shell("lead")
    assert daemon.show("lead")["clone"]["head"] == head
    # The turn in which the work was kept midway counts all of it.
    turn = daemon.ok("diff", "lead", "--turn", "1")
    assert sorted(file["path"] for file in turn["files"]) == ["a.txt", "wip.txt"]


def test_a_lead_hears_what_a_child_has_made_and_can_take_it_in_the_same_turn(daemon, app, until):
    """What the child forgot to commit is a commit too."""
    daemon.start()
    kid = f"{commit('kid.txt')}; echo forgotten > rest.txt\n/say done"
    daemon.spawn("lead", app, "\n".join([tool("spawn_agent", name="kid", prompt=kid), tool("wait_agents")]), "--clone")
    until(lambda: settled(daemon, "lead", 2), "the wake")
    head, wip = git(daemon, app, "rev-parse", "refs/substrat/kid/head", "refs/substrat/kid/wip").split()
    made = f"+1 commit, {head[:7]} · 1 file uncommitted (wip {wip[:7]}) · not landed"
    assert f"kid (idle): turn 1, success; its work: {made}\n" in prompts(daemon, "lead")[1]
    take = f"/shell git merge -q {wip[:7]}; cat rest.txt"
    daemon.ok("send", "lead", "--wait", "\n".join([tool("list_agents"), take]))
    assert daemon.shell("lead") == "forgotten\n"
    assert made in str(daemon.tool("lead")[-1])
    daemon.ok("send", "lead", tool("send_message", to="kid", text="/say well", intent="request"))
    until(lambda: settled(daemon, "lead", 5), "the answer")
    made = made.replace("not landed", "in lead")
    assert f"has ended: success. Its work: {made}. It said:" in prompts(daemon, "lead")[4]


def test_commits_that_a_lead_has_merged_are_the_leads_and_ask_for_nothing_more(daemon, app, until):
    daemon.start()
    kids = [tool("spawn_agent", name=name, prompt=commit(f"{name}.txt")) for name in ("one", "two")]
    daemon.spawn("lead", app, "\n".join(kids), "--clone")
    idle(daemon, until, "lead", "one", "two")
    assert daemon.show("one")["attention"]["kind"] == "idle", "its work is its lead's"
    left = "2 children have 2 commits that lead hasn't taken"
    until(lambda: daemon.show("lead")["attention"]["text"] == left, "the end of the turn that told it")
    note = "one, two: commits that lead hasn't taken and that `substratctl merge` lands by these names"
    assert note in daemon.ctl("merge", "lead").err
    daemon.ok("send", "lead", "--wait", "/shell git merge -q agents/one")
    one, two = daemon.show("one"), daemon.show("two")
    assert (one["clone"]["work"]["in"], two["clone"]["work"]["in"]) == ("lead", None)
    assert one["clone"]["work"]["text"] == f"+1 commit, {one['clone']['head'][:7]} · in lead"
    assert [agent["attention"]["kind"] for agent in (one, two)] == ["idle", "idle"]
    own = "1 commit to land in main, "
    assert daemon.show("lead")["attention"]["text"] == f"{own}1 child has 1 commit that lead hasn't taken"
    daemon.ok("send", "one", "--wait", commit("more.txt"))
    assert daemon.show("lead")["attention"]["text"] == f"{own}2 children have 3 commits that lead hasn't taken"
    daemon.ok("send", "lead", "--wait", "/shell git merge -q --squash agents/one && git commit -qm more")
    assert daemon.show("one")["clone"]["work"]["in"] == "lead", "also by another commit"
    daemon.ok("suspend", "lead")
    assert daemon.show("two")["attention"]["text"] == "1 commit to land in main", "lead can't take it"
    assert daemon.show("one")["attention"]["kind"] == "idle", "lead has it"
    daemon.ok("resume", "lead")
    daemon.ok("accept", "lead")
    assert [daemon.show(name)["attention"]["kind"] for name in ("lead", "two")] == ["idle", "idle"]
    daemon.ok("end", "lead")
    assert daemon.show("two")["attention"]["kind"] == "done", "a person has accepted it"
    daemon.ok("rm", "lead")
    assert daemon.show("one")["attention"]["kind"] == "merge", "there is no lead any more that would land it"


def test_no_agent_sees_a_siblings_work_as_a_ref_and_a_base_is_a_commit_that_is_kept(daemon, app, until):
    daemon.start()
    git(daemon, app, "branch", "other")
    kids = [
        tool("spawn_agent", name="one", prompt=commit("one.txt")),
        tool("spawn_agent", name="two", prompt=f"{commit('two.txt')}\n/shell ls", base="workspace/other"),
        tool("spawn_agent", name="bad", prompt="/shell ls", base="workspace/none"),
    ]
    daemon.spawn("lead", app, "\n".join([commit("a.txt"), *kids]), "--clone")
    idle(daemon, until, "lead", "one", "two")
    assert daemon.shell("two").split() == ["README.md", "two.txt"]
    assert "is no commit that is kept" in "".join(map(str, daemon.tool("lead")))
    assert "bad" not in {agent["name"] for agent in daemon.ok("ls")}
    grandchild = tool("spawn_agent", name="third", prompt="/shell ls", base="agents/two")
    daemon.ok("send", "one", "--wait", f"/shell git branch -r\n{grandchild}")
    assert "agents/" not in daemon.shell("one")
    assert "no descendant" in "".join(map(str, daemon.tool("one")))
    daemon.ok("send", "lead", "--wait", "/shell git branch -r")
    assert "agents/one" in daemon.shell("lead")
    assert "agents/two" in daemon.shell("lead")


def test_a_parent_in_place_shares_and_may_ask_for_a_clone(daemon, app, until):
    daemon.start()
    (app / "new.txt").write_text("new\n")
    kids = [
        tool("spawn_agent", name="here", prompt="/shell pwd; touch here.txt"),
        tool("spawn_agent", name="apart", prompt="/shell ls; touch apart.txt", workspace="clone"),
    ]
    daemon.spawn("lead", app, "\n".join(kids))
    idle(daemon, until, "lead", "here", "apart")
    said = "".join(map(str, daemon.tool("lead")))
    assert "workspace: share" in said
    assert "workspace: clone" in said
    assert "uncommitted file" in said
    assert (app / "here.txt").exists()
    assert not (app / "apart.txt").exists()
    assert daemon.show("apart")["clone"]["base"] == git(daemon, app, "rev-parse", "HEAD")


def test_a_clone_is_never_shared_and_shows_no_more_than_the_parent_sees(daemon, app, until):
    daemon.start()
    (app / "sub").mkdir()
    (app / "sub" / "part.txt").write_text("part\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "a part")
    daemon.spawn("lead", app, tool("spawn_agent", name="kid", prompt="/say hi", workspace="share"), "--clone")
    # `worktree` is the word for a clone in chats of before.
    daemon.spawn("low", app / "sub", tool("spawn_agent", name="kid", prompt="/say hi", workspace="worktree"))
    assert "your clone is yours alone" in "".join(map(str, daemon.tool("lead")))
    assert "more than you see" in "".join(map(str, daemon.tool("low")))
    assert "kid" not in {agent["name"] for agent in daemon.ok("ls")}


def test_an_empty_directory_of_its_own_goes_with_the_child(daemon, app, until):
    daemon.start()
    work = "/shell pwd; ls -A; git init -q . && echo x > x && git add x && git commit -qm x && git log --oneline | wc -l"
    kid = tool("spawn_agent", name="kid", prompt=work, workspace="scratch")
    daemon.spawn("lead", app, kid)
    idle(daemon, until, "lead", "kid")
    where, *listed, commits = daemon.shell("kid").split()
    assert where == daemon.show("kid")["workspace"]
    assert where.startswith(str(daemon.state))
    assert "README.md" not in listed
    assert commits == "1"
    daemon.ok("send", "kid", "--wait", "/shell cat x")
    assert daemon.shell("kid").endswith("\n1\nx\n")
    daemon.ok("rm", "kid")
    until(lambda: not os.path.exists(where), "the removal of the directory")


def test_instructions_are_a_rule_in_every_turn(daemon, app, until):
    daemon.start()
    name = ".cursor/rules/substrat-instructions.mdc"
    look = f"/shell cat {name}; echo y >> {name} || echo kept; git status --short"
    kid = tool("spawn_agent", name="kid", prompt=look, instructions="Never touch README.md.\n---\nalwaysApply: false")
    daemon.spawn("lead", app, kid)
    idle(daemon, until, "lead", "kid")
    for _ in range(2):
        said = daemon.shell("kid")
        head, rule = said.split("---\n", 2)[1:]
        assert "alwaysApply: true" in head
        assert rule.startswith("\nNever touch README.md.\n")
        assert "kept" in said
        daemon.ok("send", "kid", "--wait", look)
    daemon.ok("send", "lead", "--wait", f"/shell ls {name} || echo none")
    assert "none" in daemon.shell("lead")


def test_a_child_whose_clone_fails_is_told_to_its_parent(daemon, app, until):
    (app / ".cursor").mkdir()
    (app / ".cursor" / "worktrees.json").write_text(json.dumps({"setup-worktree": ["test ! -e bad"]}))
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "set up")
    daemon.start()
    daemon.spawn("lead", app, f"{commit('bad')}\n{tool('spawn_agent', name='kid', prompt='/say hi')}", "--clone")
    until(lambda: daemon.show("kid")["state"] == "failed", "the failed set-up")

    def told():
        return [event for event in daemon.events("lead", "message:received") if "nowhere to work" in event["text"]]

    until(told, "the message")


def test_an_agent_looks_at_its_descendants_work(daemon, app, until):
    daemon.start()
    kid = tool("spawn_agent", name="kid", prompt=f"{commit('kid.txt')}\n/say all done")
    daemon.spawn("lead", app, kid, "--clone")
    daemon.spawn("stranger", app, "/say hi", "--clone")
    idle(daemon, until, "lead", "kid")
    looks = [tool("get_agent", name="kid", what=what) for what in ("status", "result", "tail", "diff")]
    looks += [tool("get_agent", name="stranger"), tool("get_agent", name="stranger", what="result")]
    looks += [tool("get_agent", name="nobody"), tool("get_agent", name="kid", what="stat")]
    looks += [tool("get_agent", name="kid", what=what, path="sub") for what in ("diff", "result")]
    daemon.ok("send", "lead", "--wait", "\n".join(looks))
    head = git(daemon, app, "rev-parse", "refs/substrat/kid/head")
    told = list(map(str, daemon.tool("lead")[-10:]))
    status, result, tail, diff, other, refused, nobody, stat, below, odd = told
    assert head in status
    assert head in result
    assert "\n> all done" in result
    assert all(line.startswith("> ") for line in tail.splitlines()[2:])
    assert [line for line in tail.splitlines() if "all done" in line][1].endswith("Z text all done")
    assert (tail.count("all done"), "kid.txt" in tail) == (2, True), "in the prompt and the speech, which came in pieces"
    assert "+++ b/kid.txt" in diff
    assert "stranger" in other
    assert "isn't of your family" in refused
    assert stat.endswith("\n\nadded kid.txt +1 -0")
    assert below.endswith("It has changed nothing in sub.")
    assert "path is for stat and diff" in odd
    assert "list_agents" in nobody


def family(daemon, until, name):
    """Spawn a lead with a child that has a child of its own, all at rest."""
    inner = json.dumps({"name": f"{name}-leaf", "prompt": "/say leaf"})
    outer = json.dumps({"name": f"{name}-kid", "prompt": f"/tool spawn_agent {inner}"})
    daemon.spawn(name, daemon.workspace(f"work-{name}"), f"/tool spawn_agent {outer}")
    members = (name, f"{name}-kid", f"{name}-leaf")
    # The second turns of lead and kid tell them how their children's have ended.
    wanted = {(name, turn, "idle") for name, turn in zip(members, (2, 2, 1), strict=True)}
    rests = lambda agent: (agent["name"], (agent["turn"] or {}).get("number"), agent["state"])  # noqa: E731 - it is short
    until(lambda: set(map(rests, daemon.ok("ls"))) == wanted, "the end of all their turns")
    return members


def test_end_takes_the_descendants_along_and_says_whom_unless_it_is_to_end_it_alone(daemon, until):
    daemon.start()
    family(daemon, until, "lead")
    assert daemon.ctl("end", "lead", "--alone").err == ""
    assert daemon.show("lead-kid")["state"] == "idle"
    assert "lead-kid, lead-leaf go on without lead" in daemon.ctl("rm", "lead").err
    assert daemon.show("lead-leaf")["state"] == "idle"
    done = daemon.ctl("end", "lead-kid")
    assert (done.code, done.out) == (0, "lead-kid  ended\n")
    assert "lead-kid takes along lead-leaf" in done.err
    assert {daemon.show(name)["state"] for name in ("lead-kid", "lead-leaf")} == {"ended"}
    kid, leaf = (daemon.events(name, "agent:ended")[0]["cursor"] for name in ("lead-kid", "lead-leaf"))
    assert leaf < kid, "the deepest first"


def test_a_family_shares_a_directory_until_its_last_member_is_removed(daemon, until):
    daemon.start()
    work = daemon.workspace()
    kid = "\n".join([
        "/shell echo much > $SUBSTRAT_SHARED/out",
        tool("complete", result="it is in the file", files=["/run/substrat/shared/out"]),
    ])  # fmt: skip
    daemon.spawn("lead", work, "\n".join([tool("spawn_agent", name="kid", prompt=kid), tool("wait_agents")]))
    until(lambda: settled(daemon, "lead", 2), "the result")
    assert "- /run/substrat/shared/out" in prompts(daemon, "lead")[1]
    daemon.spawn("stranger", work)
    see = "cat $SUBSTRAT_SHARED/out >seen-by-$SUBSTRAT_AGENT; chmod 0 $SUBSTRAT_SHARED"
    daemon.ok("send", "stranger", "--wait", f"/shell {see}")
    daemon.ok("end", "lead", "--alone")
    daemon.ok("rm", "lead")
    daemon.kill()
    daemon.start()
    daemon.ok("send", "kid", "--wait", f"/shell {see}")
    assert [(work / f"seen-by-{name}").read_text() for name in ("kid", "stranger")] == ["much\n", ""]
    directories = [path.name for path in (daemon.state / "shared").iterdir()]
    assert len(directories) == 2
    for name in ("kid", "stranger"):
        daemon.ok("rm", name)
    until(lambda: not list((daemon.state / "shared").iterdir()), "the end of both directories")
    until(lambda: not list((daemon.state / "trash").iterdir()), "an empty trash")
