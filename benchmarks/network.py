"""Measures the cost of the `filtered` network, in both forms: a launch and a large download, beside those without it.

Run `python benchmarks/network.py`. It uses only loopback and namespaces of its own.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import trio

from sandbox import launch, netrelay
from substrat.core.netfilter.names import AllowList
from substrat.daemon.kernel import sockets
from substrat.daemon.network import filtered
from substrat.daemon.network.connections import ConnectionRelay
from substrat.daemon.network.proxy import Proxy
from substrat.daemon.network.transparent import Names, TransparentNetwork

BWRAP = ("/usr/bin/bwrap", "--unshare-user", "--unshare-pid", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc")
RELAY = (sys.executable, "-I", "-S", netrelay.__file__, str(netrelay.PORT))
SIZE = 1 << 30  # bytes: a second or two at loopback's speed, so that the start counts for little
READ = """
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[-1])))
if len(sys.argv) > 2: s.sendall(f"CONNECT 127.0.0.1:{sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
b = bytearray(1 << 20); n = 0; t = time.perf_counter()
while k := s.recv_into(b): n += k
print(n / (time.perf_counter() - t))
"""


def launches(command, count=40):
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        subprocess.run(command, check=True)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1000


def serve(listener):
    """Send `SIZE` bytes to each client, in a process of its own."""
    if os.fork() == 0:
        for _ in range(3):
            connection, _ = listener.accept()
            data = bytes(1 << 20)
            for _ in range(SIZE // len(data)):
                connection.sendall(data)
            connection.close()
        os._exit(0)


async def through_the_transparent_form(port):
    allow = AllowList.of((f"127.0.0.1:{port}",))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = (*launch.launcher(str(theirs.fileno()), allow.ports), sys.executable, "-c", READ, str(port))
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, pass_fds=(theirs.fileno(),))
    theirs.close()
    listeners = await filtered.receive(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(TransparentNetwork(ConnectionRelay(allow, lambda _: None), Names()).serve, listeners)
        said = b"".join([piece async for piece in process.stdout])
        nursery.cancel_scope.cancel()
    return float(said)


async def through_the_proxy(port):
    allow = AllowList.of((f"127.0.0.1:{port}",))
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "network.sock")
        listener = sockets.listen(path, 0o600)
        relayed = (*RELAY, path, sys.executable, "-c", READ, str(port), str(netrelay.PORT))
        command = (
            "/usr/bin/unshare",
            "--user",
            "--map-root-user",
            "--net",
            "/bin/sh",
            "-c",
            'ip link set lo up; exec "$@"',
            "",
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Proxy(ConnectionRelay(allow, lambda _: None)).serve, listener)
            process = await trio.lowlevel.open_process((*command, *relayed), stdout=subprocess.PIPE)
            said = b"".join([piece async for piece in process.stdout])
            nursery.cancel_scope.cancel()
    return float(said)


def main():
    bare = launches([*BWRAP, "--unshare-net", "/bin/true"])
    transparent = launches([*launch.launcher("-", (80, 443)), *BWRAP, "/bin/true"])
    proxied = launches([*BWRAP, "--unshare-net", *RELAY, "/nonexistent", "/bin/true"])
    for form, taken in (("transparent", transparent), ("proxy", proxied)):
        print(f"launch: bare bwrap {bare:.1f} ms, {form} {taken:.1f} ms: {taken - bare:.1f} ms more")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    serve(listener)
    direct = float(subprocess.run([sys.executable, "-c", READ, str(port)], capture_output=True, check=True).stdout)
    transparently = trio.run(through_the_transparent_form, port)
    relayed = trio.run(through_the_proxy, port)
    for form, rate in (("transparent form", transparently), ("proxy form", relayed)):
        print(
            f"download: direct {direct / 1e6:.0f} MB/s, through the {form} {rate / 1e6:.0f} MB/s: {rate / direct:.2f} of it"
        )


if __name__ == "__main__":
    main()
