"""A small internet in a network namespace of its own: run in one, it gives `lo` addresses and answers at them.

Its argument is a directory: there it finds `cert.pem` and a `site` of files to give out, writes who connected to `hits`,
and makes `ready` when it listens. Where there is a node, it also speaks HTTP/2, as `h2.allowed.test`.
"""

import http.server
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import threading

H2 = "9.9.9.11"
PLACES = ("9.9.9.9", "2606:4700::9", "10.0.0.1", "127.0.0.1", "169.254.169.254", "::1")
PORTS = (80, 443, 8443, 9000)
HOSTS = """\
9.9.9.9 www.allowed.test api.allowed.test allowed.test evil.test port.test
9.9.9.11 h2.allowed.test
2606:4700::9 six.allowed.test
10.0.0.1 inner.allowed.test
127.0.0.1 loop.allowed.test localhost
169.254.169.254 meta.allowed.test
::ffff:10.0.0.1 mapped.allowed.test
"""
directory = pathlib.Path(sys.argv[1])
hits = (directory / "hits").open("a", buffering=1)


SPEAKER = """
const [pem, host] = process.argv.slice(1);
const text = require("fs").readFileSync(pem);
const server = require("http2").createSecureServer({ key: text, cert: text });
server.on("stream", (stream) => { stream.respond({ ":status": 200 }); stream.end("hello over h2\\n"); });
server.listen(443, host, () => console.log("ready"));
"""


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0]
        size = int(path[6:]) if path.startswith("/size/") else 0
        body = bytes(size) or f"hello from {self.server.server_address[0]}".encode()
        if path.startswith("/site/"):
            file = directory / path.strip("/")
            file = file / "index.html" if file.is_dir() else file
            body = file.read_bytes() if file.is_file() else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html" if path.endswith("/") else "application/octet-stream")
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
speaker = None
if node := shutil.which("node"):
    run("ip", "addr", "add", f"{H2}/32", "dev", "lo")
    speaker = subprocess.Popen([node, "-e", SPEAKER, directory / "cert.pem", H2], stdout=subprocess.PIPE)
    assert speaker.stdout.readline() == b"ready\n"
(directory / "ready").touch()
sys.stdin.read()
if speaker is not None:
    speaker.kill()
os._exit(0)
