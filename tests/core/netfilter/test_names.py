"""Host names and allow-lists: one canonical form decides, and a child's list is never more than its parent's."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.netfilter.names import AllowList, NoName, Pattern, canonical, pattern, remedy
from tests.support.cases import each

label = st.from_regex(r"[a-z]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
name = st.lists(label, min_size=1, max_size=4).map(".".join)
ports = st.none() | st.sampled_from([22, 80, 443, 8443])
patterns = st.builds(Pattern, name, st.booleans(), ports, st.booleans())
lists = st.lists(patterns, max_size=4).map(lambda found: AllowList(tuple(found)))


@given(name, st.randoms())
def test_case_and_the_roots_dot_make_no_difference(name, random):
    odd = "".join(random.choice((letter.lower(), letter.upper())) for letter in name)
    assert canonical(odd + ".") == canonical(odd) == name


@given(st.text())
def test_what_is_canonical_stays_so(text):
    try:
        found = canonical(text)
    except NoName:
        return
    assert canonical(found) == found
    assert set(found) <= set(string.ascii_lowercase + string.digits + "-_.")


@each("text", [
    "", ".", "..", "a..b", ".a", "a.b..", "-a.b", "a-.b", "a b", "a\0.b", "evil.com\0.allowed.example", "a/b", "a:b", "a@b",
    "a" * 64, "a." * 127 + "a", "127.0.0.1", "127.1", "0x7f.1", "2130706433", "a.0x7f", "a.1", "[::1]", "a%2eb", "*.a",
    "\u2024a", "a\u200b..b",
])  # fmt: skip
def test_what_is_no_name(text):
    with pytest.raises(NoName):
        canonical(text)


def test_names_people_write():
    for written, name in [
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("faß.de", "xn--fa-hia.de"),
        ("example\u3002com", "example.com"),
        ("\u212aelvin.example", "kelvin.example"),
        ("ex\u0430mple.com", "xn--exmple-4nf.com"),
        ("_dmarc.example", "_dmarc.example"),
    ]:
        assert canonical(written) == name


@given(patterns)
def test_a_pattern_is_read_back_as_it_was_written(made):
    assert pattern(str(made)) == made


def test_patterns():
    for text, read in [
        ("10.0.0.1", Pattern("10.0.0.1")),
        ("10.0.0.1:8080", Pattern("10.0.0.1", port=8080)),
        ("::1", Pattern("::1")),
        ("[::1]", Pattern("::1")),
        ("[0:0::1]:99", Pattern("::1", port=99)),
        ("*.Example.COM.:8443", Pattern("example.com", True, 8443)),
        ("localhost:5432", Pattern("localhost", port=5432)),
    ]:
        assert pattern(text) == read


@each("text", [
    "", "*", "*.", "a.*", "*.*.a", "a*b.c", "a:", "a:0", "a:65536", "a:http", "a:+1", "a:53", "http://a", "a/b",
    "*.10.0.0.1", "[::1", "a:1:2", "[a.example]x", "127.1:80", "a:٣",
])  # fmt: skip
def test_what_is_no_pattern(text):
    with pytest.raises(NoName):
        AllowList.of((text,))


def test_what_is_allowed():
    allow = AllowList.of(("*.example.com", "exact.net", "git.org:22", "10.0.0.1:5432"))
    assert allow.ports == (22, 80, 443, 5432)
    assert allow.allows("a.example.com", 443)
    assert allow.allows("a.b.example.com", 80)
    assert not allow.allows("example.com", 443)
    assert not allow.allows("evilexample.com", 443)
    assert not allow.allows("a.example.com.evil.net", 443)
    assert not allow.allows("a.example.com", 22)
    assert allow.allows("exact.net", 443)
    assert not allow.allows("sub.exact.net", 443)
    assert (allow.allows("git.org", 22), allow.allows("git.org", 443), allow.mentions("git.org")) == (True, False, True)
    assert allow.allows_address("10.0.0.1", 5432)
    assert not allow.allows_address("10.0.0.1", 443)
    assert not allow.allows_address("10.0.0.2", 5432)


def test_localhost_is_this_machine_where_the_list_says_so():
    allow = AllowList.of(("localhost:5432",))
    assert allow.allows_address("127.0.0.1", 5432)
    assert allow.allows_address("::1", 5432)
    assert not allow.allows_address("127.0.0.2", 5432)
    assert not AllowList.of(("*.localhost:5432",)).allows_address("127.0.0.1", 5432)


@given(lists, lists, name, st.sampled_from([22, 80, 443, 8443]))
def test_what_a_covered_list_allows_is_allowed(parent, child, name, port):
    if parent.covers(child):
        assert not child.allows(name, port) or parent.allows(name, port)


@given(lists, lists)
def test_covering_is_reflexive_and_grows(one, other):
    assert one.covers(one)
    assert AllowList(one.patterns + other.patterns).covers(one)
    assert one.covers(AllowList(()))


def test_covering():
    parent = AllowList.of(("*.example.com", "a.net:443", "a.net:80"))
    assert parent.covers(AllowList.of(("x.example.com", "*.y.example.com:443", "a.net")))
    for more in ("example.com", "*.com", "x.example.com:8443", "b.net", "*.a.net"):
        assert not parent.covers(AllowList.of((more,)))


def test_a_network_that_lets_nothing_through_is_refused_when_it_is_asked_for():
    assert AllowList.asked_for(("198.18.0.0/15", "203.0.113.0/24", "2001:db8::/32", "0.0.0.0/0", "::/0", "127.0.0.1")).texts
    for text, kind in (
        ("127.0.0.0/8", "a loopback"),
        ("169.254.0.0/16", "a link-local or metadata"),
        ("ff02::/16", "a mult"),
    ):
        with pytest.raises(NoName, match=f"each address there is {kind}"):
            AllowList.asked_for((text,))
        assert AllowList.of((text,)).texts, "stored lists may have it"


def test_networks_and_private_names():
    allow = AllowList.of(("10.20.0.0/16:8443", "fd00:20::/32", "*.corp.example=private", "git.org"))
    assert allow.texts == ("10.20.0.0/16:8443", "[fd00:20::/32]", "*.corp.example=private", "git.org")
    assert allow.allows_address("10.20.3.4", 8443)
    assert not allow.allows_address("10.20.3.4", 443)
    assert not allow.allows_address("10.21.3.4", 8443)
    assert allow.allows_address("fd00:20::1", 443)
    assert not allow.names_address("10.20.3.4", 8443)
    assert allow.may_be_private("a.corp.example", 443)
    assert not allow.may_be_private("git.org", 443)
    assert not allow.mentions("10.20.3.4.example")


def test_a_network_stands_for_no_address_that_has_to_be_named():
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "::1",
        "fd00:ec2::254",
        "fd00:a9fe:a9fe::1",
        "fe80::1",
    ]:
        allow = AllowList.of(("0.0.0.0/0", "::/0"))
        assert allow.allows_address("10.0.0.1", 443)
        assert not allow.allows_address(address, 443)
        assert AllowList.of((f"[{address}]" if ":" in address else address,)).allows_address(address, 443)


def test_a_child_of_one_that_may_reach_private_addresses():
    parent = AllowList.of(("*.corp.example=private", "10.0.0.0/8", "a.net"))
    assert parent.covers(AllowList.of(("git.corp.example=private", "git.corp.example", "10.1.0.0/16", "a.net")))
    # An address that is named is reached though it be this machine's; one in a network isn't.
    for more in ("a.net=private", "0.0.0.0/0", "10.0.0.1", "11.0.0.1", "fd00::/8"):
        assert not parent.covers(AllowList.of((more,)))


def test_what_is_no_entry_says_why():
    for text, why in [
        ("10.0.0.1/8", "the network of that length is 10.0.0.0/8"),
        ("10.0.0.0/33", "neither a host nor a network"),
        ("10.0.0.1=private", "only a name takes =private"),
        ("@perl", "there is no such preset"),
        ("a/b", "neither a host"),
        ("https://example.com", "it is a URL: give its host alone"),
    ]:
        with pytest.raises(NoName, match=why):
            AllowList.of((text,))


def test_a_preset_stands_for_its_hosts_and_is_the_remedy():
    allow = AllowList.of(("@python",))
    assert allow.allows("pypi.org", 443)
    assert allow.changed((), ("pypi.org",)).changed((), ("@python",)).texts == ()
    with pytest.raises(NoName):
        allow.changed((), ("@npm",))
    assert remedy("pypi.org", 443) == "@python"
    assert (remedy("evil.test", 80), remedy("evil.test", 22)) == ("evil.test", "evil.test:22")
    assert remedy("2606:4700::9", 443) == "[2606:4700::9]"
    assert (remedy("wiki", 443), remedy("localhost", 80)) == ("wiki:443", "localhost"), "allow takes no word for a host"
