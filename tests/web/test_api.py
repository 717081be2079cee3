"""The API beside the commands: the same objects, the errors' statuses, and a document that says so."""

import json

from openapi_spec_validator import OpenAPIV31SpecValidator

from substrat import errors
from substrat.protocol import framing
from substrat.web import app, failures, openapi
from substrat.web.routes import ROUTES
from tests.support.waiting import wait_until


def test_a_get_answers_as_the_command_does(web, daemon, anna):
    assert web.get("/agents") == daemon.ok("ls")
    assert web.get("/agents/anna") == web.get(f"/agents/{anna['id']}") == daemon.ok("show", "anna")
    assert web.get("/agents/anna/transcript") == daemon.ok("transcript", "anna")
    assert web.get("/usage") == daemon.ok("usage")
    assert web.get("/inbox") == daemon.ok("inbox") == []
    assert (web.get("/queue"), web.get("/waits")) == (daemon.ok("queue"), daemon.waits()) == ([], [])
    assert web.get("/agents/anna/network") == daemon.network("anna")
    (turn,) = web.get("/agents/anna/turns")
    assert (turn["result"], web.get("/agents/anna/turns?after=1")) == ("Good morning.", [])
    page = web.get("/events?limit=3")
    assert ([event["cursor"] for event in page["events"]], page["cursor"]) == ([1, 2, 3], 3)
    assert web.get("/events?since=3&limit=1&agent=anna")["cursor"] == 4


def test_long_answers_have_pages_that_link_to_the_next(web, daemon, anna):
    daemon.ok("spawn", "bob", "-w", anna["workspace"])
    for words in ("/shell echo one", "Good evening.", "/think Hm.\nGood night."):
        daemon.ok("send", "anna", words)
        daemon.wait("anna")

    def pages(path):
        found = [web.ask(f"/api/v1{path}")]
        while link := found[-1].headers.get("link"):
            assert link.endswith('>; rel="next"')
            found.append(web.ask(link[1:].partition(">")[0]))
        assert len(found) > 1
        return [page.json for page in found]

    for path in ("/agents", "/usage", "/agents/anna/turns"):
        assert [one for page in pages(f"{path}?limit=1") for one in page] == web.get(path)
    whole, steps = web.get("/agents/anna/transcript"), []
    for page in pages("/agents/anna/transcript?limit=3"):
        steps += [(turn["turn"] and turn["turn"]["number"], step) for turn in page["turns"] for step in turn["steps"]]
    everything = [(turn["turn"] and turn["turn"]["number"], step) for turn in whole["turns"] for step in turn["steps"]]
    assert [step for step in steps if step[1]["kind"] != "tool"] == [one for one in everything if one[1]["kind"] != "tool"]
    assert "link" not in web.ask("/api/v1/agents/anna/transcript").headers
    assert web.ask("/api/v1/usage?after=nobody").status == 404
    paths = web.get("/openapi.json")["paths"]
    linked = {path for path, verbs in paths.items() if '"Link"' in json.dumps(verbs.get("get"))}
    lists = {"/agents", "/usage", "/inbox", "/waits", "/queue"}
    assert linked == {*lists, "/agents/{agent}/turns", "/agents/{agent}/transcript"}


def test_work_in_a_clone_is_seen_and_landed(web, daemon):
    repository = daemon.workspace("repository", git=True)
    script = "/shell echo x > new; git add new; git commit -qm new"
    web.post("/agents", workspace=str(repository), name="bob", clone=True, prompt=script)
    daemon.wait("bob")
    wait_until(lambda: web.get("/agents/bob")["clone"]["ahead"] == 1, "the keep")
    assert web.get("/agents/bob/diff") == daemon.ok("diff", "bob")
    assert "+x" in web.get("/agents/bob/diff?text=true")["text"]
    (landed,) = web.post("/agents/bob/merge")
    assert (landed["outcome"], (repository / "new").read_text()) == ("landed", "x\n")


