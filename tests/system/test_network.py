"""The `filtered` network as agents find it: allowed names work with ordinary programs, all else fails fast and is told."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

WORLD = Path(__file__).with_name("world.py")
ALLOW = ("--network", "filtered", "--allow", "*.allowed.test", "--allow", "port.test:8443")


def prepare(site):
    """Put up a git repository, a Python package and a node one, as files that any web server can give out."""
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@t.test", "-C")
    (site / "source").mkdir(parents=True)
    (site / "source" / "hello").write_text("hello from git\n")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run([*git, site / "source", *command], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", site / "source", site / "repo.git"], check=True)
    subprocess.run([*git, site / "repo.git", "update-server-info"], check=True)
    (site / "simple" / "hi-there").mkdir(parents=True)
    wheel = "hi_there-1.0-py3-none-any.whl"
    (site / "simple" / "hi-there" / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    with zipfile.ZipFile(site / "simple" / "hi-there" / wheel, "w") as archive:
        archive.writestr("hi_there.py", "print('hello from pip')\n")
        about = "hi_there-1.0.dist-info/"
        archive.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: hi-there\nVersion: 1.0\n")
        archive.writestr(about + "WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(about + "RECORD", f"hi_there.py,,\n{about}METADATA,,\n{about}WHEEL,,\n{about}RECORD,,\n")
    (site / "npm").mkdir()
    with tarfile.open(site / "npm" / "hi.tgz", "w:gz") as archive:
        files = {"package.json": '{"name": "hi", "version": "1.0.0"}', "index.js": "console.log('hello from npm')"}
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    version = {"name": "hi", "version": "1.0.0", "dist": {"tarball": "https://www.allowed.test/site/npm/hi.tgz"}}
    package = {"name": "hi", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (site / "npm" / "hi").write_text(json.dumps(package))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small internet; gives the command that runs something in it, and who was connected to."""
    directory = tmp_path_factory.mktemp("world")
    certificate = shlex.split("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9")
    subprocess.run(
        [*certificate, "-subj", "/CN=www.allowed.test", "-addext", "subjectAltName=DNS:*.allowed.test",
         "-keyout", directory / "cert.pem", "-out", directory / "only.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    (directory / "cert.pem").write_text((directory / "cert.pem").read_text() + (directory / "only.pem").read_text())
    prepare(directory / "site")
    made = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    process = subprocess.Popen(
        ["unshare", *made, "--net", "--mount", sys.executable, WORLD, directory], stdin=subprocess.PIPE
    )
    while not (directory / "ready").exists():
        assert process.poll() is None
        time.sleep(0.01)
    joined = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
    yield ("nsenter", "--target", str(process.pid), *joined, "--net", "--mount"), directory
    process.stdin.close()
    process.wait()


BOTH_FORMS = pytest.mark.parametrize("form", ["transparent", "proxy"])
ONE_FORM = pytest.mark.parametrize("form", ["transparent", pytest.param("proxy", marks=pytest.mark.slow)])


@pytest.fixture
def form():
    """How the daemon makes filtered networks; `BOTH_FORMS` says otherwise."""
    return "transparent"


@pytest.fixture
def net(daemon, world, form):
    """A daemon in that internet."""
    daemon.prefix = world[0]
    return daemon.start(config=f'[sandbox]\nfiltered = "{form}"\n')


def run(daemon, name, *commands, options=ALLOW):
    """Run shell commands in an agent's sandbox, return what they printed."""
    if not (daemon.directory / "work").exists():
        daemon.workspace()
    script = "\n".join(f"/shell {command}" for command in commands)
    daemon.spawn(name, daemon.directory / "work", script + "\n", *options)
    return daemon.shell(name)


def told(daemon, name, kind):
    """What was decided, without the command that would have it otherwise."""
    return [event["text"].partition("; substratctl ")[0] for event in daemon.events(name, f"network:{kind}")]


CURL = "curl -sS --max-time 10 "


@BOTH_FORMS
def test_an_allowed_name_works(net, form):
    url = "http://www.allowed.test/"
    said = run(net, "anna", CURL + url, CURL + "-k https://www.allowed.test/", CURL + url)
    assert said.count("hello from 9.9.9.9") == 3, said
    assert sorted(told(net, "anna", "allowed")) == [
        "www.allowed.test:443: on the allow-list", "www.allowed.test:80: on the allow-list",
    ]  # fmt: skip
    assert told(net, "anna", "denied") == []
    assert net.network("anna")["form"] == form
    assert ("filtered (proxy" in net.ctl("show", "anna").out) == (form == "proxy")


@pytest.mark.slow
@BOTH_FORMS
def test_ipv6_and_ports(net, form):
    said = run(
        net, "anna", CURL + "http://six.allowed.test/", CURL + "-k https://port.test:8443/",
        CURL + "https://port.test/ 2>&1",
        CURL + "http://www.allowed.test:9000/ 2>&1",
    )  # fmt: skip
    assert "hello from 2606:4700::9" in said
    assert said.count("hello from 9.9.9.9") == 1, said
    refused = ["port.test:443: the name isn't allowed at this port"]
    if form == "proxy":  # in the other one the kernel refuses what no list names
        refused.append("www.allowed.test:9000: the name isn't allowed at this port")
    assert told(net, "anna", "denied") == refused


UNKNOWN = "53: the name isn't looked up: it isn't on the allow-list"
# fmt: off
REFUSED = {
    "http://evil.test/": "evil.test:" + UNKNOWN,
    "http://allowed.test/": "allowed.test:" + UNKNOWN,
    "http://www.allowed.test.evil.test/": "www.allowed.test.evil.test:" + UNKNOWN,
    "http://9.9.9.9/": "9.9.9.9:80: no allowed name has this address",
    "http://127.0.0.1/": "127.0.0.1:80: no allowed name has this address",
    "http://169.254.169.254/": "169.254.169.254:80: no allowed name has this address",
    "http://[2606:4700::9]/": "[2606:4700::9]:80: no allowed name has this address",
    "http://[::ffff:9.9.9.9]/": "9.9.9.9:80: no allowed name has this address",
    "http://[::1]/": "[::1]:80: no allowed name has this address",
    "http://198.18.77.77/": "198.18.77.77:80: no allowed name has this address",
    "http://inner.allowed.test/": "inner.allowed.test:80: it leads to 10.0.0.1, a private address",
    "http://loop.allowed.test/": "loop.allowed.test:80: it leads to 127.0.0.1, a loopback address",
    "http://meta.allowed.test/":
        "meta.allowed.test:80: it leads to 169.254.169.254, a link-local or metadata address",
    "http://mapped.allowed.test/": "mapped.allowed.test:80: it leads to 10.0.0.1, a private address",
    "-k --connect-to evil.test:443:www.allowed.test:443 https://evil.test/":
        "www.allowed.test:443: its TLS handshake names evil.test instead",
}
# fmt: on


@pytest.mark.slow
def test_what_is_refused(net, world):
    before = (world[1] / "hits").read_text()
    # The control: every place answers somebody who isn't in a sandbox.
    for place in ("9.9.9.9", "10.0.0.1", "127.0.0.1", "169.254.169.254", "[2606:4700::9]"):
        url = f"http://{place}/"
        done = subprocess.run([*world[0], "curl", "-sSg", url], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("hello from")
    controls = (world[1] / "hits").read_text()
    assert len(controls) > len(before)
    said = run(net, "anna", *(f"{CURL} -g {url} || echo refused" for url in REFUSED))
    assert "hello" not in said
    assert said.count("refused\n") >= len(REFUSED)
    assert "timed out" not in said
    denied = told(net, "anna", "denied")
    assert set(denied) >= set(REFUSED.values()), json.dumps(sorted(set(REFUSED.values()) - set(denied)))
    # The one with the wrong name got a connection to its allowed server, and not a byte through it.
    assert set((world[1] / "hits").read_text()[len(controls) :].split()) <= {"9.9.9.9:443"}


PROGRAMS = {
    "git": (
        "git clone -q https://www.allowed.test/site/repo.git cloned && cat cloned/hello",
        "git clone -q https://evil.test/site/repo.git other",
    ),
    "python3": (
        "python3 -m venv v; v/bin/pip install -i https://www.allowed.test/site/simple/ hi-there; v/bin/python -m hi_there",
        "v/bin/pip -q --retries 0 install --index-url https://evil.test/site/simple/ hello",
    ),
    "npm": (
        "npm install --registry https://www.allowed.test/site/npm/ hi; node node_modules/hi/index.js",
        "npm install --fetch-retries 0 --registry https://evil.test/site/npm/ other",
    ),
    "node": (
        """node -e 'fetch("https://www.allowed.test/").then(r => r.text()).then(t => console.log(t, "to node"))'""",
        """node -e 'fetch("https://evil.test/").then(r => r.text()).then(t => console.log(t))'""",
    ),
    "java": (
        "java Get.java http://www.allowed.test/",
        "java Get.java http://evil.test/",
    ),
    "curl": (
        "curl -sS --http2 -w '%{http_version}' https://h2.allowed.test/",
        "curl -sS --http2 https://evil.test/",
    ),
}


def understands_proxies(program):
    """Whether a program's version heeds what the proxy form sets: node's own `fetch` does since 22.21 and 24.5."""
    if program != "node":
        return True
    said = subprocess.run(["/usr/bin/node", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(map(int, said.strip().lstrip("v").split(".")[:2]))
    return version >= (24, 5) or (22, 21) <= version < (23, 0)


SAID = {"git": "hello from git", "python3": "hello from pip", "npm": "hello from npm", "node": "to node", "curl": "h2\n2",
        "java": "from 9.9.9.9 to java"}  # fmt: skip
GET_JAVA = """
public class Get {
    public static void main(String[] urls) throws Exception {
        try (var answer = new java.net.URL(urls[0]).openStream()) {
            System.out.println(new String(answer.readAllBytes()).strip() + " to java");
        }
    }
}
"""


@ONE_FORM
@pytest.mark.parametrize(
    "program", ["curl", *(pytest.param(one, marks=pytest.mark.slow) for one in PROGRAMS if one != "curl")]
)
def test_programs_work_unmodified(net, world, program, form):
    """They reach an allowed name over TLS and HTTP/2, and learn of a refusal at once."""
    if shutil.which(program, path="/usr/bin") is None or (program == "curl" and shutil.which("node") is None):
        pytest.skip(f"there is no {program}")
    if form == "proxy" and not understands_proxies(program):
        pytest.skip(f"this {program} doesn't heed HTTPS_PROXY")
    net.workspace()
    shutil.copy(world[1] / "only.pem", net.directory / "work")
    (net.directory / "work" / "Get.java").write_text(GET_JAVA)
    names = ("GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
    trust = f"export {' '.join(f'{name}=only.pem' for name in names)} "
    trust += "NO_UPDATE_NOTIFIER=1 npm_config_audit=false npm_config_cafile=only.pem; "
    works, fails = PROGRAMS[program]
    said = run(net, "anna", f"{trust} {works}; {fails} || echo refused")
    assert SAID[program] in said
    assert "refused\n" in said
    begin = "evil.test:53:" if form == "transparent" else "evil.test:"
    assert any(text.startswith(begin) for text in told(net, "anna", "denied"))
    if program != "git":  # what it has cloned outweighs that
        assert net.show("anna")["attention"]["text"].endswith("; refused evil.test: allow anna evil.test")
        assert "refused evil.test: allow anna evil.test" in net.ctl("ls").out
        net.ok("allow", "anna", "evil.test")
        assert "refused" not in net.ctl("ls").out, "the advice was followed"


def test_the_list_changes_while_a_command_runs(net, until):
    work = net.workspace()
    net.spawn("anna", work, "/say hi", *ALLOW)
    script = (
        f"{CURL} http://evil.test/ || touch one; while [ ! -e go ]; do sleep 0.02; done; {CURL} http://evil.test/ > two"
    )
    visit = net.follow("exec", "anna", "--", "sh", "-c", script)
    until((work / "one").exists, "the refusal")
    net.ok("allow", "anna", "evil.test")
    (work / "go").touch()
    assert visit.wait(20) == 0
    assert "hello from 9.9.9.9" in (work / "two").read_text()


def test_the_list_changes_while_a_turn_runs(net, until):
    work = net.workspace()
    waits = "while [ ! -e {0} ]; do sleep 0.02; done; "
    script = (
        f"{CURL} http://evil.test/ || touch one; {waits.format('go')} {CURL} http://evil.test/ > two; "
        f"{CURL} http://evil.test:9000/ --retry 20 --retry-delay 1 --retry-all-errors > three; "
        'python3 -c \'import socket; s = socket.create_connection(("www.allowed.test", 80)); open("held", "w"); '
        "print(s.recv(1))' 2> four; touch done"
    )
    net.ok("spawn", "anna", "-w", work, *ALLOW, "--prompt-file", "-", stdin=f"/shell {script}".encode())
    until((work / "one").exists, "the first refusal")
    assert net.ok("allow", "anna", "evil.test", "EVIL.test.:9000")["allow"][-2:] == ["evil.test", "evil.test:9000"]
    (work / "go").touch()
    until((work / "held").exists, "the third connection")
    assert "hello from 9.9.9.9" in (work / "two").read_text()
    assert "hello from 9.9.9.9" in (work / "three").read_text()
    left = net.ok("allow", "anna", "--remove", "*.allowed.test")["allow"]
    assert "*.allowed.test" not in left
    until((work / "done").exists, "the end of what isn't allowed any more")
    assert "ConnectionResetError" in (work / "four").read_text()
    net.wait("anna")
    shown = net.ctl("show", "anna").out
    assert "evil.test:9000: on the allow-list" in shown
    assert "www.allowed.test:80: it isn't allowed any more" in shown
    assert told(net, "anna", "changed") == ["+evil.test +evil.test:9000", "-*.allowed.test"]
    # The next turn, with another daemon, has the same list.
    net.kill()
    net.start()
    net.ok("send", "anna", f"/shell {CURL} http://www.allowed.test/ || echo refused", "--wait")
    assert "Could not resolve host: www.allowed.test" in net.shell("anna")


def test_a_list_is_changed_within_a_family(daemon):
    daemon.start()
    work = daemon.workspace()
    call = '/tool spawn_agent {"name": "kid", "prompt": "/say hi"}'
    daemon.spawn("anna", work, call, "--network", "filtered", "--allow", "one.test", "--allow", "two.test")
    daemon.wait("kid")
    refused = daemon.ctl("allow", "kid", "three.test")
    assert (refused.code, refused.error) == (
        1, "substratctl: kid can't have more than its parent anna: `substratctl allow anna …` first"
    )  # fmt: skip
    daemon.ok("allow", "anna", "--remove", "one.test")
    assert "one.test" not in daemon.ok("allow", "kid")["allow"]
    assert "two.test" in daemon.ok("allow", "kid")["allow"]
    for words, code, sentence in (
        (("anna", "--remove", "one.test"), 2, "'one.test' can't be taken off the list: it isn't on it"),
        (("anna", "no name"), 2, "can't be allowed"),
        (("nobody", "one.test"), 4, "there is no agent 'nobody'"),
    ):
        refused = daemon.ctl("allow", *words)
        assert (refused.code, sentence in refused.error) == (code, True), refused
    daemon.spawn("bert", work, "hello", "--network", "none")
    assert "has no list to change" in daemon.ctl("allow", "bert", "one.test").error
    daemon.ok("end", "anna")
    assert "has ended" in daemon.ctl("allow", "anna", "three.test").error


def test_an_address_may_be_named(net):
    allowed = ("127.0.0.1:9000", "inner.allowed.test", "10.0.0.1:80")
    options = ("--network", "filtered", *(word for place in allowed for word in ("--allow", place)))
    said = run(net, "anna", CURL + "http://127.0.0.1:9000/", CURL + "http://inner.allowed.test/", options=options)
    assert "hello from 127.0.0.1" in said
    assert "hello from 10.0.0.1" in said


def test_udp_and_other_name_servers_are_refused(net):
    script = (
        "import socket, struct\n"
        "q = struct.pack('!6H', 7, 256, 1, 0, 0, 0) + b'\\\\3www\\\\7allowed\\\\4test\\\\0\\\\0\\\\1\\\\0\\\\1'\n"
        "for place in (('198.18.0.1', 53), ('9.9.9.9', 53), ('9.9.9.9', 443)):\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(place); s.send(q)\n"
        "    try: print(place[0], len(s.recv(999)))\n"
        "    except OSError as problem: print(place[0], type(problem).__name__)\n"
    )
    net.workspace()
    (net.directory / "work" / "ask.py").write_text(script.replace("\\\\", "\\"))
    assert (
        run(net, "anna", "python3 ask.py")
        == "198.18.0.1 50\n9.9.9.9 ConnectionRefusedError\n9.9.9.9 ConnectionRefusedError\n"
    )


HANDSHAKE = r"""
import os, socket, ssl, sys, time
host, port = "www.allowed.test", 443
def connect():
    if "HTTPS_PROXY" not in os.environ:
        return socket.create_connection((host, port), 10)
    s = socket.create_connection(("127.0.0.1", 61280), 10)
    s.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    assert b" 200 " in s.recv(999)
    return s
def shake(name, first=b"", step=1 << 16):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    came, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = context.wrap_bio(came, said, server_hostname=name)
    with connect() as s:
        try:
            while True:
                try:
                    end.do_handshake()
                    return "done"
                except ssl.SSLWantReadError:
                    data, first = first + said.read(), b""
                    for at in range(0, len(data), step): s.sendall(data[at:at + step])
                    if not (piece := s.recv(1 << 16)): return "closed"
                    came.write(piece)
        except OSError as problem:
            return "closed" if isinstance(problem, ConnectionError) else type(problem).__name__
warning = b"\x15\3\1\0\2\1\0"
print(shake(host), shake("evil.test"), shake("evil.test", warning), shake(host, warning), shake("evil.test", warning, 60),
      shake(host, b"PROXY UNKNOWN\r\n"))
"""


@pytest.mark.slow
@ONE_FORM
def test_nothing_stands_before_a_hello(net, until):
    """In a fresh turn, in one that another daemon has taken over, and in a person's command."""
    work = net.workspace()
    (work / "shake.py").write_text(HANDSHAKE)
    wait = "touch ready; while [ ! -e go ]; do sleep 0.02; done"
    net.ok(
        "spawn", "anna", "-w", work, *ALLOW, "--prompt-file", "-",
        stdin=f"/shell python3 shake.py; {wait}; {CURL} --retry 20 --retry-delay 1 --retry-all-errors "
        f"http://www.allowed.test/; python3 shake.py".encode(),
    )  # fmt: skip
    until((work / "ready").exists)
    net.kill()
    net.start()
    (work / "go").touch()
    assert net.wait("anna")["turn"]["outcome"] == "success"
    expected = "done" + " closed" * 5
    lines = [line for line in net.shell("anna").splitlines() if "closed" in line]
    assert [line[line.index("done") :] for line in lines] == [expected, expected]
    assert net.ctl("exec", "anna", "--", "python3", "shake.py").out.strip() == expected
    denied = " ".join(told(net, "anna", "denied"))
    assert "www.allowed.test:443: its TLS handshake can't be read" in denied
    assert "www.allowed.test:443: its TLS handshake names evil.test instead" in denied


@pytest.mark.slow
def test_another_agent_has_none_of_its_listeners_and_keeps_no_daemon_from_entering_it(net, until):
    """An agent without a network that is started while one with a filtered network runs, and outlives the daemon too."""
    work, other = net.workspace(), net.workspace("other")
    waiting = f"/shell touch ready; while [ ! -e go ]; do sleep 0.02; done; {CURL} --retry 20 --retry-delay 1 "
    script = f"/shell {CURL} http://www.allowed.test/one\n{waiting}--retry-all-errors http://www.allowed.test/two"
    net.ok("spawn", "anna", "-w", work, *ALLOW, "--prompt-file", "-", stdin=script.encode())
    until((work / "ready").exists)
    looking = "/shell ls -l /proc/[0-9]*/fd; cat /proc/net/unix; touch looked; while [ ! -e go ]; do sleep 0.02; done"
    net.ok("spawn", "bert", "-w", other, "--network", "none", "--prompt-file", "-", stdin=looking.encode())
    until((other / "looked").exists)
    net.kill()
    net.start()
    (work / "go").touch()
    assert net.wait("anna")["turn"]["outcome"] == "success"
    assert net.shell("anna").count("hello from 9.9.9.9") == 2
    assert "a network can't be entered" not in net.log
    (other / "go").touch()
    net.wait("bert")
    seen = net.shell("bert")
    assert "stdout" in seen, "the control: it saw descriptors"
    # Its companion may be connected by then; that socket is of its own network, where proc_net(5) lists it.
    own = {line.split()[6] for line in seen.splitlines() if re.match("[0-9a-f]+: ", line)}
    assert set(re.findall(r"socket:\[(\d+)\]", seen)) <= own


@pytest.mark.slow
@BOTH_FORMS
def test_nothing_is_left(net, until):
    descriptors = Path(f"/proc/{net.process.pid}/fd")
    run(net, "anna", CURL + "http://www.allowed.test/")
    before = len(list(descriptors.iterdir()))
    run(net, "bert", CURL + "http://www.allowed.test/", CURL + "http://evil.test/")
    kept = 2  # of another worker that looks at files, which may be kept: its connection and its pidfd
    until(lambda: len(list(descriptors.iterdir())) <= before + kept, "the end of its descriptors")
    assert not net.sandboxed()


@BOTH_FORMS
def test_a_persons_command_has_the_agents_network(net, form):
    work = net.workspace()
    net.spawn("anna", work, None, *ALLOW)
    urls = ("www.allowed.test", "evil.test", "10.0.0.1", "inner.allowed.test")
    script = "; ".join(f"{CURL} http://{url}/" for url in urls)
    done = net.ctl("exec", "anna", "--", "sh", "-c", script)
    assert done.out.startswith("hello from 9.9.9.9")
    assert done.out.count("hello") == 1
    assert told(net, "anna", "allowed") == ["www.allowed.test:80: on the allow-list"]
    evil = "evil.test:" + UNKNOWN if form == "transparent" else "evil.test:80: it isn't on the allow-list"
    assert set(told(net, "anna", "denied")) >= {
        evil, "10.0.0.1:80: no allowed name has this address",
        "inner.allowed.test:80: it leads to 10.0.0.1, a private address",
    }  # fmt: skip
    assert {event["turn"] for event in net.events("anna") if event["kind"].startswith("network:")} == {None}
