"""What an agent sees and can do: only what its policy names."""

import hashlib
import json
import os
import socket
import tarfile
import threading
from typing import Any, NamedTuple

import pytest

from tests.support.daemon import DaemonFixture


@pytest.fixture
def running(shared):
    """All tests here share a daemon, each with agents of its own."""
    return shared


def run(daemon, work, script, name="anna", *options):
    """Run one line of shell in the sandbox of a stand-in; returns what it printed."""
    daemon.ok("spawn", name, "-w", work, "--wait", "--prompt-file", "-", *options, stdin=f"/shell {script}".encode())
    return daemon.shell(name)


def looks(daemon):
    """Commands of one turn, each with what it looks at."""
    places = f"/usr/bin/x /etc/x /x /usr/x {daemon.directory}/x {daemon.home}/../x /lib/x"
    return {
        "home": f"ls -A ~; cat ~/.ssh/secret ~/.netrc {daemon.home}/documents/secret; find / -name secret 2>/dev/null",
        "host": f"exec 2>/dev/null; cat /etc/shadow /etc/sudoers {daemon.directory}/other/secret {daemon.directory}/beside;"
        f" cat {daemon.state}/substrat.db;"
        f" ls {daemon.directory}/other {daemon.state} {daemon.runtime} /var/run /root/.ssh /sys /boot /mnt /srv /home;"
        " ls -A /run; echo end",
        "login": "cat ~/.config/cursor/auth.json; echo x > ~/.config/cursor/auth.json; touch ~/.config/cursor/x",
        "writing": f"for p in {places}; do touch $p && echo WROTE $p; done; echo x > /etc/hosts && echo WROTE hosts;"
        " echo x > /run/substrat/companion.py && echo WROTE companion; rm -f /etc/passwd && echo WROTE passwd;"
        " mount -t tmpfs none /usr && echo WROTE mount; echo done",
        "archive": "tar xf x.tar && echo done; id -u; id -un; id -gn; echo $USER $LOGNAME; stat -c %U unpacked",
        "work": "echo words > file; mkdir -p a/b; echo t > /tmp/mine; cat /tmp/mine; ls -A /tmp;"
        " test -w /dev/null && echo null; head -c 4 /dev/urandom | wc -c; df /dev/shm >/dev/null && echo shm",
        "devices": "ls /dev; echo; tty; ls /dev/kmsg /dev/mem /dev/sda /dev/fuse /dev/kvm",
        "generated": "echo x > .cursor/mcp.json; touch .cursor/x; rm -rf .cursor; mv .cursor c;"
        " cat .cursor/mcp.json; cat .cursor/rules/substrat.mdc",
    }


class Looked(NamedTuple):
    """What each command of the turn printed, what then was on the host, and how the places begin."""

    said: dict[str, str]
    left: dict[str, Any]
    daemon: DaemonFixture


@pytest.fixture(scope="module")
def looked(_shared):
    """A turn that looks around on a host with secrets."""
    daemon = _shared
    daemon.clear()
    work, other = daemon.workspace(), daemon.workspace("other")
    for secret in (".ssh", ".gnupg", "documents"):
        (daemon.home / secret).mkdir()
        (daemon.home / secret / "secret").write_text("canary")
    for path in (daemon.home / ".netrc", other / "secret", daemon.directory / "beside"):
        path.write_text("canary")
    login = daemon.home / ".config" / "cursor"
    login.mkdir(parents=True)
    (login / "auth.json").write_text('{"accessToken": "t"}')
    with tarfile.open(work / "x.tar", "w") as archive:
        entry = tarfile.TarInfo("unpacked")
        entry.uid, entry.gid, entry.uname, entry.gname = 4242, 4343, "somebody", "somebodies"
        archive.addfile(entry)
    programs = set(os.listdir("/usr/bin"))
    commands = looks(daemon)
    daemon.spawn("anna", work, "\n".join(f"/shell {command}" for command in commands.values()))
    calls = [event["raw"]["tool_call"]["shellToolCall"] for event in daemon.events("anna", "tool-call-completed")]
    answers = [next(iter(call["result"].values())) for call in calls]
    said = [answer.get("stdout", "") + answer.get("stderr", "") for answer in answers]
    left = {
        "programs": set(os.listdir("/usr/bin")) == programs,
        "written": list(filter(os.path.exists, (daemon.directory / "x", "/x", "/etc/x", "/tmp/mine"))),
        "login": [(path.name, path.read_text()) for path in login.iterdir()],
        "work": {path.name: path.stat().st_uid for path in work.iterdir()},
        "words": (work / "file").read_text(),
        "exec": daemon.ctl("exec", "anna", "--", "id", "-un").out.strip(),
    }
    return Looked(dict(zip(commands, said, strict=True)), left, daemon)


