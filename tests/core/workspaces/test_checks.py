"""What a check has said, judged: whose fault it is, in a sentence, and what is kept of its output."""

import pytest

from substrat.core.workspaces import checks

SAID = {
    0: ("passed", "the check `make test` passes", False),
    1: ("failed", "the check `make test` fails with 1: bad", True),
    127: ("failed", "the check `make test` can't be run where checks run (127): bad", False),
    137: ("failed", "the check `make test` was killed by signal 9: bad", False),
    None: ("failed", "the check `make test` took longer than `clone.check_seconds`, 1.5 s", False),
}


@pytest.mark.parametrize("status", SAID)
def test_only_what_the_work_has_done_is_told_to_its_agent(status):
    check = checks.judged("make test", status, b"good\nbad\n\n", 1.5)
    assert (check.state, check.text, check.is_of_work) == SAID[status]
    assert (check.output, check.line) == ("good\nbad", "" if status is None else "bad")


def test_a_set_up_that_does_not_succeed_says_nothing_of_the_work():
    failed = checks.not_set_up("make test", 3, b"no network\n", 1.5)
    text = "the check `make test` didn't run, because the set-up before it fails with 3: no network"
    assert failed == ("failed", text, "no network", "no network", False)
    late = checks.not_set_up("make test", None, b"", 1.5)
    assert late.text.endswith("the set-up before it took longer than `clone.setup_seconds`, 1.5 s")


def test_the_last_lines_are_kept_within_bounds_and_show_nothing_to_a_terminal():
    assert checks.last_lines(b"\n".join(b"%d" % number for number in range(100))).splitlines()[0] == "40"
    assert checks.last_lines(b"a\tb\x1b[31m\xff\r\n\n") == "a       b?[31m\ufffd"
    assert len(checks.last_lines("\u00e9".encode() * 100_000).encode()) == 8 << 10
    assert checks.judged("x", 1, b"", 1.0).text == "the check `x` fails with 1 and no output"
