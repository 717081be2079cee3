"""The unit under a real systemd: a user's own manager, on a machine that can be rebooted."""

import json
from pathlib import Path

import pytest

from substrat.daemon.kernel import file_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

UNIT = "substratd.service"
UNIT_FILE = ".config/systemd/user/substratd.service"


def states(service):
    return {agent["name"]: agent["state"] for agent in service.ok("ls")}


def check_it_goes_on(service, name, before):
    """A held turn is the same one as before, in the same process; it is let go and ends well."""
    agent = service.ok("show", name)
    assert (agent["state"], agent["turn"]["id"]) == ("running", before["turn"]["id"])
    service.touch(f"{name}/go")
    agent = service.wait(name)
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["number"]) == ("idle", "success", 1)
    assert "freed" in service.ctl("logs", name).stdout
    assert not service.sandboxes()


def test_install_starts_the_service_and_an_agent_does_its_work(service):
    done = service.ctl("service", "install")
    assert done.stdout == (
        f"wrote {service.home}/{UNIT_FILE}\nsystemctl --user daemon-reload\nsystemctl --user enable --now {UNIT}\n"
    )
    assert done.stderr == ""
    assert service.show("ActiveState", "SubState", "Type", "UnitFileState", "StatusText", "NotifyAccess") == {
        "ActiveState": "active", "SubState": "running", "Type": "notify", "UnitFileState": "enabled",
        "StatusText": "0 agents", "NotifyAccess": "main",
    }  # fmt: skip
    # No waiting in between: who could start it can use it.
    service.spawn("anna", "/shell id -un\n/say hello")
    agent = service.wait("anna")
    assert (agent["state"], agent["turn"]["outcome"]) == ("idle", "success")
    # The agent program was found where its installer puts it, which isn't on the PATH of systemd's services.
    assert ".local/bin" not in service.systemctl("show-environment").stdout
    assert "agents can run here" in service.ctl("doctor").stdout


def test_it_is_active_only_when_it_is_ready(running, until):
    running.systemctl("stop", UNIT)
    # A configuration that has no end yet holds the daemon while it starts.
    running.run("sh", "-c", "mkdir -p ~/.config/substrat && mkfifo ~/.config/substrat/config.toml")
    running.systemctl("start", "--no-block", UNIT)
    until(lambda: running.machine.processes("substratd"), "the daemon's process")
    assert running.pid
    assert running.show("ActiveState", "SubState") == {"ActiveState": "activating", "SubState": "start"}
    running.configure("[limits]\nagents = 7\n")
    # Waits for the job that is there already, so it returns when systemd counts the service as started.
    running.systemctl("start", UNIT)
    assert running.show("ActiveState", "SubState") == {"ActiveState": "active", "SubState": "running"}
    assert running.ok("ls") == []


def test_its_log_is_structured_in_the_journal(running):
    ready = next(line for line in running.said() if line["event"] == "ready")
    assert (ready["level"], ready["agents"]) == ("info", 0)
    assert ready["state_dir"] == f"{running.home}/.local/state/substrat"
    entries = [entry for entry in running.journal() if entry["_COMM"] == "substratd"]
    assert {entry["_SYSTEMD_USER_UNIT"] for entry in entries} == {UNIT}


def test_reload_reads_the_configuration_again(running, until):
    pid = running.pid
    running.spawn("anna", "/say hello")
    running.configure("[limits]\nagents = 1\n")
    running.systemctl("reload", UNIT)
    until(lambda: any(line["event"] == "configuration reloaded" for line in running.said()), "the reload")
    refused = running.ctl("spawn", "bert", "-w", f"{running.home}/anna", check=False)
    assert refused.returncode != 0
    assert "there are 1 agents already" in refused.stderr
    running.configure("[limits]\nagent = 1\n")
    running.systemctl("reload", UNIT)
    until(lambda: any(line["event"] == "configuration not reloaded" for line in running.said()), "the complaint")
    running.wait_for(ActiveState="active", SubState="running")
    assert running.pid == pid
    assert running.value("NRestarts") == "0"


