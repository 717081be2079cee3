"""What becomes of a sandbox whose protected paths were replaced: each fact, alone and before the others."""

import pytest

from substrat.core.workspaces.protection import MOUNT_SECONDS, SETTLE_SECONDS, Treatment, decide

CASES = {
    "all is as it was": ({}, Treatment.THAW),
    "all is as it was, after a while": ({"seconds": 2 * MOUNT_SECONDS}, Treatment.THAW),
    "another content, just now": ({"is_as_before": False}, Treatment.WAIT),
    "another content that stays": ({"is_as_before": False, "seconds": SETTLE_SECONDS}, Treatment.FREEZE),
    "not mounted yet": ({"is_mounted": False}, Treatment.WAIT),
    "not mounted yet, and another content": (
        {"is_mounted": False, "is_as_before": False, "seconds": SETTLE_SECONDS}, Treatment.WAIT,
    ),
    "never mounted": ({"is_mounted": False, "seconds": MOUNT_SECONDS}, Treatment.END),
    "another content, in a frozen turn": ({"is_as_before": False, "was_stopped": True}, Treatment.THAW),
    "not mounted yet, in a frozen turn": ({"is_mounted": False, "was_stopped": True}, Treatment.WAIT),
    "in the agent's reach": ({"is_reached": True}, Treatment.END),
    "in the agent's reach, and another content": ({"is_reached": True, "is_as_before": False}, Treatment.END),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), CASES.values(), ids=CASES)
def test_a_sandbox_goes_on_only_where_all_is_protected_and_as_it_was(facts, expected):
    plain = {"seconds": 0.0, "is_mounted": True, "is_as_before": True, "is_reached": False, "was_stopped": False}
    assert decide(**{**plain, **facts}) is expected
