"""Daemons that go away, stop or never answer, under the verbs that wait and those that don't."""

import contextlib
import itertools
import socket
import threading
import time

import pytest

from substrat import errors
from substrat.cli import connection as connection_module
from substrat.cli import many, outage
from substrat.cli.connection import Connection
from tests.cli.conftest import PATIENCE, Peer


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Seconds would make these tests long; the sentences name the constants."""
    monkeypatch.setattr(connection_module, "SILENCE_S", 0.05)
    monkeypatch.setattr(connection_module, "_GRACE_S", 0.05)


@pytest.fixture
def looks(monkeypatch):
    """A semaphore that counts how often the client has looked into a silence of the daemon's."""
    counted, look = threading.Semaphore(0), Connection._look_into_silence

    def looking(connection):
        look(connection)
        counted.release()

    monkeypatch.setattr(Connection, "_look_into_silence", looking)
    return counted


class Restarting:
    """A script for a daemon that closes the first connections after a request was read."""

    def __init__(self, losses, answer, agent):
        self.asked = []
        self._agent = agent
        self._losses = losses
        self._answer = answer

    def __call__(self, peer):
        peer.greet()
        while (request := peer.read()) is not None:
            self.asked.append((request["method"], request["params"]))
            if request["method"].startswith("agent.wait"):
                if self._losses:
                    self._losses -= 1
                    return
                peer.answer(request, self._answer)
            else:
                peer.answer(request, {"agent": self._agent, "message": 7})


@pytest.fixture
def restarting(fake, agent):
    def start(losses, answer):
        script = Restarting(losses, answer, agent())
        fake(script)
        return script

    return start


def test_wait_goes_on_across_restarts_with_the_time_that_is_left(ctl, restarting, agent):
    script = restarting(2, [agent()])
    done = ctl("wait", "anna", "--until", "idle", "--timeout", "100")
    assert (done.code, done.out) == (0, "anna  idle\n")
    assert done.err.count("waiting up to 30 s for it to come back") == 2
    times = [params.pop("timeout") for _, params in script.asked]
    assert script.asked == [("agent.wait", {"agents": ["anna"], "until": ["idle"]})] * 3
    assert 100 >= times[0] > times[1] > times[2]


@pytest.mark.parametrize("verb", ["send", "resume"])
def test_a_turn_is_waited_for_across_a_restart_and_its_prompt_sent_once(ctl, restarting, agent, verb):
    script = restarting(1, agent(turn={"result": "all done"}))
    words = {"send": ("send", "anna", "hi", "--wait"), "resume": ("resume", "anna", "--prompt", "hi", "--wait")}
    done = ctl(*words[verb])
    assert (done.code, done.out) == (0, "all done\n")
    waits = {"agent": agent()["id"], "message": 7}
    asked = [(f"agent.{verb}", {"agent": "anna", "prompt": "hi"}), ("agent.wait_message", waits)]
    assert script.asked == [*asked, asked[1]]


def test_a_spawned_agents_first_prompt_is_waited_for_by_its_number(ctl, fake, agent, tmp_path):
    waits = []

    def serve(peer):
        peer.greet()
        while (request := peer.read()) is not None:
            if request["method"] == "agent.spawn":
                peer.answer(request, {**agent(), "message": 12})
                continue
            waits.append(request["params"])
            if len(waits) == 1:
                return
            peer.answer(request, agent(turn={}))

    fake(serve)
    done = ctl("spawn", "anna", "hi", "-w", tmp_path, "--wait")
    assert (done.code, done.out) == (0, "all done\n")
    assert waits == [{"agent": agent()["id"], "message": 12}] * 2


def test_a_spawned_agent_is_printed_without_its_prompts_number(ctl, fake, agent, tmp_path):
    fake({"agent.spawn": {**agent(), "message": 12}})
    assert ctl("spawn", "anna", "hi", "-w", tmp_path, "--json").json == agent()


