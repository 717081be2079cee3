"""The blocking conversation with the daemon, against a scripted one."""

import json
import os
import threading

import pytest

from substrat import __version__, errors
from substrat.cli.connection import Connection, as_list, as_object
from substrat.cli.follow import Feed
from substrat.protocol import framing


def test_nothing_is_sent_before_an_answer_is_asked_for_and_hello_comes_first(fake):
    daemon = fake({"agent.list": []})
    with Connection() as connection:
        first, second = connection.submit("agent.list", {}), connection.submit("agent.list", {})
        assert daemon.requests == []
        assert connection.answer(second) == []
        assert connection.answer(first) == []
    assert [request["method"] for request in daemon.requests] == ["hello", "agent.list", "agent.list"]
    assert daemon.calls("hello") == [{"protocol": 1, "client": f"substratctl {__version__}"}]
    assert all(request["jsonrpc"] == "2.0" for request in daemon.requests)
    assert len({request["id"] for request in daemon.requests}) == 3


def test_greet(fake):
    fake({})
    with Connection() as connection:
        assert connection.greet()["server"] == "substratd 9.9"
        assert connection.greet() is connection.server


def test_answers_in_any_order_and_notifications_between(fake, event):
    def serve(peer):
        peer.greet()
        requests = [peer.read() for _ in range(3)]
        for number, request in enumerate(reversed(requests)):
            peer.event(1, event("user", str(number), cursor=number))
            peer.answer(request, {"was": request["params"]["agent"]})

    fake(serve)
    with Connection() as connection:
        numbers = [connection.submit("agent.show", {"agent": name}) for name in "abc"]
        assert [connection.answer(number) for number in numbers] == [{"was": name} for name in "abc"]
        shown = [connection.next_event() for _ in range(3)]
        assert [(params["event"]["text"], blocks) for params, blocks in shown] == [("0", False), ("1", False), ("2", True)]


def test_next_event_ends_with_the_awaited_answer(fake, event):
    def serve(peer):
        peer.greet()
        request = peer.read()
        peer.event(1, event("user", "x"))
        peer.answer(request, [])
        assert peer.read() is None

    fake(serve)
    with Connection() as connection:
        number = connection.submit("agent.wait", {"agents": ["a"]})
        assert connection.next_event(until=number)[0]["event"]["text"] == "x"
        assert connection.next_event(until=number) == (None, True)
        assert connection.has_answer(number)
        assert connection.take_answer(number) == []
        with pytest.raises(KeyError):
            connection.take_answer(number)


def test_many_requests_stay_within_the_window(fake):
    waiting, most = [], []

    def serve(peer):
        peer.greet()
        for _ in range(300):
            waiting.append(peer.read())
            most.append(len(waiting))
            # The client fills its window before it waits for the first answer.
            if len(waiting) == framing.MAX_IN_FLIGHT // 2 or len(most) > 270:
                while waiting:
                    request = waiting.pop(0)
                    name = request["params"]["agent"]
                    peer.fail(request, errors.NotFound(name)) if name.endswith("7") else peer.answer(request, name)

    fake(serve)
    with Connection() as connection:
        outcomes = connection.each(("agent.end", {"agent": str(number)}) for number in range(300))
    assert max(most) <= framing.MAX_IN_FLIGHT // 2
    assert [str(outcome) for outcome in outcomes] == [str(number) for number in range(300)]
    assert {type(outcome) for outcome in outcomes} == {str, errors.NotFound}


def test_each_ends_when_the_connection_is_lost(fake):
    fake(lambda peer: (peer.greet(), peer.read()))
    with Connection() as connection, pytest.raises(errors.ConnectionLost):
        connection.each(("agent.end", {"agent": str(number)}) for number in range(3))


@pytest.mark.parametrize("last", [b"", b'{"jsonrpc":"2.0","id":1,"resu'])
def test_a_lost_connection_is_told(fake, last):
    def serve(peer):
        peer.greet()
        peer.read()
        peer.write(last)

    daemon = fake(serve)
    with Connection() as connection, pytest.raises(errors.ConnectionLost, match=daemon.path):
        connection.call("agent.list")


