"""Who may ask the page's server: each line of the rule, with a request that may beside it."""

import re
import socket
import stat
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from substrat.web.access import PAGE_FILES, Access, Asked, judge
from substrat.web.routes import ROUTES
from tests.support.processes import descriptors
from tests.support.terminal import Screen
from tests.support.waiting import PATIENCE, wait_until
from tests.web.conftest import EventSource, offered

WHO = Access(frozenset({"127.0.0.1:1"}), frozenset({"http://127.0.0.1:1"}))
MAY = Asked("POST", "/api/v1/agents", ("127.0.0.1:1",), ("http://127.0.0.1:1",), "application/json", ("secret",))


def refused(*, who=WHO, token="secret", **changed):
    refusal = judge(who, token, MAY._replace(**changed))
    return refusal and refusal.status


def test_what_is_asked_rightly_may():
    assert refused() is None
    assert refused(origins=()) is None  # a script
    assert refused(verb="GET", kind="") is None
    assert refused(path="/", verb="GET", tokens=(), kind="") is None
    assert refused(is_ambiguous=True) == 400


def test_each_rule_refuses_by_itself():
    hosts = [(), ("127.0.0.1",), ("localhost:1",), ("127.0.0.1:2",), ("evil.example:1",), ("127.0.0.1:1", "127.0.0.1:1")]
    assert {refused(hosts=host) for host in hosts} == {421}
    assert refused(hosts=("evil.example:1",), path="/", verb="GET", tokens=()) == 421
    others = ["http://127.0.0.1:2", "https://127.0.0.1:1", "http://localhost:1", "http://127.0.0.1:1.evil.example"]
    assert {refused(origins=(origin,)) for origin in [*others, "null", ""]} == {403}
    assert refused(origins=("null",), verb="GET", path="/", tokens=()) == 403
    wrong = ["", "secre", "secret ", "Secret", "\u017fecret"]
    assert {refused(tokens=tokens) for tokens in [(), *((one,) for one in wrong)]} == {401}
    assert refused(token="", tokens=("",)) == 401
    assert refused(path="/", tokens=()) == 401
    kinds = ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"]
    assert {refused(kind=kind) for kind in kinds} == {400}
    assert {refused(verb=verb, who=WHO._replace(read_only=True)) for verb in ("POST", "PUT", "DELETE", "PATCH")} == {403}
    assert refused(verb="GET", who=WHO._replace(read_only=True)) is None


def test_nothing_but_the_page_is_served_without_the_token(web, anna):
    for path in PAGE_FILES:
        assert web.ask(path, token=None).status == 200
    for path in ("/api/v1/agents", "/api/v1/openapi.json", "/api/v1/nothing", "/metrics", "/page/index.html", "//", "/../"):
        assert web.ask(path, token=None).status == 401
    tried = [f"/api/v1/agents{mark}={web.token}" for mark in ("?token", "#token", "?access_token")]
    assert {web.ask(path, token=None, Cookie=f"token={web.token}").status for path in tried} == {401}
    assert web.ask("/api/v1/agents", token="x" * 43).status == 401
    assert web.ask("/api/v1/agents").status == 200


def test_another_host_or_origin_is_refused_before_anything_is_done(web, daemon):
    body = {"workspace": str(daemon.workspace())}
    for path in ("/", "/page.js", "/api/v1/agents", "/api/v1/nothing"):
        assert web.ask(path, Host=f"evil.example:{web.port}").status == 421
        assert web.ask(path, Host=f"localhost:{web.port}").status == 421
        assert web.ask(path, Origin="null").status == 403
    assert web.ask("/api/v1/agents", body, Origin=f"http://127.0.0.1:{web.port + 1}").status == 403
    assert web.ask("/api/v1/agents", body, Host="evil.example").status == 421
    assert web.ask("/api/v1/agents", str(body).encode(), Content_Type="text/plain").status == 400
    assert web.ask("/api/v1/agents", body, token=None).status == 401
    assert daemon.ok("ls") == []
    assert web.ask("/api/v1/agents", body, Origin=web.origin).status == 201


