"""The verbs that take several agents: their requests, their output, and a name that fails."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from substrat import errors
from substrat.cli import habits
from substrat.cli.table import VERBS
from substrat.cli.verbs import merge
from tests.cli.conftest import Terminal
from tests.support.cases import each

STATES = {"a": "idle", "b": "failed", "c": "ended", "d": "suspended"}


@pytest.fixture
def several(fake, agent):
    """A daemon with the agents of STATES, which are also their names' ids."""

    def one(params):
        name = params["agent"]
        if name not in STATES:
            raise errors.NotFound(f"there is no agent {name!r}")
        return agent(id=name, name=name, state=STATES[name], turn={"outcome": "error", "error": "it broke"})

    def listed(params):
        return [{key: one({"agent": name})[key] for key in params.get("fields") or agent()} for name in STATES]

    def network(params):
        one(params)
        return {"network": "filtered", "form": None, "allow": [f"{params['agent']}.org"], "decisions": []}

    used = {"turns": 1, "usage": {"inputTokens": 5}, "usd": None, "unpriced": 1, "family": {"agents": 1}}
    return fake({
        "agent.list": listed, "agent.show": one, "agent.interrupt": one, "agent.end": one, "agent.suspend": one,
        "agent.accept": one, "agent.rm": None, "agent.usage": used, "agent.network": network,
        "agent.turns": {"turns": [], "after": 0}, "events.read": {"events": [], "cursor": 0},
        "agent.wait": lambda params: [one({"agent": params["agents"][0]})],
    })  # fmt: skip


@pytest.mark.parametrize(
    "verb", ["show", "transcript", "usage", "suspend", "interrupt", "end", "rm", "wait", "accept", "allow"]
)
def test_one_name_is_an_object_several_are_an_array_and_a_failing_one_costs_a_line(ctl, several, verb):
    assert isinstance(ctl(verb, "a", "--json").json, dict)
    # On `allow`'s line a word that no agent is called is a host.
    done = ctl(verb, "nobody", "d", "a", "--json") if verb == "allow" else ctl(verb, "d", "nobody", "a", "--json")
    assert (done.code, done.error) == (4, "there is no agent 'nobody'")
    assert len(done.json) == 2
    if verb not in {"allow", "transcript"}:
        assert [one["name"] for one in done.json] == ["d", "a"]
    gone = ctl(verb, "nobody", "--json")
    assert (gone.code, gone.out) == (4, "")
    assert ctl(verb, "d", "nobody", "a").code == (2 if verb == "allow" else 4)


@pytest.mark.parametrize("words", [("show",), ("wait",), ("ls",), ("ls", "--tree"), ("send", "hi")])
def test_a_mistyped_name_is_told_the_agent_that_was_probably_meant(ctl, fake, agent, words):
    def unknown(params):
        name = params.get("agent") or params["agents"][0]
        raise errors.NotFound(f"there is no agent {name!r}: `substratctl ls` shows those there are")

    asked = dict.fromkeys(["agent.show", "agent.wait", "agent.send"], unknown)
    fake({"agent.list": [agent(name="fix"), agent(name="docs")], **asked})
    verb, *rest = words
    done = ctl(verb, "fxi", *rest)
    assert (done.code, done.error.partition("?")[0]) == (4, "there is no agent 'fxi': did you mean 'fix'")
    assert "did you mean" not in ctl(verb, "nobody", *rest).error


