"""What a wheel holds: three packages, the units, the companion, and nothing else."""

import configparser
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    target = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "-w",
        str(target),
        ".",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = target.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_it_holds_three_packages_and_their_description(wheel):
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    (description,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops == {"substrat", "mcp_server", "sandbox", description, description.replace(".dist-info", ".data")}
    assert description.startswith("substrat-")


def test_it_holds_every_module_and_no_test(wheel):
    expected = {
        str(path.relative_to(ROOT)) for top in ("substrat", "mcp_server", "sandbox") for path in (ROOT / top).rglob("*.py")
    }
    found = {name for name in wheel.namelist() if name.endswith(".py")}
    assert found == expected
    assert "mcp_server/relay.py" in found
    assert not any("test" in name.lower() for name in wheel.namelist())


@pytest.mark.parametrize("unit", ["substratd.service", "substratd.socket"])
def test_it_holds_the_units(wheel, unit):
    assert wheel.read(f"substrat/daemon/units/{unit}") == (ROOT / "systemd" / unit).read_bytes()


def test_it_names_the_programs(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    entries = configparser.ConfigParser()
    entries.read_file(io.StringIO(wheel.read(name).decode()))
    assert set(entries["console_scripts"]) == {"substratd", "substratctl", "substrat-mcp-server", "cursor-agent-standin"}


def test_nothing_built_is_in_it(wheel):
    for name in wheel.namelist():
        assert "__pycache__" not in name
        assert not name.endswith((".pyc", ".so", "~", ".orig"))


@pytest.mark.parametrize("page", ["man1/substratctl.1", "man8/substratd.8"])
def test_it_holds_the_man_pages_where_installers_look_for_them(wheel, page):
    (name,) = (name for name in wheel.namelist() if name.endswith(f".data/data/share/man/{page}"))
    assert wheel.read(name) == (ROOT / "man" / page.partition("/")[2]).read_bytes()
