"""The configuration file: every key, and a sentence for everything that is wrong."""

import tomllib
from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat import config
from substrat.config import Config
from substrat.core.agents.records import Restore
from substrat.core.programs.table import CURSOR
from substrat.errors import ConfigInvalid
from tests.support.cases import each

SECTIONS = {name: keys for name, keys in get_type_hints(Config).items() if name != "programs"}
KEYS = [(section, key) for section, keys in SECTIONS.items() for key in get_type_hints(keys)]


def parse(text):
    return config.parse(tomllib.loads(text), "c.toml")


def refusal(text):
    with pytest.raises(ConfigInvalid) as refused:
        parse(text)
    assert refused.value.message.startswith("c.toml: ")
    return refused.value.message


def test_an_empty_file_means_the_defaults():
    assert parse("") == Config()


@each(("section", "key"), KEYS)
def test_every_default_can_be_written_down(section, key):
    value = getattr(getattr(Config(), section), key)
    table: dict[str, object] = {section: {key: msgspec.to_builtins(value)}}
    assert config.parse(table) == Config()


GIVEN: dict[str, dict[str, object]] = {
    "agent": {"program": "claude", "model": "sonnet", "restore": Restore.AUTO, "bind_ro": ("/opt", "/srv/x"),
              "path": ("/opt/go/bin",), "env": {"A": "1", "B_2": "x=y"}, "workspace": "in-place"},
    "sandbox": {"bwrap": "/opt/bwrap", "network": Network.NONE, "allow": ("*.example.org", "a.net:22"), "filtered": "proxy",
                "upstream_proxy": "http://me:x@proxy.corp:3128", "ca": "/etc/corp.pem", "shared_networks": False,
                "memory_dir_bytes": 1 << 20, "process_memory": False, "open_files": 256, "processes": 64, "memory": 1 << 20,
                "cpus": 1.5},
    "clone": {"dir": "/srv/trees", "bundle_bytes": 1 << 20, "turns": 1, "forget_days": 0.0, "setup_seconds": 1.5,
              "check_seconds": 1.5, "check_room": "setup"},
    "turns": {"max_running": 1, "stop_grace": 0.5, "result_grace": 3.0, "time_limit": 0.5, "silence_limit": 0.0,
              "tool_limit": 60.0, "stuck_after": 0.0, "tool_stuck_after": 0.0, "restores": 0, "restore_window": 1.5},
    "limits": {"message_bytes": 1, "waiting_items": 5, "waiting_from_one": 5, "wakes": 0, "wake_window": 2.0, "family": 0,
               "children": 0, "depth": 0, "agents": 7, "memory": 8, "processes": 1, "cpus": 2.0},
    "disk": {"turn_output": 0, "agent": 5, "agent_home": 0, "state": 6, "compress_after": 0.0, "keep": 1.5, "free": 0},
    "tasks": {"attempts": 1},
    "notify": {"command": ("bell", "-x")},
    "log": {"level": "debug", "format": "json"},
}  # fmt: skip
"""Other values than the defaults, of each key; 0 where it switches something off."""


@each(("section", "key"), [(section, key) for section, key in KEYS if (section, key) != ("agent", "binary")])
def test_a_key_that_is_given_has_its_value(section, key):
    found = config.parse({section: {key: msgspec.to_builtins(GIVEN[section][key])}})
    assert getattr(getattr(found, section), key) == GIVEN[section][key]
    assert found != Config()


UNKNOWN = [
    ("[turns]\nmax_runing = 1", "'turns.max_runing'", "'turns.max_running'"),
    ("[turns]\nMAX_RUNNING = 1", "'turns.MAX_RUNNING'", "turns."),
    ("[turn]\nmax_running = 1", "'turn'", "'turns'"),
    ('[sandbox]\nnetwrok = "none"', "'sandbox.netwrok'", "'sandbox.network'"),
    ("[limits]\nchilds = 1", "'limits.childs'", "'limits.children'"),
    ("max_running = 1", "'max_running'", ""),
    ("[zzz]\nred = 1", "'zzz'", "agent"),
    ("[log]\nqqq = 1", "'log.qqq'", "level"),
]