def test_merge_lands_the_others_where_a_name_fails(ctl, fake, agent):
    tree = {"branch": "b", "base": "0", "head": "1", "ahead": 1, "behind": 0, "files": 0, "landed": False}
    known = {"a": agent(name="a", id="a", clone=tree), "b": agent(name="b", id="b", clone=None)}

    def show(params):
        if params["agent"] not in known:
            raise errors.NotFound(f"there is no agent {params['agent']!r}")
        return known[params["agent"]]

    def merge(params):
        if params["agents"] == ["b"]:
            raise errors.Refused("b works in your checkout: the daemon says so")
        outcome = {"into": "main", "outcome": "landed", "commit": "1", "files": [], "notes": []}
        return [{"agent": name, "text": f"{name}'s work is in main", **outcome} for name in params["agents"]]

    fake({"agent.show": show, "agent.merge": merge, "agent.list": list(known.values())})
    done = ctl("merge", "nobody", "b", "a")
    assert (done.code, done.out) == (4, "a's work is in main\n")
    assert "there is no agent 'nobody'" in done.err
    assert "b works in your checkout: the daemon says so" in done.err
    assert ctl("merge", "a", "b").code == 1


def test_rm_ended_names_commits_that_have_not_landed(ctl, fake, agent):
    tree = {"branch": "b", "base": "0", "head": "1", "ahead": 1, "behind": 0, "files": 0, "landed": False}
    known = {name: agent(name=name, id=name, state="ended", clone={**tree, "landed": name == "a"}) for name in "ab"}
    text = "its clone is removed, with 1 commit in no branch"
    fake({
        "agent.list": list(known.values()), "agent.show": lambda params: known[params["agent"]],
        "agent.rm": {"tree": "removed", "text": text},
    })  # fmt: skip
    done = ctl("rm", "--ended")
    assert done.out == "2 agents removed\n"
    assert done.error == f"b is removed, but {text}"


def test_interrupt_says_why_an_agent_runs_on(ctl, fake, agent):
    fake({"agent.interrupt": agent(state="running")})
    done = ctl("interrupt", "anna")
    assert (done.code, done.out) == (0, "anna  running\n")
    assert "goes on with the prompt or message that waited" in done.error


@each(
    ("words", "named"),
    [
        (("suspend", "[ad]"), "a d"),
        (("interrupt", "?"), "a b c d"),
        (("end", "d", "a*"), "d a"),
        (("rm", "*"), "a b c d"),
        (("accept", "[!b-z]"), "a"),
        (("wait", "a*", "--until", "idle"), "a"),
    ],
)
def test_a_glob_is_all_that_it_fits_and_brings_an_array(ctl, several, words, named):
    done = ctl(*words, "--json")
    assert (done.code, [one["name"] for one in done.json]) == (0, named.split())


@each("number", ["3x", "1,2", "#1", ""])
def test_a_mistyped_number_accepts_nothing_and_a_name_that_fails_costs_a_line(ctl, several, number):
    done = ctl("accept", "a", number)
    assert (done.code, done.out) == (4, "")
    assert done.error.startswith(f"nothing is accepted, because {number!r} is neither a finding's number nor an agent")
    assert several.calls("agent.accept") == []


def test_an_agent_whose_name_begins_with_a_digit_is_accepted_beside_another(ctl, fake, agent):
    known = {name: agent(id=name, name=name) for name in ("anna", "7up")}
    one = lambda params: known[params["agent"]]  # noqa: E731 - one row of a table
    daemon = fake({"agent.list": list(known.values()), "agent.show": one, "agent.accept": one})
    assert ctl("accept", "anna", "7up").code == 0
    assert [call["agent"] for call in daemon.calls("agent.accept")] == ["anna", "7up"]


def test_accept_names_commits_that_have_not_landed_and_how_a_moved_file_comes_back(ctl, fake, agent):
    tree = {"branch": "b", "base": "0", "head": "1", "ahead": 2, "behind": 0, "files": 0, "landed": False}
    findings = [{"number": 1, "aside": "/a/config", "text": "`cp /a/config config` puts it back"},
                {"number": 2, "aside": None, "text": "made by the agent"}]  # fmt: skip
    fake({"agent.show": agent(clone=tree, findings=findings), "agent.accept": agent(clone=tree)})
    done = ctl("accept", "anna")
    assert done.out == "anna  accepted; -, with 2 commits that have not landed: 'merge anna' still lands them\n"
    assert done.error == "anna: `cp /a/config config` puts it back"
    assert ctl("accept", "anna", "2").out == "anna  accepted; -\n"
    assert ctl("accept", "anna", "2").err == ""


