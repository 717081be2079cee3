"""A wheel: the files in it, that it runs where it is installed, and that checkers understand its types."""

import configparser
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import substrat

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
    assert {name for name in wheel.namelist() if name.endswith("py.typed")} == {
        "substrat/py.typed", "mcp_server/py.typed", "sandbox/py.typed",
    }  # fmt: skip
    assert "mcp_server/relay.py" in found
    assert not any("test" in name.lower() for name in wheel.namelist())
    assert "substrat/core/prices.toml" in wheel.namelist(), "no daemon starts without it"


@pytest.mark.parametrize("unit", ["substratd.service", "substratd.socket"])
def test_it_holds_the_units(wheel, unit):
    assert wheel.read(f"substrat/daemon/units/{unit}") == (ROOT / "systemd" / unit).read_bytes()


def test_it_holds_what_the_stand_in_replays(wheel):
    name = "substrat/standin/recorded.json"
    assert wheel.read(name) == (ROOT / name).read_bytes()


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


def test_it_holds_the_license(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
    assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()


# An environment in which it is installed


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """A Python that has the wheel, not the checkout, and everything else that the tests' has."""
    directory = tmp_path_factory.mktemp("venv")
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    installing = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", wheel.filename]
    subprocess.run(installing, check=True, capture_output=True)
    (site,) = directory.glob("lib/python*/site-packages")
    # `.pth` files in a directory that such a file adds are not read, so the checkout stays out.
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_it_runs_where_it_is_installed(python, tmp_path):
    directory = python.parents[1]
    (tmp_path / "home").mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"}

    def run(*command):
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run(python, "-c", "import substrat; print(substrat.__version__, substrat.__file__)")
    version, _, module = done.stdout.strip().partition(" ")
    assert Path(module).is_relative_to(directory), "the checkout was imported"
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert version == f"{substrat.__version__}+g{commit.stdout.strip()}".removesuffix("+g")
    assert run(directory / "bin" / "substratd", "--version").stdout == f"substratd {version}\n"
    unit = run(directory / "bin" / "substratctl", "service", "install", "--dry-run").stdout
    assert f'ExecStart="{directory}/bin/substratd"' in unit
    for page in ("man1/substratctl.1", "man8/substratd.8"):
        assert (directory / "share" / "man" / page).exists()
    done = run(directory / "bin" / "substratctl", "demo", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["proved"]


# Checkers' verdicts on programs that use it


def mypy(python, *paths):
    return [sys.executable, "-m", "mypy", "--strict", f"--python-executable={python}", "--cache-dir=/dev/null", *paths]


def pyright(python, *paths):
    return [sys.executable, "-m", "pyright", f"--pythonpath={python}", *paths]


WRONG = """
import substrat, trio


async def main() -> None:
    async with substrat.Client.connect() as client:
        {}


trio.run(main)
"""
MISTAKES = [
    "(await client.wait_message(7))",
    "(await client.show('a'))['turn']['outcome']",
    "(await client.wait_message('a'))['turn']['nonsense']",
    "await client.no_such_method()",
    "substrat.no_such_name",
]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_the_documents_examples_are_typed(checker, python, tmp_path):
    if checker is pyright:
        # The package fetches the program itself when it is first used.
        probe = subprocess.run([*pyright(python), "--version"], capture_output=True, text=True, check=False, cwd=tmp_path)
        if probe.returncode != 0:
            pytest.skip(f"pyright can't be had here: {(probe.stderr or probe.stdout).strip().splitlines()[-1]}")
    documents = (ROOT / "README.md").read_text() + (ROOT / "docs" / "python.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```$", documents, re.DOTALL | re.MULTILINE)
    assert examples
    for number, example in enumerate(examples):
        (tmp_path / f"right{number}.py").write_text(example)
    for number, mistake in enumerate(MISTAKES):
        (tmp_path / f"wrong{number}.py").write_text(WRONG.format(mistake))
    rights, wrongs = (sorted(path.name for path in tmp_path.glob(f"{kind}*.py")) for kind in ("right", "wrong"))
    done = subprocess.run(checker(python, *rights), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    # The control: what they accept they have understood.
    done = subprocess.run(checker(python, *wrongs), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert set(re.findall(r"wrong\d+\.py(?=:\d+:.*error)", done.stdout)) == set(wrongs), done.stdout + done.stderr
