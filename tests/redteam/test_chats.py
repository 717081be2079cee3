"""A hostile agent's attempts on chats: those of others, of the user, and the move of its own to the user's."""

import contextlib
import json
import os
import resource
import shutil
import sqlite3
import uuid

import pytest

from substrat.daemon import failpoints
from substrat.inside import chatcopier
from tests.redteam.hostile import PROGRAM, said

OWN = "os.path.join(os.path.expanduser('~/.cursor/chats'), hashlib.md5(os.getcwd().encode()).hexdigest())"

LOOK = f"""
found = {{}}
for top, directories, files in os.walk(os.path.expanduser("~/.cursor/chats")):
    for name in directories:
        if "-" in name:
            found[name] = sorted(os.listdir(os.path.join(top, name)))
answer = {{"seen": sorted(found), "forged": []}}
folder = {OWN}
for other in others:
    try:
        open(folder + "/" + other + "/store.db", "r+b").close()
        answer["forged"].append(other)
    except OSError:
        pass
"""


def look(*others):
    return f"others = {list(others)!r}\n{LOOK}"


def chat(daemon, workspace, session):
    return daemon.chat({"workspace": str(workspace), "session_id": session})


def manual_chat(daemon, workspace):
    """A chat that the user had with cursor-agent."""
    session = str(uuid.uuid4())
    path = chat(daemon, workspace, session)
    path.mkdir(parents=True)
    store = sqlite3.connect(path / "store.db")
    store.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
    store.commit()
    store.close()
    return session


def test_no_agent_sees_or_changes_another_chat_of_its_workspace(hostile, until):
    """Fresh, in a turn that another daemon takes up, resumed, as a child, and through `exec`."""
    work = hostile.workspace()
    mine = manual_chat(hostile, work)
    bert = hostile.spawn("bert", work, "answer = 1")["session_id"]
    for session in (mine, bert):
        assert (chat(hostile, work, session) / "store.db").is_file(), "the control: it is there for the user"
    script = f"mark('there')\nwait_for('go')\n{look(mine, bert)}"
    hostile.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=script.encode())
    until((work / "there").exists, "the turn")
    hostile.kill()
    hostile.start()
    (work / "go").touch()
    anna = hostile.wait("anna")
    own = anna["session_id"]
    assert said(anna) == {"seen": [own], "forged": []}
    assert (chat(hostile, work, own) / "store.db").is_file(), "it is the user's after the first turn"
    hostile.ok("suspend", "anna")
    hostile.ok("resume", "anna", look(mine, bert), "--wait")
    assert said(hostile.wait("anna")) == {"seen": [own], "forged": []}
    done = hostile.ctl("exec", "anna", "--", "sh", "-c", "ls ~/.cursor/chats/*")
    assert done.out.split() == [own], done
    hostile.ok("rm", "bert")
    assert (chat(hostile, work, bert) / "store.db").is_file()


def test_what_it_says_its_session_is_gives_it_no_chat(hostile):
    """The user's own chat, another agent's, and one that it names in a later turn."""
    work = hostile.workspace()
    mine = manual_chat(hostile, work)
    bert = hostile.spawn("bert", work, "answer = 1")["session_id"]
    for claimed in (mine, bert):
        name = f"agent-{claimed[:8]}"
        emit = "emit('system', 'init', apiKeySource='login', cwd=os.getcwd(), model='Auto', permissionMode='default')"
        claim = f"own, session = session, {claimed!r}\n{emit}\n"
        made = (
            f"os.makedirs({OWN} + '/' + session, exist_ok=True)\nopen({OWN} + '/' + session + '/store.db', 'a').close()\n"
        )
        # In the first turn after its own session is known, and as the very first thing.
        first = hostile.spawn(name, work, f"{claim}{made}answer = own\nsession = own")
        assert first["session_id"] != claimed
        later = said(hostile.ok("send", name, look(mine, bert), "--wait"))
        assert later["forged"] == [claimed], "one of that name, in its own directory"
        assert [event["text"] for event in hostile.events(name, "session:refused")]
        assert (chat(hostile, work, claimed) / "store.db").stat().st_size, "the user's is as it was"


def test_a_chat_that_it_names_before_its_own_is_refused(daemon):
    """The first `init` that it prints already names the user's chat."""
    source = PROGRAM.replace("begin()", "if os.path.exists('claim'): session = open('claim').read()\nbegin()")
    hostile = daemon.start(agent=daemon.program(source))
    work = hostile.workspace()
    mine = manual_chat(hostile, work)
    before = (chat(hostile, work, mine) / "store.db").read_bytes()
    (work / "claim").write_text(mine)
    anna = hostile.spawn("anna", work, "answer = 1")
    assert anna["session_id"] is None
    (refused,) = hostile.events("anna", "session:refused")
    assert mine in refused["text"]
    hostile.ok("send", "anna", f"open({OWN} + '/' + session + '/store.db', 'wb').write(b'forged')\nanswer = 2", "--wait")
    assert (chat(hostile, work, mine) / "store.db").read_bytes() == before


