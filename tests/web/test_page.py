"""The page in headless Chromium, before a real server, daemon and stand-in: seen and used as a person does."""

import itertools
import json

import pytest

from substrat.visible import visible
from tests.support import descriptors
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]

PHONE = {"width": 360, "height": 640}
# Escapes, an override of the direction, an invisible letter, and two ways to run something.
HOSTILE = (
    "<script>window.ran=1</script><img src=x onerror='window.ran=1'> \x1b[31mred \x07 \u202egnp.exe \u2066 a\u200bb "
    "javascript:window.ran=1 <b>bold</b> 日本語 \u2028 end"
)
WIDER = """
() => [document.documentElement, ...document.querySelectorAll("main > *, .aside")]
    .filter((part) => part.scrollWidth > 360 || part.scrollWidth > part.clientWidth).map((part) => part.id || part.tagName)
"""
"""The parts of the page that can be scrolled sideways."""
ASK = '/tool ask_operator {"question": "Which table may I drop?", "options": ["users_old", "accounts"]}'


@pytest.fixture
def asking(daemon):
    """An agent that asks, spawned after two that need nobody."""
    work = daemon.workspace()
    for name in ("calm", "quiet"):
        daemon.spawn(name, work, "All is well.")
    return daemon.spawn("zoe", work, f"{ASK}\nI wait.")


def is_in_view(page, locator):
    box = locator.bounding_box()
    return box["x"] >= 0 and box["y"] >= 0 and box["y"] + box["height"] <= page.viewport_size["height"]


def test_the_token_leaves_the_address_and_stays_in_the_tab(visit, web, daemon):
    daemon.spawn("anna", daemon.workspace(), "Good morning.")
    for fragment in ("", f"token={'x' * 43}"):
        visit(fragment=fragment).get_by_text("Run substratctl web --url").wait_for()
    page = visit()
    page.get_by_role("link", name="anna").wait_for()
    assert page.url == f"{web.origin}/#/"
    page.reload()
    page.get_by_role("link", name="anna").click()
    page.get_by_role("heading", name="anna").wait_for()
    assert (page.url, page.context.cookies()) == (f"{web.origin}/#/agent/anna", [])
    assert page.evaluate("[sessionStorage.token, localStorage.length]") == [web.token, 0]


def test_who_asks_stands_first_on_a_phone_and_is_answered_with_a_click(visit, daemon, asking):
    page = visit(PHONE)
    first = page.locator("#list .row").first
    option = first.get_by_role("button", name="accounts")
    option.wait_for()
    assert "Which table may I drop?" in first.inner_text()
    assert is_in_view(page, option)
    option.click()
    page.locator("#list .done", has_text="answered: accounts").wait_for()
    assert daemon.ok("inbox") == []
    daemon.wait("zoe")
    assert "accounts" in "".join(event["text"] for event in daemon.events("zoe", "user"))
    page.locator("#list .card").wait_for(state="detached")


def test_the_keyboard_alone_answers_opens_writes_and_ends(visit, daemon, asking):
    page = visit()
    page.locator("#list .card .replies:not([aria-disabled])").wait_for()
    for key in "a2":
        page.keyboard.press(key)
    page.locator("#list .done", has_text="answered: accounts").wait_for()
    page.locator("#list .card").wait_for(state="detached")
    daemon.wait("zoe")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.locator("#filter:focus").wait_for()
    page.keyboard.type("calm")
    for key in ("Enter", "Enter"):
        page.keyboard.press(key)
    page.get_by_role("heading", name="calm", exact=True).wait_for()
    page.keyboard.press("s")
    page.keyboard.type("Written by hand.")
    page.keyboard.press("Control+Enter")
    page.locator(".steps .text", has_text="Written by hand.").wait_for()
    question = page.get_by_text("End calm for good?")

    def ask():
        """Press the button; it takes no press while it has just moved, and a person presses it again."""
        page.locator("[title='substratctl end calm']:not([aria-disabled])").focus()
        page.keyboard.press("Enter")
        return question.is_visible()

    wait_until(ask, "the question")
    page.keyboard.press("Escape")
    question.wait_for(state="detached")
    assert daemon.wait("calm")["state"] == "idle"
    wait_until(ask, "the question")
    page.locator(".sure + button:not([aria-disabled])").wait_for()
    page.keyboard.press("Enter")
    wait_until(lambda: daemon.show("calm")["state"] == "ended", "the end of calm")
    page.keyboard.press("Escape")
    page.wait_for_url("**/#/")


