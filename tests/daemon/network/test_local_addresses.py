"""Which addresses are this machine's, asked of the kernel in a network namespace of the test's own."""

import json
import os
import subprocess
import sys

import pytest

IN_A_NETWORK = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "--net")
SETUP = """
import json, subprocess, sys
import trio
from substrat.core.netfilter.names import AllowList
from substrat.daemon.kernel import routes
from substrat.daemon.network.connections import ConnectionRelay
from substrat.daemon.network.dialer import NotConnected, target_of

def ip(*words):
    subprocess.run(["ip", *words], check=True)

ip("link", "set", "lo", "up")
ip("link", "add", "d0", "type", "veth", "peer", "name", "d1")
for end in ("d0", "d1"):
    ip("link", "set", end, "up")
"""
ASKED = """
ip("addr", "add", "9.9.9.9/24", "dev", "d0")
ip("addr", "add", "2606:4700::9/64", "dev", "d0", "nodad")
ip("route", "add", "local", "8.8.0.0/16", "dev", "lo", "src", "9.9.9.9")
ip("route", "add", "blackhole", "7.7.7.0/24")
ip("route", "add", "prohibit", "6.6.6.0/24")
# The kernel makes an IPv6 address's local route once the link is seen to run, which may be after the command's end.
waited_for = ("ip", "-6", "route", "show", "table", "local", "2606:4700::9")
while not subprocess.run(waited_for, check=True, capture_output=True).stdout:
    pass
print(json.dumps({address: routes.is_local(address) for address in sys.argv[1:]}))
"""
DIALLED = """
decisions, found = [], ["9.9.9.9"]

async def resolve(name, port):
    return found

async def echo(stream):
    await stream.send_all(b"reached")

async def dial(relay, host):
    ends = []
    async def serve(made):
        ends.append((await made.socket.recv(99)).decode())
    inside, other = trio.socket.socketpair()
    with inside, other:
        try:
            await relay.connect(inside, target_of(host, 80), serve)
        except NotConnected as refusal:
            return str(refusal)
    return ends[0]

async def main():
    said = []
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_tcp, echo, 80)
        relay = ConnectionRelay(AllowList.of(("a.test",)), decisions.append, resolve)
        said.append(await dial(relay, "a.test"))
        ip("addr", "add", "9.9.9.9/32", "dev", "lo")
        for address in ("9.9.9.9", "::ffff:9.9.9.9", "64:ff9b::909:909", "2002:909:909::1"):
            found[:] = [address]
            said.append(await dial(relay, "a.test"))
        found[:] = ["9.9.9.9"]
        relay.allow(AllowList.of(("a.test", "9.9.9.9")))
        said.append(await dial(relay, "a.test"))
        said.append(await dial(relay, "9.9.9.9"))
        relay.allow(AllowList.of(("a.test",)))
        # The address becomes this machine's between the judgement and the connection.
        ip("addr", "del", "9.9.9.9/32", "dev", "lo")
        connect = relay._dialer._connect
        async def late(*arguments):
            ip("addr", "add", "9.9.9.9/32", "dev", "lo")
            return await connect(*arguments)
        relay._dialer._connect = late
        said.append(await dial(relay, "a.test"))
        nursery.cancel_scope.cancel()
    print(json.dumps(said))

trio.run(main)
"""
LOCAL = ("9.9.9.9", "8.8.1.2", "2606:4700::9", "127.0.0.1", "127.9.9.9", "::1", "9.9.9.255")
ELSEWHERE = ("9.9.9.8", "1.1.1.1", "2606:4700::8", "2606:4701::1", "7.7.7.7", "6.6.6.6")


def run(script, *arguments):
    """Run a script in a network of its own and return its output."""
    command = [*IN_A_NETWORK, sys.executable, "-c", SETUP + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_which_addresses_are_this_machines():
    found = run(ASKED, *LOCAL, *ELSEWHERE)
    assert {address for address, is_local in found.items() if is_local} == set(LOCAL)


def test_a_name_that_leads_to_this_machine_is_refused_unless_the_list_names_the_address():
    before, *after, named, dialled, late = run(DIALLED)
    assert before.startswith("no address answered")
    assert len(after) == 4
    assert all(why.endswith("an address of this machine") for why in after)
    assert (named, dialled) == ("reached", "reached")
    assert late == "it leads to 9.9.9.9, an address of this machine"
