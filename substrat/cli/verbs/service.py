"""`service`: installs the daemon as a systemd user service, or takes it away again; the unit itself is in `systemd/`."""

from __future__ import annotations

import os
import shutil
import sys

from substrat import errors
from substrat.cli import output
from substrat.cli.options import Arguments, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = Command(
    "service",
    "install|uninstall",
    options=(
        Option("--socket", about="let systemd hold the socket: the first command starts the daemon"),
        Option("--web", about="serve the page too, as a service of its own"),
        Option("--dry-run", about="only print the unit and say what would be done"),
    ),
    notes=(
        "Running turns are not touched by restarting or uninstalling the service. The daemon gets the PATH "
        "that install runs with: install again when the agent program has moved. It gets no other variable "
        "of the shell's; install names those that it would read. --json gives an object with `unit`, the "
        "file's path, `installed`, whether it is there now, and after install `started`, whether systemd "
        "has started it, and its `text`. The exit status is 1 if one of the services isn't started."
    ),
)
UNIT = "substratd.service"
SOCKET_UNIT = "substratd.socket"
WEB_UNIT = "substrat-web.service"
_NOT_THE_DAEMONS = ("SUBSTRAT_SOCKET", "SUBSTRAT_AGENT")
_SUBGROUPS_SINCE = 254  # systemd's NEWS: DelegateSubgroup=


def run(arguments: Arguments) -> int:
    """Install or uninstall the service and return the exit status."""
    action = arguments.words[0]
    if action not in {"install", "uninstall"}:
        raise COMMAND.wrong(f"it takes install or uninstall, not {action!r}")
    path = unit_path(os.environ)
    if action == "install":
        return _install(path, arguments)
    return _uninstall(path, arguments)


def unit_path(environ: os._Environ[str] | dict[str, str]) -> str:
    """Return where the unit is installed."""
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "systemd", "user", UNIT)


def render(template: str, program: str, search: str = "", systemd: int = _SUBGROUPS_SINCE) -> str:
    """Put an installed program's path, and where it finds other programs, into its unit.

    Args:
        template: the unit as it is shipped.
        program: the program's absolute path.
        search: the PATH for it; entries that aren't absolute and printable are left out. By default it has
            systemd's, without ~/.local/bin, where cursor-agent is installed.
        systemd: the version of systemd it is for.

    Raises:
        SubstratError: systemd can't start a program at this path.
    """
    # systemd refuses these in an executable's path however they are escaped.
    if any(letter in "'\"\\" or not letter.isprintable() for letter in program):
        raise errors.SubstratError(
            f"systemd can't start {program}: a quote, a backslash or an unprintable character is in its path; "
            "install Substrat in another directory"
        )
    # systemd.service(5): quotes keep spaces, a percent sign is doubled.
    quoted = program.replace("%", "%%")
    lines = ""
    directories = [name for name in search.split(":") if os.path.isabs(name) and name.isprintable()]
    if directories:
        value = ":".join(dict.fromkeys(directories)).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        lines = f'Environment="PATH={value}"\n'
    if systemd < _SUBGROUPS_SINCE:
        template = template.replace("DelegateSubgroup=daemon\n", "")
    return template.replace(f"ExecStart={os.path.basename(program)}", f'{lines}ExecStart="{quoted}"')


def find_template(unit: str = UNIT) -> str:
    """Return a unit as it is shipped: beside the packages in a checkout, inside them in a wheel."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for path in (os.path.join(package, "daemon", "units", unit), os.path.join(os.path.dirname(package), "systemd", unit)):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return file.read()
    raise errors.SubstratError(f"{unit} is missing from the installation in {package}: install Substrat again")


def _install(path: str, arguments: Arguments) -> int:
    if arguments.flag("web"):
        _check_extra()
    text = render(find_template(), _program("substratd"), os.environ.get("PATH", ""), _systemd_version())
    if arguments.flag("dry-run"):
        if arguments.json:
            output.put_json({"unit": path, "installed": os.path.exists(path), "text": text})
        else:
            sys.stdout.write(f"# {path}\n{text}")
        _warn_about_variables()
        return errors.DONE
    os.makedirs(os.path.dirname(path), exist_ok=True)
    again = os.path.exists(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    _say(arguments, f"wrote {path}")
    # A running daemon would go on with the program before an upgrade and with the old PATH, so it is restarted.
    restart = [["try-restart", UNIT]] if again else []
    # systemd takes the socket over only while no daemon holds it.
    socket = [["stop", UNIT], ["enable", "--now", SOCKET_UNIT]] if arguments.flag("socket") else []
    web = [["enable", WEB_UNIT], ["restart", WEB_UNIT]] if arguments.flag("web") else []
    if socket:
        _write_beside(path, SOCKET_UNIT, find_template(SOCKET_UNIT), arguments)
    if web:
        _write_beside(path, WEB_UNIT, render(find_template(WEB_UNIT), _program("substratctl")), arguments)
    done = _systemctl([["daemon-reload"], *(socket or restart), ["enable", "--now", UNIT]], arguments, then=web)
    if not done:
        output.note(f"the service isn't running: {path} is written, but nothing has started it")
    served = done and _systemctl(web, arguments)
    if done and not served:
        output.note(f"the daemon runs, and the page isn't served: 'journalctl --user -u {WEB_UNIT}' says why")
    _warn_about_lingering()
    _warn_about_variables()
    if arguments.json:
        output.put_json({"unit": path, "installed": True, "started": done, "text": text})
    return errors.DONE if served else errors.FAILED


def _write_beside(path: str, unit: str, text: str, arguments: Arguments) -> None:
    """Write another unit beside the daemon's."""
    target = os.path.join(os.path.dirname(path), unit)
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)
    _say(arguments, f"wrote {target}")


