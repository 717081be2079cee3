"""What agents ask the operator and want to be told later: answers and reminders start turns, also after a restart."""

import contextlib
import json
import re
import sqlite3
import time


def ask(house, work, text="shall I?"):
    house.spawn("anna", work, f"/tool ask_operator {json.dumps({'question': text})}")
    (question,) = house.ok("inbox")
    return question


def test_a_question_and_its_answer(daemon):
    question = ask(daemon, daemon.workspace())
    assert (question["kind"], question["from"], question["text"]) == ("question", "anna", "shall I?")
    assert f"question {question['id']} waits for the operator" in daemon.tool("anna")[0]
    assert f"{question['id']}  " in daemon.ctl("inbox").out
    assert "anna  asks\n  shall I?" in daemon.ctl("inbox").out
    answered = daemon.ok("answer", str(question["id"]), "/say yes, do")
    assert daemon.ok("inbox") == []
    agent = daemon.wait("anna", "idle")
    assert agent["turn"]["number"] == 2
    assert "yes, do" in agent["turn"]["result"]
    prompt = daemon.events("anna", "user")[-1]["text"]
    assert f"The operator's answer to your question {question['id']}:" in prompt
    assert "> shall I?" in prompt
    assert answered["agent"]["name"] == "anna"
    kinds = [event["kind"] for event in daemon.events("anna")]
    assert [kind for kind in kinds if kind.startswith("question:")] == ["question:asked", "question:answered"]


def test_a_question_is_answered_once(daemon):
    question = ask(daemon, daemon.workspace())
    daemon.ok("answer", str(question["id"]), "yes")
    again = daemon.ctl("answer", str(question["id"]), "no")
    assert again.code == 1
    assert "settled already" in again.error
    assert daemon.ctl("answer", "999", "x").code == 4
    assert daemon.ctl("answer", "nobody", "x").code == 4
    assert daemon.ctl("answer", "1").code == 2


def test_the_one_open_question_of_an_agent_is_answered_by_its_name(daemon):
    ask(daemon, daemon.workspace())
    assert "substratctl answer anna TEXT" in daemon.ctl("show", "anna").out
    daemon.ok("answer", "anna", "/say by name")
    assert "by name" in daemon.wait("anna", "idle")["turn"]["result"]
    done = daemon.ctl("answer", "anna", "x")
    assert (done.code, "anna has no open question" in done.error) == (4, True)
    two = "\n".join(f'/tool ask_operator {{"question": "{text}"}}' for text in ("this?", "that?"))
    daemon.spawn("bert", daemon.workspace("other"), two)
    first, second = [item["id"] for item in daemon.ok("inbox")]
    done = daemon.ctl("answer", "bert", "x")
    assert (done.code, f"2 open questions, {first}, {second}: answer one by its number" in done.error) == (1, True)
    for view in (("ls",), ("show", "bert")):
        assert f"answer {first} TEXT" in daemon.ctl(*view).out
    assert daemon.show("bert")["attention"]["item"] == first
    daemon.ok("answer", str(first), "yes")
    assert f"answer {second} TEXT" not in daemon.ctl("ls").out
    assert "answer bert TEXT" in daemon.ctl("ls").out


def test_a_question_with_options_says_them_and_who_answers_otherwise_is_told(daemon):
    question = json.dumps({"question": "Which one?", "options": ["merge", "rename it"]})
    daemon.spawn("anna", daemon.workspace(), "\n".join([f"/tool ask_operator {question}"] * 2))
    first, second = [str(item["id"]) for item in daemon.ok("inbox")]
    assert f"Which one? (1 merge, 2 rename it): answer {first} TEXT" in daemon.ctl("ls").out
    done = daemon.ctl("answer", first, "2")
    assert ("answered: rename it (" in done.out, done.err) == (True, "")
    done = daemon.ctl("answer", second, "renam it")
    assert "none of the answers that were proposed" in done.error
    told = [event["text"] for event in daemon.events("anna", "question:answered")]
    assert told == [f"question {first}: rename it", f"question {second}: renam it"]


def test_a_question_survives_the_daemon(daemon):
    question = ask(daemon, daemon.workspace())
    daemon.kill()
    daemon.start()
    assert daemon.ok("inbox") == [question]
    daemon.ok("suspend", "anna")
    daemon.ok("answer", str(question["id"]), "/say fine")
    assert daemon.show("anna")["unread"] == 1, "the answer waits"
    daemon.ok("resume", "anna")
    assert "fine" in daemon.wait("anna", "idle")["turn"]["result"]