def test_answers_that_came_before_the_loss_are_not_asked_for_again(fake):
    asked = []

    def serve(peer):
        peer.greet()
        while (request := peer.read()) is not None:
            asked.append(request["params"]["agent"])
            if len(asked) == 3:
                return
            peer.answer(request, request["params"]["agent"])

    fake(serve)
    with Connection() as connection:
        calls: list[tuple[str, dict[str, object]]] = [("agent.wait_message", {"agent": name}) for name in "abcd"]
        assert outage.wait_for_all(connection, calls) == list("abcd")
    assert asked[:3] == list("abc")
    assert sorted(asked[3:]) == ["c", "d"]


@pytest.mark.parametrize(("patience", "more", "code"), [(0.2, (), 3), (30, ("--timeout", "0.3"), 124)])
def test_a_daemon_that_stays_away_ends_the_wait_and_its_time_counts(ctl, fake, monkeypatch, tmp_path, patience, more, code):
    monkeypatch.setattr(outage, "_PATIENCE_S", patience)

    def serve(peer):
        peer.greet()
        peer.read()
        (tmp_path / "daemon.sock").unlink()

    fake(serve)
    done = ctl("wait", "anna", *more)
    assert (done.code, done.out) == (code, "")
    assert ("no daemon came back within 0.2 s" in done.err) == (code == 3)


@pytest.mark.parametrize("greets", [True, False])
@pytest.mark.parametrize("words", [("wait", "anna"), ("send", "anna", "hi", "--wait"), ("resume", "anna", "--wait")])
def test_a_timeout_is_the_clients_too(ctl, fake, words, greets):
    fake(lambda peer: (greets and peer.greet(), *(peer.read() for _ in range(9))))
    done = ctl(*words, "--timeout", "0.2")
    assert (done.code, done.out) == (124, "")
    *told, last = done.err.splitlines()
    if not (words[0] == "wait" and greets):
        assert ["has not answered for 0.05 s; still waiting" in line for line in told] == [True]
    assert ("isn't known" in last) == (words[0] != "wait")


ANYTHING = {
    "drips": b" ",
    "floods": b'{"jsonrpc":"2.0","method":"event","params":{}}\n',
    "answers something else": b'{"jsonrpc":"2.0","id":777,"result":[]}\n',
    "greets again": b'{"jsonrpc":"2.0","id":0,"result":{}}\n',
}


class Endless:
    """A socket that has something to read at any time, so that no wait for bytes times out; it ends a test that fails."""

    def __init__(self, data):
        self._data = data
        self._reads = 0

    def recv(self, _size):
        self._reads += 1
        assert self._reads < 300_000
        return self._data

    def send(self, data):
        return len(data)

    def settimeout(self, seconds):
        self.seconds = seconds

    def gettimeout(self):
        return None

    def close(self):
        pass


@pytest.mark.parametrize("kind", ANYTHING)
def test_a_timeout_holds_for_a_daemon_that_sends_anything_but_answers(fake, monkeypatch, kind):
    fake(Peer.greet)
    with Connection(timeout=0.2) as connection:
        connection.greet()
        with contextlib.closing(connection._socket):
            monkeypatch.setattr(connection, "_socket", Endless(ANYTHING[kind]))
            with pytest.raises(errors.WaitTimedOut):
                connection.call("agent.wait", agents=["anna"])


@pytest.mark.parametrize(("words", "kind"), [*((("ls",), kind) for kind in ANYTHING), (("logs", "-f", "anna"), "drips")])
def test_a_daemon_that_sends_anything_but_answers_is_told_of(ctl, fake, monkeypatch, looks, words, kind):
    def serve(peer):
        peer.greet()
        deadline = time.monotonic() + PATIENCE
        with contextlib.suppress(OSError):
            while not looks.acquire(timeout=0.01 if kind == "drips" else 0) and time.monotonic() < deadline:
                peer.write(ANYTHING[kind] if kind == "drips" else ANYTHING[kind] * 100)

    monkeypatch.setattr(outage, "_PATIENCE_S", 0.0)
    fake(serve)
    assert "has not answered for 0.05 s; still waiting" in ctl(*words).err


