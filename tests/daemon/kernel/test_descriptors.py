"""Descriptors: private to the daemon, and bytes to read from one."""

import os

import pytest

from substrat.daemon.kernel import descriptors


def test_inherited_descriptors_are_made_private():
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        os.set_inheritable(descriptor, True)
        descriptors.keep_private()
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("data", [b"", b"--option\0value\0", b"x" * 1_000_000])
def test_bytes_to_read_from_a_descriptor(data):
    descriptor = descriptors.readable(data)
    assert not os.get_inheritable(descriptor)
    with open(descriptor, "rb") as file:
        assert file.read() == data