def test_a_glob_that_fits_nothing_is_no_agent(ctl, several):
    done = ctl("end", "x*", "a")
    assert (done.code, done.out, done.error) == (4, "a  idle\n", "there is no agent 'x*'")


def test_resume_all_names_those_that_failed(ctl, fake, agent):
    lost = {"kind": "failed", "level": "urgent", "text": "lost"}
    accepted = {"kind": "idle", "level": "info", "text": "failed, and a person has accepted that"}
    fake({"agent.list": [
        agent(name="a", state="failed", attention=lost), agent(name="b", state="failed", attention=accepted),
        agent(name="c", state="failed", attention=lost),
    ]})  # fmt: skip
    done = ctl("resume", "--all")
    assert (done.out, done.error) == (
        "0 agents resumed\n",
        "failed, and left so: 'substratctl resume a c' lets them go on",
    )


def test_what_is_frozen_is_called_so(ctl, fake, agent):
    fake({"agent.suspend": agent({"outcome": None}, state="suspended")})
    assert ctl("suspend", "anna", "--freeze").out == "anna  frozen\n"


def test_wait_ends_with_5_for_a_failed_agent_unless_a_state_was_asked_for(ctl, several):
    done = ctl("wait", "a", "b")
    assert (done.code, done.out) == (5, "a  idle\nb  failed\n")
    assert done.error == "turn 3 of b ended with error: it broke"
    assert ctl("wait", "a").code == 0
    assert ctl("wait", "b", "--until", "failed,idle").code == 0


def test_all_and_ended_say_how_many(ctl, several):
    assert ctl("end", "--all").out == "3 agents ended\n"
    assert [call["agent"] for call in several.calls("agent.end")] == ["a", "b", "d"]
    assert ctl("suspend", "--all").out == "1 agent suspended\n"
    assert ctl("rm", "--ended").out == "1 agent removed\n"
    assert several.calls("agent.rm") == [{"agent": "c"}]
    assert ctl("rm", "--ended", "--json").json[0]["name"] == "c"
    for words in (("rm",), ("rm", "a", "--ended"), ("end",), ("end", "a", "--all")):
        assert ctl(*words).code == 2


def test_on_a_terminal_end_all_says_how_many_turns_it_would_stop_and_asks(ctl, fake, agent, monkeypatch):
    running, failed = agent({"outcome": None}, id="a", state="running"), agent({"outcome": "error"}, id="b", state="failed")
    daemon = fake({"agent.list": [running, failed, agent(id="c", state="ended")], "agent.end": agent(state="ended")})
    for typed, code, out in (("\n", 1, ""), ("y\n", 0, "2 agents ended\n")):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        done = ctl("end", "--all")
        assert (done.code, done.out) == (code, out)
        assert done.err.startswith("1 turn runs. End 2 agents for good? [y/N] ")
        assert len(daemon.calls("agent.end")) == (0 if code else 2)
    assert ctl("end", "--all", "--json").err == "", "a script's answer is JSON"


HEADS = {"a": "a" * 40, "b": "b" * 40}


@pytest.fixture
def landing(fake, agent):
    """A daemon with two agents, whose work has `.envrc` in it: it lands where that is accepted at its head."""

    def land(params):
        (name,) = params["agents"] if len(params["agents"]) == 1 else ("a",)
        is_seen = ".envrc" in params.get("accept", ()) and HEADS[name].startswith(params.get("at") or "-")
        files, said = ([], "landed") if is_seen else ([".envrc"], "held")
        outcome = {
            "into": "main",
            "outcome": said,
            "commit": "1",
            "files": files,
            "notes": [],
            "head": HEADS[name],
            "was": None,
        }
        return [{"agent": name, "text": f"{name}: {said}", **outcome}]

    tree = {"branch": "b", "base": "0", "head": "1", "ahead": 1, "behind": 0, "files": 0, "landed": False}
    known = {name: agent(name=name, id=name, clone=tree) for name in "ab"}
    return fake(
        {"agent.show": lambda params: known[params["agent"]], "agent.merge": land, "agent.list": list(known.values())}
    )


