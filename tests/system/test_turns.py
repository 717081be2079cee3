"""How a turn is started, what becomes of its output, and how its end is judged."""

import json
import re

import pytest

RECORD = """\
begin()
record = {"argv": sys.argv, "environment": dict(os.environ), "cwd": os.getcwd(), "prompt": prompt}
number = len([name for name in os.listdir() if name.startswith("record-")]) + 1
record["descriptors"] = {fd: os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd")
                         if os.path.exists("/proc/self/fd/" + fd)}
mark(f"record-{number}", json.dumps(record))
finish(f"turn {number}")
"""


def record(work, number=1):
    return json.loads((work / f"record-{number}").read_text())


def test_the_command_line_and_the_prompt_on_standard_input(house):
    program = house.program(RECORD)
    house.start(agent=program)
    work = house.workspace()
    house.spawn("anna", work, "do this\nand 'that' $HOME \\n é 🙂", "--model", "some-model")
    seen = record(work)
    argv = seen["argv"]
    assert argv[0] == str(program)
    for flag in ("--print", "--stream-partial-output", "--trust", "--force", "--approve-mcps"):
        assert flag in argv or (flag == "--print" and "-p" in argv), flag
    for flag, value in (("--output-format", "stream-json"), ("--model", "some-model"), ("--workspace", str(work)),
                        ("--sandbox", "disabled")):  # fmt: skip
        assert argv[argv.index(flag) + 1] == value
    assert "--resume" not in argv
    assert not [word for word in argv if "do this" in word], "the prompt is no argument"
    assert seen["prompt"].rstrip("\n") == "do this\nand 'that' $HOME \\n é 🙂"
    assert seen["cwd"] == str(work)


def test_the_environment_is_built_not_inherited(house):
    house.start(agent=house.program(RECORD), environment={"CANARY": "leaked", "AWS_SECRET_ACCESS_KEY": "leaked"})
    work = house.workspace()
    house.spawn("anna", work, "x")
    environment = record(work)["environment"]
    assert "leaked" not in environment.values()
    assert environment["HOME"] == str(house.home)
    assert environment["PATH"]
    assert not [name for name in environment if name.startswith(("NOTIFY_", "LISTEN_", "WATCHDOG_", "PYTHON"))]
    assert str(house.state) not in json.dumps(environment)


def test_no_descriptor_is_inherited(house):
    house.start(agent=house.program(RECORD))
    work = house.workspace()
    house.spawn("anna", work, "x")
    open_files = record(work)["descriptors"]
    assert {fd for fd in open_files if int(fd) > 2} <= {
        fd for fd, path in open_files.items() if "/proc" in path or int(fd) == 3
    }
    assert "substrat.db" not in json.dumps(open_files)
    assert "socket" not in json.dumps(open_files)


def test_the_second_turn_resumes_the_session(house):
    house.start(agent=house.program(RECORD))
    work = house.workspace()
    first = house.spawn("anna", work, "one")
    assert house.ctl("send", "anna", "--wait", "two").code == 0
    argv = record(work, 2)["argv"]
    assert argv[argv.index("--resume") + 1] == first["session_id"]
    assert record(work, 2)["prompt"].rstrip("\n") == "two"
    assert house.show("anna")["session_id"] == first["session_id"]


def test_the_session_is_stored_as_soon_as_it_is_seen(house, until):
    house.start(agent=house.program('begin()\nmark("begun", session)\nwait_for("go")\nfinish()\n'))
    work = house.workspace()
    house.ok("spawn", "anna", "-w", work, "x")
    until((work / "begun").exists)
    session = (work / "begun").read_text()
    until(lambda: house.show("anna")["session_id"] == session, "the session")
    assert house.show("anna")["state"] == "running"
    house.kill()
    house.start()
    assert house.show("anna")["session_id"] == session


def test_a_prompt_of_a_megabyte(house):
    house.start(agent=house.program('begin()\nmark("size", str(len(prompt.rstrip())))\nfinish()\n'))
    work = house.workspace()
    prompt = b"0123456789abcdef" * 65536
    done = house.ctl("spawn", "anna", "-w", work, "--wait", "--prompt-file", "-", stdin=prompt)
    assert done.code == 0, done
    assert (work / "size").read_text() == str(len(prompt))


def test_a_prompt_of_a_megabyte_through_the_standin(daemon):
    work = daemon.workspace()
    text = "word " * 200_000 + "end"
    agent = daemon.spawn("anna", work, f"/write big {text}")
    assert agent["turn"]["outcome"] == "success"
    assert (work / "big").read_text() == text
    (user,) = daemon.events("anna", "user")
    assert user["raw"]["message"]["content"][0]["text"].endswith(text)


