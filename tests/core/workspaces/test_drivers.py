"""A person's settings for landings, and which programs of them may run."""

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.workspaces import drivers
from substrat.core.workspaces.drivers import GitSettings, Programs, Selected
from tests.support.cases import each

HERE = Programs(lambda name: name != "rev", {"tools", "x", "clean"})


def test_the_last_value_counts_and_the_daemons_own_settings_do_not():
    listing = (
        b"global\0user.name\nMe\0local\0user.name\nMyself\0system\0user.email\nme@x\0command\0core.pager\ncat\0"
        b"local\0filter.a.b.clean\none\0local\0filter.a.b.smudge\ntwo\0local\0filter.none.clean\n\0"
        b"local\0commit.gpgsign\0global\0core.autocrlf\0"
        b"global\0core.attributesfile\n~/attributes\0local\0merge.npm.driver\nnpm-merge %A\0"
    )
    assert drivers.read(listing) == GitSettings(
        "Myself", "me@x", frozenset({"Myself <me@x>"}), signs=True, attributes="~/attributes",
        filters={"a.b": ("one", "two")}, mergers={"npm": "npm-merge %A"}, followed={"core.autocrlf": "true"},
    )  # fmt: skip
    assert drivers.read(b"") == GitSettings()
    assert not drivers.read(b"local\0commit.gpgsign\nfalse\0").signs


@each(
    "command",
    ["indent -kr", "git-crypt clean", '"git-crypt" smudge --key-name=team', "tidy -q %f", "cat", "tidy %f %A -L %L"],
)
def test_plain_programs_of_the_system(command):
    assert HERE.is_plain(command)


@each(
    "command",
    [
        "", "'", "rev", "sqlite3 %f", "sed 1e", "tools/tidy", "/usr/bin/indent", "./indent", "sh -c x", "env indent",
        "make -s x", "python3 a.py", "indent $HOME", "indent; touch y", "indent a=b", "PATH=tools:/bin indent",
        "tidy -f y", "tidy -e y", "tidy -c y", "tidy -m y", "cat tools", "cat x", "tidy ..", "tidy *", "tidy ~",
        "indent | sh", "indent `x`", "indent\nsh", "-indent/x", 'cat "%f"', "cat '%f'", "cat -%f", "cat %f%f", "cat %%",
        "tidy 'a %f b'", "command cat", "python3-dbg a.py", "nix run",
    ],
)  # fmt: skip
def test_programs_that_files_can_make_other_ones(command):
    assert not HERE.is_plain(command)


@given(st.text(alphabet="ab ./=$;|&`'\"\\\n~*-fecmsh", max_size=12))
def test_no_plain_command_names_a_place_or_needs_a_shell(text):
    if Programs(lambda _: True).is_plain(text):
        assert not set(text) & set("/=$;|&`\\\n~*")


def test_git_lfss_own_filters_run_wherever_it_is_and_others_are_emptied():
    settings = GitSettings(filters={
        "lfs": ("git-lfs clean -- %f", "git-lfs smudge --skip -- %f", "git-lfs filter-process"),
        "crypt": ('"git-crypt" clean', '"git-crypt" smudge'),
        "mixed": ("indent", "tools/smudge"),
    })  # fmt: skip
    nothing = Programs(lambda _: False)
    assert set(drivers.quiet_filters(settings, nothing)) == {
        f"filter.{name}.{key}" for name in ("crypt", "mixed") for key in ("clean", "smudge", "process", "required")
    }
    assert drivers.quiet_filters(settings, HERE) == {
        "filter.mixed.clean": "", "filter.mixed.smudge": "", "filter.mixed.process": "", "filter.mixed.required": "false",
    }  # fmt: skip
    assert drivers.mergers(GitSettings(mergers={"a": "tidy %A", "b": "tools/merge %A"}), HERE) == {
        "merge.a.driver": "tidy %A", "merge.b.driver": "false",
    }  # fmt: skip


def test_names_are_written_as_git_writes_them():
    listing = b"global\0user.name\nJ. Doe Jr.\0global\0user.email\n<j@x>\0global\0author.email\nother@x\0"
    assert drivers.read(listing).people == {"J. Doe Jr <j@x>", "J. Doe Jr <other@x>"}


def test_git_lfs_is_given_no_address_that_a_configuration_names():
    listing = b"".join(
        f"local\0{key}\nhttp://own.invalid\0".encode()
        for key in ("remote.up.url", "remote.odd.lfsurl", "lfs.https://own.invalid/.url")
    )
    settings = drivers.lfs_offline(drivers.read(listing))
    assert settings.pop("lfs.standalonetransferagent") == ""
    assert set(settings.values()) == {"http://127.0.0.1:0/"}
    assert {"lfs.url", "remote.up.lfsurl", "remote.odd.lfsurl", "lfs.https://own.invalid/.url"} <= settings.keys()


SETTINGS = GitSettings(filters={"lfs": ("git-lfs filter-process",), "evil": ("tools/smudge",), "tidy": ("tidy %f",)})
POINTER = b"version https://git-lfs.github.com/spec/v1"


@each(
    ("selected", "said"),
    [
        (Selected("a.bin", "lfs", POINTER), None),
        (Selected("empty.bin", "lfs", b""), None),
        (Selected("a.bin", "lfs", b"content"), "a.bin would land unfiltered: its attributes name the filter lfs"),
        (Selected("s.key", "git-crypt", b"secret"), "s.key would land unencrypted"),
        (Selected("s.key", "git-crypt-team", b"\0GITCRYPT\0"), None),
        (Selected("a.c", "tidy", b"int"), None),
        (Selected("-x", "lfs", POINTER), None),
        (Selected("-x", "tidy", b"int"), "-x begins with a dash, which your git's filter tidy would take for an option"),
        (Selected("a\n.txt", "evil", b"x"), "'a\\n.txt' selects your git's filter evil, tools/smudge, which is neither"),
        (Selected("a.txt", "unknown", b"x"), None),
    ],
)
def test_files_that_the_persons_git_would_write_otherwise_are_refused(selected, said):
    found = drivers.refusal([Selected("fine", "lfs", POINTER), selected], SETTINGS, HERE)
    assert (found or "").startswith(said or ""), found
    assert (found is None) == (said is None)
