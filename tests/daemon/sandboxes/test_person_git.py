"""The person's git configuration is read from its files, but from none that an agent may have written."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox import host
from substrat.core.workspaces.git_config import Setting
from substrat.core.workspaces.person_git import EXCLUDES, Layer, Rules
from substrat.daemon.sandboxes.person_git import PersonGitReader, Visible, read
from substrat.daemon.workspaces.user import User
from tests.support.files_here import FilesHere


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home" / ".config" / "git").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    return tmp_path / "home"


@pytest.fixture
def found(home, tmp_path):
    visible = Visible(("/usr", str(tmp_path / "shown")), ("/usr/bin", str(tmp_path / "shown")), str(home))

    def read_all(config_home=None):
        looked: frozenset[str] = frozenset()
        while True:
            safe = {path for path in looked if not within(path)}
            person = read(str(home), config_home, safe, visible)
            if person.looked <= looked:
                return person
            looked |= person.looked

    def within(path):
        return path.startswith(f"{tmp_path}/work/")

    return read_all


def of(person, kind=Setting):
    """The items of the person's own files; the machine may have others."""
    return [item for item in person.layer.items if isinstance(item, kind) and item[0] != "credential"]


def names(person):
    return [(item.name, item.value) for item in of(person) if item.section == "user"]


def ignored(person):
    return [item.content for item in of(person, Rules) if item.key == EXCLUDES]


def test_the_home_file_comes_after_the_other_one(home, found):
    (home / ".gitconfig").write_text("[user]\nname = home\n[core]\npager = evil\n")
    (home / ".config" / "git" / "config").write_text("[user]\nname = xdg\nemail = x\n")
    assert names(found()) == [("user.name", "xdg"), ("user.email", "x"), ("user.name", "home")]
    (home / "other" / "git").mkdir(parents=True)
    (home / "other" / "git" / "ignore").write_text("*.o")
    assert names(found(str(home / "other"))) == [("user.name", "home")]
    assert ignored(found(str(home / "other"))) == [b"*.o"]


def test_includes_are_read_where_they_stand_and_conditions_are_kept(home, found):
    (home / "real").mkdir()
    (home / "real" / "gitconfig").write_text(
        '[include]\npath = more\n[user]\nname = last\n[includeIf "gitdir/i:./x/"]\npath = ~/more\n[core]\nexcludesFile =\n'
    )
    (home / ".gitconfig").symlink_to("real/gitconfig")
    (home / "more").write_text("[user]\nname = first\n")
    person = found()
    assert names(person) == [("user.name", "first"), ("user.name", "last")]
    (layer,) = of(person, Layer)
    assert layer.condition == f"gitdir/i:{home}/real/x/"
    assert ignored(person) == [b"", b""]


def test_a_file_that_includes_itself_comes_to_an_end(home, found):
    (home / ".gitconfig").write_text("[include]\npath = ~/.gitconfig\n[user]\nname = n\n")
    assert names(found())[-1] == ("user.name", "n")
    assert any("files are read at most" in text for text in found().absent)


def test_no_file_is_read_that_an_agent_may_lead_to_another_one(home, found, tmp_path):
    """An agent works where the person keeps the ignore file, and puts a link to a key in its place."""
    (home / "key").write_text("secret")
    (home / ".gitconfig").write_text("[core]\nexcludesFile = ~/../work/ignore\nattributesFile = ~/link\n")
    (home / "link").symlink_to(tmp_path / "work" / "in" / ".." / "attributes")
    for name in ("ignore", "attributes"):
        (tmp_path / "work" / name).symlink_to(home / "key")
    person = found()
    assert b"secret" not in [item.content for item in of(person, Rules)]
    assert [path for path, _ in person.unread] == [str(tmp_path / "work" / "ignore"), str(home / "link")]
    (home / ".gitconfig").unlink()
    (home / ".gitconfig").symlink_to(tmp_path / "work" / "gitconfig")
    (tmp_path / "work" / "gitconfig").write_text("[core]\nexcludesFile = ~/key\n")
    assert ignored(found()) == [b""]


async def test_no_file_is_read_in_the_place_of_an_agent_that_works_or_has_ended(home, agents, tmp_path):
    """The reader knows where agents may write, or could; ended ones left links."""
    (home / "key").write_text("secret")
    (home / ".gitconfig").write_text("[core]\nexcludesFile = ~/../work/ignore\nattributesFile = ~/../other/attributes\n")
    (tmp_path / "other").mkdir()
    for path in ("work/ignore", "other/attributes"):
        (tmp_path / path).symlink_to(home / "key")
    state: Any = SimpleNamespace(registry=agents.registry, files=FilesHere(), environ={})
    reader = PersonGitReader(state, User.current({"HOME": str(home)}), host.system_mounts)
    agents.spawn("anna", workspace=str(tmp_path / "elsewhere"))
    assert [item.content for item in of(await reader.read(agents.agent("anna")), Rules)][-2:] == [b"secret", b"secret"]
    agents.spawn("bert", workspace=str(tmp_path / "work"))
    agents.spawn("carl", workspace=str(tmp_path / "other"))
    agents.supervisor.end("carl")
    person = await reader.read(agents.agent("anna"))
    assert [path for path, _ in person.unread] == [
        str(tmp_path / "work" / "ignore"),
        str(tmp_path / "other" / "attributes"),
    ]
    assert b"secret" not in [item.content for item in of(person, Rules)]


def test_odd_files_are_told_and_hold_nobody_up(home, found):
    os.mkfifo(home / ".gitconfig")
    (home / ".config" / "git" / "ignore").mkdir()
    (home / ".config" / "git" / "attributes").symlink_to("attributes")
    person = found()
    assert len(person.unread) == len([text for text in person.absent if "can't be read" in text]) == 3


def test_a_filter_is_told_whose_program_is_not_shown(home, found, tmp_path):
    (tmp_path / "shown").mkdir()
    program = tmp_path / "shown" / "git-media"
    (home / ".gitconfig").write_text('[filter "media"]\nclean = git-media clean -- %f\nrequired = true\n')
    assert found().filters["media"] == "git-media clean -- %f"
    assert any("git's filter media" in text for text in found().absent)
    program.write_text("")
    program.chmod(0o755)
    assert not any("filter media" in text for text in found().absent)