def test_the_home_shows_only_what_the_agent_needs(looked):
    out = looked.said["home"]
    assert "canary" not in out
    assert not {".ssh", ".gnupg", "documents", ".netrc"} & set(out.split())


def test_the_host_is_not_visible(looked):
    out = looked.said["host"]
    for word in ("canary", "root:", "SQLite format", "daemon.sock", "substrat.db"):
        assert word not in out
    assert "end" in out


def test_another_agents_directories_and_doors_are_not_visible(running):
    work, other = running.workspace(), running.workspace("other")
    bert = running.spawn("bert", other, "my secret words")
    out = run(
        running, work,
        f"ls -R {running.agents_directory(bert)} {running.runtime}/agents/{bert['id']} {running.chat(bert)};"
        " ls ~/.cursor/chats;"
        f" find / -path /proc -prune -o -name '*{bert['id']}*' -print 2>/dev/null; ls -R /run",
    )  # fmt: skip
    assert hashlib.md5(os.fsencode(other)).hexdigest() not in out.split()
    assert "store.db" not in out
    assert out.count("agent.sock") <= 1, "only its own door"
    assert [line for line in out.splitlines() if bert["id"] in line and "No such file" not in line] == []


def test_nothing_outside_the_workspace_can_be_written(looked):
    out, daemon = looked.said["writing"], looked.daemon
    assert looked.left["programs"]
    assert looked.left["written"] == []
    written = [line for line in out.splitlines() if line.startswith("WROTE")]
    assert [line for line in written if line.split()[1] not in {"/x", f"{daemon.directory}/x", f"{daemon.home}/../x"}] == []
    assert "done" in out


def test_an_archive_of_other_owners_unpacks(looked):
    """Also as root, whose agents find an ordinary user that has a name."""
    done, uid, *names = looked.said["archive"].split()
    expected = "agent" if os.geteuid() == 0 else names[0]
    assert (done, names) == ("done", [expected, names[1], expected, expected, expected])
    assert int(uid) == (os.geteuid() or 1000)
    assert looked.left["work"]["unpacked"] == os.geteuid()
    assert looked.left["exec"] == expected


def test_it_can_work_in_its_workspace_and_its_own_tmp(looked):
    out, work = looked.said["work"], looked.left["work"]
    assert looked.left["words"] == "words\n"
    assert (work["file"], "a" in work) == (os.geteuid(), True), work
    assert {"t", "mine", "null", "4", "shm"} <= set(out.split())
    assert looked.daemon.runtime.name not in out


