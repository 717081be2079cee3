"""Tasks through real sandboxes: workers claim, do and finish them until none is left, beside deaths of the daemon."""

import json
from functools import partial

from tests.support.waiting import wait_until

WORKER = """
server = json.loads(pathlib.Path(".cursor/mcp.json").read_text())["mcpServers"]["substrat"]
companion = subprocess.Popen(
    [server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    env={**os.environ, **server.get("env", {})},
)
numbers = iter(range(1000))


def ask(method, **params):
    request = {"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": params}
    companion.stdin.write(json.dumps(request) + "\\n")
    companion.stdin.flush()
    return json.loads(companion.stdout.readline())["result"]


def tool(name, **arguments):
    return ask("tools/call", name=name, arguments=arguments)["content"][0]["text"]


begin()
client = {"name": "worker", "version": "1"}
ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
names = {one["name"] for one in ask("tools/list")["tools"]}
text = "merged"
if "Work" in prompt or "claim_task" in prompt or "left to do" in prompt:
    assert {"add_tasks", "claim_task", "finish_task", "list_tasks"} <= names, names
    while (text := tool("claim_task", wait=True)).startswith("Task "):
        todo = [line.removeprefix("> ") for line in text.splitlines() if line.startswith("> ")][0]
        time.sleep(0.05)
        with open("log", "a") as log:
            log.write(todo + "\\n")
        while todo == "hold" and not os.path.exists("go"):
            time.sleep(0.01)
        if todo == "die":
            sys.exit(3)
        tool("finish_task", status="failed" if todo == "fail" else "succeeded", result="did " + todo)
finish(text)
"""
FAMILY = """\
[family]
name = "dig"
lead = "merge"
workspace = "in-place"
[vars]
what = "dig"
[agents.worker]
count = 3
prompt = "Work."
[agents.merge]
prompt = "Merge."
needs = ["worker", "task:last"]
"""
TASK = '[[tasks]]\nid = "{0}"\ntitle = "{{{{what}}}} {0}"\nneeds = {1}\n'


def written(tmp_path, text, name="family.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def log_of(work):
    return sorted((work / "log").read_text().splitlines()) if (work / "log").exists() else []


def has_done(work, count):
    return len(log_of(work)) >= count


def test_workers_of_a_family_work_its_tasks_off_once_beside_two_kills(daemon, tmp_path):
    daemon.start(agent=daemon.program(WORKER))
    work = daemon.workspace()
    names = [f"p{number}" for number in range(12)]
    tasks = [TASK.format(name, "[]" if number < 6 else f'["p{number - 6}"]') for number, name in enumerate(names)]
    text = FAMILY + "".join([*tasks, TASK.format("last", json.dumps(names))])
    dry = daemon.ctl("run", written(tmp_path, text), "--dry-run")
    assert dry.out.endswith("at most 43 turns, and those that messages start\n"), dry
    assert "after worker, task:last" in dry.out
    started = daemon.ctl("run", written(tmp_path, text), "-w", work, "--detach")
    assert started.code == 0, started
    for done in (2, 7):
        wait_until(partial(has_done, work, done), f"{done} tasks")
        daemon.kill()
        daemon.start()
    ended = wait_until(partial(end_of, daemon, "dig"), "the end of the run", 60)
    assert (ended["outcome"], ended["why"]) == ("succeeded", None)
    assert log_of(work) == sorted(f"dig {name}" for name in [*names, "last"]), "each once"
    listed = daemon.ok("tasks", "dig.merge")
    assert {(task["state"], task["attempts"], task["family"]) for task in listed} == {("succeeded", 1, "dig.merge")}
    prompt = (daemon.agents_directory(daemon.show("dig.merge")) / "turns/1/prompt").read_text()
    assert "task last: succeeded. It said:\n\n> did dig last" in prompt


def test_a_claimant_that_fails_leaves_its_task_to_the_next_and_the_run_says_what_is_left(daemon, tmp_path):
    daemon.start(agent=daemon.program(WORKER))
    work = daemon.workspace()
    text = FAMILY.replace("count = 3", 'count = 2\non_fail = "continue"').replace('what = "dig"', 'what = "die"')
    tasks = '[[tasks]]\nid = "last"\ntitle = "{{what}}"\nattempts = 2\n[[tasks]]\ntitle = "next"\nneeds = ["last"]\n'
    done = daemon.ctl("run", written(tmp_path, text + tasks), "-w", work)
    assert (done.code, log_of(work)) == (5, ["die", "die"]), done
    assert "dig: its agents work no more, and these tasks haven't succeeded: last, t1" in done.err
    assert [task["state"] for task in daemon.ok("tasks", "dig.merge")] == ["failed", "skipped"]
    (told,) = [item["text"] for item in daemon.ok("inbox")]
    assert told.startswith("Task last has failed, and what needs it is skipped:\n\n> die\n> \n> 2 agents have had it")


def test_a_person_adds_looks_skips_and_tries_again(daemon, tmp_path):
    daemon.start(agent=daemon.program(WORKER))
    work = daemon.workspace()
    assert daemon.ctl("tasks").err == "substratctl: there are no tasks\n"
    daemon.ok("spawn", "solo", "-w", work, "--in-place")
    file = written(tmp_path, '[[tasks]]\nid = "a"\ntitle = "fail"\n[[tasks]]\nid = "b"\ntitle = "b"\nneeds = ["a"]\n')
    added = daemon.ctl("tasks", "solo", "--add", file)
    _, first, second = added.out.splitlines()
    assert first.split() == ["solo", "a", "ready", "-", "fail"]
    assert second.split() == ["solo", "b", "blocked", "-", "b", "(needs", "a)"]
    assert "nothing is added: they are there already" in daemon.ctl("tasks", "solo", "--add", file).err
    daemon.ok("send", "solo", "--wait", "Work.")
    assert [(task["state"], task["result"]) for task in daemon.ok("tasks", "solo")] == [
        ("failed", "did fail"), ("skipped", "it needs a, which has failed"),
    ]  # fmt: skip
    assert daemon.ctl("tasks", "solo", "--retry", "b").err.startswith("substratctl: task b needs one that has failed")
    (again,) = daemon.ok("tasks", "solo", "--retry", "a")
    assert (again["state"], again["attempts"]) == ("ready", 0)
    assert daemon.ok("tasks", "solo", "--skip", "b")[0]["status"] == "skipped"
    assert [task["state"] for task in daemon.ok("tasks")] == ["ready", "skipped"]
    kinds = [event["kind"] for event in daemon.events("solo") if event["kind"].startswith("task:")]
    assert kinds == ["task:added"] * 2 + ["task:claimed", "task:finished", "task:skipped", "task:released", "task:skipped"]
    for words, said in (
        (["--skip", "a"], "stand alone, and need NAME"),
        (["solo", "--skip", "z"], "solo's family has no task 'z'"),
        (["solo", "--add", tmp_path / "none"], "none can't be read: No such file or directory"),
        (["solo", "--add", written(tmp_path, "tasks = 1")], "has tables [[tasks]], and nothing else"),
        (
            ["solo", "--add", written(tmp_path, "[[tasks]]\nname = 1", "odd.toml")],
            "[[tasks]] 1: name is unknown; there are title",
        ),
    ):
        done = daemon.ctl("tasks", *words)
        assert (done.code != 0, said in done.err) == (True, True), done


def end_of(daemon, family):
    (found,) = daemon.ok("runs", family)
    return found if found["ended_at"] is not None else None
