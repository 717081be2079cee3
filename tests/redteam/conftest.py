"""The red team's daemon is the system tests'."""

from tests.system.conftest import _shared, house, shared, until

__all__ = ["_shared", "house", "shared", "until"]
