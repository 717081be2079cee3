"""The man pages say what the programs' help says, and no more of roff than roff takes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from substrat import manpages
from substrat.cli.table import VERBS

MAN = Path(__file__).parents[1] / "man"


def test_they_are_made_from_the_present_definitions(tmp_path):
    manpages.main([str(tmp_path)])
    for name in ("substratctl.1", "substratd.8"):
        assert (MAN / name).read_text() == (tmp_path / name).read_text(), "run 'make man'"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff isn't installed here")
def test_they_can_be_set_and_name_every_command_and_option():
    def shown(name):
        done = subprocess.run(
            ["groff", "-man", "-Tascii", "-P-cbou", "-ww", MAN / name], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    page = shown("substratctl.1")
    for verb in VERBS:
        assert f"\n   {verb}" in page, verb
    assert "--prompt-file F" in page
    assert "--set-aside-damaged-state" in shown("substratd.8")