def test_a_daemon_that_closes_before_it_reads(fake):
    closed = threading.Event()

    def serve(peer):
        peer.close()
        closed.set()

    fake(serve)
    with Connection() as connection:
        assert closed.wait(20)
        with pytest.raises(errors.ConnectionLost):
            connection.call("agent.list")


def test_something_that_is_no_daemon(fake, ctl):
    fake(lambda peer: (peer.write(b"HTTP/1.1 400 Bad Request\r\n"), peer.read(), peer.read()))
    done = ctl("ls")
    assert (done.code, done.out) == (1, "")
    assert "isn't a substratd" in done.error


def test_a_huge_answer(fake):
    text = "é" * (3 * framing.MAX_LINE // 6)
    fake({"agent.show": {"text": text}})
    with Connection() as connection:
        assert connection.call("agent.show", agent="a") == {"text": text}


@pytest.mark.parametrize("length", [90, 107, 108, 109, 400])
def test_socket_paths_of_any_length(fake, tmp_path, length, ctl, monkeypatch):
    path = tmp_path / "d" / "s"
    while len(str(path)) < length:
        path = path.parent / "d" / "s" if length - len(str(path)) > 1 else path.parent / "ss"
    path.parent.mkdir(parents=True)
    assert len(str(path)) >= length
    monkeypatch.setenv("SUBSTRAT_SOCKET", str(path))
    assert ctl("ls").code == 3
    fake({"agent.list": []}, path=path)
    before = len(os.listdir("/proc/self/fd"))
    assert ctl("ls", "--json").json == []
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_sockets_that_lead_nowhere(ctl, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / name for name in ("none", "file", "no/dir", "file/x", "", "x" * 300)):
        monkeypatch.setenv("SUBSTRAT_SOCKET", str(path))
        done = ctl("ls")
        assert (done.code, done.out) == (3, "")
        assert done.error.startswith(f"can't reach {path}: ")
        assert "start one with 'substratd'" in done.error


def test_results_of_another_form():
    assert as_object("m", {}) == {}
    assert as_list("m", [{}]) == [{}]
    for check, wrong in ((as_object, []), (as_object, None), (as_list, {}), (as_list, [1]), (as_list, None)):
        with pytest.raises(errors.SubstratError, match="the daemon's answer to m has another form"):
            check("m", wrong)


# Events, page by page and as they come


def test_past_events_are_read_to_the_empty_page(fake, event):
    events = [event("user", str(number), cursor=number) for number in range(1, 8)]

    def read(params):
        page = [found for found in events if found["cursor"] > params["since"]][:3]
        return {"events": page, "cursor": page[-1]["cursor"] if page else params["since"]}

    daemon = fake({"events.read": read})
    feed = Feed(Connection(), None, 0)
    assert list(feed.past()) == events
    assert [call["since"] for call in daemon.calls("events.read")] == [0, 3, 6, 7]
    assert list(feed.past()) == []
    feed.close()


def test_following_goes_on_across_a_restart_and_gives_each_event_once(fake, event, capsys):
    texts = ["before", "live", "after", "last"]
    events = [event("user", text, cursor=cursor, agent="a") for cursor, text in enumerate(texts, 11)]
    stored, orders, reads = events[:1], [], []

    def serve(peer):
        peer.greet()
        while (request := peer.read()) is not None:
            since = request["params"].get("since", 0)
            if request["method"] == "events.read":
                reads.append(since)
                found = [one for one in stored if one["cursor"] > since]
                peer.answer(request, {"events": found, "cursor": max(since, *(one["cursor"] for one in stored))})
            elif request["method"] == "events.subscribe":
                orders.append(request["params"])
                peer.answer(request, {"subscription": 1, "cursor": since})
                peer.event(1, events[len(orders)])
                stored[:] = events[: len(orders) + 1]
                if len(orders) == 1:
                    return
            else:
                stored[:] = events
                peer.answer(request, [])

    fake(serve)
    feed = Feed(Connection(), ["a"], -20)
    assert [found["text"] for found in feed.follow()] == texts
    feed.close()
    assert reads[0] == -20
    assert orders == [{"agent": "a", "since": 11}, {"agent": "a", "since": 12}]
    assert "waiting up to 30 s for it to come back" in capsys.readouterr().err


def test_an_outage_is_told_once_however_many_connections_it_costs(fake, capsys):
    served = []

    def serve(peer):
        served.append(peer)
        if len(served) in {2, 3}:
            # A daemon that dies or starts may take a connection and close it at once.
            return
        peer.greet()
        while (request := peer.read()) is not None:
            if request["method"] == "events.read":
                peer.answer(request, {"events": [], "cursor": 10})
            elif request["method"] == "events.subscribe":
                peer.answer(request, {"subscription": 1, "cursor": 10})
            elif len(served) == 1:
                return
            else:
                peer.answer(request, [])

    fake(serve)
    ended = []
    feed = Feed(Connection(), ["a"], 0, before_notice=lambda: ended.append("line"))
    assert list(feed.follow()) == []
    feed.close()
    assert len(served) == 4
    assert ended == ["line"]
    assert capsys.readouterr().err.count("\n") == 1


def test_following_goes_on_without_an_agent_that_is_removed(fake, event):
    said, missing = event("user", "hi", cursor=1, agent="b"), errors.NotFound("there is no a")
    pages = {("b", 0): [said]}
    daemon = fake({
        "events.read": lambda asked: {"events": pages.get((asked["agent"], asked["since"]), []), "cursor": 1},
        "events.subscribe": lambda params: missing if params["agent"] == "a" else {"subscription": 1, "cursor": 1},
        "agent.list": [{"id": "b"}], "agent.wait": [],
    })  # fmt: skip
    feed = Feed(Connection(), ["a", "b"], 0)
    assert list(feed.follow()) == [said]
    feed.close()
    assert [call["agents"] for call in daemon.calls("agent.wait")] == [["b"]]


def test_an_event_without_a_cursor_is_another_version(fake):
    fake({"events.read": {"events": [{}], "cursor": None}})
    feed = Feed(Connection(), None, 0)
    with pytest.raises(errors.SubstratError, match="are both of one version"):
        list(feed.past())
    feed.close()


def test_logs_are_rendered_json_or_raw(ctl, fake, agent, event):
    import base64

    events = [event("user", "do it", cursor=1), event("assistant", "ok \x1b[2J", cursor=2)]
    lines = [{**events[0]}, {**events[1], "line": base64.b64encode(b'{"a": "\x1b"}\n').decode()}]

    def read(params):
        page = (lines if params.get("lines") else events) if params["since"] == 0 else []
        return {"events": page, "cursor": 2}

    daemon = fake({"agent.show": agent(), "events.read": read})
    assert ctl("logs", "anna").out == "> do it\nok \\x1b[2J\n"
    assert [json.loads(line) for line in ctl("logs", "anna", "--json").out.splitlines()] == events
    assert ctl("logs", "anna", "--raw").out == '{"a": "\x1b"}\n'
    assert {call["agent"] for call in daemon.calls("events.read")} == {agent()["id"]}


def test_all_events_have_their_agents_names(ctl, fake, agent, event):
    events = [event("assistant", "hi", cursor=1), event("assistant", "gone", cursor=2, agent="99999999-x")]
    daemon = fake(
        {"agent.list": [agent()], "events.read": lambda p: {"events": events if p["since"] == 0 else [], "cursor": 2}}
    )
    assert ctl("events").out == "10:20:30 anna  hi\n10:20:30 99999999  gone\n"
    assert len(daemon.calls("agent.list")) == 2
    assert len(ctl("events", "--json").out.splitlines()) == 2
