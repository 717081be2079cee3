"""What agents ask the operator and want to be told later: answers and reminders start turns, also after a restart."""

import contextlib
import json
import re
import sqlite3
import time


def ask(daemon, work, text="shall I?"):
    daemon.spawn("anna", work, f"/tool ask_operator {json.dumps({'question': text})}")
    (question,) = daemon.ok("inbox")
    return question


def test_a_question_is_answered_once(running):
    question = ask(running, running.workspace())
    assert (question["kind"], question["from"], question["text"]) == ("question", "anna", "shall I?")
    assert f"question {question['id']} waits for the operator" in running.tool("anna")[0]
    assert f"{question['id']}  " in running.ctl("inbox").out
    assert "anna  asks\n  shall I?" in running.ctl("inbox").out
    answered = running.ok("answer", str(question["id"]), "/say yes, do")
    assert running.ok("inbox") == []
    agent = running.wait("anna", "idle")
    assert agent["turn"]["number"] == 2
    assert "yes, do" in agent["turn"]["result"]
    prompt = running.events("anna", "user")[-1]["text"]
    assert f"The operator's answer to your question {question['id']}:" in prompt
    assert "> shall I?" in prompt
    assert answered["agent"]["name"] == "anna"
    kinds = [event["kind"] for event in running.events("anna")]
    assert [kind for kind in kinds if kind.startswith("question:")] == ["question:asked", "question:answered"]
    again = running.ctl("answer", str(question["id"]), "no")
    assert again.code == 1
    assert "settled already" in again.error
    assert running.ctl("answer", "999", "x").code == running.ctl("answer", "nobody", "x").code == 4
    assert running.ctl("answer", "1").code == 2


def test_the_one_open_question_of_an_agent_is_answered_by_its_name(running):
    ask(running, running.workspace())
    assert "substratctl answer anna TEXT" in running.ctl("show", "anna").out
    running.ok("answer", "anna", "/say by name")
    assert "by name" in running.wait("anna", "idle")["turn"]["result"]
    done = running.ctl("answer", "anna", "x")
    assert (done.code, "anna has no open question" in done.error) == (4, True), done
    two = "\n".join(f'/tool ask_operator {{"question": "{text}"}}' for text in ("this?", "that?"))
    running.spawn("bert", running.workspace("other"), two)
    first, second = [item["id"] for item in running.ok("inbox")]
    done = running.ctl("answer", "bert", "x")
    assert (done.code, f"2 open questions, {first}, {second}: answer one by its number" in done.error) == (1, True), done
    for view in (("ls",), ("show", "bert")):
        assert f"answer {first} TEXT" in running.ctl(*view).out
    assert running.show("bert")["attention"]["item"] == first
    running.ok("answer", str(first), "yes")
    assert f"answer {second} TEXT" not in running.ctl("ls").out
    assert "answer bert TEXT" in running.ctl("ls").out


def test_a_question_with_options_says_them_and_who_answers_otherwise_is_told(running):
    question = json.dumps({"question": "Which one?", "options": ["merge", "rename it"]})
    running.spawn("anna", running.workspace(), "\n".join([f"/tool ask_operator {question}"] * 2))
    first, second = [str(item["id"]) for item in running.ok("inbox")]
    assert f"Which one? (1 merge, 2 rename it): answer {first} TEXT" in running.ctl("ls").out
    done = running.ctl("answer", first, "2")
    assert ("answered: rename it (" in done.out, done.err) == (True, ""), done
    done = running.ctl("answer", second, "renam it")
    assert "none of the answers that were proposed" in done.error
    told = [event["text"] for event in running.events("anna", "question:answered")]
    assert told == [f"question {first}: rename it", f"question {second}: renam it"]


def test_a_question_survives_the_daemon(running):
    question = ask(running, running.workspace())
    running.kill()
    running.start()
    assert running.ok("inbox") == [question]
    running.ok("suspend", "anna")
    running.ok("answer", str(question["id"]), "/say fine")
    assert running.show("anna")["unread"] == 1, "the answer waits"
    running.ok("resume", "anna")
    assert "fine" in running.wait("anna", "idle")["turn"]["result"]


