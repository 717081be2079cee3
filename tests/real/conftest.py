"""Fixtures of the tests with real programs and real projects: a daemon, and Debian's source packages."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.daemon import PROGRAMS
from tests.system.conftest import daemon

__all__ = ["daemon"]

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@pytest.fixture(scope="session")
def apt(tmp_path_factory):
    """The environment of an apt with lists of its own, which knows Debian's source packages; the machine's stay."""
    missing = [name for name in ("apt-get", "dpkg-source") if shutil.which(name) is None]
    if missing or not KEYRING.exists():
        pytest.skip(f"there is no {', '.join(missing) or KEYRING}: apt install dpkg-dev debian-archive-keyring")
    place = tmp_path_factory.mktemp("apt")
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    (place / "lists" / "partial").mkdir(parents=True)
    (place / "cache" / "archives" / "partial").mkdir(parents=True)
    (place / "sources.list").write_text(
        f"deb-src [signed-by={KEYRING}] http://deb.debian.org/debian {release.get('VERSION_CODENAME', 'stable')} main\n"
    )
    settings = {
        "Dir::Etc::sourcelist": place / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::State::lists": place / "lists",
        "Dir::Cache": place / "cache", "APT::Sandbox::User": "root", "Acquire::Retries": 0, "Acquire::http::Timeout": 20,
    }  # fmt: skip
    (place / "conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    environment = {**os.environ, "APT_CONFIG": str(place / "conf")}
    run(["apt-get", "-q", "update", "--error-on=any"], place, environment)
    return environment


@pytest.fixture
def source(apt, tmp_path):
    """Return a function that unpacks the first source package of some that can be had; skips where there is none."""

    def unpacked(*names):
        place = tmp_path / "sources"
        place.mkdir()
        for name in names[:-1]:
            if subprocess.run(
                ["apt-get", "-q", "source", name], cwd=place, env=apt, capture_output=True, check=False
            ).returncode == 0:  # fmt: skip
                break
        else:
            run(["apt-get", "-q", "source", names[-1]], place, apt)
        return next(path for path in place.iterdir() if path.is_dir())

    return unpacked


def run(command, where, environment):
    """Run a command whose failure skips the test; returns what it printed."""
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)} failed: {(done.stderr.strip().splitlines() or ['nothing said'])[-1]}")
    return done.stdout


def find(*names):
    """Return the paths of programs, in PATH or beside this Python; skips the test where one is missing."""
    found = [shutil.which(name, path=f"{os.environ['PATH']}:{PROGRAMS}") for name in names]
    if None in found:
        pytest.skip(f"there is no {names[found.index(None)]}")
    if "rustc" in names:
        # rustup's programs choose a toolchain by the home they find; the toolchain's own need none.
        home = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
        root = run(["rustc", "--print", "sysroot"], "/", home).strip()
        return [Path(root, "bin", name) for name in names]
    return [Path(one).absolute() for one in found]
