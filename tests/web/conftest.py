"""A daemon, and the page's server in front of it as a process of its own."""

import http.client
import json
import shutil
from typing import Any, NamedTuple

import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.support.daemon import DaemonFixture
from tests.support.waiting import PATIENCE

DESK = {"width": 1440, "height": 900}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]["type"]


def offered(token):
    """Return the subprotocols that show a token to the WebSocket."""
    return [Subprotocol("substrat.v1"), Subprotocol(f"token.{token}")]


class Web:
    """A running `substratctl web`."""

    def __init__(self, daemon, *options):
        self.process = daemon.follow("web", "--port", "0", *options)
        self.line = self.process.stdout.readline().decode()
        assert self.line.startswith("http://127.0.0.1:"), self.line + self.process.stderr.read().decode()
        self.host = self.line.removeprefix("http://").partition("/")[0]
        self.port = int(self.host.rpartition(":")[2])
        self.origin = f"http://{self.host}"
        self.token = (daemon.runtime / "web.token").read_text().strip()

    def ask(self, path, body=None, *, verb=None, token="own", **headers):
        """Ask for a path; headers' names have underscores for hyphens. A body that isn't bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        found = {"Host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if token:
            found.setdefault("Authorization", f"Bearer {self.token if token == 'own' else token}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            found.setdefault("Content-Type", "application/json")
        try:
            connection.putrequest(verb or ("GET" if body is None else "POST"), path, skip_host=True)
            for name, value in found.items():
                for one in value if isinstance(value, list) else [value]:
                    connection.putheader(name, one)
            connection.putheader("Content-Length", str(len(body or b"")))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path, **how):
        """Return what a path of the API answers."""
        found = self.ask(f"/api/v1{path}", **how)
        assert found.status == 200, found
        return found.json

    def post(self, path, **body):
        found = self.ask(f"/api/v1{path}", body)
        assert found.status in {200, 201}, found
        return found.json

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class EventSource:
    """Server-sent events, read by hand."""

    def __init__(self, web, query="", **headers):
        self._connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)
        sent = {"Authorization": f"Bearer {web.token}", "Accept": "text/event-stream", **headers}
        self._connection.request("GET", f"/api/v1/events{query}", headers=sent)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        assert self._answer.headers["Content-Type"] == "text/event-stream"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._answer.close()
        self._connection.close()

    def next(self):
        while not (line := self._answer.readline()).startswith(b"id: "):
            assert line, "the stream has ended"
        cursor = int(line[4:])
        event = json.loads(self._answer.readline().removeprefix(b"data: "))
        assert event["cursor"] == cursor
        return event

    def until(self, kind):
        found = [self.next()]
        while found[-1]["kind"] != kind:
            found.append(self.next())
        return found


class Messages:
    """Events of a WebSocket: each a message, or, where they are gathered, a line of one."""

    def __init__(self, web, query=""):
        address = f"ws://127.0.0.1:{web.port}/api/v1/stream{query}"
        self._connecting = connect(address, subprotocols=offered(web.token), max_size=None)
        self._lines = []
        self._is_gathered = "gathered=true" in query

    def __enter__(self):
        self._socket = self._connecting.__enter__()
        return self

    def __exit__(self, *failure):
        self._connecting.__exit__(*failure)

    def next(self):
        if not self._lines:
            message = self._socket.recv(PATIENCE, decode=True)
            self._lines = message.split("\n") if self._is_gathered else [message]
        return json.loads(self._lines.pop(0))

    def until(self, kind):
        found = [self.next()]
        while found[-1]["kind"] != kind:
            found.append(self.next())
        return found


def unpaired(event):
    """What the journal has of an event: without what a stream adds."""
    return {name: value for name, value in event.items() if name not in {"call", "journal"}}


@pytest.fixture(scope="module")
def _place(tmp_path_factory):
    with DaemonFixture(tmp_path_factory.mktemp("web")) as daemon:
        yield daemon.start()


@pytest.fixture(scope="module")
def _server(_place):
    return Web(_place)


@pytest.fixture
def daemon(_place):
    """A daemon without agents, that is shared with the other tests of the module."""
    _place.clear()
    yield _place
    _place.close_streams()


@pytest.fixture
def web(_server, daemon):
    """The page's server, shared too."""
    return _server


@pytest.fixture
def anna(daemon):
    """An agent whose turn has ended."""
    return daemon.spawn("anna", daemon.workspace(), "/shell echo hi\nGood morning.")


@pytest.fixture
def serve(daemon):
    """Start further servers with options."""
    started = []

    def start(*options):
        started.append(Web(daemon, *options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def chromium():
    """A browser; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright isn't installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--headless=new"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, web):
    """Open the page, with the link's token; none of its code may fail."""
    contexts, problems = [], []

    def open_page(size=DESK, fragment=None):
        context = chromium.new_context(viewport=size)
        context.set_default_timeout(PATIENCE * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
        page.goto(f"{web.origin}/#{f'token={web.token}' if fragment is None else fragment}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