def test_a_message_can_be_answered_too_or_dismissed(running):
    question = ask(running, running.workspace())
    just_so = '/tool send_message {"to": "operator", "text": "just so"}'
    running.spawn("bert", running.workspace("other"), f"{just_so}\n{just_so}")
    _, one, other = running.ok("inbox")
    assert one["kind"] == "message"
    assert running.ctl("inbox", "--dismiss", str(one["id"])).out.startswith(f"{one['id']}  dismissed; ")
    assert running.ok("inbox") == [question, other]
    assert running.ctl("inbox", "--dismiss", str(one["id"])).code == 1
    running.ok("answer", str(other["id"]), "--prompt-file", "-", stdin=b"/say thanks")
    assert "thanks" in running.wait("bert", "idle")["turn"]["result"]


def test_what_is_settled_goes_with_its_agent(running):
    """Else each question would leave a row for ever; an open one goes too, because nobody is left to take the answer."""
    settled = ask(running, running.workspace())
    running.ok("answer", str(settled["id"]), "yes")
    running.wait("anna", "idle")
    assert running.ctl("send", "anna", '/tool ask_operator {"question": "and now?"}', "--wait").code == 6
    assert len(running.ok("inbox")) == 1
    running.ok("end", "anna")
    running.ok("rm", "anna")
    assert running.ok("inbox") == []
    running.stop()
    with contextlib.closing(sqlite3.connect(running.state / "substrat.db")) as database:
        assert database.execute("SELECT id, text FROM items").fetchall() == []


def test_an_agent_that_is_gone_gets_no_answer(running):
    question = ask(running, running.workspace())
    running.spawn("bert", running.workspace("other"), '/tool send_message {"to": "operator", "text": "just so"}')
    message = running.ok("inbox")[-1]
    running.ok("end", "anna")
    assert running.ok("inbox") == [message]
    refused = running.ctl("answer", str(question["id"]), "x")
    assert (refused.code, f"{question['id']} is settled already: anna has ended" in refused.error) == (1, True), refused
    running.ok("rm", "anna", "bert")
    assert running.ctl("answer", str(question["id"]), "x").code == 4
    gone = running.ctl("answer", str(message["id"]), "x")
    assert gone.code == 4
    assert f"inbox --dismiss {message['id']}" in gone.error
    running.ok("inbox", "--dismiss", str(message["id"]))


def until_prompts(daemon, count):
    deadline = time.monotonic() + 20
    while len(found := daemon.events("anna", "user")) < count:
        assert time.monotonic() < deadline
    daemon.wait("anna", "idle")
    return [event["text"] for event in found]


def test_a_reminder_that_is_due_while_no_daemon_runs_is_told_by_the_next_one(running):
    running.spawn("anna", running.workspace(), '/tool remind_me {"text": "wake up", "in_s": 0.5}')
    running.kill()
    due = time.time() + 0.6
    while time.time() < due:
        pass
    running.start()
    assert "You wanted to be reminded: wake up" in until_prompts(running, 2)[1]
    running.kill()
    running.start()
    assert len(until_prompts(running, 2)) == 2


def test_reminders_are_listed_and_cancelled(running):
    script = '/tool remind_me {"text": "never", "in_s": 86400}\n/tool whoami {}'
    running.spawn("anna", running.workspace(), script)
    made, who = running.tool("anna")
    number = int(re.match(r"reminder (\d+) is due at 20", made)[1])
    (reminder,) = json.loads(who)["reminders"]
    assert (reminder["id"], reminder["text"]) == (number, "never")
    again = f'/tool cancel_reminder {{"reminder": {number}}}\n' * 2 + "/tool whoami {}"
    running.ok("send", "anna", again, "--wait")
    cancelled, refused, who = running.tool("anna")[2:]
    assert cancelled == f"reminder {number} is cancelled"
    assert refused == f"!anna has no reminder {number}"
    assert json.loads(who)["reminders"] == []
