"""`ls --tree`: agents below those that spawned them, with what each waits for."""


def test_tree(ctl, fake, agent):
    idle, working, asks = ({"kind": kind, "text": "which?", "level": "info"} for kind in ("idle", "working", "answer"))
    family = [
        agent(id="1", name="root", attention=idle),
        agent(id="2", name="kid", parent="1", attention=working, activity={"text": "shell: make", "since": ""}),
        agent(id="3", name="grandkid", parent="2", attention=idle),
        agent(id="4", name="last", parent="1", attention=idle, last="Done.\nReally."),
        agent(id="5", name="orphan", parent="gone", attention=asks),
        agent(id="6", name="rests", attention={"kind": "suspended", "text": "suspended", "level": "info"}),
    ]
    fake({"agent.list": family})
    assert ctl("ls", "--tree").out == (
        "root            idle\n"
        "├─ kid          working    shell: make\n"
        "│  └─ grandkid  idle\n"
        "└─ last         idle       Done.\n"
        "orphan          answer     which?\n"
        "rests           suspended\n"
    )  # fmt: skip
    nested = ctl("ls", "--tree", "--json").json
    assert [root["name"] for root in nested] == ["root", "orphan", "rests"]
    assert nested[0]["children"][0]["children"][0] == {**family[2], "children": []}
    assert ctl("ls", "--tree", "kid").out == "kid          working  shell: make\n└─ grandkid  idle\n"
    assert ctl("ls", "--tree", "nobody").code == 4


def test_a_tree_has_a_column_for_work_where_there_is_some(ctl, fake, agent):
    work = {"ahead": 2, "files": 0, "landed": False}
    merge, idle = ({"kind": kind, "text": f"why {kind}", "level": "info"} for kind in ("merge", "idle"))
    fake({"agent.list": [agent(id="1", name="a", attention=merge, clone=work), agent(id="2", name="b", attention=idle)]})
    assert ctl("ls", "--tree").out == "a  merge  +2  why merge\nb  idle   -\n"


def test_a_tree_tells_each_wait_of_an_agent(ctl, fake, agent):
    waiting = {"kind": "waiting", "text": "waits for b, c", "level": "info"}
    waits = [{"agent": "a", "names": ["b"], "done": []}, {"agent": "a", "names": ["c"], "done": ["c"]}]
    fake({"agent.list": [agent(id="1", name="a", attention=waiting, waits=2)], "wait.list": waits})
    assert ctl("ls", "--tree").out == "a  waiting  waits for b: 0 of 1 finished; waits for c: 1 of 1 finished\n"


def test_an_empty_tree(ctl, fake):
    fake({"agent.list": []})
    assert ctl("ls", "--tree").out == "0 agents\n"
    assert ctl("ls", "--tree", "--json").json == []
    assert "leave the other options" in ctl("ls", "--tree", "--all").error
