"""A company's proxy: its address, the request to it, and its answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.netfilter import upstream
from substrat.core.netfilter.upstream import NoUpstream, Upstream


def test_where_it_is():
    assert upstream.read("") is None
    assert upstream.read("http://proxy.corp:3128") == Upstream("proxy.corp", 3128)
    assert upstream.read("http://me%40corp:s%3Aecret@[::1]:8080/") == Upstream("::1", 8080, "me@corp:s:ecret")


@pytest.mark.parametrize(
    "text", ["proxy:3128", "https://a:1", "http://a", "http://:1", "http://a:1/x", "http://a:x", "socks5://a:1"]
)
def test_what_names_no_proxy(text):
    with pytest.raises(NoUpstream) as refused:
        upstream.read(text)
    assert text not in str(refused.value)


def test_the_login_is_not_shown():
    assert "s3cret" not in repr(upstream.read("http://me:s3cret@a:1"))


def test_what_it_is_asked():
    asked = upstream.request(Upstream("p", 1, "me:x"), "2606::9", 443)
    assert asked == b"CONNECT [2606::9]:443 HTTP/1.1\r\nHost: [2606::9]:443\r\nProxy-Authorization: Basic bWU6eA==\r\n\r\n"
    assert b"Authorization" not in upstream.request(Upstream("p", 1), "a.test", 443)


def test_a_plain_request_in_its_form():
    asked = upstream.plain_head(
        Upstream("p", 1, "me:x"),
        "a.test",
        80,
        b"GET /x?y HTTP/1.1\r\nHost: A.Test.\r\nAccept: a\r\nConnection: close\r\n\r\n",
    )
    assert asked == (
        b"GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic bWU6eA==\r\n"
        b"Accept: a\r\nConnection: close\r\n\r\n"
    )
    asked = upstream.plain_head(Upstream("p", 1), "a.test", 8080, b"OPTIONS * HTTP/1.1\r\nHost: a.test:8080\r\n\r\n")
    assert asked == b"OPTIONS http://a.test:8080 HTTP/1.1\r\nHost: a.test:8080\r\n\r\n"
    assert upstream.login_refusal(b"HTTP/1.1 407 Proxy Authentication Required\r\n")
    assert upstream.login_refusal(b"HTTP/1.1 403 Forbidden\r\n") is None


def test_its_answers():
    assert upstream.answer(b"HTTP/1.1 200 OK\r\nVia: x\r\n") is None
    assert upstream.answer(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nSSH-2.0") == (27, None)
    assert "refuses the login" in upstream.answer(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").refusal
    assert upstream.answer(b"HTTP/1.0 403 Forbidden by \x1b[31m\r\n\r\n").refusal.endswith("(403 Forbidden by ?[31m)")
    assert "HTTP proxy" in upstream.answer(b"SSH-2.0-x\r\n\r\n").refusal
    assert "too long" in upstream.answer(b"HTTP/1.1 200 OK\r\nA: " + b"x" * upstream.LONGEST_ANSWER).refusal


@given(st.binary())
def test_any_answer_is_looked_at(data):
    found = upstream.answer(data)
    assert found is None or 0 < found.length <= len(data)
