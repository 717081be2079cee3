"""`doctor`: prints what `substrat.doctor` finds, and whether a daemon answers; the exit status is 1 if agents can't run."""

from __future__ import annotations

import os
import sys

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.doctor import Finding

COMMAND = Command(
    "doctor",
    VERBS["doctor"],
    notes="Each line is good, weaker (agents run, but something is missing) or broken (they can't), with\nthe remedy.",
)
_MARKS = {"good": ("✓", output.GREEN), "weaker": ("!", output.YELLOW), "broken": ("✗", output.RED)}


def run(arguments: Arguments) -> int:
    """Print the findings and return the exit status."""
    # Imported here because it needs what substratctl otherwise never loads.
    from substrat import doctor

    about, environment, runs = _daemon()
    # A running daemon's own PATH and directories decide, not those of the shell that asks.
    findings = [*doctor.examine({**os.environ, **environment}), about]
    if runs:
        findings = [_seen_from_here(finding) for finding in findings]
    works = all(finding.state != doctor.BROKEN for finding in findings)
    if arguments.json:
        output.put_json({"agents_can_run": works, "checks": [finding._asdict() for finding in findings]})
    else:
        colour = output.has_colour(sys.stdout)
        for finding in findings:
            mark, tint = _MARKS[finding.state]
            sys.stdout.write(
                f"{output.paint(mark, tint, on=colour)} {finding.name:<14} {output.one_line(finding.detail)}\n"
            )
            if finding.remedy:
                sys.stdout.write(f"  {'':<14} → {output.one_line(finding.remedy)}\n")
        sys.stdout.write("agents can run here\n" if works else "agents can't run here\n")
    return errors.DONE if works else errors.FAILED


_DAEMON_KNOWS = ("bubblewrap", "namespaces", "agent program", "system calls", "chats folder")
"""What a running daemon has found out for itself, by making a sandbox and finding the agent program."""


def _seen_from_here(finding: Finding) -> Finding:
    """Weaken what seems broken from here while the running daemon found that agents can run."""
    from substrat.doctor import BROKEN, WEAKER

    if finding.state != BROKEN or finding.name not in _DAEMON_KNOWS:
        return finding
    return finding._replace(state=WEAKER, detail=f"{finding.detail} (seen from here; the running daemon can run agents)")


def _check(connection: Connection) -> tuple[str | None, dict[str, str]]:
    """Ask the daemon what keeps agents from running under it, and where it looks for what they need.

    A daemon from before an upgrade may know neither question.
    """
    try:
        found = connection.call_object("daemon.check")
    except errors.MethodNotFound:
        return None, {}
    given = found.get("environment")
    environment = {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
    return str(found.get("obstacle") or "") or None, environment


def _daemon() -> tuple[Finding, dict[str, str], bool]:
    """Look at the running daemon.

    Returns:
        The finding about it, the variables of its environment that decide, and whether agents can run under it.
    """
    from substrat.doctor import WEAKER, Finding

    try:
        with Connection() as connection:
            status = connection.call_object("daemon.status")
            obstacle, environment = _check(connection)
    except errors.SubstratError as problem:
        return Finding("daemon", WEAKER, "no daemon answers", problem.message), {}, False
    return _judged(status, obstacle), environment, obstacle is None


def _judged(status: dict[str, object], obstacle: str | None) -> Finding:
    from substrat.doctor import BROKEN, GOOD, WEAKER, Finding

    detail = f"{status['version']}, pid {status['pid']}, {status['agents']} agents"
    limits = status.get("cgroups")
    if isinstance(limits, list):
        detail += f", limits sandboxes by cgroups ({', '.join(map(str, limits)) or 'without controllers'})"
    if obstacle:
        what, _, remedy = str(obstacle).partition(": ")
        # The daemon may be confined where this command isn't, by its unit for instance.
        return Finding("daemon", BROKEN, f"{detail}; under it {what}", remedy or "look at its log")
    if damaged := status.get("damaged"):
        where = status.get("state_dir")
        remedy = f"the daemon's log names them; damaged records are in the table 'damaged' of substrat.db in {where}"
        return Finding("daemon", WEAKER, f"{detail}; {damaged} more were set aside or have no records", remedy)
    if reason := status.get("waiting_for"):
        return Finding("daemon", WEAKER, f"{detail}; no turn starts: {reason}", "make room on the disk")
    return Finding("daemon", GOOD, detail)
