"""The login of an agent: the same after each refresh of its tokens, another one for another account or key."""

import base64
import json

import pytest

from substrat.config import Config
from substrat.core.programs.cursor.login_file import account
from substrat.daemon.agents.logins import Logins


def token(**claims):
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


def login_file(**claims):
    return json.dumps({"accessToken": token(**claims), "refreshToken": "r"})


def test_a_refreshed_login_is_the_same_one(agents, tmp_path):
    agents.spawn("anna")
    place = tmp_path / ".config/cursor/auth.json"
    place.parent.mkdir(parents=True)
    logins = Logins(str(tmp_path), {})
    found = []
    for text in (
        login_file(sub="auth0|anna", exp=1), login_file(sub="auth0|anna", exp=9), login_file(sub="auth0|bert", exp=3),
        '{"accessToken": "t"}', '{"accessToken": "another t"}',
    ):  # fmt: skip
        place.write_text(text)
        found.append(logins.of(agents.agent("anna"), Config()))
    anna, refreshed, _, untold, still_untold = found
    assert (anna, untold) == (refreshed, still_untold)
    assert len(set(found)) == 3
    assert "anna" not in anna.partition(":")[2]
    key = Logins(str(tmp_path), {"CURSOR_API_KEY": "k"}).of(agents.agent("anna"), Config())
    assert key not in found
    assert Logins("/nowhere", {}).of(agents.agent("anna"), Config()).endswith(":none")


OTHERS = (
    "", "[]", "{", '{"accessToken": 7}', '{"accessToken": "a.!.b"}', '{"accessToken": "a.W10.b"}', "\xff", "[" * 100_000,
    login_file(sub=7), login_file(sub=""),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_a_file_of_any_other_form_states_no_account(number):
    assert account(OTHERS[number].encode("latin-1")) is None
