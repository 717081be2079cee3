"""`service` and the unit it installs."""

import configparser
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from substrat.cli.verbs import service

UNIT = Path(__file__).parents[2] / "systemd" / "substratd.service"
ODD = ["plain", "two words", "100% sure", "$HOME ${x}", "é漢", "a;b", "#c", "%h%n", "@x", "-y", "a*b?"]
IMPOSSIBLE = ['quo"te', "back\\slash", "it's", "line\nbreak", "tab\t", "\x1b"]


class Settings(configparser.ConfigParser):
    """A unit's settings, whose names have capitals."""

    def optionxform(self, optionstr):
        return optionstr


def settings(text):
    parser = Settings(strict=False, interpolation=None)
    parser.read_string(text)
    return parser


def unquoted(value):
    """What systemd makes of a quoted executable path (systemd.service(5), systemd.syntax(7))."""
    assert value.startswith('"')
    assert value.endswith('"')
    return value[1:-1].replace("%%", "%")


@pytest.fixture
def config(monkeypatch, tmp_path):
    """A configuration directory of the test's own, and a `substratd` beside a `substratctl`."""
    directory = tmp_path / "con fig"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(directory))
    monkeypatch.setattr(sys, "argv", ["/nonexistent/substratctl"])
    return directory / "systemd" / "user" / "substratd.service"


@pytest.fixture
def installed(executable, monkeypatch):
    """Put a daemon into a directory of some name, beside the `substratctl` that runs."""

    def put(name, tmp_path):
        daemon = executable("substratd", "exit 0", directory=tmp_path / name)
        monkeypatch.setattr(sys, "argv", [str(daemon.parent / "substratctl")])
        return daemon

    return put


def test_the_unit_says_what_survival_needs():
    unit = settings(UNIT.read_text())
    found = unit["Service"]
    said = [found[name] for name in ("Type", "KillMode", "Delegate", "Restart")]
    assert said == ["notify", "process", "yes", "on-failure"]
    assert float(found["WatchdogSec"]) > 0
    assert found["ExecStart"] == "substratd"
    assert unit["Install"]["WantedBy"] == "default.target"
    forbidden = {"SystemCallFilter", "PrivateTmp", "ProtectSystem", "ProtectHome", "PrivateUsers"}
    assert not ({"Restrict" + "Namespaces"} | forbidden) & set(found)


def test_the_template_is_the_unit():
    assert service.find_template() == UNIT.read_text()


@pytest.mark.parametrize("name", ODD)
def test_render_changes_one_line(name):
    program = f"/opt/{name}/substratd"
    before, after = UNIT.read_text().splitlines(), service.render(UNIT.read_text(), program).splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == 1
    assert changed[0][0] == "ExecStart=substratd"
    assert unquoted(changed[0][1].removeprefix("ExecStart=")) == program


@pytest.mark.parametrize(
    ("search", "line"),
    [
        ("/home/x/.local/bin:/usr/bin:/bin", "PATH=/home/x/.local/bin:/usr/bin:/bin"),
        (
            '/two words/bin:/100%:/q"uote:/back\\slash:/é:/$HOME',
            'PATH=/two words/bin:/100%%:/q\\"uote:/back\\\\slash:/é:/$HOME',
        ),
        (".::bin:../x:/bin:/usr/bin:/bin:/tab\t:/line\nbreak", "PATH=/bin:/usr/bin"),
    ],
)
def test_render_gives_the_daemon_a_path(search, line):
    before = service.render(UNIT.read_text(), "/opt/substratd").splitlines()
    after = service.render(UNIT.read_text(), "/opt/substratd", search).splitlines()
    assert [text for text in after if text not in before] == [f'Environment="{line}"']
    assert len(after) == len(before) + 1


@pytest.mark.parametrize("search", ["", ".", "bin:", "::"])
def test_render_without_a_usable_path_leaves_systemds(search):
    assert service.render(UNIT.read_text(), "/opt/substratd", search) == service.render(UNIT.read_text(), "/opt/substratd")


def verified(unit):
    done = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", unit], capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(unit.parent)},
    )  # fmt: skip
    return done.returncode, [line for line in done.stderr.splitlines() if unit.name in line or "ommand" in line]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze isn't installed here")