def test_an_acceptance_counts_for_the_commit_that_was_shown(ctl, landing):
    asked = lambda: [(call.get("accept"), call.get("at")) for call in landing.calls("agent.merge")]  # noqa: E731 - it is short
    assert ctl("merge", "a", "--accept", ".envrc").code == 1
    assert ctl("merge", "a", "--accept", ".envrc", "--at", "aaaaaaa").out == "a: landed\n"
    assert ctl("merge", "a", "--accept", ".envrc", "--at", "bbbbbbb").code == 1
    assert asked() == [(None, None), ([".envrc"], "aaaaaaa"), ([".envrc"], "bbbbbbb")]
    several = ctl("merge", "a", "b", "--accept", "x y")
    assert several.code == 2
    assert several.err.splitlines()[-2:] == [f"  substratctl merge {name} --accept 'x y'" for name in "ab"]
    for wrong in ("abcdef", "HEAD", "g" * 7, "A" * 7):
        assert ctl("merge", "a", "--at", wrong).code == 2
    assert len(asked()) == 3


def test_on_a_terminal_accepted_files_are_shown_and_others_asked_for(ctl, landing, monkeypatch):
    def on_a_terminal(*words, typed=""):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        monkeypatch.setattr(merge, "sys", SimpleNamespace(stdin=Terminal(), stdout=Terminal()))
        return ctl("merge", "a", *words)

    assert on_a_terminal("--accept", ".").out == "a: held\na: landed\n", "shown, and not asked for"
    assert on_a_terminal(typed="y\n").out == "a: held\na: landed\n"
    refused = on_a_terminal("--accept", "other", typed="n\n")
    assert (refused.code, refused.out) == (1, "a: held\n")
    assert refused.err.endswith("substratctl: a's work isn't landed\n"), "not all of it once more"
    sent = [(call.get("accept"), call.get("at")) for call in landing.calls("agent.merge")]
    assert sent == [(None, None), ([".envrc"], HEADS["a"])] * 2 + [(None, None)]


def test_allow_tells_names_from_hosts(ctl, several):
    assert ctl("allow", "a", "d", "pypi.org", "a:22").out == "a  a.org\nd  d.org\n"
    asked = [(call["agent"], call["allow"]) for call in several.calls("agent.network")]
    assert asked == [("a", ["pypi.org", "a:22"]), ("d", ["pypi.org", "a:22"])]
    for words, why in ((("dd", "pypi.org"), "no agent has that name"), (("pypi.org", "d"), "it stands behind a host")):
        done = ctl("allow", "a", *words)
        assert (done.code, f"can't be allowed: {why}, and a host without a dot" in done.error) == (2, True), done
    assert len(several.calls("agent.network")) == 2, "nothing was changed"
    assert ctl("allow", "a").out == "a.org\n"


@pytest.mark.parametrize("word", ["ps", "stop", "kill", "attach", "status", "start", "adopt"])
def test_words_of_other_programs_name_ours(ctl, word):
    done = ctl(word, "anna", "-f")
    assert (done.code, done.out) == (2, "")
    assert f"there is no command {word!r}: " in done.error
    named = {part.split("'")[0].split()[0] for part in done.error.split(": '", 1)[1].split(" '")}
    assert named & set(VERBS) or word == "diff"


def test_no_habit_is_a_verb_and_help_knows_both(ctl):
    assert not set(habits.HABITS) & set(VERBS)
    assert ctl("help").out == ctl("--help").out
    assert ctl("help", "ls").out == ctl("ls", "--help").out
    assert ctl("help", "ps").error == ctl("ps").error
    assert ctl("help", "atach").error.endswith(habits.HABITS["attach"])


