"""A small internet: a network namespace for the machine that is tested, and one behind it for all others.

Run in a new network namespace, that of the machine, it gives `lo` the machine's own addresses, answers at them, and starts
itself again for the others, in a second one with a cable between. Its argument is a directory: there it finds `cert.pem`
and a `site` of files to give out, writes who connected to `hits`, and makes `ready` when everything listens. Where there
is a node, the others also speak HTTP/2, as `h2.allowed.test`. One of the others has a private address, as a company's own
hosts do, one an address as a proxy's resolver makes them up, and one is a company's proxy, which asks for a login, knows a
name that nobody else knows, and like tinyproxy and Squid takes CONNECT for port 443 alone. What is in `repositories` can be
cloned over https, and pushed to with a token.
"""

import contextlib
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
OTHERS = ("9.9.9.9", "2606:4700::9", "172.31.0.9", "198.18.0.9")
PROXY = ("9.9.9.9", 3128)
LOGIN = "Basic bWU6czNjcmV0"  # me:s3cret
PUSHER = "Basic eDp0b2tlbg=="  # x:token
OWN = ("9.9.9.77", "2606:4700::77", "10.0.0.1", "127.0.0.1", "169.254.169.254", "::1")
"""The machine's own: the first two look like anybody's, as those of a server that is rented do."""
CABLE = (("192.0.2.1/30", "fd77::1/64"), ("192.0.2.2/30", "fd77::2/64"))
PORTS = (80, 443, 8443, 9000)
HOSTS = """\
9.9.9.9 www.allowed.test api.allowed.test allowed.test evil.test port.test
9.9.9.11 h2.allowed.test
2606:4700::9 six.allowed.test
9.9.9.77 own.allowed.test
2606:4700::77 own6.allowed.test
10.0.0.1 inner.allowed.test
172.31.0.9 corp.test
198.18.0.9 fake.allowed.test
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

    def do_POST(self):
        if self.path != "/":
            self.give_to_git()
            return
        self.give(f"got {len(self.rfile.read(int(self.headers['Content-Length'])))}".encode())

    def give_to_git(self):
        """Let git's own server program answer (git-http-backend(1)); whoever pushes needs the token."""
        path, _, query = self.path.partition("?")
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "receive-pack" in self.path and self.headers.get("Authorization") != PUSHER:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="push"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        asked = {"PATH_INFO": path.removeprefix("/git"), "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                 "CONTENT_TYPE": self.headers.get("Content-Type") or "", "CONTENT_LENGTH": str(len(data)),
                 "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                 "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol") or "", "REMOTE_USER": "pusher",
                 "GIT_PROJECT_ROOT": str(directory / "repositories"), "GIT_HTTP_EXPORT_ALL": "1"}  # fmt: skip
        done = subprocess.run(
            ["git", "http-backend"], input=data, stdout=subprocess.PIPE, env={**os.environ, **asked}, check=True
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path.startswith("/git/"):
            self.give_to_git()
            return
        size = int(path[6:]) if path.startswith("/size/") else 0
        body = bytes(size) or f"hello from {self.server.server_address[0]}".encode()
        if path.startswith("/site/"):
            file = directory / path.strip("/")
            file = file / "index.html" if file.is_dir() else file
            body = file.read_bytes() if file.is_file() else b""
        self.give(body)

    def give(self, body):
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
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
        hits.write(f"{self.server_address[0]!s}:{self.server_address[1]}\n")
        super().process_request(request, client)

    def handle_error(self, *_):
        pass


def run(*command):
    subprocess.run(command, check=True)


def connect(name, addresses):
    """Set up one end of the cable."""
    run("ip", "link", "set", name, "up")
    for address in addresses:
        run("ip", "addr", "add", address, "dev", name, *(("nodad",) if ":" in address else ()))


def serve(places):
    """Give `lo` addresses and answer at them."""
    run("ip", "link", "set", "lo", "up")
    for place in places:
        if place not in {"127.0.0.1", "::1"}:
            run("ip", "addr", "add", *((f"{place}/128", "nodad") if ":" in place else (f"{place}/32",)), "dev", "lo")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem")
    for place in places:
        for port in PORTS:
            server = Server(place, port)
            if port in {443, 8443}:
                server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()


def pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def lead(client):
    """Serve one client of the proxy, with the login: CONNECT, or a plain request with its whole address."""
    with client, contextlib.suppress(OSError):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1) or b"\r\n\r\n"
        asked, *fields = head.decode().splitlines()
        method, address, version = asked.split()
        authority, slash, path = address.removeprefix("http://").partition("/")
        host, port = authority.rsplit(":", 1) if ":" in authority else (authority, "80")
        hits.write(f"proxy {host}:{port}\n")
        if f"Proxy-Authorization: {LOGIN}" not in fields:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        if method == "CONNECT" and port != "443":
            client.sendall(b"HTTP/1.1 403 Access violation\r\n\r\n")
            return
        with socket.create_connection(("9.9.9.9" if host == "outside.test" else host, int(port))) as server:
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 OK\r\nVia: 1.1 company\r\n\r\n")
            else:
                kept = [field for field in fields if field and not field.startswith("Proxy-")]
                server.sendall("\r\n".join((f"{method} {slash}{path} {version}", *kept, "", "")).encode())
            back = threading.Thread(target=pump, args=(server, client))
            back.start()
            pump(client, server)
            back.join()


def be_the_proxy():
    """Lead whoever asks with the login to where he wants to go."""
    listener = socket.create_server(PROXY)
    while True:
        threading.Thread(target=lead, args=(listener.accept()[0],), daemon=True).start()


def be_the_others():
    """Serve all that isn't the machine's, until standard input ends."""
    serve(OTHERS)
    threading.Thread(target=be_the_proxy, daemon=True).start()
    speaker = None
    if node := shutil.which("node"):
        run("ip", "addr", "add", f"{H2}/32", "dev", "lo")
        speaker = subprocess.Popen([node, "-e", SPEAKER, directory / "cert.pem", H2], stdout=subprocess.PIPE)
        assert speaker.stdout.readline() == b"ready\n"
    print("listening", flush=True)
    assert sys.stdin.readline() == "connected\n"
    connect("far", CABLE[1])
    print("ready", flush=True)
    sys.stdin.read()
    if speaker is not None:
        speaker.kill()
    os._exit(0)


if sys.argv[2:] == ["others"]:
    be_the_others()
(directory / "hosts").write_text(HOSTS)
run("mount", "--bind", str(directory / "hosts"), "/etc/hosts")
serve(OWN)
others = subprocess.Popen(
    ["unshare", "--net", sys.executable, __file__, directory, "others"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
assert others.stdout.readline() == b"listening\n"
run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(others.pid))
connect("near", CABLE[0])
others.stdin.write(b"connected\n")
others.stdin.flush()
assert others.stdout.readline() == b"ready\n"
run("ip", "route", "add", "9.9.9.0/24", "via", "192.0.2.2")
run("ip", "route", "add", "198.18.0.0/15", "via", "192.0.2.2")
run("ip", "route", "add", "172.31.0.0/24", "via", "192.0.2.2")
run("ip", "-6", "route", "add", "2606:4700::/64", "via", "fd77::2")
(directory / "ready").touch()
sys.stdin.read()
others.stdin.close()
others.wait()
os._exit(0)
