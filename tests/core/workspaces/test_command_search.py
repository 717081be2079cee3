"""Where commands look for their programs."""

from substrat.core.workspaces.command_search import places
from tests.support.cases import each

CASES = {
    "env PATH=tools:/usr/bin x": ["tools", "/usr/bin"],
    "PATH=tools:$PATH x": ["tools"],
    "env -i FOO=1 PATH=:/bin x": [".", "/bin"],
    "env -S 'PATH=tools x'": ["tools x"],
    "f() { PATH=./tools x; }; f": ["./tools"],
    "export PATH=$HOME/bin:${PATH};x": ["~/bin", "."],
    "PYTHONPATH=src python3 -m x": ["src"],
    "PERL5LIB=lib x": ["lib"],
    "LD_PRELOAD=./x.so x": ["./x.so"],
    "NODE_OPTIONS='--require ./x.js' node": ["."],
    "NODE_OPTIONS=--max-old-space-size=4096 node": [],
    "$TOOL status": ["."],
    "`cat tool` status": ["."],
    "env $TOOL": ["."],
    "PATH=$(cat path) x": ["."],
    "LC_ALL=C FOO=1 sort": [],
    "git log --format=%H": [],
    'f() { git log "$@"; }; f': [],
    "sh 'x": [],
    "": [],
}


@each(("command", "expected"), CASES.items())
def test_where_a_command_looks_for_programs(command, expected):
    assert list(places(command)) == expected