@pytest.mark.parametrize("name", ["plain", "two words 100%", "$HOME ${x}", "é漢", "a;b #c %h"])
def test_systemd_accepts_the_installed_unit(ctl, config, installed, tmp_path, name):
    installed(name, tmp_path)
    assert ctl("service", "install").code == 1
    assert verified(config) == (0, [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze isn't installed here")
def test_systemd_would_refuse_a_unit_whose_program_is_not_there(tmp_path):
    unit = tmp_path / "substratd.service"
    unit.write_text(service.render(UNIT.read_text(), "/nonexistent/substratd"))
    code, complaints = verified(unit)
    assert code != 0
    assert complaints


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_path_that_systemd_cannot_start_is_refused(ctl, config, installed, tmp_path, name):
    installed(name, tmp_path)
    done = ctl("service", "install")
    assert (done.code, done.out) == (1, "")
    assert "systemd can't start " in done.error
    assert "install Substrat in another directory" in done.error
    assert not config.exists()


def systemd():
    """The version of this machine's systemd; one that knows everything where there is none."""
    with contextlib.suppress(FileNotFoundError):
        return int(subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1])
    return 254


@pytest.mark.parametrize(("version", "divides"), [(249, False), (253, False), (254, True), (257, True)])
def test_a_systemd_that_could_not_restart_it_gets_no_subgroup(
    ctl, config, installed, executable, monkeypatch, tmp_path, version, divides
):
    installed("bin", tmp_path)
    program = executable("systemctl", f"echo 'systemd {version} ({version}.1-1)'")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    text = ctl("service", "install", "--dry-run").out
    assert ("\nDelegateSubgroup=daemon\n" in text) == divides
    assert "\nDelegate=yes\n" in text


def test_install_and_uninstall(ctl, config, installed, tmp_path):
    daemon = installed("two words 100%", tmp_path)
    done = ctl("service", "install")
    assert (done.code, done.out) == (1, f"wrote {config}\n"), "nothing has started it"
    assert f"the service isn't running: {config} is written" in done.err
    assert "no systemd user manager answers here; where one does, run: systemctl --user daemon-reload && " in done.err
    assert "systemctl --user enable --now substratd.service" in done.err
    assert config.read_text() == service.render(UNIT.read_text(), str(daemon), os.environ["PATH"], systemd())
    # Again, over the installed unit.
    assert ctl("service", "install", "--json").json["started"] is False
    done = ctl("service", "uninstall")
    assert (done.code, done.out) == (0, f"removed {config}; agents and their state stay\n")
    assert not config.exists()
    done = ctl("service", "uninstall")
    assert (done.code, done.out, done.error) == (4, "", f"{config} doesn't exist: the service isn't installed")


def test_dry_run_changes_nothing(ctl, config, installed, tmp_path):
    daemon = installed("bin", tmp_path)
    done = ctl("service", "install", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"# {config}\n" + service.render(UNIT.read_text(), str(daemon), os.environ["PATH"], systemd())
    assert not config.parent.exists()
    assert ctl("service", "uninstall", "--dry-run").code == 4
    ctl("service", "install")
    done = ctl("service", "uninstall", "--dry-run")
    assert (done.code, done.out) == (0, f"would stop the daemon and remove {config}\n")
    assert config.exists()


def test_json_is_one_document(ctl, config, installed, tmp_path):
    installed("bin", tmp_path)
    found = ctl("service", "install", "--json", "--dry-run").json
    assert (found["unit"], found["installed"]) == (str(config), False)
    found = ctl("service", "install", "--json").json
    assert (found["unit"], found["installed"], found["text"]) == (str(config), True, config.read_text())
    assert ctl("service", "uninstall", "--json", "--dry-run").json == {"unit": str(config), "installed": True}
    assert ctl("service", "uninstall", "--json").json == {"unit": str(config), "installed": False}


@pytest.fixture
def manager(executable, monkeypatch, tmp_path):
    """A user manager's socket and a `systemctl` that records its command lines; its second argument's answer."""

    def start(body="exit 0"):
        (tmp_path / "run" / "systemd").mkdir(parents=True)
        (tmp_path / "run" / "systemd" / "private").touch()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
        program = executable("systemctl", f'[ "$1" = --version ] && exit 1\necho "$@" >> {tmp_path}/asked\n{body}')
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return tmp_path / "asked"

    return start


def test_where_a_user_manager_answers_it_is_told(ctl, config, installed, manager, tmp_path):
    installed("bin", tmp_path)
    asked = manager()
    done = ctl("service", "install")
    assert done.out == (
        f"wrote {config}\nsystemctl --user daemon-reload\nsystemctl --user enable --now substratd.service\n"
    )
    assert ctl("service", "install").code == 0, "again, over the daemon that runs"
    ctl("service", "uninstall")
    assert asked.read_text().splitlines() == [
        "--user daemon-reload", "--user enable --now substratd.service",
        "--user daemon-reload", "--user try-restart substratd.service", "--user enable --now substratd.service",
        "--user disable --now substratd.service", "--user daemon-reload",
    ]  # fmt: skip


def test_variables_that_the_service_does_not_get_are_named_and_never_shown(ctl, config, installed, tmp_path, monkeypatch):
    installed("bin", tmp_path)
    monkeypatch.setenv("CURSOR_API_KEY", "key-of-mine")
    monkeypatch.setenv("SUBSTRAT_AGENT_BINARY", "/opt/agent")
    monkeypatch.setenv("SUBSTRAT_SOCKET", "/run/other.sock")
    for words, code in ((("--dry-run",), 0), ((), 1)):
        done = ctl("service", "install", *words)
        assert done.code == code
        assert "doesn't get CURSOR_API_KEY, SUBSTRAT_AGENT_BINARY from this shell" in done.err
        assert "systemctl --user edit substratd.service" in done.err
        assert "EnvironmentFile=" in done.err
        for hidden in ("key-of-mine", "/opt/agent", "SUBSTRAT_SOCKET"):
            assert hidden not in done.err + done.out


def test_variables_that_systemd_gives_are_not_named(ctl, config, installed, manager, tmp_path, monkeypatch):
    installed("bin", tmp_path)
    for name in ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN", "SUBSTRAT_CONFIG", "SUBSTRAT_STATE_DIR"):
        monkeypatch.setenv(name, "/x")
    (tmp_path / "file").write_text("# mine\nCURSOR_API_KEY=k\n")
    manager(
        '[ "$2" = show-environment ] && echo CURSOR_AUTH_TOKEN=t\n'
        """[ "$2" = show ] && echo 'Environment=PATH=/bin "SUBSTRAT_CONFIG=/a b"'\n"""
        f"""[ "$2" = show ] && echo 'EnvironmentFiles={tmp_path}/file (ignore_errors=no)'\nexit 0"""
    )
    assert "doesn't get SUBSTRAT_STATE_DIR from" in ctl("service", "install").err


def test_a_user_manager_that_refuses_is_status_1(ctl, config, installed, manager, tmp_path):
    installed("bin", tmp_path)
    manager("echo first >&2; echo 'no such bus' >&2; exit 5")
    done = ctl("service", "install")
    assert done.code == 1
    assert "systemctl --user daemon-reload failed: no such bus" in done.err
    assert "enable" not in done.out


def test_a_page_that_can_not_be_served_is_told_apart_from_the_daemon(ctl, config, installed, manager, executable, tmp_path):
    executable("substratctl", "exit 0", directory=installed("bin", tmp_path).parent)
    asked = manager('case "$*" in *restart*web*) echo "Job failed" >&2; exit 1;; esac')
    done = ctl("service", "install", "--web")
    assert done.code == 1
    assert "systemctl --user restart substrat-web.service failed: Job failed" in done.err
    assert "the daemon runs, and the page isn't served: 'journalctl --user -u substrat-web.service' says why" in done.err
    assert "isn't running" not in done.err
    assert asked.read_text().splitlines()[-2:] == [
        "--user enable substrat-web.service", "--user restart substrat-web.service",
    ]  # fmt: skip


def test_a_daemon_on_path_is_found(ctl, config, executable, monkeypatch):
    daemon = executable("substratd", "exit 0")
    monkeypatch.setenv("PATH", str(daemon.parent))
    assert f'ExecStart="{daemon}"' in ctl("service", "install", "--dry-run").out


def test_without_a_daemon_program_nothing_is_written(ctl, config, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = ctl("service", "install")
    assert (done.code, done.out) == (1, "")
    assert done.error == "substratd isn't installed beside substratctl nor on PATH: install Substrat again"
    assert not config.exists()


def test_a_configuration_directory_that_cannot_be_made(ctl, installed, monkeypatch, tmp_path):
    installed("bin", tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    done = ctl("service", "install")
    assert done.code == 1
    assert f"can't use {tmp_path}/file/systemd" in done.error


def test_the_unit_is_in_the_users_configuration(monkeypatch):
    assert service.unit_path({"XDG_CONFIG_HOME": "/c"}) == "/c/systemd/user/substratd.service"
    monkeypatch.setenv("HOME", "/home/x")
    assert service.unit_path({}) == "/home/x/.config/systemd/user/substratd.service"


def test_the_socket_unit_comes_and_goes_with_the_service(ctl, config, installed, tmp_path):
    installed("bin", tmp_path)
    socket = config.with_name("substratd.socket")
    done = ctl("service", "install", "--socket")
    assert done.code == 1, "nothing has started it"
    assert f"wrote {socket}" in done.out
    assert socket.read_text() == (UNIT.with_name("substratd.socket")).read_text()
    assert "enable --now substratd.socket" in done.err
    assert ctl("service", "uninstall").code == 0
    assert not socket.exists()
    assert ctl("service", "install").code == 1
    assert not socket.exists()
