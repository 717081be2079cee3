"""The script's actions on files, commands and time."""

import os
from pathlib import Path

import pytest

from tests.support.processes import arguments_of, processes


def test_lines_that_are_no_action_are_spoken_back(standin):
    assert standin.run("hello\n  indented\n/nonsense 1\n/\n\n/say  two  spaces\r\n").text == (
        "hello\n  indented\n/nonsense 1\n/\n two  spaces"
    )


@pytest.mark.parametrize(
    "line",
    ["/sleep soon", "/emit 3", "/exit now", "/tool x {", "/tool x []", "/fail nothing", "/shell ", "/show", "/show read x"],
)
def test_a_malformed_action_is_said_and_not_performed(standin, line):
    assert standin.run(f"{line}\nend").text.startswith(f"{line} (not performed: ")


def test_a_shell_that_succeeds_fails_is_killed_or_leaves_a_child_with_its_pipes(standin):
    script = "echo out; echo err >&2; pwd", "echo half; exit 7", "kill -9 $$", "sleep 1000 & echo $!"
    result, exited, killed, left = standin.run("".join(f"/shell {line}\n" for line in script)).calls("shell")
    os.kill(int(left["success"]["stdout"]), 9)
    success = result["success"]
    assert list(success) == [
        *("command", "workingDirectory", "exitCode", "signal", "stdout", "stderr", "executionTime"),
        *("interleavedOutput", "localExecutionTimeMs"),
    ]
    assert success["stdout"] == f"out\n{standin.workspace}\n"
    assert success["stderr"] == "err\n"
    assert (success["exitCode"], success["signal"]) == (0, "")
    assert exited["failure"]["exitCode"] == 7
    assert exited["failure"]["stdout"] == "half\n"
    assert exited["failure"]["aborted"] is False
    assert (killed["failure"]["exitCode"], killed["failure"]["signal"]) == (137, "SIGKILL")


def test_shell_commands_lead_their_own_group_and_know_the_agent(standin):
    script = "/shell test $$ = $(ps -o pgid= $$) && test $$ = $(ps -o sid= $$) && echo leader\n/shell env"
    outcome = standin.run(script)
    leader, environ = (result["success"]["stdout"] for result in outcome.calls("shell"))
    assert leader == "leader\n"
    assert "CURSOR_AGENT=1\n" in environ
    assert f"CURSOR_CONVERSATION_ID={outcome.result['session_id']}\n" in environ


def test_long_shell_output_is_also_in_a_file(standin):
    short, long = standin.run("/shell head -c 40000 /dev/zero | tr '\\0' x\n/shell seq 10000").calls("shell")
    assert "outputLocation" not in short["success"]
    found = long["success"]
    whole = "".join(f"{number}\n" for number in range(1, 10001))
    assert found["stdout"] == whole
    assert list(found)[-4:] == ["outputLocation", "outputHead", "outputTail", "elidedChars"]
    assert found["outputLocation"]["sizeBytes"] == str(len(whole))
    assert found["outputLocation"]["lineCount"] == "10000"
    assert Path(found["outputLocation"]["filePath"]).read_text() == whole
    assert whole.startswith(found["outputHead"])
    assert whole.endswith(found["outputTail"])
    assert len(found["outputHead"]) + found["elidedChars"] + len(found["outputTail"]) == len(whole)


def test_write(standin):
    outcome = standin.run("/write sub/f some text\n/write sub/f other\n/write sub text")
    created, replaced, failed = outcome.calls("edit")
    assert "error" in failed, "a directory is there"
    assert (standin.workspace / "sub" / "f").read_text() == "other"
    assert "beforeFullFileContent" not in created["success"]
    assert created["success"]["afterFullFileContent"] == "some text"
    assert replaced["success"]["beforeFullFileContent"] == "some text"
    assert replaced["success"]["diffString"] == "-some text\n+other"
    started = outcome.of("tool_call", "started")[0]["tool_call"]["editToolCall"]["args"]
    assert started == {"path": str(standin.workspace / "sub" / "f"), "streamContent": "some text"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_write_without_permission(standin):
    standin.workspace.chmod(0o500)
    assert "writePermissionDenied" in standin.run("/write f text").calls("edit")[0]


def test_stderr_and_exit(standin):
    outcome = standin.run("before\n/stderr watch out\n/exit 9\nafter")
    assert (outcome.code, outcome.stderr) == (9, "watch out\n")
    assert [line["type"] for line in outcome.lines] == ["system", "user"]
    assert standin.chats == []
    assert standin.run("/exit 0").of("result") == []


def test_hang_prints_the_result_and_stays(standin):
    running = standin.start("hello\n/hang\nnever said")
    assert running.read_until("result")["result"] == "hello"
    assert running.process.poll() is None
    assert running.signal(15).code == 143
    assert len(standin.chats) == 1


def test_parallel_calls_interleave(standin):
    # The slow one waits until the quick one has been reaped, which is when its end is known.
    slow = "while ! test -s pid; do sleep 0.01; done; while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done; echo slow"
    outcome = standin.run(f"/parallel {slow} ;; echo $$ > pid; echo quick")
    assert [line["subtype"] for line in outcome.of("tool_call")] == ["started", "started", "completed", "completed"]
    assert [result["success"]["stdout"] for result in outcome.calls("shell")] == ["quick\n", "slow\n"]
    assert len({line["call_id"] for line in outcome.of("tool_call")}) == 2


def test_the_result_waits_for_background_commands(standin):
    outcome = standin.run("/background while ! test -e go; do sleep 0.01; done; echo done\nspoken\n/shell touch go\nend")
    (background, _) = outcome.calls("shell")
    assert background["success"]["backgroundReason"] == "SHELL_BACKGROUND_REASON_USER_REQUEST"
    (notice,) = outcome.of("system", "task_notification")
    assert (notice["status"], notice["task_id"]) == ("completed", str(background["success"]["shellId"]))
    assert outcome.lines.index(notice) < len(outcome.lines) - 1
    assert (standin.project / "terminals" / f"{notice['task_id']}.txt").read_text() == "done\n"


def test_background_commands_can_be_bounded_or_left(standin, until):
    bounded = standin.run("/background sleep 30\nend", "--background-shell-timeout", "0.05")
    assert bounded.of("system", "background_shell_timeout")
    assert bounded.text == "end"
    scripted = standin.run("/background-timeout 0.05\n/background sleep 30\nend")
    assert scripted.of("system", "background_shell_timeout")
    left = standin.run("/background touch started; sleep 30\nend", "--single-turn")
    until((standin.workspace / "started").exists)
    os.kill(left.calls("shell")[0]["success"]["pid"], 9)


def test_a_worker_outlives_the_run_in_its_own_session(standin, until):
    running = standin.start("/worker\nend\n/hang")
    running.read_until("result")
    words = {"worker-server", str(standin.workspace)}
    (pid,) = until(lambda: [pid for pid in processes() if words <= set(arguments_of(pid))])
    running.signal(9)
    assert os.getsid(pid) == pid
    os.kill(pid, 9)
