"""A small internet in a network namespace of its own: run in one, it gives `lo` addresses and answers at them.

Its argument is a directory: there it finds `cert.pem`, writes who connected to `hits`, and makes `ready` when it listens.
"""

import http.server
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import threading

PLACES = ("9.9.9.9", "2606:4700::9", "10.0.0.1", "127.0.0.1", "169.254.169.254", "::1")
PORTS = (80, 443, 8443, 9000)
HOSTS = """\
9.9.9.9 www.allowed.test api.allowed.test allowed.test evil.test port.test
2606:4700::9 six.allowed.test
10.0.0.1 inner.allowed.test
127.0.0.1 loop.allowed.test localhost
169.254.169.254 meta.allowed.test
::ffff:10.0.0.1 mapped.allowed.test
"""
directory = pathlib.Path(sys.argv[1])
hits = (directory / "hits").open("a", buffering=1)


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        size = int(self.path[6:]) if self.path.startswith("/size/") else 0
        body = bytes(size) or f"hello from {self.server.server_address[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, address, port):
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), Page)

    def process_request(self, request, client):
        hits.write(f"{self.server_address[0]}:{self.server_address[1]}\n")
        super().process_request(request, client)

    def handle_error(self, *_):
        pass


def run(*command):
    subprocess.run(command, check=True)


run("ip", "link", "set", "lo", "up")
for place in PLACES:
    if place not in {"127.0.0.1", "::1"}:
        run("ip", "addr", "add", place + ("/128" if ":" in place else "/32"), "dev", "lo")
(directory / "hosts").write_text(HOSTS)
run("mount", "--bind", str(directory / "hosts"), "/etc/hosts")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(directory / "cert.pem")
for place in PLACES:
    for port in PORTS:
        server = Server(place, port)
        if port in {443, 8443}:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
(directory / "ready").touch()
sys.stdin.read()
os._exit(0)