ODD = {
    "a link in it": "os.symlink('/etc/passwd', here + '/link')",
    "a pipe in it": "os.mkfifo(here + '/pipe')",
    "too many files": "[open(here + f'/{n}', 'w').close() for n in range(1100)]",
    "too much": "open(here + '/sparse', 'wb').truncate(1 << 40)",
    "too deep": "os.makedirs(here + '/a/b/c/d/e/f/g')",
    "a link": "shutil.move(here, here + 'x'); os.symlink(os.path.basename(here) + 'x', here)",
    "a pipe": "shutil.rmtree(here); os.mkfifo(here)",
    "nothing": "shutil.rmtree(here)",
}


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_plain_chat_is_not_moved_and_harms_nobody(hostile, odd):
    work = hostile.workspace()
    anna = hostile.spawn("anna", work, f"import shutil\nhere = {OWN} + '/' + session\n{ODD[odd]}\nanswer = 1")
    path = chat(hostile, work, anna["session_id"])
    assert not os.path.lexists(path)
    assert os.listdir(path.parent) == []
    told = hostile.events("anna", "session:refused")
    is_chat = odd not in {"a link", "a pipe", "nothing"}
    assert len(told) == is_chat
    if odd != "a pipe":  # at which the program itself fails
        assert hostile.ok("send", "anna", "answer = 1", "--wait")["state"] == "idle"
    if is_chat:
        assert [row["session"] for row in hostile.ok("sessions", "-w", work)] == [anna["session_id"]]
    assert hostile.ctl("rm", "anna").code == 0
    kept = [path for path in (hostile.state / "damaged").glob("*") if anna["session_id"] in path.name]
    assert len(kept) == is_chat, "a chat that couldn't be moved is set aside when its agent is removed"


def test_what_is_swapped_while_it_is_copied_leads_nowhere(hostile, until):
    """A command of `exec` swaps a file for a link as fast as it can while the turn's end copies the chat."""
    work = hostile.workspace()
    secret = hostile.home / "secret"
    secret.write_text("canary")
    script = "mark('there', session)\nwait_for('go')\nanswer = 1"
    hostile.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=script.encode())
    until((work / "there").exists, "the turn")
    session = (work / "there").read_text()
    loop = "for i in $(seq 3000); do mv other store; mv store other; done"
    swap = f"cd ~/.cursor/chats/*/{session} && ln -s {secret} other && touch swapping && {loop}"
    command = hostile.follow("exec", "anna", "--", "sh", "-c", swap)
    own = hostile.agents_directory(hostile.show("anna")) / "chats" / chat(hostile, work, session).parent.name / session
    until((own / "swapping").exists, "the swapping")
    (work / "go").touch()
    hostile.wait("anna")
    command.kill()
    for path in chat(hostile, work, session).parent.rglob("*"):
        assert not path.is_symlink()
        assert not path.is_file() or b"canary" not in path.read_bytes()