def test_a_dash_is_standard_input(program, fake, agent, tmp_path):
    answer = {"agent": agent(), "message": 1}
    daemon = fake({
        "agent.send": answer, "agent.spawn": agent(), "inbox.answer": answer, "agent.resume": answer,
        "agent.list": [agent()], "inbox.show": {"id": 1},
    })  # fmt: skip
    for words in (("send", "anna", "-"), ("spawn", "anna", "-", "-w", "/"), ("answer", "1", "-"), ("resume", "anna", "-")):
        with (tmp_path / "prompt").open("w+") as file:
            file.write("from a pipe\n")
            file.seek(0)
            assert program(*words, stdin=file).code == 0
    assert daemon.calls("agent.send")[0]["prompt"] == "from a pipe\n"
    assert daemon.calls("agent.spawn")[0]["prompt"] == "from a pipe\n"
    assert daemon.calls("inbox.answer")[0]["text"] == "from a pipe\n"
    assert daemon.calls("agent.resume")[0]["prompt"] == "from a pipe\n"
    assert program("send", "anna", "--prompt-file", "-", stdin=None, input="from a file").code == 0
    assert daemon.calls("agent.send")[1]["prompt"] == "from a file"
    done = program("send", "anna", "-", stdin=subprocess.DEVNULL)
    assert (done.code, done.error) == (2, "send: standard input is empty (see 'substratctl send --help')")


@pytest.mark.parametrize(("words", "since"), [(("-n", "5"), -5), (("--tail", "5"), -5), (("--since", "7"), 7)])
def test_tail_is_the_last_events(ctl, several, words, since):
    for verb in (("logs", "a"), ("events",)):
        assert ctl(*verb, *words).code == 0
        assert several.calls("events.read")[-1]["since"] == since
    assert ctl("logs", "a", "-n", "0").code == 2
    assert ctl("events", "-n", "3", "--since", "4").code == 2


def test_a_diff_without_commits_tells_of_uncommitted_files(ctl, fake, agent):
    same = {"from": "a" * 40, "to": "a" * 40, "files": [], "added": 0, "deleted": 0, "text": "", "cut": 0}
    fake({
        "agent.diff": lambda params: {"agent": params["agent"], **same},
        "agent.list": [agent(name="a", clone={"files": 2}), agent(name="b", clone={"files": 0}), agent(name="c")],
    })  # fmt: skip
    done = ctl("diff", "a")
    assert (done.code, done.out, done.error) == (
        0,
        "",
        "a has committed nothing; 'substratctl diff a --wip' shows 2 files",
    )
    assert [ctl("diff", *words).err for words in (("b",), ("c",), ("a", "--wip"), ("a", "--json"))] == [""] * 4


def test_verbs_that_look_a_few_agents_up_ask_for_these_alone(ctl, fake, agent):
    anna = agent(id="1", name="anna", state="running", parent="p")
    place = {"position": 1, "agent": "anna", "family": "p", "priority": "normal", "since": None, "reason": "r"}
    daemon = fake({
        "agent.list": [anna], "agent.show": anna, "agent.end": anna, "queue.list": [place], "queue.gates": [],
        "agent.network": {"allow": []}, "agent.resume": {"agent": anna, "message": 1},
    })  # fmt: skip
    cases = {
        ("show", "anna"): ["1", "p"], ("end", "anna"): ["anna"], ("queue",): ["p"], ("accept", "anna", "3x"): ["3x"],
        ("allow", "anna", "wiki:443"): ["anna", "wiki:443"], ("resume", "anna", "x" * 200): ["x" * 100],
    }  # fmt: skip
    for words, names in cases.items():
        ctl(*words)
        assert sorted(daemon.calls("agent.list")[-1]["names"]) == names, words