def test_raw_logs_are_the_agents_bytes(house):
    source = r"""begin()
sys.stdout.flush()
out = sys.stdout.buffer
out.write(b'no json at all\n{"type": "new_thing",   "session_id": "x"}\n\xff\xfe not utf-8\n\n[1, 2]\n{"type": 7}\n')
out.write(b'{"type":"assistant","message":{"content":"text, not a list"}}\n{"a":' + b"[" * 3000 + b"\n")
out.flush()
finish("after")
"""
    house.start(agent=house.program(source))
    agent = house.spawn("anna", house.workspace(), "x")
    assert agent["turn"]["outcome"] == "success"
    written = (house.agents_directory(agent) / "turns" / "1" / "stdout").read_bytes()
    assert house.ctl("logs", "anna", "--raw").raw == written
    events = house.events("anna")
    assert "unknown" in [event["kind"] for event in events]
    assert {"type": "new_thing", "session_id": "x"} in [event["raw"] for event in events]
    assert "not utf-8" in house.ctl("logs", "anna").out


def test_a_last_line_without_its_end_is_not_lost(house):
    house.start(agent=house.program('begin()\nfinish()\nsys.stdout.write("tail without newline")\nsys.stdout.flush()\n'))
    agent = house.spawn("anna", house.workspace(), "x")
    written = (house.agents_directory(agent) / "turns" / "1" / "stdout").read_bytes()
    assert written.endswith(b"tail without newline")
    assert house.ctl("logs", "anna", "--raw").raw == written


def test_a_result_without_its_end_of_line_counts(house):
    source = """begin()
line = {"type": "result", "subtype": "success", "is_error": False, "result": "whole", "session_id": session}
sys.stdout.write(json.dumps(line))
"""
    house.start(agent=house.program(source))
    agent = house.spawn("anna", house.workspace(), "x")
    assert (agent["turn"]["outcome"], agent["turn"]["result"]) == ("success", "whole")


def test_a_line_of_many_megabytes(house):
    house.start(agent=house.program('begin()\nsay("x" * 8_000_000)\nfinish("end")\n'))
    agent = house.spawn("anna", house.workspace(), "x")
    assert (agent["turn"]["outcome"], agent["turn"]["result"]) == ("success", "end")
    assert len(house.ctl("logs", "anna", "--raw").raw) > 8_000_000


def test_no_result_is_a_failure_whatever_the_exit_code(house):
    house.start(agent=house.program('begin()\nsay("almost")\nsys.exit(int(prompt))\n'))
    work = house.workspace()
    for name, code in (("anna", 0), ("bert", 3)):
        agent = house.spawn(name, work, str(code))
        turn = agent["turn"]
        assert (agent["state"], turn["outcome"], turn["exit_code"]) == ("failed", "error", code)
        assert "result" in turn["error"]


def test_a_failure_before_the_session_tells_what_the_program_said(house):
    house.start(agent=house.program("#!/bin/sh\ncat >/dev/null\necho 'Cannot use this model: X.' >&2\nexit 1\n"))
    done = house.ctl("spawn", "anna", "-w", house.workspace(), "--wait", "x")
    assert done.code == 5
    agent = house.show("anna")
    assert (agent["state"], agent["session_id"], agent["turn"]["exit_code"]) == ("failed", None, 1)
    assert "model" in done.error
    assert "X" in agent["turn"]["error"]


def test_an_agent_killed_from_within_is_reported_as_such(house):
    house.start(agent=house.program("begin()\nos.kill(os.getpid(), signal.SIGKILL)\n"))
    agent = house.spawn("anna", house.workspace(), "x")
    assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "error")
    assert agent["turn"]["exit_code"] == 137


def test_a_result_that_says_error_is_one(house):
    source = 'begin()\nemit("result", "error", is_error=True, result="quota", duration_ms=1)\n'
    house.start(agent=house.program(source))
    agent = house.spawn("anna", house.workspace(), "x")
    assert agent["turn"]["outcome"] == "error"
    assert "result:error" in [event["kind"] for event in house.events("anna")]


def test_a_program_that_lives_on_after_its_result_is_ended(house):
    source = 'begin()\nfinish("done")\nsignal.pause()\n'
    house.start(agent=house.program(source), config="[turns]\nresult_grace = 0.2\nstop_grace = 0.2\n")
    agent = house.spawn("anna", house.workspace(), "x")
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["result"]) == ("idle", "success", "done")
    assert not house.sandboxed()