def test_a_restart_in_the_middle_of_a_turn_keeps_the_turn(running):
    before, pid = running.held("anna"), running.pid
    sandbox = running.sandboxes()
    assert sandbox
    for _ in range(2):
        running.systemctl("restart", UNIT)
        assert running.sandboxes() == sandbox
    assert running.pid != pid
    check_it_goes_on(running, "anna", before)


def test_a_killed_daemon_is_started_again_and_takes_the_turn_up(running, until):
    before, pid = running.held("anna"), running.pid
    sandbox = running.sandboxes()
    running.systemctl("kill", "--kill-whom=main", "-s", "KILL", UNIT)
    until(lambda: running.value("NRestarts") == "1", "the restart")
    running.wait_for(ActiveState="active", SubState="running")
    assert running.pid not in {0, pid}
    assert running.sandboxes() == sandbox
    check_it_goes_on(running, "anna", before)


def test_a_turn_goes_on_while_the_service_is_stopped(running, until):
    before = running.held("anna")
    running.systemctl("stop", UNIT)
    assert running.show("ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
    assert running.sandboxes()
    assert running.ctl("ls", check=False).returncode == 3
    running.systemctl("start", UNIT)
    check_it_goes_on(running, "anna", before)
    running.run("rm", f"{running.home}/anna/go")
    # And one that ends while nobody is there to see it.
    running.held("bert")
    running.systemctl("stop", UNIT)
    running.touch("bert/go")
    until(lambda: not running.sandboxes(), "the end of the turn")
    running.systemctl("start", UNIT)
    agent = running.wait("bert")
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["exit_code"]) == ("idle", "success", 0)


def test_a_daemon_that_hangs_is_replaced_and_its_turn_taken_up(running, until):
    assert running.value("WatchdogUSec") == "30s"
    running.drop_in("[Service]\nWatchdogSec=1\n")
    running.systemctl("restart", UNIT)
    before, pid = running.held("anna"), running.pid
    running.systemctl("kill", "--kill-whom=main", "-s", "STOP", UNIT)
    until(lambda: running.value("NRestarts") == "1", "the restart")
    running.wait_for(ActiveState="active", SubState="running")
    assert running.pid not in {0, pid}
    assert any("Watchdog timeout" in entry["MESSAGE"] for entry in running.journal())
    check_it_goes_on(running, "anna", before)
    # One that doesn't hang tells systemd so, for longer than a period, and is left alone.
    pid, first = running.pid, int(running.value("WatchdogTimestampMonotonic"))
    until(lambda: int(running.value("WatchdogTimestampMonotonic")) > first + 2_000_000, "two periods of the watchdog")
    assert (running.pid, running.value("NRestarts")) == (pid, "1")


def test_a_wrong_configuration_is_a_failure_at_once_and_not_a_loop(running):
    running.systemctl("stop", UNIT)
    running.configure("[limits]\nagent = 1\n")
    assert running.systemctl("start", UNIT, check=False).returncode != 0
    assert running.show("ActiveState", "Result", "NRestarts") == {
        "ActiveState": "failed", "Result": "exit-code", "NRestarts": "0",
    }  # fmt: skip
    assert "limits.agent" in "\n".join(entry["MESSAGE"] for entry in running.journal())
    running.configure("")
    running.systemctl("start", UNIT)
    assert running.ok("ls") == []


def test_uninstall_leaves_turns_and_agents(running):
    before = running.held("anna")
    sandbox = running.sandboxes()
    running.ctl("service", "uninstall")
    assert not running.exists(UNIT_FILE)
    assert running.value("LoadState") == "not-found"
    assert running.sandboxes() == sandbox
    running.install()
    check_it_goes_on(running, "anna", before)


