"""Agents in a company: its proxy, its authority, its own hosts and networks, variables and tools, ssh."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from substrat.daemon.sandboxes.authorities import ADDED, BUNDLES
from tests.system.test_network import BOTH_FORMS, CURL, form, world  # noqa: F401 - fixtures

PROXY = "http://me:s3cret@9.9.9.9:3128"
SECRET = "token-of-nobody"


@pytest.fixture
def company(daemon, world, form):  # noqa: F811 - fixtures
    """Starts a daemon in that internet with further lines of configuration for `[sandbox]`."""

    def start(lines="", more="", prefix=()):
        daemon.prefix = (*world[0], *prefix)
        return daemon.start(config=f'[sandbox]\nfiltered = "{form}"\n{lines}\n{more}')

    return start


def told(daemon, name, kind):
    return [event["text"] for event in daemon.events(name, f"network:{kind}")]


def run(daemon, name, *commands, options):
    script = "\n".join(f"/shell {command}" for command in commands)
    daemon.spawn(name, daemon.workspace(name), script + "\n", "--network", "filtered", *options)
    return daemon.shell(name)


@BOTH_FORMS
def test_allowed_names_are_reached_through_the_companys_proxy(company, world):  # noqa: F811
    daemon = company(f'upstream_proxy = "{PROXY}"')
    (world[1] / "hits").write_text("")
    urls = ("http://outside.test/", "-k https://www.allowed.test/", "http://corp.test/", "http://evil.test/")
    options = ("--allow", "outside.test", "--allow", "*.allowed.test", "--allow", "corp.test=private")
    said = run(daemon, "anna", *(CURL + url for url in urls), options=options)
    assert said.count("hello from 9.9.9.9") == 2, said
    assert "hello from 172.31.0.9" in said
    hits = (world[1] / "hits").read_text().splitlines()
    assert "proxy outside.test:80" in hits
    assert "proxy www.allowed.test:443" in hits
    assert not any("corp.test" in hit or "evil.test" in hit for hit in hits)
    assert "outside.test:80: on the allow-list, through the upstream proxy" in told(daemon, "anna", "allowed")
    # The login is nobody's business.
    assert "s3cret" not in daemon.log + str(daemon.events("anna")) + str(daemon.ok("show", "anna"))


@pytest.mark.slow
@BOTH_FORMS
def test_a_proxy_that_refuses_or_is_down_is_told(company):
    daemon = company('upstream_proxy = "http://9.9.9.9:3128"')
    commands = (f"{CURL}http://outside.test", f"{CURL}https://outside.test")
    run(daemon, "anna", *commands, options=("--allow", "outside.test"))
    said = told(daemon, "anna", "denied")
    for port, denied in zip((80, 443), said, strict=True):
        assert denied.startswith(
            f"outside.test:{port}: the upstream proxy 9.9.9.9:3128 doesn't lead there: it refuses the login"
        )
    daemon.stop()
    company('upstream_proxy = "http://9.9.9.9:3129"')
    run(daemon, "bert", *commands, options=("--allow", "outside.test"))
    assert told(daemon, "bert", "denied") == [
        f"outside.test:{port}: the upstream proxy 9.9.9.9:3129 can't be reached: no address answered: Connection refused"
        for port in (80, 443)
    ]
    assert told(daemon, "bert", "allowed") == []


@BOTH_FORMS
def test_a_body_goes_through_the_proxy_and_another_protocol_is_asked_for_by_connect(company, form):  # noqa: F811
    daemon = company(f'upstream_proxy = "{PROXY}"')
    sent = "seq 100000 | curl -sS --max-time 10 --data-binary @- http://outside.test/"
    twice = CURL + "http://outside.test/ http://outside.test/"
    other = "printf '\\001' | curl -sS --max-time 10 telnet://outside.test:80"
    pipelined = (
        "printf 'GET / HTTP/1.1\\r\\nHost: outside.test\\r\\n\\r\\n%.0s' 1 2 | curl -sS -m 10 telnet://outside.test:80"
    )
    said = run(daemon, "anna", sent, twice, other, pipelined, options=("--allow", "outside.test"))
    assert "got 588895" in said
    assert said.count("hello from 9.9.9.9") == (3 if form == "transparent" else 2)
    if form == "transparent":  # telnet knows no proxy
        (denied,) = told(daemon, "anna", "denied")
        assert denied.endswith("doesn't lead there: it refuses the host or the port (403 Access violation)")


@BOTH_FORMS
def test_private_hosts_and_networks_are_reached_where_the_list_says_so(company):
    daemon = company()
    commands = (CURL + "http://corp.test/", CURL + "http://fake.allowed.test/")
    said = run(daemon, "anna", *commands, options=("--allow", "corp.test", "--allow", "*.allowed.test"))
    assert "hello" not in said
    assert told(daemon, "anna", "denied") == [
        "corp.test:80: it leads to 172.31.0.9, a private address; substratctl allow anna corp.test=private",
        "fake.allowed.test:80: it leads to 198.18.0.9, a benchmarking address; substratctl allow anna 198.18.0.0/15",
    ]
    daemon.ok("allow", "anna", "corp.test=private")
    daemon.ok("allow", "anna", "198.18.0.0/15")
    more = (*commands, CURL + "http://198.18.0.9/")
    daemon.ok("send", "anna", "\n".join(f"/shell {command}" for command in more), "--wait")
    said = daemon.shell("anna")
    assert "hello from 172.31.0.9" in said
    assert "hello from 198.18.0.9" in said
    assert said.count("hello") == 2
    # Addresses that a proxy's resolver makes up are reached by names alone.
    assert "198.18.0.9:80: no allowed name has this address" in told(daemon, "anna", "denied")[-1]
    options = ("--allow", "172.16.0.0/12", "--allow", "10.0.0.0/8", "--allow", "0.0.0.0/0")
    hosts = ("172.31.0.9", "172.31.0.9:9000", "10.0.0.1", "169.254.169.254")
    said = run(daemon, "bert", *(f"{CURL}http://{host}/" for host in hosts), options=options)
    # Not this machine's own address, nor the metadata, though their networks are on the list; nor another port.
    assert said.count("hello") == 1
    assert "hello from 172.31.0.9" in said


def test_a_network_that_lets_nothing_through_is_refused(daemon):
    daemon.start()
    refused = daemon.ctl("spawn", "anna", "-w", daemon.workspace(), "--allow", "169.254.0.0/16")
    assert refused.code == 2
    assert "each address there is a link-local or metadata address, which no network lets through" in refused.error


def test_a_companys_authority_is_trusted_by_every_tool(company, world):  # noqa: F811
    daemon = company(f'ca = "{world[1] / "only.pem"}"')
    options = ("--allow", "*.allowed.test")
    python = "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://www.allowed.test/\").read())'"
    git = "git ls-remote https://www.allowed.test/site/repo.git"
    said = run(
        daemon, "anna", CURL + "https://www.allowed.test/", python, git, "head -c 27 $SSL_CERT_FILE", options=options
    )
    assert said.count("hello from 9.9.9.9") == 2, said
    assert "refs/heads/" in said
    assert "-----BEGIN CERTIFICATE-----" in said


def test_an_authority_of_the_machines_bundle_is_trusted_by_programs_that_bring_their_own(company, world):  # noqa: F811
    bundle = next(path for path in BUNDLES if os.path.isfile(path))
    added = next(path for path in ADDED if os.path.isdir(path))
    both = world[1] / "both.pem"
    both.write_bytes(Path(bundle).read_bytes() + (world[1] / "only.pem").read_bytes())
    mounts = f"mount --bind {both} {bundle} && mount --bind {world[1] / 'site'} {added}"
    daemon = company(prefix=("unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"))
    node = """node -e 'fetch("https://www.allowed.test/").then(r => r.text()).then(t => console.log(t))'"""
    python = "python3 -c 'from pip._vendor import requests as r; print(r.get(\"https://www.allowed.test/\").text)'"
    said = run(daemon, "anna", node, python, options=("--allow", "*.allowed.test"))
    assert said.count("hello from 9.9.9.9") == 2, said


def test_an_authority_that_is_none_is_refused_with_its_file(daemon):
    (daemon.directory / "ca.pem").write_text("nothing")
    daemon.start(config=f'[sandbox]\nca = "{daemon.directory}/ca.pem"\n')
    refused = daemon.ctl("spawn", "anna", "-w", daemon.workspace(), "hi")
    assert refused.code == 1
    assert f"sandbox.ca: {daemon.directory}/ca.pem isn't a file of certificates" in refused.error


def test_variables_and_tools_reach_agents_and_values_nobody_else(daemon):
    tools = daemon.directory / "tools"
    tools.mkdir()
    (tools / "ours").write_text("#!/bin/sh\necho our own tool\n")
    (tools / "ours").chmod(0o755)
    daemon.start(config=f'[agent]\npath = ["{tools}"]\nenv = {{ BOTH = "config", CONFIGURED = "{SECRET}-1" }}\n')
    environment = daemon.environment(SUBSTRAT_SOCKET=str(daemon.socket), TAKEN=f"{SECRET}-3")
    given = ("--env", f"GIVEN={SECRET}-2", "--env", "TAKEN", "--env", "BOTH=spawn")
    script = "/shell ours; echo $BOTH $GIVEN $TAKEN | rev\n"
    daemon.spawn("anna", daemon.workspace(), script, *given, environment=environment)
    said = daemon.shell("anna")
    assert "our own tool" in said
    assert f"spawn {SECRET}-2 {SECRET}-3"[::-1] in said
    shown = daemon.ok("show", "anna")
    assert shown["environment"] == ["BOTH", "GIVEN", "TAKEN"]
    with daemon.wire() as wire:
        explained = wire.call("agent.explain", agent="anna")
    assert explained["environment"]["CONFIGURED"] == explained["environment"]["GIVEN"] == "…"
    rest = str((shown, explained, daemon.ok("ls"), daemon.log))
    assert SECRET not in rest
    # And after a restart; in a command too.
    daemon.stop()
    daemon.start(config="")
    assert daemon.ctl("exec", "anna", "--", "sh", "-c", "echo $GIVEN | rev").out.strip() == f"{SECRET}-2"[::-1]


def test_variables_reach_the_program_and_not_what_starts_its_sandbox(daemon, until):
    """A loader on the host would take libraries from where the agent can write."""
    daemon.start()
    work = daemon.workspace()
    script = "/shell touch ready; echo $LD_LIBRARY_PATH; while [ ! -e go ]; do sleep 0.05; done"
    daemon.ok("spawn", "anna", "-w", work, "--network", "filtered", "--env", f"LD_LIBRARY_PATH={work}/lib", script)
    until((work / "ready").exists, "the command")
    outer = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()
    assert outer
    for pid in outer:
        assert (
            b"LD_LIBRARY_PATH" not in Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    (work / "go").touch()
    daemon.wait("anna", "idle")
    assert f"{work}/lib" in daemon.shell("anna")


def test_an_ssh_agent_where_agents_may_write_is_refused_and_one_replaced_by_a_link_is_not_asked(daemon):
    daemon.start()
    work, place = daemon.workspace(), daemon.directory / "a.sock"
    listeners = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for listener, path in zip(listeners, (work / "a.sock", place), strict=True):
        listener.bind(os.path.relpath(path))
        listener.listen()
    environment = daemon.environment(SUBSTRAT_SOCKET=str(daemon.socket))
    refused = daemon.ctl(
        "spawn", "x", "-w", work, "--ssh-agent", environment={**environment, "SSH_AUTH_SOCK": str(work / "a.sock")}
    )
    assert (refused.code, "where agents may write" in refused.error) == (2, True), refused
    daemon.ok("spawn", "anna", "-w", work, "--ssh-agent", environment={**environment, "SSH_AUTH_SOCK": str(place)})
    assert f"{place}: it can list its keys" in daemon.ctl("show", "anna").out
    place.unlink()
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(os.path.relpath(daemon.directory / "another.sock"))
        another.listen()
        another.setblocking(False)
        place.symlink_to(daemon.directory / "another.sock")
        daemon.ok("send", "anna", "/shell ssh-add -l", "--wait")
        with pytest.raises(BlockingIOError):
            another.accept()
    assert f"{place}: it is gone, so nothing is signed" in daemon.ctl("show", "anna").out
    for listener in listeners:
        listener.close()


def test_nobody_without_them_works_where_he_could_write_the_rules_of_one_with_variables(daemon):
    daemon.start()
    work = daemon.workspace()
    (work / "inner").mkdir()
    daemon.ok("spawn", "anna", "-w", work / "inner", "--env", f"A={SECRET}")
    refused = daemon.ctl("spawn", "bert", "-w", work)
    assert refused.code == 1
    assert "which has less than anna" in refused.error
    assert SECRET not in refused.error
    daemon.ok("spawn", "bert", "-w", work, "--env", f"A={SECRET}")


def test_a_variable_that_cannot_be_given(shared):
    work = shared.workspace()
    for given, words in (
        ("HOME=/", "HOME is set by Substrat itself"), ("SUBSTRAT_SOCKET=x", "is set by Substrat itself"),
        ("1A=x", "can't be a variable's name"), ("NOBODY_HAS_THIS", "there is no such variable here"),
    ):  # fmt: skip
        refused = shared.ctl("spawn", "anna", "-w", work, "--env", given, "hi")
        assert refused.code == 2
        assert words in refused.error
        assert "x" not in refused.error.split() or given == "1A=x"


ODD_REQUESTS = """
import os, socket