@pytest.mark.parametrize(("text", "name", "near"), UNKNOWN)
def test_an_unknown_key_names_itself_and_the_nearest(text, name, near):
    said = refusal(text)
    assert name in said
    assert near in said


WRONG = [
    ('[agent]\npath = ["go/bin"]', "agent.path"),
    ('[agent]\npath = ["/a:/b"]', "agent.path"),
    ("[agent]\nenv = { A = 1 }", "agent.env"),
    ('[agent]\nenv = { HOME = "/" }', "agent.env: HOME is set by Substrat itself"),
    ('[sandbox]\nca = "corp.pem"', "sandbox.ca"),
    ('[sandbox]\nupstream_proxy = "proxy.corp:3128"', "sandbox.upstream_proxy"),
    ('[sandbox]\nupstream_proxy = "https://proxy.corp:3128"', "sandbox.upstream_proxy"),
    ('[sandbox]\nupstream_proxy = "http://proxy.corp"', "sandbox.upstream_proxy"),
    ('[sandbox]\nallow = ["@perl"]', "sandbox.allow"),
    ('[sandbox]\nallow = ["10.0.0.1/8"]', "the network of that length is 10.0.0.0/8"),
    ('[turns]\nmax_running = "many"', "turns.max_running"),
    ("[turns]\nmax_running = -1", "turns.max_running"),
    ("[turns]\nmax_running = 1.5", "turns.max_running"),
    ("[turns]\nmax_running = true", "turns.max_running"),
    ("[turns]\nmax_running = 1979-05-27", "turns.max_running"),
    ("[turns]\nstop_grace = 0", "turns.stop_grace"),
    ("[turns]\nstop_grace = -1", "turns.stop_grace"),
    ("[turns]\nstop_grace = nan", "turns.stop_grace"),
    ("[turns]\nresult_grace = nan", "turns.result_grace"),
    ("[turns]\ntime_limit = nan", "turns.time_limit"),
    ("[turns]\ntime_limit = -0.1", "turns.time_limit"),
    ('[sandbox]\nfiltered = "host"', "sandbox.filtered"),
    ("[sandbox]\nmemory_dir_bytes = 1", "sandbox.memory_dir_bytes"),
    ("[sandbox]\nopen_files = 255", "sandbox.open_files"),
    ("[sandbox]\nprocesses = 0", "sandbox.processes"),
    ("[sandbox]\nmemory = -1", "sandbox.memory"),
    ('[sandbox]\nnetwork = "internet"', "sandbox.network"),
    ('[sandbox]\nallow = ["*"]', "sandbox.allow"),
    ('[sandbox]\nallow = ["a.net:53"]', "sandbox.allow"),
    ("[sandbox]\nbwrap = 1", "sandbox.bwrap"),
    ('[agent]\nmodel = ""', "agent.model"),
    ('[agent]\nrestore = "never"', "agent.restore"),
    ('[agent]\nworkspace = "tree"', "agent.workspace"),
    ('[clone]\ndir = "trees"', "clone.dir"),
    ('[agent]\nbind_ro = "/opt"', "agent.bind_ro"),
    ('[agent]\nbind_ro = ["opt"]', "agent.bind_ro"),
    ("[agent]\nbind_ro = [1]", "agent.bind_ro"),
    ("[limits]\nagents = 0", "limits.agents"),
    ("[limits]\ndepth = -1", "limits.depth"),
    ('[log]\nlevel = "loud"', "log.level"),
    ('[log]\nformat = "xml"', "log.format"),
    ("turns = 5", "'turns'"),
    ("turns = [1]", "'turns'"),
    ("[[turns]]\nmax_running = 1", "'turns'"),
]


@each(("text", "key"), WRONG)
def test_a_wrong_value_names_its_key(text, key):
    assert key in refusal(text)


@pytest.mark.parametrize("content", [b"[turns", b"x = \xff", b"\x00", b"x = 1\nx = 2", b"[a]\n[a]"])
def test_a_file_that_is_no_toml_is_named(tmp_path, content):
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid) as refused:
        config.load(str(path), {})
    assert str(path) in refused.value.message


def test_a_missing_file_means_the_defaults_and_a_directory_is_none(tmp_path):
    assert config.load(str(tmp_path / "missing.toml"), {}) == Config()
    with pytest.raises(ConfigInvalid):
        config.load(str(tmp_path), {})


