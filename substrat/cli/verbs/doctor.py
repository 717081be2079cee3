"""`doctor`: prints the findings of `substrat.doctor`, and whether a daemon answers; exits with 1 if agents can't run.

`--network NAME` prints the findings of `substrat.netdoctor` about one running agent's network instead, and `--bell` runs
the command that tells a person who needs them, with a made-up agent.
"""

from __future__ import annotations

import os
import sys

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.verbs.version import restart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.doctor import CheckResult

COMMAND = Command(
    "doctor",
    options=(
        Option("--network", value="NAME", about="try the filtered network of this agent's running turn instead"),
        Option("--bell", about="run notify.command with one made-up agent instead"),
    ),
    notes="Each line is good, weaker (agents run, but something is missing) or broken (they can't), with the remedy. "
    "--network also looks for ways past the allow-list where the extra 'net' (pyroute2) is installed. The daemon runs "
    "notify.command when agents need you, once for each cause; docs/configuration.md has examples.",
)
_MARKS = {"good": ("✓", output.GREEN), "weaker": ("!", output.YELLOW), "broken": ("✗", output.RED)}


def run(arguments: Arguments) -> int:
    """Print the findings and return the exit status."""
    if (name := arguments.value("network")) is not None:
        if arguments.flag("bell"):
            raise arguments.command.wrong("--network and --bell came together; give one of them")
        return _try_network(name, as_json=arguments.json)
    if arguments.flag("bell"):
        return _ring(as_json=arguments.json)
    # Imported here because its own imports are heavy, and no other verb needs them.
    from substrat import doctor

    about, known, runs = _daemon()
    given, programs = known.get("environment"), known.get("programs")
    environment = {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
    used = [str(name) for name in programs] if isinstance(programs, list) else []
    findings = [*doctor.examine(doctor.environment_of(environment, os.environ), used), about]
    if runs:
        findings = [_seen_from_here(finding) for finding in findings]
    works = all(finding.state != doctor.BROKEN for finding in findings)
    if arguments.json:
        output.put_json({"agents_can_run": works, "checks": [finding._asdict() for finding in findings]})
    else:
        _print_findings(findings)
        if any(finding.name in {"agent program", "login"} and finding.state != doctor.GOOD for finding in findings):
            sys.stdout.write(f"without an account: {_STAND_IN}\n")
        sys.stdout.write("agents can run here\n" if works else "agents can't run here\n")
    return errors.DONE if works else errors.FAILED


def _print_findings(findings: Iterable[CheckResult]) -> None:
    """Print findings for people, each with its remedy."""
    colour, columns = output.has_colour(sys.stdout), output.terminal_width(sys.stdout)
    for finding in findings:
        mark, tint = _MARKS[finding.state]
        detail = output.wrapped(output.one_line(finding.detail), 17, columns)
        sys.stdout.write(f"{output.paint(mark, tint, on=colour)} {finding.name:<14} {detail}\n")
        if finding.remedy:
            sys.stdout.write(f"  {'':<14} → {output.wrapped(output.one_line(finding.remedy), 19, columns)}\n")


def _try_network(name: str, *, as_json: bool) -> int:
    """Print the findings about the network of an agent's running turn, and return the exit status."""
    from substrat import netdoctor

    with Connection() as connection:
        report = netdoctor.examine(name, lambda: connection.call_object("agent.network", agent=name))
    works = all(finding.state != netdoctor.BROKEN for finding in report.findings)
    if as_json:
        checks = [finding._asdict() for finding in report.findings]
        output.put_json({"agent": name, "form": report.form, "network_works": works, "checks": checks})
    else:
        print(f"{name}: filtered ({report.form} form)")
        _print_findings(report.findings)
        print("the network works" if works else "the network doesn't work")
    return errors.DONE if works else errors.FAILED


def _ring(*, as_json: bool) -> int:
    """Run the command that tells a person who needs them, and return the exit status."""
    with Connection() as connection:
        connection.call("notify.test")
    if as_json:
        output.put_json({})
    else:
        output.note("the command was run, and ended well")
    return errors.DONE


_STAND_IN = "'SUBSTRAT_AGENT_BINARY=$(command -v cursor-agent-standin) substratd' runs a stand-in that acts by a script"
_DAEMON_KNOWS = ("bubblewrap", "namespaces", "agent program", "system calls", "chats folder")
"""Findings that a running daemon has made itself, by making a sandbox and finding the agent program."""


def _seen_from_here(finding: CheckResult) -> CheckResult:
    """Weaken a finding that is broken seen from here, since the running daemon found that agents can run."""
    from substrat.doctor import BROKEN, WEAKER

    if finding.state != BROKEN or finding.name not in _DAEMON_KNOWS:
        return finding
    return finding._replace(state=WEAKER, detail=f"{finding.detail} (seen from here; the running daemon can run agents)")


def _check(connection: Connection) -> dict[str, object]:
    """Ask the daemon for the obstacle that keeps agents from running under it, for its environment and its programs.

    A daemon from before an upgrade may not know the question.
    """
    try:
        return connection.call_object("daemon.check")
    except errors.MethodNotFound:
        return {}


def _daemon() -> tuple[CheckResult, dict[str, object], bool]:
    """Look at the running daemon.

    Returns:
        The finding about it, its answer to `daemon.check`, and whether agents can run under it.
    """
    from substrat.doctor import WEAKER, CheckResult

    try:
        with Connection() as connection:
            status = connection.call_object("daemon.status")
            known = _check(connection)
    except errors.SubstratError as problem:
        return CheckResult("daemon", WEAKER, "no daemon answers", problem.message), {}, False
    obstacle = str(known.get("obstacle") or "") or None
    return _judged(status, obstacle), known, obstacle is None


def _judged(status: dict[str, object], obstacle: str | None) -> CheckResult:
    from substrat.doctor import BROKEN, GOOD, WEAKER, CheckResult

    agents = "1 agent" if status["agents"] == 1 else f"{status['agents']} agents"
    detail = f"{status['version']}, pid {status['pid']}, {agents}"
    limits = status.get("cgroups")
    if isinstance(limits, list):
        detail += f", limits sandboxes by cgroups ({', '.join(map(str, limits)) or 'without controllers'})"
    if obstacle:
        problem, _, remedy = str(obstacle).partition(": ")
        # The daemon may be confined where this command isn't, by its unit for instance.
        return CheckResult("daemon", BROKEN, f"{detail}; under it {problem}", remedy or "look at its log")
    if damaged := status.get("damaged"):
        where = status.get("state_dir")
        remedy = f"the daemon's log names them; damaged records are in the table 'damaged' of substrat.db in {where}"
        return CheckResult("daemon", WEAKER, f"{detail}; {damaged} more were set aside or have no records", remedy)
    if reason := status.get("waiting_for"):
        return CheckResult("daemon", WEAKER, f"{detail}; no turn starts: {reason}", "make room on the disk")
    if what_to_do := restart(str(status["version"])):
        return CheckResult("daemon", WEAKER, f"{detail}, of another version than this program", what_to_do)
    return CheckResult("daemon", GOOD, detail)