POINTS = [
    *(pytest.param(point, marks=pytest.mark.slow) for point in ("before: chat copied", "after: chat moved")),
    *("after: chat copied", "before: chat moved"),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_daemon_killed_while_it_moves_a_chat_loses_nothing(daemon, until, point):
    daemon.start(environment={failpoints.KILL_AT: point})
    work = daemon.workspace()
    daemon.ctl("spawn", "anna", "-w", work, "the first words")
    until(lambda: daemon.process.poll() is not None, "the kill")
    daemon.start()
    anna = daemon.wait("anna", "idle")
    path = chat(daemon, work, anna["session_id"])
    assert [entry.name for entry in path.parent.iterdir()] == [anna["session_id"]]
    assert {"store.db", "meta.json"} <= {entry.name for entry in path.iterdir()}
    own = daemon.agents_directory(anna) / "chats" / path.parent.name / anna["session_id"]
    assert not own.exists() or list(own.iterdir()) == []
    assert "the first words" in daemon.ok("send", "anna", "/recall", "--wait")["turn"]["result"]
    assert daemon.events("anna", "session:refused") == []


def test_where_it_cannot_be_moved_it_stays_and_goes_on(daemon):
    """Nothing is lost or overwritten, it is told, and moved once it can be."""
    daemon.start()
    work = daemon.workspace()
    folder = chat(daemon, work, "x").parent
    daemon.held("anna", work, before="the first words\n")
    session = daemon.show("anna")["session_id"]
    # The user makes a chat of the same name meanwhile.
    (folder / session).mkdir(parents=True)
    (folder / session / "store.db").write_text("the user's")
    (work / "go").touch()
    assert daemon.wait("anna")["turn"]["outcome"] == "success"
    assert (folder / session / "store.db").read_text() == "the user's"
    (told,) = daemon.events("anna", "session:refused")
    assert "isn't this agent's" in told["text"]
    shutil.rmtree(folder / session)
    assert "the first words" in daemon.ok("send", "anna", "/recall", "--wait")["turn"]["result"]
    assert (folder / session / "store.db").is_file()


def test_a_running_first_turns_chat_is_listed_and_exported(daemon):
    daemon.start()
    work = daemon.workspace()
    daemon.spawn("bert", work, "hello")
    anna = daemon.held("anna", work)
    listed = {row["session"]: row["agent"] for row in daemon.ok("sessions", "-w", work)}
    assert listed == {anna["session_id"]: "anna", daemon.show("bert")["session_id"]: "bert"}
    assert daemon.ctl("export", "anna").code == 0
    (work / "go").touch()
    daemon.wait("anna")
    assert len(daemon.ok("sessions", "-w", work)) == 2


def test_a_removed_agents_chat_stays_the_users(daemon):
    """Its only turn failed, so its chat isn't whole; the part that is there isn't deleted with the agent."""
    program = 'begin()\nif prompt == "fail":\n    sys.exit(3)\nfinish("hello")\n'
    daemon.start(agent=daemon.program(program))
    work = daemon.workspace()
    anna = daemon.spawn("anna", work, "fail")
    assert anna["turn"]["outcome"] == "error"
    session = daemon.show("anna")["session_id"]
    assert daemon.ctl("rm", "anna").code == 0
    assert (chat(daemon, work, session) / "store.db").is_file()


def as_older_version(daemon, anna):
    """Make an agent's files those of a version that showed each sandbox the user's whole folder."""
    directory = daemon.agents_directory(anna)
    number = anna["turn"]["number"]
    (directory / "turns" / str(number) / "own-chats").unlink()
    (directory / "session").unlink(missing_ok=True)


def test_an_agent_of_an_older_version_resumes(daemon):
    daemon.start()
    work = daemon.workspace()
    anna = daemon.spawn("anna", work, "the first words")
    daemon.stop()
    as_older_version(daemon, anna)
    with contextlib.closing(sqlite3.connect(daemon.state / "substrat.db")) as state, state:
        state.execute("UPDATE agents SET session_stored = 0")
    daemon.start()
    assert "the first words" in daemon.ok("send", "anna", "/recall", "--wait")["turn"]["result"]
    assert json.loads((daemon.agents_directory(anna) / "session").read_text())["session"] == anna["session_id"]


def test_a_chat_of_an_agent_without_records_can_be_adopted(daemon):
    daemon.start()
    work = daemon.workspace()
    anna = daemon.spawn("anna", work, "the first words")
    path = chat(daemon, work, anna["session_id"])
    daemon.ok("rm", "anna")
    lost = daemon.state / "agents" / str(uuid.uuid4()) / "chats" / path.parent.name / path.name
    lost.parent.mkdir(parents=True)
    path.rename(lost)
    bert = daemon.spawn("bert", work, "/recall", "--adopt", path.name)
    assert "the first words" in bert["turn"]["result"]
    assert (path / "store.db").is_file()


def test_the_program_that_copies_takes_plain_files_only(tmp_path, monkeypatch):
    """No sandbox is around it here: it refuses all other files by itself."""
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    (source / "store.db").write_bytes(b"x" * 3_000_000)
    (source / "inner").mkdir()
    (source / "inner" / "file").write_text("y")
    assert chatcopier.main([str(source), str(target)]) == 0
    assert (target / "store.db").read_bytes() == (source / "store.db").read_bytes()
    assert (target / "inner" / "file").read_text() == "y"
    assert (target / "store.db").stat().st_mtime_ns == (source / "store.db").stat().st_mtime_ns
    for make in (
        lambda path: path.symlink_to("/etc/passwd"),
        os.mkfifo,
        lambda path: (path.touch(), path.chmod(0o4755)),
    ):
        make(source / "odd")
        shutil.rmtree(target)
        target.mkdir()
        assert chatcopier.main([str(source), str(target)]) == chatcopier.REFUSED
        (source / "odd").unlink()
    assert chatcopier.main([str(source), str(target / "gone")]) == chatcopier.FAILED
