"""Names the commit in the version of a wheel that is made from a checkout, for example 0.1.0+gda642518.

`substratctl version` and `doctor` compare the daemon's version with their own: between two releases only the commit tells
that an older daemon still runs. The module in the wheel holds it, so no program looks for it at its start. A wheel that is
made from an archive without git, and an editable installation, have the plain version.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "substrat/__init__.py"


class NameCommit(BuildHookInterface[Any]):
    """Puts a copy of `substrat/__init__.py` that names the commit in its place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the copy; an editable installation, whose `version` is "editable", reads the module of the checkout."""
        self._directory = tempfile.TemporaryDirectory()
        if version == "editable":
            return
        text, released, commit = Path(self.root, MODULE).read_text(), self.metadata.version, _commit(self.root)
        copy = Path(self._directory.name, "module")
        copy.write_text(text.replace(f'"{released}"', f'"{released}+g{commit}"') if commit else text)
        build_data["force_include"][str(copy)] = MODULE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy."""
        self._directory.cleanup()


def _commit(root: str) -> str:
    """Return the checkout's commit; "" where the directory is no checkout, or git is missing."""
    if not Path(root, ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", "-C", root, "rev-parse", "--short=8", "HEAD"], capture_output=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.decode().strip()
