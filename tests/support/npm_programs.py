"""The real claude and codex from their npm packages, each beside a model server of the tests' own, in its sandbox."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support import model_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.daemon import DaemonFixture

PACKAGES = {
    "claude": ("@anthropic-ai/claude-code-linux-x64", "2.1.197", "claude"),
    "codex": ("@openai/codex", "0.171.0-linux-x64", "vendor/*/bin/codex"),
}
KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "CODEX_API_KEY"}


@pytest.fixture(scope="session")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the programs' packages, one for all of pytest's workers; skips where they can't be had."""
    if shutil.which("npm") is None:
        pytest.skip("npm is needed to fetch claude and codex")
    base = tmp_path_factory.getbasetemp()
    where = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "npm"
    where.mkdir(exist_ok=True)
    wanted = [f"{package}@{version}" for package, version, _ in PACKAGES.values()]
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(where), *wanted]
    with open(where / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm couldn't fetch {' and '.join(wanted)}: {done.stderr.strip()[-200:]}")
    return where / "node_modules"


@pytest.fixture
def configure(daemon: DaemonFixture, npm: Path) -> Callable[..., str]:
    """Return a function that gives the configuration in which the named programs run, after further lines of it."""

    def configured(*names: str, further: str = "") -> str:
        tables, seen = "", []
        for name in names:
            package, _, pattern = PACKAGES[name]
            (program,) = (npm / package).glob(pattern)
            wrapper = daemon.program(model_server.WRAPPER.format(program=str(program)), name)
            shutil.copy(model_server.__file__, wrapper.parent)
            seen.append(str(npm / package))
            tables += f'[programs.{name}]\nbinary = "{wrapper}"\nmodel = "opus"\nchildren = true\n'
            tables += f'env = {{ {KEYS[name]} = "sk-any" }}\n'
        return f"agent.bind_ro = {seen}\n{further}\n{tables}"

    return configured