def test_the_environment_beats_the_file(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('[agent]\nbinary = "from-file"\nmodel = "m"\n')
    assert config.load(str(path), {}).binary_of("cursor") == "from-file"
    assert config.load(str(path), {"SUBSTRAT_AGENT_BINARY": "from-env"}).binary_of("cursor") == "from-env"
    assert config.load(str(path), {"SUBSTRAT_AGENT_BINARY": ""}).binary_of("cursor") == "from-file"
    assert config.load(str(path), {"SUBSTRAT_AGENT_BINARY": "from-env"}).agent.model == "m"


def test_old_words_are_taken_as_those_of_now_and_told():
    told: list[str] = []
    old = {"agent": {"workspace": "worktree", "model": "m"}, "worktree": {"turns": 3}}
    new = {"agent": {"workspace": "clone", "model": "m"}, "clone": {"turns": 3}}
    assert config.parse(old, "c.toml", told.append) == config.parse(new, "c.toml", told.append)
    assert told == [
        "c.toml: [worktree] is called [clone] now: rename it",
        'c.toml: agent.workspace = "worktree" is "clone" now: change it',
    ]
    with pytest.raises(ConfigInvalid, match=r"\[worktree\] is the old name of \[clone\], and both are there"):
        config.parse({"worktree": {}, "clone": {}})


def test_a_program_has_its_own_keys():
    given = parse('[agent]\nmodel = "all"\n[programs.cursor]\nbinary = "/opt/x"\nmodel = "its"')
    assert (given.binary_of("cursor"), given.model_of("cursor")) == ("/opt/x", "its")
    assert (Config().binary_of("cursor"), parse('[agent]\nmodel = "all"').model_of("cursor")) == ("cursor-agent", "all")
    both = '[sandbox]\nallow = ["a.net"]\n[agent]\nenv = {A = "1", B = "1"}\n'
    more = parse(f'{both}[programs.cursor]\nallow = ["b.net"]\nenv = {{B = "2"}}')
    assert (more.allow_of("cursor"), more.env_of("cursor")) == (("b.net", "a.net"), {"A": "1", "B": "2"})
    assert set(parse('[sandbox]\nallow = ["a.net"]').allow_of("cursor")) == {*CURSOR.hosts, "a.net"}
    assert not Config().program("claude").children
    assert parse("[programs.claude]\nchildren = true").program("claude").children
    assert "programs.cursor.env: " in refusal('[programs.cursor]\nenv = {"A-B" = "1"}')
    assert "programs.cursor.allow: " in refusal('[programs.cursor]\nallow = ["*"]')
    assert refusal('[agent]\nprogram = "vi"').endswith(
        "agent.program: there is no agent program 'vi': choose cursor, claude or codex"
    )
    assert "'programs.cursor.modl'; did you mean 'programs.cursor.model'?" in refusal("[programs.cursor]\nmodl = 1")
    assert "there is no key 'programs.vi'; known are: cursor, claude, codex" in refusal("[programs.vi]")


def test_the_binary_of_cursor_agent_may_stand_in_either_section_but_not_in_both():
    assert parse('[agent]\nbinary = "/opt/x"') == parse('[programs.cursor]\nbinary = "/opt/x"')
    both = '[agent]\nbinary = "a"\n[programs.cursor]\nbinary = "b"'
    assert "agent.binary and programs.cursor.binary are one key: leave one of them out" in refusal(both)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(sorted({key for _, key in KEYS} | set(SECTIONS))) | st.text(max_size=8)


@given(st.dictionaries(names, values | st.dictionaries(names, values, max_size=3), max_size=3))
def test_any_table_is_a_configuration_or_a_sentence(table):
    try:
        found = config.parse(table)
    except ConfigInvalid as refused:
        refused.message.encode("utf-8", "replace")
    else:
        assert found.turns.max_running >= 0
        assert found.turns.stop_grace > 0


def test_every_key_is_described():
    for section, keys in SECTIONS.items():
        assert keys.__doc__.startswith(f"`[{section}]`")
        for key in msgspec.json.schema(keys)["$defs"][keys.__name__]["properties"].values():
            assert key["description"]
