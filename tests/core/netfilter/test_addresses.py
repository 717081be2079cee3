"""Which addresses may be dialled: none that isn't the public internet's, in whatever spelling."""

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.netfilter.addresses import leads_to, plain, refusal
from tests.support.cases import each

FORBIDDEN_V4 = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
]  # fmt: skip
FORBIDDEN_V6 = [
    "::", "::1", "::7f00:1", "fe80::1", "fe80::1%eth0", "2606::1%1", "fec0::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254",
    "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "ff02::1",
    "2001::1",
    "2001:db8::1", "3fff::1", "100::1", "64:ff9b:1::808:808", "4000::1", "5f00::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.0",
    "172.32.0.1",
    "198.20.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
]


def spellings(address):
    number = int(ipaddress.IPv4Address(address))
    yield str(ipaddress.IPv6Address((0xFFFF << 32) | number))
    yield str(ipaddress.IPv6Address((0x64FF9B << 96) | number))
    yield str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80)))


@each("address", [*FORBIDDEN_V4, *FORBIDDEN_V6, "", "example.com", "127.1", "0x7f000001", "010.0.0.1"])
def test_refused(address):
    assert refusal(address)


def test_refused_in_the_spellings_of_the_other_family():
    for address in FORBIDDEN_V4:
        for spelling in spellings(address):
            assert refusal(spelling), spelling


def test_public():
    for address in PUBLIC:
        assert refusal(address) is None


@given(st.ip_addresses(v=4))
def test_a_public_address_is_global_to_python_too(address):
    if refusal(str(address)) is None:
        assert address.is_global
        assert all(refusal(spelling) is None for spelling in spellings(str(address)))


@given(st.ip_addresses(v=6))
def test_nothing_outside_global_unicast(address):
    if refusal(str(address)) is None:
        assert address in ipaddress.IPv6Network("2000::/3") or address.ipv4_mapped or int(address) >> 96 == 0x64FF9B


@given(st.text())
def test_never_an_exception(text):
    refusal(text)
    plain(text)


def test_one_spelling():
    assert plain("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain("2606:0:0::1") == "2606::1"
    assert plain("what") == "what"


def test_an_address_of_this_machine_is_refused_in_every_spelling():
    for address in ["9.9.9.9", "2606:4700::9"]:
        assert refusal(address, {address}) == "an address of this machine"
        assert refusal(address, {"1.1.1.1"}) is None
        if "." in address:
            for spelling in spellings(address):
                assert refusal(spelling, {address}) == "an address of this machine", spelling


def test_where_an_address_leads():
    assert leads_to("64:ff9b::102:304") == ("64:ff9b::102:304", "1.2.3.4")
    assert leads_to("2002:102:304::1") == ("2002:102:304::1", "1.2.3.4")
    assert leads_to("1.2.3.4") == ("1.2.3.4",)
    assert leads_to("fe80::1%eth0") == leads_to("nothing") == ()


def test_a_reason_of_its_own_comes_before_that():
    assert refusal("127.0.0.1", {"127.0.0.1"}) == "a loopback address"