def test_children_that_live_on_after_the_result_are_ended(house):
    source = """begin()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        mark("orphan")
        while True:
            signal.pause()
    os._exit(0)
wait_for("orphan")
finish("done")
"""
    house.start(agent=house.program(source))
    agent = house.spawn("anna", house.workspace(), "x")
    assert agent["turn"]["outcome"] == "success"
    assert not house.sandboxed()


def test_two_agents_work_at_once_and_one_failure_touches_nobody(daemon):
    work = daemon.workspace()
    daemon.held("anna", work)
    assert daemon.ctl("spawn", "bert", "-w", work, "--wait", "/exit 1").code == 5
    assert daemon.show("anna")["state"] == "running"
    (work / "go").touch()
    assert daemon.wait("anna")["turn"]["outcome"] == "success"


@pytest.mark.slow
def test_twenty_turns_at_once(daemon):
    work = daemon.workspace()
    names = [f"a{number}" for number in range(20)]
    for name in names:
        daemon.ok("spawn", name, "-w", work, f"/say I am {name}")
    agents = daemon.ok("wait", *names, "--timeout", "30")
    assert [daemon.show(name)["turn"]["result"] for name in names] == [f"I am {name}" for name in names]
    assert len({agent["session_id"] for agent in agents}) == 20


def test_the_session_remembers(daemon):
    daemon.spawn("anna", daemon.workspace(), "the first")
    done = daemon.ctl("send", "anna", "--wait", "/recall")
    assert re.search(r"1 .*the first", done.out, re.DOTALL)


def test_a_session_that_changes_its_name_is_noticed(house):
    """A program that answers `--resume` with another session hasn't continued this one."""
    source = "if option('--resume'):\n    session = str(uuid.uuid4())\nbegin()\nfinish()\n"
    house.start(agent=house.program(source))
    work = house.workspace()
    first = house.spawn("anna", work, "one")
    house.ctl("send", "anna", "--wait", "two")
    agent = house.show("anna")
    assert agent["session_id"] != first["session_id"] or agent["turn"]["outcome"] == "error"


def test_an_agent_that_truncates_its_own_output_is_noticed(house, until):
    source = """begin()
say("before")
wait_for("read")
os.ftruncate(1, 0)
say("after")
finish("end")
"""
    house.start(agent=house.program(source))
    work = house.workspace()
    house.ok("spawn", "anna", "-w", work, "x")
    until(lambda: house.events("anna", "assistant") or house.events("anna", "assistant:delta"), "the first words")
    (work / "read").touch()
    house.wait("anna")
    texts = " ".join(f"{event['kind']} {event['text']}" for event in house.events("anna"))
    assert "truncat" in texts + (house.show("anna")["turn"]["error"] or "")


def test_a_turn_over_its_time_is_ended_and_says_so(house):
    source = "begin()\nsignal.pause()\n"
    house.start(agent=house.program(source), config="[turns]\ntime_limit = 0.5\nstop_grace = 0.2\n")
    done = house.ctl("spawn", "anna", "-w", house.workspace(), "--wait", "x")
    assert done.code == 5
    assert house.show("anna")["turn"]["outcome"] == "timed_out"
    assert not house.sandboxed()


def test_turns_over_the_limit_wait_their_turn(house, until):
    house.start(config="[turns]\nmax_running = 1\n")
    work = house.workspace()
    house.held("anna", work)
    assert house.ok("spawn", "bert", "-w", work, "I am bert")["state"] == "queued"
    house.ok("spawn", "carl", "-w", work, "I am carl")
    assert {agent["name"]: agent["state"] for agent in house.ok("ls")} == {
        "anna": "running", "bert": "queued", "carl": "queued"
    }  # fmt: skip
    assert house.ok("suspend", "carl")["state"] == "suspended"
    (work / "go").touch()
    assert house.wait("bert")["turn"]["result"] == "I am bert"
    assert house.show("carl")["turn"] is None
    house.ok("resume", "carl", "--wait")
    assert "I am carl" in house.events("carl", "user")[-1]["text"]


def test_a_result_of_many_megabytes(house):
    """The result holds everything that was said, so it is as long as the turn was talkative."""
    house.start(agent=house.program('begin()\nemit("result", "success", is_error=False, result="x" * int(prompt))\n'))
    agent = house.spawn("anna", house.workspace(), "12000000")
    assert agent["turn"]["outcome"] == "success"
    assert agent["turn"]["result"].startswith("xxx"), "cut perhaps, but the result and not its envelope"
