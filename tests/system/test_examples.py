"""The families of `examples/families`, through real sandboxes with the stand-in, and under kills of the daemon."""

from functools import partial
from pathlib import Path

from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples/families"
PART = '/shell echo "# typed" >> "$ITEM"; git commit -qam "Types of $ITEM"'
JOIN = '/shell for it in $(git for-each-ref --format="%(refname)" refs/remotes/agents); do git merge -q --no-edit $it; done'
GREEN = "grep -q good one.py || { echo '/shell echo good > one.py; git commit -qam mended'; exit 1; }"
"""The stand-in performs what the failed check prints, because that is its next prompt."""
TASK = '/shell echo x >> one.py; git commit -qam "one more"'
LOOK = """\
/write agree /tool complete {"result": "{\\"agrees\\": true, \\"left\\": []}"}
/write not /tool complete {"result": "{\\"agrees\\": false, \\"left\\": [\\"one.py:1 more\\"]}"}
/shell echo turn >> turns; [ $(wc -l < turns) -ge 2 ] && mv agree next || mv not next
/do next"""


def test_one_works_until_the_tests_pass(daemon):
    daemon.start()
    repository = prepared(daemon)
    done = run(daemon, "fix-until-green", repository, task="Mend it.", test=GREEN)
    assert done.code == 0, done
    fixer = daemon.show("fix.fixer")
    assert (fixer["turn"]["number"], fixer["check"]["state"]) == (2, "passed")
    assert fixer["attention"]["kind"] == "merge", "you are asked before anything lands"


def test_an_author_and_a_reviewer_agree(daemon):
    daemon.start()
    done = run(daemon, "review-and-fix", prepared(daemon), task=TASK, look=LOOK, test="true")
    assert done.code == 0, done
    assert [daemon.show(f"review.{name}")["turn"]["number"] for name in ("author", "reviewer")] == [2, 2]
    (prompt,) = [event["text"] for event in daemon.events("review.author", "user") if "agree" in event["text"]]
    assert "in round 1 of 3: do what is left to do. Its work, and what it said:\n\n> " in prompt
    assert '> {"agrees": false, "left": ["one.py:1 more"]}' in prompt


def test_a_fan_out_over_eight_files_survives_two_kills_and_lands(daemon):
    """As README shows it; the same with the kills as without."""
    daemon.start()
    heads = []
    for name, kills in (("quiet", 0), ("killed", 2)):
        repository = prepared(daemon, name, files=9)
        given = {"task": PART, "join": JOIN, "test": "sleep 0.2"}
        started = run(daemon, "map-reduce", repository, "--detach", **given)
        assert started.code == 0, started
        family = started.out.split()[0]
        for number in range(kills):
            wait_until(partial(has_turns, daemon, family, 2 * number + 1), "some turns")
            daemon.kill()
            daemon.start()
        ended = wait_until(partial(end_of, daemon, family), "the end of the run", 60)
        assert (ended["outcome"], ended["why"]) == ("succeeded", f"{family}.whole's work is queued to land in main")
        wait_until(partial(daemon.events, f"{family}.whole", "clone:landed"), "the landing")
        heads.append(sorted(daemon.git(repository, "log", "--format=%s", "--no-merges").splitlines()))
        assert [(repository / f"f{number}.py").read_text() for number in (8, 9)] == ["x\n# typed\n", "x\n"]
        assert turns(daemon, family) == {f"{family}.{one}": 1 for one in (*(f"part.{n}" for n in range(1, 9)), "whole")}
    assert heads[0] == heads[1]


def test_parts_that_fail_are_left_out_and_what_is_checked_lands(daemon):
    daemon.start()
    repository = prepared(daemon, files=2)
    test = '[ "$ITEM" != f1.py ] || { echo "git push --force"; exit 1; }'
    done = run(daemon, "map-reduce", repository, task=PART, join=JOIN.replace("agents)", "agents/*.2)"), test=test)
    assert done.code == 0, done
    assert turns(daemon, "types") == {"types.part.1": 1, "types.part.2": 1, "types.whole": 1}, "no report woke the lead"
    (prompt,) = [event["text"] for event in daemon.events("types.whole", "user")]
    assert "types.part.1: its check has failed. Its work, and what it said:\n\n> " in prompt
    assert "push" not in prompt.replace("> ", ""), "what a check prints is no word of the operator's"
    wait_until(partial(daemon.events, "types.whole", "clone:landed"), "the landing")
    assert [(repository / name).read_text() for name in ("f1.py", "f2.py")] == ["x\n", "x\n# typed\n"]


def test_work_that_need_not_land_asks_nobody_and_what_no_check_has_passed_on_is_named(daemon, tmp_path):
    daemon.start()
    repository = prepared(daemon)
    text = (EXAMPLES / "fix-until-green.toml").read_text()
    never = tmp_path / "never.toml"
    never.write_text(text.replace("[vars]", 'land = "never"\n[vars]'))
    done = daemon.ctl("run", never, "-w", repository, "--set", "task=Mend it.", "--set", f"test={GREEN}")
    assert (done.code, daemon.show("fix.fixer")["attention"]["kind"]) == (0, "idle"), done
    never.write_text(text.replace("[vars]", 'land = "merge"\n[vars]'))
    work = '/shell echo x >> one.py; git commit -qam "more"; echo left > left.txt'
    done = daemon.ctl("run", never, "-w", repository, "--set", f"task={work}", "--set", "test=true")
    assert (done.code, "fix-2.fixer's work doesn't land: no check has passed on all of it" in done.err) == (0, True), done


def has_turns(daemon, family, count):
    return len(turns(daemon, family)) >= count


def end_of(daemon, family):
    (found,) = daemon.ok("runs", family)
    return found if found["ended_at"] is not None else None


def turns(daemon, family):
    """The agents of a family that have had a turn, each with the number of its turns."""
    agents = [agent for agent in daemon.ok("ls") if agent["name"].startswith(f"{family}.")]
    return {agent["name"]: agent["turn"]["number"] for agent in agents if agent["turn"] is not None}


def prepared(daemon, name="work", files=1):
    repository = daemon.workspace(name, git=True)
    for number in range(1, files + 1):
        (repository / ("one.py" if files == 1 else f"f{number}.py")).write_text("x\n")
    daemon.git(repository, "add", ".")
    daemon.git(repository, "commit", "-qm", "files")
    return repository


def run(daemon, example, repository, *more, **given):
    sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    return daemon.ctl("run", EXAMPLES / f"{example}.toml", "-w", repository, *sets, *more)
