"""How a turn is started, what becomes of its output, and how its end is judged."""

import json

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


def test_the_command_line_the_environment_and_the_prompt_on_standard_input(daemon):
    program = daemon.program(RECORD)
    daemon.start(agent=program, environment={"CANARY": "leaked", "AWS_SECRET_ACCESS_KEY": "leaked"})
    work = daemon.workspace()
    agent = daemon.spawn("anna", work, "do this\nand 'that' $HOME \\n é 🙂", "--model", "some-model")
    assert daemon.ctl("send", "anna", "--wait", "two").code == 0
    seen, second = record(work), record(work, 2)
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

    environment = seen["environment"]
    assert "leaked" not in environment.values()
    assert environment["HOME"] == str(daemon.home)
    assert environment["PATH"]
    assert not [name for name in environment if name.startswith(("NOTIFY_", "LISTEN_", "WATCHDOG_", "PYTHON"))]
    assert str(daemon.state) not in json.dumps(environment)

    open_files = seen["descriptors"]
    assert [fd for fd, path in open_files.items() if int(fd) > 3 and "/proc" not in path] == []
    assert "substrat.db" not in json.dumps(open_files)
    assert "socket" not in json.dumps(open_files)

    assert second["argv"][second["argv"].index("--resume") + 1] == agent["session_id"]
    assert second["prompt"].rstrip("\n") == "two"
    assert daemon.show("anna")["session_id"] == agent["session_id"]


def test_the_session_is_stored_as_soon_as_it_is_seen(daemon, until):
    daemon.start(agent=daemon.program('begin()\nmark("begun", session)\nwait_for("go")\nfinish()\n'))
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "x")
    until((work / "begun").exists)
    session = (work / "begun").read_text()
    until(lambda: daemon.show("anna")["session_id"] == session, "the session")
    assert daemon.show("anna")["state"] == "running"
    daemon.kill()
    daemon.start()
    assert daemon.show("anna")["session_id"] == session


def test_a_prompt_of_a_megabyte_through_the_standin(running):
    work = running.workspace()
    text = "word " * 200_000 + "end"
    agent = running.spawn("anna", work, f"/write big {text}")
    assert agent["turn"]["outcome"] == "success"
    assert (work / "big").read_text() == text
    (user,) = running.events("anna", "user")
    assert user["raw"]["message"]["content"][0]["text"].endswith(text)


ENDS = {
    "quiet-0": 'say("almost")',
    "quiet-3": 'say("almost"); sys.exit(3)',
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "refused": 'emit("result", "error", is_error=True, result="quota", duration_ms=1)',
    "unended": """
line = {"type": "result", "subtype": "success", "is_error": False, "result": "whole", "session_id": session}
sys.stdout.write(json.dumps(line))
""",
    "long": 'say("x" * 8_000_000); finish("end")',
    "talkative": 'emit("result", "success", is_error=False, result="x" * 12_000_000)',
    "odd": r"""
out = sys.stdout.buffer
out.write(b'no json at all\n{"type": "new_thing",   "session_id": "x"}\n\xff\xfe not utf-8\n\n[1, 2]\n{"type": 7}\n')
out.write(b'{"type":"assistant","message":{"content":"text, not a list"}}\n{"a":' + b"[" * 3000 + b"\n")
out.flush()
finish("after")
sys.stdout.write("tail without newline")
""",
    "forking": """
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
""",
}


def test_how_ends_are_judged_and_what_was_said_is_kept(daemon):
    daemon.start(agent=daemon.program("begin()\nexec(prompt)\n"))
    work = daemon.workspace()
    for name, source in ENDS.items():
        daemon.ok("spawn", name, "-w", work, "--prompt-file", "-", stdin=source.encode())
    turns = {name: (agent := daemon.wait(name))["turn"] | {"state": agent["state"]} for name in ENDS}
    judged = {name: (turn["state"], turn["outcome"], turn["exit_code"]) for name, turn in turns.items()}
    bad = {"quiet-0": 0, "quiet-3": 3, "killed": 137, "refused": 0}
    assert judged == {name: ("failed", "error", bad[name]) if name in bad else ("idle", "success", 0) for name in ENDS}
    assert all("result" in turns[name]["error"] for name in ("quiet-0", "quiet-3"))
    assert daemon.events("refused", "result:error")
    assert turns["unended"]["result"] == "whole"
    assert turns["long"]["result"] == "end"
    assert len(daemon.ctl("logs", "long", "--raw").raw) > 8_000_000
    assert turns["talkative"]["result"].startswith("xxx"), "cut perhaps, but the result and not its envelope"
    written = (daemon.agents_directory(daemon.show("odd")) / "turns" / "1" / "stdout").read_bytes()
    assert written.endswith(b"tail without newline")
    assert daemon.ctl("logs", "odd", "--raw").raw == written
    events = daemon.events("odd")
    assert "unknown" in [event["kind"] for event in events]
    assert {"type": "new_thing", "session_id": "x"} in [event["raw"] for event in events]
    assert "not utf-8" in daemon.ctl("logs", "odd").out
    assert not daemon.sandboxed(), "children that lived on are ended"


def test_a_failure_before_the_session_tells_what_the_program_said(daemon):
    daemon.start(agent=daemon.program("#!/bin/sh\ncat >/dev/null\necho 'Cannot use this model: X.' >&2\nexit 1\n"))
    done = daemon.ctl("spawn", "anna", "-w", daemon.workspace(), "--wait", "x")
    assert done.code == 5
    agent = daemon.show("anna")
    assert (agent["state"], agent["session_id"], agent["turn"]["exit_code"]) == ("failed", None, 1)
    assert "model" in done.error
    assert "X" in agent["turn"]["error"]


@pytest.mark.slow
def test_twenty_turns_at_once(running):
    work = running.workspace()
    names = [f"a{number}" for number in range(20)]
    for name in names:
        running.ok("spawn", name, "-w", work, f"/say I am {name}")
    agents = running.ok("wait", *names, "--timeout", "30")
    assert [running.show(name)["turn"]["result"] for name in names] == [f"I am {name}" for name in names]
    assert len({agent["session_id"] for agent in agents}) == 20
