"""A program that stands in for claude and for codex: it prints their lines, and calls the shell and the companion's tools.

Lines of its prompt are calls, as those of the model server are: `/shell COMMAND` and `/tool NAME {…}`.
"""

PRINTING = r"""
import tomllib


def put(**line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Claude:
    place = "projects/work/{}.jsonl"

    def __init__(self):
        self.home = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"])
        self.server = json.loads(pathlib.Path(option("--mcp-config")).read_text())["mcpServers"]["substrat"]
        self.session = option("--resume")

    def begin(self):
        put(type="system", subtype="init", session_id=session, uuid="u", cwd=os.getcwd())

    def message(self, kind, **block):
        put(type=kind, message={"content": [block]}, parent_tool_use_id=None, session_id=session)

    def start(self, number, name, given):
        name = "Bash" if name == "shell" else f"mcp__substrat__{name}"
        self.message("assistant", type="tool_use", id=f"t{number}", name=name, input=given)

    def end(self, number, name, given, said):
        self.message("user", type="tool_result", tool_use_id=f"t{number}", content=said)

    def finish(self, turns):
        self.message("assistant", type="text", text="done")
        put(type="result", subtype="success", is_error=False, result="done", session_id=session,
            usage={"input_tokens": 200, "output_tokens": 40})


class Codex:
    place = "sessions/2026/11/30/rollout-2026-11-30T12-00-00-{}.jsonl"

    def __init__(self):
        self.home = pathlib.Path(os.environ["CODEX_HOME"])
        self.server = tomllib.loads((self.home / "substrat.config.toml").read_text())["mcp_servers"]["substrat"]
        self.session = option("resume")

    def begin(self):
        put(type="thread.started", thread_id=session)
        put(type="turn.started")

    def item(self, stage, number, name, given, **more):
        of_shell = {"type": "command_execution", **given}
        of_tool = {"type": "mcp_tool_call", "server": "substrat", "tool": name, "arguments": given}
        put(type=f"item.{stage}", item={"id": f"item_{number}", **(of_shell if name == "shell" else of_tool), **more})

    def start(self, number, name, given):
        self.item("started", number, name, given, status="in_progress")

    def end(self, number, name, given, said):
        more = {"exit_code": 0} if name == "shell" else {"result": {"content": [{"type": "text", "text": said}]}}
        self.item("completed", number, name, given, status="completed", **more)

    def finish(self, turns):
        put(type="item.completed", item={"id": "item_99", "type": "agent_message", "text": "done"})
        put(type="turn.completed", usage={"input_tokens": 200 * turns, "output_tokens": 40 * turns})


program = Claude() if "--print" in sys.argv else Codex()
session = program.session or str(uuid.uuid4())
stored = program.home / program.place.format(session)
stored.parent.mkdir(parents=True, exist_ok=True)
with open(stored, "a") as file:
    file.write("a turn\n")
program.begin()
companion = subprocess.Popen(
    [program.server["command"], *program.server["args"]], env={**os.environ, **program.server["env"]},
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)


def ask(number, method, **params):
    companion.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    companion.stdin.flush()
    while (answer := json.loads(companion.stdout.readline())).get("id") != number:
        pass
    return answer["result"]


ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "printing", "version": "1"})
companion.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
for number, line in enumerate(prompt.splitlines(), 2):
    verb, _, rest = line.partition(" ")
    if verb == "/shell":
        program.start(number, "shell", {"command": rest})
        subprocess.run(rest, shell=True, stdout=subprocess.DEVNULL, check=True)
        program.end(number, "shell", {"command": rest}, "")
    elif verb == "/tool":
        name, _, given = rest.partition(" ")
        program.start(number, name, json.loads(given))
        (said,) = ask(number, "tools/call", name=name, arguments=json.loads(given))["content"]
        program.end(number, name, json.loads(given), said["text"])
program.finish(len(stored.read_text().splitlines()))
"""
