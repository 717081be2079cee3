"""The daemon's own limits: address space, core dumps, descriptors."""

import resource
import sys

import pytest
import trio

from substrat.daemon.kernel import limits

LIMITED = """
import resource, sys
sys.path[:] = {path!r}
from substrat.daemon.kernel import limits
from substrat.errors import LimitReached
resource.setrlimit(resource.RLIMIT_AS, {limit})
try:
    limits.prepare_daemon()
except LimitReached as problem:
    print(problem.message)
print(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.parametrize("hard", [8 << 30, resource.RLIM_INFINITY])
async def test_a_soft_limit_of_address_space_is_raised_and_core_dumps_are_forbidden(hard):
    source = LIMITED.format(path=sys.path, limit=(1 << 30, hard))
    done = await trio.run_process([sys.executable, "-c", source], capture_stdout=True)
    assert done.stdout.decode() == f"{hard} (1, 1)\n"


async def test_too_little_address_space_is_refused_with_the_remedy():
    source = LIMITED.format(path=sys.path, limit=(1 << 30, 1 << 30))
    done = await trio.run_process([sys.executable, "-c", source], capture_stdout=True)
    assert b"1024 MiB of address space and needs 4096: start it without a limit (`ulimit -v unlimited`" in done.stdout


def test_there_may_be_many_descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        limits.allow_many_descriptors()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == before[1]
        assert soft >= min(4096, hard)
        limits.allow_many_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