def full_queue(path):
    """A socket that listens, with as many connections waiting as it takes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    others = []
    while True:
        others.append(socket.socket(socket.AF_UNIX))
        others[-1].setblocking(False)
        if others[-1].connect_ex(str(path)) != 0:
            return [listener, *others]


@pytest.mark.parametrize("words", [("wait", "anna"), ("send", "anna", "hi", "--wait")])
def test_a_daemon_whose_queue_is_full_costs_no_more_than_the_timeout(ctl, tmp_path, words):
    sockets = full_queue(tmp_path / "daemon.sock")
    try:
        done = ctl(*words, "--timeout", "0.2")
    finally:
        for held in sockets:
            held.close()
    assert (done.code, done.out) == (124, "")
    assert done.err.splitlines()[0].endswith("has not answered for 0.05 s; still waiting")


def test_a_connection_is_made_as_soon_as_the_queue_has_room(tmp_path, capsys):
    listener, *others = full_queue(tmp_path / "daemon.sock")

    def make_room():
        while "still waiting" not in "".join(said):
            said.append(capsys.readouterr().err)
            time.sleep(0.01)
        listener.accept()[0].close()

    said = []
    helper = threading.Thread(target=make_room)
    helper.start()
    try:
        Connection().__exit__()
        helper.join()
    finally:
        for held in (listener, *others):
            held.close()


@pytest.mark.parametrize("words", [("ls",), ("show", "anna"), ("send", "anna", "hi"), ("ls", "--tree"), ("logs", "anna")])
def test_a_daemon_that_takes_its_time_is_told_of_once(ctl, fake, agent, words, looks):
    patience = itertools.chain([PATIENCE], itertools.repeat(0.1))  # the silences after the first one aren't looked into

    def late(answer):
        def serve(_params):
            looks.acquire(timeout=next(patience))
            return answer

        return serve

    answers = {"agent.list": [agent()], "agent.show": agent(), "events.read": {"events": [], "cursor": 0}}
    fake({method: late(answer) for method, answer in {**answers, "agent.send": {"agent": agent(), "message": 1}}.items()})
    done = ctl(*words)
    assert done.code == 0
    assert done.error.endswith("daemon.sock has not answered for 0.05 s; still waiting")


@pytest.mark.parametrize(
    "words", [("wait", "anna"), ("suspend", "anna"), ("interrupt", "anna"), ("end", "anna", "--alone")]
)
def test_what_may_take_long_says_nothing_of_the_daemon_and_stopping_says_what_it_waits_for(
    ctl, fake, agent, words, monkeypatch, looks
):
    monkeypatch.setattr(connection_module, "SILENCE_S", 1.0)  # the greeting has to come within it

    def serve(peer):
        peer.greet()
        request = peer.read()
        assert looks.acquire(timeout=PATIENCE)
        peer.answer(request, [agent()] if words[0] == "wait" else agent())
        while (request := peer.read()) is not None:
            peer.answer(request, agent())

    fake(serve)
    done = ctl(*words)
    assert done.code == 0
    assert done.err == ("" if words[0] == "wait" else f"substratctl: {many.STOPPING}\n")


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        (("send", "anna", "hi"), "whether it took the prompt isn't known: look with 'substratctl show anna'"),
        (("send", "anna", "hi", "--wait"), "whether it took the prompt isn't known"),
        (("spawn", "anna", "hi", "-w", "/"), "whether the agent was created isn't known: look with 'substratctl ls'"),
        (("resume", "anna"), "which agents were resumed isn't known"),
    ],
)
def test_what_is_lost_with_its_answer_is_said_and_not_repeated(ctl, fake, words, unknown, monkeypatch):
    monkeypatch.setattr(connection_module, "SILENCE_S", 20.0)  # a busy machine is not told of
    asked = []

    def serve(peer):
        peer.greet()
        asked.append(peer.read())

    fake(serve)
    done = ctl(*words)
    assert (done.code, done.out) == (errors.NO_DAEMON, "")
    assert unknown in done.error
    assert [request["method"] for request in asked] == [f"agent.{words[0]}"]