def test_an_agent_lives_through_the_api(web, daemon):
    work = str(daemon.workspace())
    agent = web.post("/agents", workspace=work, name="eve", prompt='/tool ask_operator {"question": "Which?"}')
    assert agent["name"] == "eve"
    wait_until(lambda: web.get("/inbox"), "the question")
    (item,) = web.get("/inbox")
    assert (web.get("/inbox?limit=1"), web.get(f"/inbox?after={item['id']}")) == ([item], [])
    assert web.post(f"/inbox/{item['id']}/answer", text="This one.")["agent"]["id"] == agent["id"]
    assert web.get("/inbox") == []
    daemon.wait("eve")
    assert web.post("/agents/eve/send", prompt="/shell sleep 60")["message"] > 0
    assert web.post("/agents/eve/suspend")["state"] == "suspended"
    web.post("/agents/eve/resume", prompt="/shell sleep 60")
    assert web.post("/agents/eve/interrupt")["state"] in {"idle", "queued", "running"}
    assert web.post("/agents/eve/allow", allow=["example.org"])["allow"][-1] == "example.org"
    assert web.post("/agents/eve/end")["state"] == "ended"
    who = {event["data"]["by"] for event in daemon.events("eve") if (event["data"] or {}).get("by")}
    assert {"web"} <= who <= {"web", "agent:eve", "ctl"}


def test_each_failure_has_its_status(web, daemon, anna):
    def failed(path, body=None, **how):
        found = web.ask(f"/api/v1{path}", body, **how)
        assert found.headers["content-type"] == "application/json"
        return found.status, found.error

    assert failed("/agents/nobody") == (404, "NotFound")
    assert failed("/agents/anna/diff") == (409, "Refused")
    assert failed("/agents", {"workspace": anna["workspace"], "name": "anna"}) == (409, "NameTaken")
    assert failed("/agents", {}) == failed("/agents", {"workspace": 7}) == (400, "InvalidParams")
    assert failed("/agents", {"workspace": "/", "nonsense": 1}) == failed("/agents", b"[", Content_Type="application/json")
    assert failed("/agents", b"[]", Content_Type="application/json") == failed("/agents?x=1") == (400, "InvalidParams")
    assert failed("/agents/anna/turns?after=x") == failed("/inbox/x/answer", {"text": "t"}) == (400, "InvalidParams")
    assert failed("/inbox/999/answer", {"text": "t"}) == (404, "NotFound")
    assert failed("/agents/anna/send", {"prompt": "x" * framing.MAX_LINE})[0] == 413
    assert failed("/tasks") == failed("/agents/anna/nothing") == (404, "NotFound")
    assert failed("/agents/anna/send") == failed("/usage", {}) == (405, "MethodNotAllowed")
    daemon.stop()
    assert failed("/agents") == failed("/events", Accept="text/event-stream") == (503, "DaemonNotRunning")
    daemon.start()
    assert web.get("/agents")[0]["name"] == "anna"


def test_every_error_has_a_status_of_its_kind():
    found = {kind: failures.status(kind("x")) for kind in errors.every_error().values()}
    assert {kind.__name__ for kind, status in found.items() if status == 500} == {
        "SubstratError", "InternalError", "MethodNotFound", "HelloRequired", "UnsupportedVersion",
    }  # fmt: skip
    assert found[errors.LimitReached] == 429
    assert found[errors.Conflict] == found[errors.PolicyDenied] == 409


def test_an_error_has_its_name_on_the_wire():
    class Odd(errors.InvalidParams):
        wire_name = "InvalidParams"

    assert json.loads(bytes(app._failure(Odd("x")).body)) == failures.body("InvalidParams", "x")


def test_the_document_is_openapi_and_has_each_path(web):
    described = web.get("/openapi.json")
    assert described == json.loads(json.dumps(openapi.document(web.origin)))
    OpenAPIV31SpecValidator(described).validate()
    has = {(verb.upper(), path) for path, verbs in described["paths"].items() for verb in verbs}
    assert has == {(route.verb, route.path) for route in ROUTES} | {("GET", "/events")}


def test_without_the_extra_it_says_how_to_get_it(daemon, tmp_path):
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('gone', name='starlette')\n")
    environment = daemon.environment(SUBSTRAT_SOCKET=str(daemon.socket), PYTHONPATH=str(tmp_path))
    done = daemon.ctl("web", environment=environment)
    assert done.code == 1
    assert "the extra 'web' isn't installed (starlette is missing): pip install 'substrat[web]'" in done.error


def test_a_number_too_long_and_a_body_too_deep_are_the_clients_faults(web):
    assert web.ask(f"/api/v1/events?since={'9' * 6000}").status == 400
    assert web.ask(f"/api/v1/inbox/{'9' * 6000}/answer", {"text": "yes"}).status == 400
    assert web.ask("/api/v1/agents", b"[" * 200_000, Content_Type="application/json").status == 400
