"""What the agents of the standard scenario are told to do."""

import json

MESSAGE = json.dumps({"to": "parent", "text": "/shell echo message >> log"})
CHILD = json.dumps({"name": "kid", "prompt": f"/shell echo child >> log\n/tool send_message {MESSAGE}"})
ANNA = f"""/shell echo anna >> log
/tool whoami {{}}
/tool list_agents {{}}
/tool report_status {{"text": "working"}}
/tool check_inbox {{}}
/tool send_message {{"to": "operator", "text": "a note"}}
/tool ask_operator {{"question": "which way?"}}
/tool remind_me {{"text": "now\\n/shell echo reminder >> log", "in_s": 0.1}}
/tool remind_me {{"text": "/shell echo never >> log", "in_s": 99999}}
/tool cancel_reminder {{"reminder": 2}}
/tool spawn_agent {CHILD}
"""
FAMILY = """\
family.name = "team"
family.lead = "two"
family.workspace = "in-place"
[agents.two]
prompt = "/shell echo two >> log\\n/say two"
needs = ["one"]
[agents.one]
each = "echo one"
prompt = "/shell echo {{item}} >> log\\n/say one"
[agents.judge]
prompt = '/tool complete {"result": "{\\"agrees\\": false}"}'
needs = ["two"]
returns_to = "two"
rounds = 2
on_fail = "continue"
result_schema = { type = "object", properties = { agrees = { type = "boolean" } }, required = ["agrees"] }
"""
TASKS = [
    {"title": "dig", "id": "x"}, {"title": "on", "id": "y", "needs": ["x"]},
    {"title": "last", "id": "z", "needs": ["y"], "label": "late"},
]  # fmt: skip
DIGGER = f"""/tool add_tasks {json.dumps({"tasks": TASKS})}
/tool claim_task {{}}
/shell echo dug >> log
/tool list_tasks {{}}
/tool finish_task {{"result": "dug"}}
/tool claim_task {{"label": "late", "wait": true}}
"""
HOLD = "/shell touch {mark}; while [ ! -e never ]; do sleep 0.02; done"
# The agent program is the second process of its namespace; its standard output is the turn's file.
CUT = "/shell while [ ! -e cut ]; do sleep 0.02; done; : > /proc/2/fd/1; echo cut >> log"