def _check_extra() -> None:
    """Check that the page can be served; raises `NotAvailable` if the extra `web` isn't installed."""
    from substrat.cli.verbs import web

    web.server()


def _uninstall(path: str, arguments: Arguments) -> int:
    if not os.path.exists(path):
        raise errors.NotFound(f"{path} doesn't exist: the service isn't installed")
    if arguments.flag("dry-run"):
        if arguments.json:
            output.put_json({"unit": path, "installed": True})
        else:
            sys.stdout.write(f"would stop the daemon and remove {path}\n")
        return errors.DONE
    for beside in (SOCKET_UNIT, WEB_UNIT):
        other = os.path.join(os.path.dirname(path), beside)
        if os.path.exists(other):
            _systemctl([["disable", "--now", beside]], arguments)
            os.unlink(other)
    _systemctl([["disable", "--now", UNIT]], arguments)
    os.unlink(path)
    _say(arguments, f"removed {path}; agents and their state stay")
    _systemctl([["daemon-reload"]], arguments)
    if arguments.json:
        output.put_json({"unit": path, "installed": False})
    return errors.DONE


def _systemd_version() -> int:
    """Return systemd's version; without systemd a version that knows every setting of the unit."""
    import subprocess

    try:
        said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout.split()
    except OSError:
        return _SUBGROUPS_SINCE
    return int(said[1]) if len(said) > 1 and said[1].isdecimal() else _SUBGROUPS_SINCE


def daemons_variables(environ: os._Environ[str] | dict[str, str]) -> list[str]:
    """Return the names of a shell's variables that a daemon started in it would read, PATH apart."""
    from substrat.core.programs.table import PROGRAMS

    ours = [name for name in environ if name.startswith("SUBSTRAT_") and name not in _NOT_THE_DAEMONS]
    logins = [name for program in PROGRAMS.values() for name in program.login.variables]
    return sorted(name for name in (*ours, *logins) if environ.get(name))


def named_in(settings: str, name: str) -> bool:
    """Say whether systemd's settings set a variable: `NAME=VALUE`, perhaps quoted, where a line or a word begins."""
    import re

    return re.search(rf"""(?:^|[\s="'])(?:{re.escape(name)})=""", settings, re.MULTILINE) is not None


def _warn_about_variables() -> None:
    names = daemons_variables(os.environ)
    given = _settings_of_the_service() if names and _has_manager() else ""
    missing = [name for name in names if not named_in(given, name)]
    if missing:
        output.note(
            f"the service doesn't get {', '.join(missing)} from this shell. To give it: write NAME=VALUE lines into a file "
            f"that only you can read (chmod 600), run `systemctl --user edit {UNIT}`, enter the lines [Service] and "
            f"EnvironmentFile=/path/of/the/file, and run `systemctl --user restart {UNIT}`"
        )


def _settings_of_the_service() -> str:
    """Return the variables that the user's systemd gives the service, as `systemctl show` prints them."""
    import subprocess

    asked = (["show-environment"], ["show", UNIT, "--property=Environment", "--property=EnvironmentFiles"])
    lines: list[str] = []
    for words in asked:
        done = subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True, check=False)
        lines += done.stdout.splitlines()
    for line in tuple(lines):
        # A line for each file: `EnvironmentFiles=/path (ignore_errors=no)`.
        path = line.removeprefix("EnvironmentFiles=").rpartition(" (")[0]
        if line.startswith("EnvironmentFiles=") and os.access(path, os.R_OK):
            with open(path, encoding="utf-8", errors="replace") as file:
                lines += file.read().splitlines()
    return "\n".join(lines)


def _has_manager() -> bool:
    bus = os.path.join(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "systemd", "private")
    return shutil.which("systemctl") is not None and os.path.exists(bus)


def _systemctl(commands: list[list[str]], arguments: Arguments, *, then: Sequence[list[str]] = ()) -> bool:
    """Run systemctl where a user manager answers, otherwise print the commands to run; return whether all succeeded.

    Printed are also the commands that the caller runs `then`. All are without `systemctl --user`.
    """
    import subprocess

    lines = [["systemctl", "--user", *command] for command in (*commands, *then)]
    if not _has_manager():
        output.note("no systemd user manager answers here; where one does, run: " + " && ".join(map(" ".join, lines)))
        return False
    for line in lines[: len(commands)]:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"
            output.note(f"{' '.join(line)} failed: {reason}")
            return False
        _say(arguments, " ".join(line))
    return True


def _warn_about_lingering() -> None:
    import pwd

    user = pwd.getpwuid(os.geteuid()).pw_name
    if not os.path.exists(f"/var/lib/systemd/linger/{user}"):
        output.note(f"agents stop with your last login; to let them run on: loginctl enable-linger {user}")


def _program(name: str) -> str:
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), name)
    found = beside if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise errors.SubstratError(f"{name} isn't installed beside substratctl nor on PATH: install Substrat again")
    return os.path.abspath(found)


def _say(arguments: Arguments, text: str) -> None:
    if not arguments.json:
        sys.stdout.write(text + "\n")
