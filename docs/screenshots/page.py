"""Takes pictures of the page of `substratctl web` in headless Chromium, with stand-in agents that ask, work and fail.

`make screenshots` runs it. It needs the extra `web`, Playwright and a Chromium (`CHROMIUM=/path`, default: the first of
`chromium`, `chromium-browser`, `google-chrome` in PATH); without them it says so and takes none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from substrat.demo.stage import DemoStage

sys.path.insert(0, str(Path(__file__).parent))
import record

IMAGES = Path(__file__).parents[1] / "images"
WORKSPACE = ("app", "/tmp")  # noqa: S108 - `mkdtemp` makes a new directory of its own there
SHOTS = (("agents", "", "dark", (1280, 720)), ("agent", "agent/fix-tests", "light", (1280, 800)))
"""Name, place, colours and size of each picture."""

FIX = """\
/think A test fails: greet() has no default.
/shell python3 -m unittest -q
/say greet() has no default for its name, which test_default wants. I add one and run the tests again.
/write greet.py def greet(name="world"): return f"Hello, {name}!"
/shell python3 -m unittest -q
/shell git commit -q -a -m "greet() has a default" && git log --oneline
/shell curl -sS -m 2 https://pypi.org/simple/
The tests pass, and greet.py is committed."""
ASK = """\
/shell git log --format=%s -1
/tool ask_operator {"question": "May I rename greet() to hello()? Two callers outside of this repository import it by \
its old name.", "options": ["yes, and keep an alias", "yes", "no"]}
I wait for an answer."""
TURNS = ("The manual has a chapter on greetings.", "/shell ls\nThe chapter has examples now.", "/sleep 60")
OTHERS = {
    "lint": "No findings in 14 files.",
    "release": '/tool spawn_agent {"name": "notes", "prompt": "/sleep 60"}\n/sleep 60',
    "deps": "/fail crash",
    "i18n": "/shell ls\n/sleep 60",
}


def main() -> int:
    """Take every picture into docs/images."""
    browser = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        browser = None
    if browser is None:
        print("no pictures of the page: they take Chromium and 'pip install playwright'")
        return 0
    base = tempfile.mkdtemp(prefix=WORKSPACE[0], dir=WORKSPACE[1])
    try:
        with DemoStage(show=False, environ=os.environ) as stage, sync_playwright() as playwright:
            record.prepare(base)
            stage.start_daemon()
            stage.open_timeline()
            play(stage, base)
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--headless=new"])
            web = subprocess.Popen(
                [Path(sys.executable).with_name("substratctl"), "web", "--port", "0"], env=stage.environ,
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            try:
                assert web.stdout is not None
                address, token = (
                    web.stdout.readline().strip(),
                    Path(stage.environ["SUBSTRAT_RUNTIME_DIR"], "web.token").read_text(),
                )
                for name, place, colours, (width, height) in SHOTS:
                    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=colours)
                    page = context.new_page()
                    page.goto(f"{address}#token={token.strip()}")
                    page.wait_for_selector("#list .row")
                    page.evaluate("place => location.hash = `#/${place}`", place)
                    page.wait_for_selector(".step.tool .verdict, #list .card" if place else "#list .card", state="attached")
                    page.wait_for_load_state("networkidle")
                    page.screenshot(path=IMAGES / f"{name}.png")
                    context.close()
            finally:
                web.terminate()
                web.wait()
    finally:
        shutil.rmtree(base)
    return 0


def play(stage: DemoStage, work: str) -> None:
    """Bring the agents to where the pictures show them."""
    stage.command("spawn", "parser", "-w", work, "--clone", "/shell echo 1 > parser.py; git add -A; git commit -qm Parser")
    stage.command("spawn", "docs", "-w", work, TURNS[0])
    for name, prompt in OTHERS.items():
        stage.command("spawn", name, "-w", work, prompt)
    stage.command("spawn", "review", "-w", work, ASK)
    stage.command("spawn", "fix-tests", "-w", work, FIX)
    for name in ("parser", "docs", "lint", "deps", "review", "fix-tests"):
        ended(stage, name)
    for turn in TURNS[1:]:
        stage.command("send", "docs", turn)
    stage.command(
        "send", "fix-tests", "Now run all the checks, please.\n/shell python3 -m unittest\n/say Lint is next.\n/sleep 60"
    )
    stage.watch(
        "the command", lambda event: str(event["kind"]).startswith("assistant") and "Lint is next" in str(event["text"])
    )
    stage.command("suspend", "docs")


def ended(stage: DemoStage, name: str) -> None:
    """Wait for the end of an agent's first turn."""
    agent = stage.agent(name)["id"]
    stage.watch(f"the end of {name}'s turn", lambda event: event["kind"] == "turn:ended" and event["agent"] == agent)


if __name__ == "__main__":
    sys.exit(main())