def test_nothing_allows_another_origin_to_read(web):
    asked = web.ask("/api/v1/agents", verb="OPTIONS", Origin="http://evil.example", Access_Control_Request_Method="POST")
    assert asked.status == 403
    api = [web.ask(f"/api/v1/{path}", token=token) for path in ("agents", "nothing") for token in ("own", "")]
    for found in (asked, web.ask("/"), *api):
        assert not [name for name in found.headers if name.startswith("access-control")]
        assert "set-cookie" not in found.headers
        assert "script-src 'self'" in found.headers["content-security-policy"]
        assert "unsafe" not in found.headers["content-security-policy"]
        assert (found.headers["x-content-type-options"], found.headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert found.headers["cache-control"] == "no-store"


def test_no_get_changes_anything(web, anna, daemon):
    before = daemon.show("anna"), daemon.events("anna")
    for route in ROUTES:
        path = "/api/v1" + route.path.replace("{agent}", "anna").replace("{id}", "1")
        if route.verb == "POST" and route.path not in {"/agents"}:
            assert web.ask(path).status == 405
        else:
            web.ask(path)
    for name in ("allow", "remove", "fields"):
        assert web.ask(f"/api/v1/agents/anna/network?{name}=x.example").status == 400
    assert (daemon.show("anna"), daemon.events("anna")) == before


def test_a_websocket_is_guarded_as_a_request_is(web, anna):
    mine = offered(web.token)

    def tried(subprotocols=mine, **headers):
        sent = {name: value for name, value in headers.items() if name != "Origin"}
        try:
            with connect(
                f"ws://127.0.0.1:{web.port}/api/v1/stream?since=0", subprotocols=subprotocols,
                origin=headers.get("Origin"), additional_headers=sent,
            ) as socket:  # fmt: skip
                socket.recv(20)
                return socket.subprotocol
        except InvalidStatus as problem:
            return problem.response.status_code

    assert tried() == "substrat.v1"
    assert tried(Origin=web.origin) == "substrat.v1"
    assert tried(None, Authorization=f"Bearer {web.token}") is None
    assert tried(mine[:1]) == 401
    assert tried(offered("x" * 43)) == 401
    assert tried(Origin="null") == 403
    assert tried(Origin=f"http://127.0.0.1:{web.port + 1}") == 403


def test_the_token_is_its_owners_and_stays_until_another_is_made(web, serve, daemon):
    path = daemon.runtime / "web.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(web.token) == 43
    assert serve().token == web.token
    assert daemon.ctl("web", "--url", "--port", str(web.port)).out == f"{web.origin}/#token={web.token}\n"
    other = daemon.ctl("web", "--url", "--new-token", "--port", str(web.port)).out.strip().partition("#token=")[2]
    assert other not in {"", web.token}
    assert web.ask("/api/v1/agents").status == 401
    web.token = other
    assert web.ask("/api/v1/agents").status == 200


def test_a_link_leads_to_a_server_that_runs(web, serve, daemon):
    other = serve()
    linked = {line.partition("/#")[0] for line in daemon.ctl("web", "--url").out.splitlines()}
    assert linked == {web.origin, other.origin}
    other.process.kill()
    other.process.wait()
    assert daemon.ctl("web", "--url").out == f"{web.origin}/#token={web.token}\n"
    done = daemon.ctl("web", "--url", "--port", str(other.port))
    assert (done.code, done.out) == (1, "")
    assert f"no server of the page runs on port {other.port}: start one with 'substratctl web'" in done.error


def test_only_a_terminal_is_told_the_token(web, daemon):
    assert web.line == f"http://127.0.0.1:{web.port}/\n"
    with Screen(daemon, "web", "--port", "0") as screen:
        line = screen.until("\r\n")
        screen.type("\x03")
        screen.end()
    assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/#token={web.token}", line)


def test_a_reader_may_change_nothing(serve, daemon):
    web = serve("--read-only")
    assert web.get("/agents") == []
    for route in ROUTES:
        if route.verb == "POST":
            assert web.ask("/api/v1" + route.path.replace("{agent}", "a").replace("{id}", "1"), {}).status == 403


def test_a_proxy_adds_its_own_host_and_origin_alone(serve):
    web = serve("--behind-proxy", "--origin", "https://Box.example:443/")
    assert web.ask("/api/v1/agents", Host="box.example", Origin="https://box.example").status == 200
    assert web.ask("/api/v1/agents", Origin=web.origin).status == 200
    assert web.ask("/api/v1/agents", Host="box.example:443").status == 421
    assert web.ask("/api/v1/agents", Host="box.example", Origin="http://box.example").status == 403
    assert web.ask("/api/v1/agents", Host="evil.example", X_Forwarded_Host="box.example").status == 421


@pytest.mark.parametrize(
    "options",
    [["--origin", "https://a"], ["--behind-proxy"], ["--behind-proxy", "--origin", "box"], ["--port", "65536"], ["extra"],
     ["--behind-proxy", "--origin", "https://a/b"], ["--behind-proxy", "--origin", "null"]],
)  # fmt: skip
def test_wrong_options_are_refused(daemon, options):
    done = daemon.ctl("web", *options)
    assert (done.code, done.out) == (2, "")
    assert done.error


def listening(pid):
    """Return the addresses of TCP on which a process listens, as /proc/net/tcp spells them."""
    held = set(descriptors(pid))
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held]


def test_it_listens_on_the_loopback_alone_and_the_daemon_on_nothing(web, daemon):
    assert listening(web.process.pid) == [f"0100007F:{web.port:04X}"]
    assert listening(daemon.process.pid) == []


def test_a_taken_port_is_named(web, daemon):
    done = daemon.ctl("web", "--port", str(web.port))
    assert done.code == 1
    assert f"127.0.0.1:{web.port}: Address already in use; name another port with --port" in done.error


def test_who_has_no_token_writes_nothing_into_the_journal(serve):
    web = serve()
    for _ in range(3):
        with pytest.raises(InvalidStatus):
            connect(f"ws://127.0.0.1:{web.port}/api/v1/stream", origin=Origin("http://evil.example"))
        with socket.create_connection(("127.0.0.1", web.port), PATIENCE) as broken:
            broken.sendall(b"no HTTP at all\r\n\r\n")
            assert b" 400 " in broken.recv(100)
    web.stop()
    assert web.process.stderr.read() == b""


def test_it_ends_when_it_is_told_to(serve):
    web = serve()
    stream = connect(f"ws://127.0.0.1:{web.port}/api/v1/stream?since=0", subprotocols=offered(web.token))
    with stream, EventSource(web, "?since=0"):
        web.process.terminate()
        wait_until(lambda: web.process.poll() is not None, "its end")
    assert web.process.stderr.read() == b""
