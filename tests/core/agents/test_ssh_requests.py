"""Which requests reach the person's ssh-agent."""

from substrat.core.agents.ssh_requests import REFUSAL, framed, passes


def test_keys_are_listed_and_used_and_nothing_else_is_done():
    assert [kind for kind in range(256) if passes(bytes([kind]) + b"fields")] == [11, 13]
    assert not passes(b"")
    bind = b"session-bind@openssh.com"
    assert passes(bytes([27]) + framed(bind) + b"fields")
    for name in (b"", b"query", bind[:-1], bind + b"2"):
        assert not passes(bytes([27]) + framed(name))
    assert not passes(bytes([27]) + len(bind).to_bytes(4, "big"))
    assert REFUSAL == b"\0\0\0\1\5"