def test_installed_again_the_daemon_is_replaced_and_finds_what_it_did_not(service):
    service.run("mv", f"{service.home}/.local/bin", f"{service.home}/programs")
    service.install()
    missing = service.ctl("spawn", "anna", "-w", service.home, "x", check=False)
    assert "isn't on PATH" in missing.stderr
    service.run("mv", f"{service.home}/programs", f"{service.home}/.local/bin")
    service.drop_in("[Service]\nEnvironment=LATER=1\n")
    before, pid = service.held("anna"), service.pid
    service.install()
    assert service.pid != pid
    assert b"LATER=1" in service.machine.path(f"/proc/{service.pid}/environ").read_bytes().split(b"\0")
    check_it_goes_on(service, "anna", before)


@pytest.mark.parametrize("how", ["in order", "power cut", "logout"])
def test_after_a_reboot_everything_is_there_or_accounted_for(running, until, how):
    machine = running.machine
    running.spawn("idle", "/say hello")
    idle = running.wait("idle")
    running.held("suspended")
    running.ok("suspend", "suspended")
    running.held("busy")
    boot = machine.path("/proc/sys/kernel/random/boot_id").read_text()
    if how == "logout":
        machine.run("systemctl", "stop", "user@1000.service")
        assert not running.sandboxes()
        machine.run("systemctl", "start", "user@1000.service")
    else:
        (machine.power_off if how == "in order" else machine.cut_power)()
        machine.boot()
        assert machine.path("/proc/sys/kernel/random/boot_id").read_text() != boot
    # Nobody has logged in or started anything.
    machine.wait_for_user(1000)
    running.wait_for(ActiveState="active", SubState="running")
    busy = running.wait("busy")
    assert states(running) == {"idle": "idle", "suspended": "suspended", "busy": "failed"}
    assert busy["turn"]["outcome"] == "lost"
    assert busy["turn"]["ended_at"]
    assert busy["turn"]["error"]
    assert not running.sandboxes()
    # Each goes on in the session it had.
    again = running.ok("send", "idle", "/say again", "--wait", "--timeout", "20")
    assert (again["session_id"], again["turn"]["number"], again["turn"]["outcome"]) == (idle["session_id"], 2, "success")
    for name in ("suspended", "busy"):
        session = running.ok("show", name)["session_id"]
        assert session
        running.touch(f"{name}/go")
        running.ctl("resume", name, "/say again", "--wait", "--timeout", "20")
        agent = running.wait(name)
        assert (agent["state"], agent["session_id"], agent["turn"]["outcome"]) == ("idle", session, "success")


def test_systemd_has_nothing_to_say_against_the_unit(running, record_property):
    verified = running.run("systemd-analyze", "--user", "--man=no", "verify", f"{running.home}/{UNIT_FILE}")
    record_property("verify", verified.stdout + verified.stderr)
    assert UNIT not in verified.stderr
    words = ("security", "--user", "--no-pager", "--json=short", UNIT)
    rated = running.run("systemd-analyze", *words)
    record_property("security", rated.stdout)
    print(running.run("systemd-analyze", "security", "--user", "--no-pager", UNIT).stdout)
    good = {row["json_field"] for row in json.loads(rated.stdout) if row["set"]}
    assert {"NoNewPrivileges", "LockPersonality", "RestrictRealtime"} <= good
    warnings = [entry["MESSAGE"] for entry in running.journal() if entry["PRIORITY"] < "5"]
    assert warnings == []


def test_turns_are_in_the_cgroup_of_the_service(running, suite):
    turn = running.held("anna")["turn"]["id"]
    group = running.machine.path(f"/sys/fs/cgroup{running.value('ControlGroup')}")
    found = {str(path.parent.relative_to(group)): path.read_text().split() for path in group.rglob("cgroup.procs")}
    assert running.value("Delegate") == "yes"
    # Seen from outside: the daemon, those that look at files for it, and bubblewrap's two processes and what they run.
    if suite == "trixie":
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in found["daemon"]]
        others = [name for name in names if name != file_server.NAME]
        assert (found["."], found["agents"], len(others)) == ([], [], 1), names
        assert len(found[f"agents/{turn}"]) >= 3
    else:
        assert len(found["."]) >= 4
    running.touch("anna/go")
    running.wait("anna")