def test_the_hosts_devices_are_not_there(looked):
    assert set(looked.said["devices"].split("\n\n")[0].split()) <= {
        "console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    }  # fmt: skip


def test_the_generated_cursor_directory_is_read_only(looked):
    out = looked.said["generated"]
    assert "Read-only" in out or "denied" in out
    document = json.loads(out[out.index("{\n") : out.rindex("\n}") + 2])
    assert "substrat" in document["mcpServers"]
    assert ".cursor" not in looked.left["work"]


def test_the_login_is_readable_and_not_writable(looked):
    assert "accessToken" in looked.said["login"]
    assert looked.left["login"] == [("auth.json", '{"accessToken": "t"}')]


# The workspace stays clean


def test_git_status_is_the_same_before_during_and_after(running):
    work = running.workspace(git=True)
    other = "git -c core.excludesFile=/dev/null status --porcelain"  # as libraries do that don't read that setting
    out = run(running, work, f"git status --porcelain; {other}; git log --oneline; ls -A .cursor; cat .cursor/mcp.json")
    assert "first" in out
    assert "mcpServers" in out
    assert "?? " not in out
    assert "dubious" not in out
    assert running.git(work, "status", "--porcelain", "--ignored") == ""
    assert sorted(os.listdir(work)) == [".git", "README.md"]


def test_no_cursor_directory_is_left_even_after_a_kill(running, until):
    work = running.workspace(git=True)
    running.held("anna", work)
    assert "?? .cursor" not in running.git(work, "status", "--porcelain")
    running.ok("suspend", "anna")
    assert not (work / ".cursor").exists()
    running.ok("send", "anna", "/sleep 1000")
    running.ok("resume", "anna")
    until(lambda: running.show("anna")["state"] == "running", "the turn")
    running.kill()
    running.start()
    running.ok("end", "anna")
    (work / "ready-anna").unlink()
    assert sorted(os.listdir(work)) == [".git", "README.md"]
    assert running.git(work, "status", "--porcelain", "--ignored") == ""


def test_the_workspaces_own_rules_and_servers_are_shown_and_unmodified(running):
    work = running.workspace(git=True)
    (work / ".cursor" / "rules").mkdir(parents=True)
    (work / ".cursor" / "rules" / "house.mdc").write_text("be kind\n")
    mine = '{"mcpServers": {"mine": {"command": "/bin/mine", "args": ["x"]}}} // a comment\n'.replace(" // a comment", "")
    (work / ".cursor" / "mcp.json").write_text(mine)
    (work / ".cursor" / "cli.json").write_text("{}")
    running.git(work, "add", ".")
    running.git(work, "commit", "-q", "-m", "rules")
    out = run(
        running, work, "cat .cursor/rules/house.mdc; ls .cursor .cursor/rules; git status --porcelain; cat .cursor/mcp.json"
    )
    assert "be kind" in out
    assert "cli.json" in out
    assert "substrat.mdc" in out
    servers = json.loads(out[out.index("{") :])["mcpServers"]
    assert set(servers) == {"mine", "substrat"}
    assert servers["mine"]["command"] == "/bin/mine"
    assert (work / ".cursor" / "mcp.json").read_text() == mine
    assert sorted(os.listdir(work / ".cursor" / "rules")) == ["house.mdc"]
    assert running.git(work, "status", "--porcelain", "--ignored") == ""


def test_git_inside_does_not_take_the_generated_files_for_changes(running):
    """With rules under version control the overlay shows another mcp.json; an agent that commits must not commit it."""
    work = running.workspace(git=True)
    (work / ".cursor").mkdir()
    (work / ".cursor" / "mcp.json").write_text('{"mcpServers": {}}\n')
    running.git(work, "add", ".")
    running.git(work, "commit", "-q", "-m", "rules")
    run(running, work, "echo new > new.txt; git add -A; git -c user.name=A -c user.email=a@b.c commit -q -m agent")
    assert running.git(work, "show", "--name-only", "--format=%s").split() == ["agent", "new.txt"]
    assert running.git(work, "status", "--porcelain") == ""


def test_an_odd_mcp_file_of_the_user_does_not_cost_the_agent_its_tools(running):
    contents = ("{broken", "[]", '{"mcpServers": []}', '{"mcpServers": {"substrat": {"command": "/bin/false"}}}')
    for number, content in enumerate(contents):
        work, name = running.workspace(f"work-{number}"), f"a{number}"
        (work / ".cursor").mkdir()
        (work / ".cursor" / "mcp.json").write_text(content)
        running.spawn(name, work, "/tool whoami {}")
        (answer,) = running.tool(name)
        assert name in answer, content
        assert not answer.startswith("!"), content
        assert (work / ".cursor" / "mcp.json").read_text() == content


def test_a_cursor_directory_that_is_a_link_out_of_the_workspace_shows_nothing_of_the_host(running):
    work = running.workspace()
    (running.home / "secret").write_text("canary")
    (work / ".cursor").symlink_to(running.home)
    done = running.ctl("spawn", "anna", "-w", work, "--wait", "/shell cat .cursor/secret; ls .cursor")
    assert "canary" not in running.ctl("logs", "anna", "--raw").out
    assert done.code in {0, 1, 5}
    assert os.listdir(running.home / ".cursor") if (running.home / ".cursor").exists() else True
    assert not (running.home / "mcp.json").exists()
    assert not (running.home / "rules").exists()


def test_a_link_inside_the_users_rules_shows_nothing_of_the_host(running):
    work = running.workspace()
    (running.home / "secret").write_text("canary")
    (work / ".cursor" / "rules").mkdir(parents=True)
    (work / ".cursor" / "rules" / "leak.mdc").symlink_to(running.home / "secret")
    (work / ".cursor" / "hooks.json").symlink_to(running.home / "secret")
    os.mkfifo(work / ".cursor" / "pipe")
    running.ok("spawn", "anna", "-w", work, "--wait", "/shell cat .cursor/rules/leak.mdc .cursor/hooks.json")
    assert "canary" not in running.ctl("logs", "anna", "--raw").out


def test_chats_are_visible_to_the_user_in_their_usual_place(running):
    work = running.workspace()
    agent = running.spawn("anna", work, "hello")
    chat = running.home / ".cursor" / "chats" / hashlib.md5(os.fsencode(work)).hexdigest() / agent["session_id"]
    assert (chat / "store.db").is_file()
    assert (chat / "meta.json").is_file()
    assert os.listdir(running.home / ".cursor") == ["chats"], "and nothing else of the agent's is there"


def test_the_chats_folder_is_found_through_a_linked_workspace_too(running):
    work = running.workspace()
    link = running.directory / "link"
    link.symlink_to(work)
    agent = running.spawn("anna", link, "hello")
    assert agent["workspace"] in {str(work), str(link)}
    assert (running.chat(agent) / "store.db").is_file()
    assert running.ctl("send", "anna", "--wait", "/recall").out.count("hello") == 1


def test_a_workspace_with_an_odd_name(running):
    names = ["-with space $HOME", "quo'te dou\"ble back\\slash", "ünï-ço\u0301de new\nline"]
    for number, name in enumerate(names):
        work = running.workspace(name)
        agent = running.spawn(f"a{number}", work, "/shell pwd; touch here\n/tool whoami {}")
        assert agent["turn"]["outcome"] == "success", name
        assert agent["workspace"] == str(work)
        assert (work / "here").exists(), name
        assert running.shell(f"a{number}").rstrip("\n") == str(work)
        assert f"a{number}" in running.tool(f"a{number}")[0], name


def test_the_program_is_seen_read_only_in_the_directory_of_its_real_file(daemon):
    real = daemon.program('begin()\nfinish(open(os.path.join(os.path.dirname(sys.argv[0]), "data")).read())\n', "real")
    real.with_name("data").write_text("beside it")
    (daemon.directory / "bin").mkdir()
    link = daemon.directory / "bin" / "agent"
    link.symlink_to(real)
    (daemon.directory / "bin" / "secret").write_text("canary")
    daemon.start(agent=link)
    source = real.read_text()
    agent = daemon.spawn("anna", daemon.workspace(), "x")
    if agent["turn"]["outcome"] != "success":
        # argv[0] may be the link's path; the data is then looked for beside the real file.
        real.write_text(source.replace("sys.argv[0]", "os.path.realpath(sys.argv[0])"))
        agent = daemon.ok("send", "anna", "--wait", "x")
    assert agent["turn"]["result"] == "beside it"


def test_bind_ro_adds_what_a_program_needs(daemon):
    extra = daemon.directory / "extra"
    extra.mkdir()
    (extra / "data").write_text("extra words")
    program = daemon.program(f"begin()\nfinish(open('{extra}/data').read())\n")
    daemon.start(agent=program)
    work = daemon.workspace()
    assert daemon.spawn("anna", work, "x")["turn"]["outcome"] == "error"
    daemon.stop()
    daemon.start(config=f'[agent]\nbind_ro = ["{extra}"]\n')
    assert daemon.spawn("bert", work, "x")["turn"]["result"] == "extra words"


# Networks

CONNECT = "python3 -c 'import socket; print(socket.create_connection((\"127.0.0.1\", {port}), 3).recv(9))'"


@pytest.fixture
def listener():
    """A server on the host's loopback that greets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(b"greetings")

        thread = threading.Thread(target=greet)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_no_network_is_only_a_loopback_and_every_namespace_is_its_own(running, listener):
    work = running.workspace()
    spaces = "for n in cgroup ipc mnt net pid user uts; do echo $n $(readlink /proc/self/ns/$n); done > spaces"
    script = f"{spaces}; cat /proc/net/dev; cat /proc/net/route; {CONNECT.format(port=listener)}\n/tool whoami {{}}"
    out = run(running, work, script, "anna", "--network", "none")
    assert "anna" in running.tool("anna")[0], "its tools are there"
    for line in (work / "spaces").read_text().splitlines():
        name, value = line.split()
        assert value != os.readlink(f"/proc/self/ns/{name}"), name
    devices = [line.split(":")[0].strip() for line in out.splitlines() if ":" in line and "|" not in line][:1]
    assert devices == ["lo"]
    assert "eth0" not in out
    assert "greetings" not in out
    assert "refused" in out or "unreachable" in out
    assert running.show("anna")["network"] == "none"
    assert "none" in running.ctl("show", "anna").out


def test_the_host_network_is_the_hosts(running, listener):
    out = run(running, running.workspace(), CONNECT.format(port=listener), "anna", "--network", "host")
    assert "greetings" in out


def test_work_beside_the_workspace_fails_and_leaves_nothing(daemon):
    """A worktree made beside the workspace would be lost with the sandbox, and its branch locked on the host."""
    daemon.start()
    work = daemon.workspace(git=True)
    daemon.spawn("anna", work)
    for command in ("git worktree add ../x", "git clone -q . ../y", "echo > ../z"):
        done = daemon.ctl("exec", "anna", "--", "sh", "-c", command)
        assert done.code != 0
        assert "Read-only file system" in done.err
    assert daemon.git(work, "worktree", "list").count("\n") == 1
    assert daemon.ctl("exec", "anna", "--", "git", "clone", "-q", ".", "inside").code == 0