def test_an_item_can_be_dismissed(daemon):
    question = ask(daemon, daemon.workspace())
    daemon.spawn("bert", daemon.workspace("other"), '/tool send_message {"to": "operator", "text": "just so"}')
    message = daemon.ok("inbox")[1]
    assert message["kind"] == "message"
    assert daemon.ctl("inbox", "--dismiss", str(message["id"])).out.startswith(f"{message['id']}  dismissed; ")
    assert daemon.ok("inbox") == [question]
    assert daemon.ctl("inbox", "--dismiss", str(message["id"])).code == 1


def test_a_message_can_be_answered_too(daemon):
    daemon.spawn("bert", daemon.workspace(), '/tool send_message {"to": "operator", "text": "just so"}')
    (message,) = daemon.ok("inbox")
    daemon.ok("answer", str(message["id"]), "--prompt-file", "-", stdin=b"/say thanks")
    assert "thanks" in daemon.wait("bert", "idle")["turn"]["result"]


def test_what_is_settled_goes_with_its_agent(daemon):
    """Else each question would leave a row for ever; an open one goes too, because nobody is left to take the answer."""
    settled = ask(daemon, daemon.workspace())
    daemon.ok("answer", str(settled["id"]), "yes")
    daemon.wait("anna", "idle")
    assert daemon.ctl("send", "anna", '/tool ask_operator {"question": "and now?"}', "--wait").code == 6
    assert len(daemon.ok("inbox")) == 1
    daemon.ok("end", "anna")
    daemon.ok("rm", "anna")
    assert daemon.ok("inbox") == []
    daemon.stop()
    with contextlib.closing(sqlite3.connect(daemon.state / "substrat.db")) as database:
        assert database.execute("SELECT id, text FROM items").fetchall() == []


def test_an_agent_that_is_gone_gets_no_answer(daemon):
    question = ask(daemon, daemon.workspace())
    daemon.spawn("bert", daemon.workspace("other"), '/tool send_message {"to": "operator", "text": "just so"}')
    message = daemon.ok("inbox")[-1]
    daemon.ok("end", "anna")
    assert daemon.ok("inbox") == [message]
    refused = daemon.ctl("answer", str(question["id"]), "x")
    assert (refused.code, f"{question['id']} is settled already: anna has ended" in refused.error) == (1, True)
    daemon.ok("rm", "anna", "bert")
    assert daemon.ctl("answer", str(question["id"]), "x").code == 4
    gone = daemon.ctl("answer", str(message["id"]), "x")
    assert gone.code == 4
    assert f"inbox --dismiss {message['id']}" in gone.error
    daemon.ok("inbox", "--dismiss", str(message["id"]))


def until_prompts(house, count):
    deadline = time.monotonic() + 20
    while len(found := house.events("anna", "user")) < count:
        assert time.monotonic() < deadline
    house.wait("anna", "idle")
    return [event["text"] for event in found]


def test_a_reminder_that_is_due_while_no_daemon_runs_is_told_by_the_next_one(daemon):
    daemon.spawn("anna", daemon.workspace(), '/tool remind_me {"text": "wake up", "seconds": 0.5}')
    daemon.kill()
    due = time.time() + 0.6
    while time.time() < due:
        pass
    daemon.start()
    assert "You wanted to be reminded: wake up" in until_prompts(daemon, 2)[1]
    daemon.kill()
    daemon.start()
    assert len(until_prompts(daemon, 2)) == 2


def test_reminders_are_listed_and_cancelled(daemon):
    script = '/tool remind_me {"text": "never", "seconds": 86400}\n/tool whoami {}'
    daemon.spawn("anna", daemon.workspace(), script)
    made, who = daemon.tool("anna")
    number = int(re.match(r"reminder (\d+) is due at 20", made)[1])
    (reminder,) = json.loads(who)["reminders"]
    assert (reminder["id"], reminder["text"]) == (number, "never")
    again = f'/tool cancel_reminder {{"reminder": {number}}}\n' * 2 + "/tool whoami {}"
    daemon.ok("send", "anna", again, "--wait")
    cancelled, refused, who = daemon.tool("anna")[2:]
    assert cancelled == f"reminder {number} is cancelled"
    assert refused == f"!anna has no reminder {number}"
    assert json.loads(who)["reminders"] == []