def ask(message):
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(os.environ["SSH_AUTH_SOCK"])
        door.sendall(len(message).to_bytes(4, "big") + message)
        return door.recv(1000)[4]

text = lambda words: len(words).to_bytes(4, "big") + words
extensions = [bytes([27]) + text(name) for name in (b"query", b"session-bind", b"session-bind@openssh.com2")]
answers = {ask(bytes([kind]) + text(b"x")) for kind in range(256) if kind not in (11, 13, 27)}
print("answers", sorted(answers | {ask(extension) for extension in extensions} | {ask(b"")}))
"""


def test_an_agent_signs_with_the_persons_ssh_agent(daemon):
    key, place = daemon.directory / "key", daemon.directory / "agent.sock"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "person", "-f", key], check=True)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.DEVNULL)
    environment = daemon.environment(SUBSTRAT_SOCKET=str(daemon.socket), SSH_AUTH_SOCK=str(place))
    try:
        while subprocess.run(["ssh-add", "-q", key], env=environment, capture_output=True, check=False).returncode:
            assert agent.poll() is None
        daemon.start()
        daemon.spawn("anna", daemon.workspace(), "/shell ssh-add -l; ls -A ~/.ssh", "--ssh-agent", environment=environment)
        assert "person (ED25519)" in daemon.shell("anna")
        assert "id_" not in daemon.shell("anna")
        assert daemon.ctl("exec", "anna", "--", "ssh-add", "-l").code == 0
        daemon.kill()
        daemon.start()
        work = daemon.directory / "work"
        (work / "key.pub").write_bytes((daemon.directory / "key.pub").read_bytes())
        (work / "odd.py").write_text(ODD_REQUESTS)
        sign = "echo words > text; ssh-keygen -q -Y sign -f key.pub -n file text && ls text.sig"
        daemon.ok("send", "anna", f"/shell {sign}; python3 odd.py; ssh-add -D; ssh-add -d key.pub", "--wait")
        assert "text.sig" in daemon.shell("anna")
        assert "answers [5]" in daemon.shell("anna"), "each is refused"
        keys = subprocess.run(["ssh-add", "-l"], env=environment, capture_output=True, text=True, check=True).stdout
        assert "person (ED25519)" in keys, "the control: it isn't locked and has its key"
        daemon.spawn("bert", daemon.workspace("b"), "/shell ssh-add -l 2>&1; echo [$SSH_AUTH_SOCK]")
        assert "[]" in daemon.shell("bert")
        work = daemon.workspace("c")
        for odd in (daemon.directory / "key", daemon.socket, daemon.directory / "none"):
            refused = daemon.ctl(
                "spawn", "c", "-w", work, "--ssh-agent", environment={**environment, "SSH_AUTH_SOCK": str(odd)}
            )
            assert refused.code == 2
            assert "isn't an ssh-agent's socket" in refused.error
    finally:
        agent.terminate()
        agent.wait()
    # It has gone: the turn runs all the same.
    daemon.ok("send", "anna", "/shell ssh-add -l || echo none", "--wait")
    assert "none" in daemon.shell("anna")


def test_a_preset_is_what_its_tools_need(shared):
    shared.spawn("anna", shared.workspace(), None, "--allow", "@python", "--allow", "@git")
    allow = shared.network("anna")["allow"]
    assert {"pypi.org", "files.pythonhosted.org", "github.com", "github.com:22"} <= set(allow)
    shared.ok("allow", "anna", "--remove", "@python")
    assert "pypi.org" not in shared.network("anna")["allow"]
    refused = shared.ctl("allow", "anna", "@pyhton")
    assert refused.code == 2
    assert "there is no such preset; there are @python, @npm, @git, @cargo, @go" in refused.error
