"""A program that stands in for claude where words come in the middle of a turn: it runs its hooks until it hears `stop`."""

HEARING = """
options = json.loads(pathlib.Path(option("--settings")).read_text())
(hook,) = options["hooks"]["PostToolUse"][0]["hooks"]
stored = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", "work")
stored.mkdir(parents=True, exist_ok=True)
(stored / f"{session}.jsonl").touch()
emit("system", "init", apiKeySource="ANTHROPIC_API_KEY", cwd=os.getcwd(), model="opus", permissionMode="default")
heard = prompt
while "stop" not in heard:
    said = subprocess.run(hook["command"], shell=True, stdout=subprocess.PIPE, check=True).stdout
    if said:
        heard = json.loads(said)["hookSpecificOutput"]["additionalContext"]
        with open("heard", "a") as file:
            file.write(heard + "\\n")
emit("result", "success", is_error=False, result=heard, usage={})
"""