def test_restarts_of_the_server_and_the_daemon_leave_nothing_out_and_double_nothing(visit, web, daemon):
    daemon.spawn("anna", daemon.workspace(), "/say word 0\n/shell echo 0")
    page = visit(fragment=f"token={web.token}")
    page.get_by_role("link", name="anna").click()
    page.locator(".steps .text", has_text="word 0").wait_for()
    words = itertools.count(1)

    def say():
        number = next(words)
        done = daemon.ctl("send", "anna", "--wait", f"/say word {number}\n/shell echo {number}")
        assert done.code == 0, done

    say()
    web.process.terminate()
    web.process.wait(PATIENCE)
    page.get_by_text("not connected").wait_for()
    say()
    web.process = daemon.follow("web", "--port", str(web.port))
    descriptors.keep(web.process.stdout.fileno(), web.process.stderr.fileno())
    web.process.stdout.readline()
    page.get_by_text("live", exact=True).wait_for()
    say()
    daemon.kill()
    page.get_by_text("not connected").wait_for()
    daemon.start()
    say()
    page.get_by_text("live", exact=True).wait_for()
    say()
    page.locator(".steps .text", has_text="word 5").wait_for()
    page.locator(".steps .note", has_text="turn 6 success").wait_for()
    assert page.locator(".steps .text").all_inner_texts() == [f"word {number}" for number in range(6)]
    assert [text.split()[2] for text in page.locator(".steps .tool").all_inner_texts()] == [str(n) for n in range(6)]
    assert page.locator(".steps .turn > span").all_inner_texts() == [f"turn {number}" for number in range(1, 7)]
    assert page.locator("#list .row").count() == 1


def test_a_transcript_follows_until_its_reader_scrolls_up(visit, daemon):
    daemon.spawn("anna", daemon.workspace(), "\n".join(f"/shell echo {number}" for number in range(60)))
    page = visit()
    page.get_by_role("link", name="anna").click()
    box = page.get_by_role("region", name="Transcript", exact=True)
    is_at_end = "box => box.scrollHeight - box.scrollTop - box.clientHeight < 48"
    page.locator(".steps .note", has_text="turn 1 success").wait_for()
    wait_until(lambda: box.evaluate(is_at_end), "the end in view")
    daemon.ctl("send", "anna", "--wait", "First.")
    page.locator(".steps .note", has_text="turn 2 success").wait_for()
    wait_until(lambda: box.evaluate(is_at_end), "the new end in view")
    box.evaluate("box => box.scrollTop = 200")
    newest = page.get_by_role("button", name="↓ newest")
    newest.wait_for()
    daemon.ctl("send", "anna", "--wait", "Second.")
    page.locator(".steps .note", has_text="turn 3 success").wait_for(state="attached")
    assert box.evaluate("box => box.scrollTop") == 200
    newest.click()
    wait_until(lambda: box.evaluate(is_at_end), "the newest in view")


def test_hostile_text_runs_nothing_and_is_shown_as_it_is(visit, daemon):
    work = daemon.workspace()
    (work / "hostile").write_text(HOSTILE)
    script = f"{HOSTILE}\n/shell cat hostile\n/shell cat hostile >&2; exit 3\n/line {'L' * 1_000_000}\n"
    ask = json.dumps({"question": HOSTILE, "options": [HOSTILE, "no"]})
    daemon.spawn("eve", work, f"{script}/tool ask_operator {ask}")
    page = visit()
    page.locator("#list .card").wait_for()
    shown = " ".join(visible(HOSTILE).split())
    assert " ".join(page.locator(".question-text").first.inner_text().split()) == shown
    page.get_by_role("link", name="eve", exact=True).click()
    page.locator(".steps .prompt").wait_for()
    assert shown in " ".join(page.locator(".steps").inner_text().split())
    assert page.get_by_text("show all (1.0 M characters)").count() == 1
    for place in ("inbox", "events", "waits", "agent/eve"):
        page.evaluate("place => location.hash = `#/${place}`", place)
        page.wait_for_function("place => document.body.dataset.view === place.split('/')[0]", arg=place)
    everything = page.locator("body").evaluate("body => body.textContent")
    assert not set(everything) & set("\x1b\x07\u202e\u2066\u200b\u2028")
    assert page.evaluate(
        "[window.ran, document.querySelectorAll('main script, main img, main b, [href^=javascript]').length]"
    ) == [None, 0]


def test_no_view_scrolls_sideways_on_a_phone(visit, daemon, asking):
    work = daemon.workspace("repository", git=True)
    long = "x" * 300
    daemon.spawn(
        f"n{'a' * 63}",
        work,
        f"/shell echo {long}\n/say {long}\n/shell echo {long} > {long[:200]}; git add .; git commit -qm {long}",
        "--clone",
    )
    page = visit(PHONE)
    page.locator("#list .card").wait_for()
    places = ["", "inbox", "waits", "events", "agent/zoe", f"agent/n{'a' * 63}"]
    for place in places:
        page.evaluate("place => location.hash = `#/${place}`", place)
        parts = page.get_by_role("group", name="Parts").get_by_role("button") if "/" in place else None
        if parts is not None:
            page.locator(".steps li").first.wait_for()
        for part in parts.all() if parts is not None else [None]:
            if part is not None:
                part.click()
            assert page.evaluate(WIDER) == [], place


def test_work_is_seen_looked_at_and_landed(visit, daemon):
    work = daemon.workspace("repository", git=True)
    daemon.spawn("bob", work, "/shell echo evil > .envrc; git add .; git commit -qm x", "--clone")
    page = visit()
    page.get_by_role("link", name="bob").click()
    page.locator(".diff li", has_text=".envrc").wait_for()
    page.get_by_role("button", name="Merge", exact=True).click()
    page.get_by_role("alert").get_by_text("you must look at before they land in main").wait_for()
    assert not (work / ".envrc").exists()
    page.get_by_role("button", name="Merge: I have looked at 1 file").click()
    page.get_by_role("alert").get_by_text("bob's work is in main").wait_for()
    assert (work / ".envrc").read_text() == "evil\n"