def test_root_has_it_in_a_manager_of_its_own(root_service):
    done = root_service.ctl("service", "install")
    assert done.stdout.splitlines()[0] == f"wrote /root/{UNIT_FILE}"
    assert done.stderr == ""
    root_service.wait_for(ActiveState="active", SubState="running")
    before, pid = root_service.held("anna"), root_service.pid
    root_service.systemctl("restart", UNIT)
    assert root_service.pid != pid
    check_it_goes_on(root_service, "anna", before)


def test_the_unit_also_runs_under_the_system_manager(system_service):
    """`service install` makes a user's service; the unit works for the system's manager too."""
    system_service.systemctl("enable", "--now", UNIT)
    assert system_service.show("ActiveState", "SubState", "UnitFileState") == {
        "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled",
    }  # fmt: skip
    before, pid = system_service.held("anna"), system_service.pid
    system_service.systemctl("restart", UNIT)
    assert system_service.pid != pid
    check_it_goes_on(system_service, "anna", before)
    system_service.machine.power_off()
    system_service.machine.boot()
    system_service.wait_for(ActiveState="active", SubState="running")
    assert system_service.ok("show", "anna")["state"] == "idle"
    system_service.systemctl("reload", UNIT)
    assert system_service.show("ActiveState")["ActiveState"] == "active"


def test_with_the_socket_unit_the_first_command_starts_the_daemon(service):
    done = service.ctl("service", "install", "--socket")
    assert f"wrote {service.home}/.config/systemd/user/substratd.socket\n" in done.stdout
    assert service.show("ActiveState", "UnitFileState", unit="substratd.socket") == {
        "ActiveState": "active", "UnitFileState": "enabled",
    }  # fmt: skip
    service.systemctl("stop", UNIT, "--job-mode=ignore-dependencies")
    assert service.show("ActiveState") == {"ActiveState": "inactive"}
    assert service.ok("ls") == []
    assert service.show("ActiveState") == {"ActiveState": "active"}
    held = service.held("anna")
    # A command that comes while the daemon is restarted waits for it instead of being refused.
    service.systemctl("restart", "--no-block", UNIT)
    assert states(service) == {"anna": "running"}
    check_it_goes_on(service, "anna", held)
    assert "removed" in service.ctl("service", "uninstall").stdout
    assert not service.exists(".config/systemd/user/substratd.socket")
    assert service.ctl("ls", check=False).returncode == 3


def test_the_page_is_a_service_of_its_own(service, until):
    web = "substrat-web.service"
    done = service.ctl("service", "install", "--web")
    assert f"wrote {service.home}/.config/systemd/user/{web}\n" in done.stdout
    assert service.show("ActiveState", "UnitFileState", unit=web) == {"ActiveState": "active", "UnitFileState": "enabled"}
    link = service.ctl("web", "--url").stdout.strip()
    address, _, token = link.partition("/#token=")
    ask = (
        "import urllib.request as r; shown = {'Authorization': 'Bearer " + token + "'}; "
        f"print(r.urlopen(r.Request('{address}/api/v1/agents', headers=shown)).status)"
    )
    until(lambda: service.run("python3", "-c", ask, check=False).stdout == "200\n", "the page's answer")
    printed = service.run("journalctl", "--user", "-b", "-u", web, "-o", "cat").stdout
    assert f"{address}/\n" in printed
    assert token not in printed
    verified = service.run("systemd-analyze", "--user", "--man=no", "verify", f"{service.home}/.config/systemd/user/{web}")
    assert web not in verified.stderr
    service.ctl("service", "uninstall")
    assert not service.exists(f".config/systemd/user/{web}")
    assert service.show("ActiveState", unit=web) == {"ActiveState": "inactive"}
