"""Fixtures of the tests of the state: a journal over a store."""

import pytest

from tests.daemon.state.journals import Bench


@pytest.fixture
def bench(store, tmp_path, clock):
    return Bench(store, tmp_path, clock)
