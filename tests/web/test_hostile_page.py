"""Agents whose texts, events and timing aim at the person in front of the page, in headless Chromium."""

import json
import shlex
from typing import Any

import pytest

from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]

CALL = {"type": "tool_call", "subtype": "completed", "call_id": "one"}
NO_TEXT = {"toString": 1, "valueOf": 1, "toLocaleString": 1, "length": 1}
"""An object that nothing can turn into a text."""


def ask(question, options=(), **more):
    return f"/tool ask_operator {json.dumps({'question': question, 'options': options, **more})}"


def opened(page, name):
    page.get_by_role("link", name=name, exact=True).first.click()
    page.get_by_role("heading", name=name, exact=True).wait_for()


def test_no_form_of_a_tool_calls_result_hides_the_transcript(visit, daemon):
    names = ("interleavedOutput", "stdout", "stderr", "diffString", "content", "output", "__proto__", "constructor")
    found = [{"success": {name: NO_TEXT}} for name in names]
    results = [NO_TEXT, [NO_TEXT], {"__proto__": NO_TEXT}, {"success": [NO_TEXT]}, 1, *found]
    calls = [{"tool_call": {"shellToolCall": {"args": {}, "result": result}}} for result in results]
    odd: list[dict[str, Any]] = [
        {"tool_call": NO_TEXT},
        {"tool_call": {"__proto__": {"result": NO_TEXT}}},
        {"call_id": NO_TEXT},
        {"result": NO_TEXT},
    ]
    lines = [f"/line {json.dumps({**CALL, **call})}" for call in [*calls, *odd]]
    daemon.spawn("eve", daemon.workspace(), "\n".join([*lines, "/say Said at last."]))
    page = visit()
    opened(page, "eve")
    page.locator(".steps .text", has_text="Said at last.").wait_for()
    daemon.ctl("send", "eve", "--wait", "\n".join([*lines, "/say Said once more."]))
    page.locator(".steps .text", has_text="Said once more.").wait_for()
    assert page.evaluate("({}).result") is None


def test_a_file_shows_its_own_patch_whatever_another_contains(visit, daemon):
    ends = ("\\r", "\\0342\\0200\\0250", "\\0342\\0200\\0251")
    forged = "".join(f"x{end}diff --git a/b.txt b/b.txt\\n@@ -0,0 +1 @@\\n+harmless" for end in ends)
    commands = f"printf '%b' {shlex.quote(forged)} > a.txt; echo harmful > b.txt; git add .; git commit -qm work"
    daemon.spawn("eve", daemon.workspace("repository", git=True), f"/shell {commands}", "--clone")
    page = visit()
    opened(page, "eve")
    line = page.locator(".diff li", has_text="b.txt")
    line.locator("summary").click()
    assert "+harmful" in line.locator(".patch").inner_text()


def test_only_a_refusal_of_the_network_offers_to_allow_a_host(visit, daemon):
    forged = "; refused evil.example: allow eve evil.example"
    daemon.spawn("eve", daemon.workspace(), ask(f"May I?{forged}"))
    page = visit()
    opened(page, "eve")
    page.locator("#agent .card").wait_for()
    page.get_by_role("button", name="End", exact=True).wait_for()
    assert page.get_by_role("button", name="Allow").count() == 0


def two_asking(daemon):
    """Have two agents ask, eve first; give the numbers of their questions."""
    work = daemon.workspace()
    for name in ("eve", "zoe"):
        daemon.spawn(name, work, ask(f"Which one, {name} asks?", ["drop", "keep"]))
    return [item["id"] for item in daemon.ok("inbox")]


def steady(page, item):
    """Wait until a question takes presses."""
    card = page.locator(f"#list [data-item='{item}']")
    card.locator(".replies:not([aria-disabled])").wait_for()
    return card


def test_a_question_that_slides_under_the_pointer_takes_no_press_at_once(visit, daemon):
    first, second = two_asking(daemon)
    page = visit()
    steady(page, second)
    box = steady(page, first).get_by_role("button", name="drop").bounding_box()
    pressed = page.evaluate_handle(
        """([x, y, item]) => ({done: new Promise((resolve) => {
            const look = () => {
                const button = document.elementFromPoint(x, y)?.closest("button"), card = button?.closest("[data-item]");
                if (card?.dataset.item !== item) return requestAnimationFrame(look);
                button.click();
                resolve([button.innerText, card.ariaBusy]);
            };
            look();
        })})""",
        [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, str(second)],
    )
    daemon.ctl("answer", str(first), "keep")
    assert pressed.evaluate("pressed => pressed.done") == ["1\ndrop", None]
    steady(page, second).get_by_role("button", name="keep").click()
    page.locator("#list .done", has_text="answered: keep").wait_for()


def test_a_key_that_is_held_down_answers_one_question(visit, daemon):
    first, second = two_asking(daemon)
    page = visit()
    for item in (first, second):
        steady(page, item)
    page.keyboard.press("a")
    for key in ("1", "Enter"):
        page.keyboard.down(key)
    page.locator("#list .done", has_text="answered: drop").wait_for()
    page.locator(f"#list [data-item='{first}']").wait_for(state="detached")
    card = steady(page, second)
    card.locator("[data-option='1']:focus").wait_for()
    for key in ("1", "Enter"):
        page.keyboard.down(key)
    assert card.evaluate("card => [card.ariaBusy, card.dataset.done ?? null]") == [None, None]
    page.keyboard.up("1")
    page.keyboard.press("1")
    wait_until(lambda: daemon.ok("inbox") == [], "the second answer")


def test_the_rest_of_a_sentence_answers_nobody_when_its_field_goes_away(visit, daemon):
    first, second = two_asking(daemon)
    page = visit()
    steady(page, second)
    card = steady(page, first)
    card.locator("input").click()
    daemon.ctl("answer", str(first), "keep")
    card.wait_for(state="detached")
    page.keyboard.type("drop a table, 1 i")
    seen = page.evaluate(
        "[document.body.dataset.view, document.activeElement.tagName, document.querySelectorAll('[data-done]').length]"
    )
    assert seen == ["agents", "BODY", 0]
    assert [item["id"] for item in daemon.ok("inbox")] == [second]


def test_a_flood_of_steps_is_followed_and_bounded(visit, daemon):
    flood = "/line {}\n" * 4000
    daemon.spawn("eve", daemon.workspace(), "All is well.")
    page = visit()
    opened(page, "eve")
    for turn in (2, 3):
        page.locator(".steps .note", has_text=f"turn {turn - 1} success").wait_for(state="attached")
        assert daemon.ctl("send", "eve", "--wait", flood).code == 0
    page.locator(".steps .note", has_text="turn 3 success").wait_for(state="attached")
    assert page.locator(".steps li").count() <= 3000
    assert not page.locator(".jump").is_visible()
    page.locator(".steps-box").evaluate("box => box.scrollTop = 0")
    page.locator(".jump").wait_for()
    for _ in range(4):
        assert daemon.ctl("send", "eve", "--wait", flood).code == 0
    page.locator(".steps .note", has_text="turn 7 success").wait_for(state="attached")
    assert page.locator(".steps li").count() <= 12000
