"""The abilities of the host: bubblewraps of all kinds, made of scripts, and one real sandbox."""

import errno
import json
import os
import resource
import subprocess
import sys

import pytest

from sandbox import host, launch
from sandbox.host import Bubblewrap, find_bubblewrap, sandbox_obstacle
from sandbox.spec import Bind, Devices, Directory, Network, Processes, Spec, Tmpfs


@pytest.fixture
def fake(tmp_path):
    """Make a bubblewrap of a shell script."""

    def make(script, name="bwrap"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return str(path)

    return make


VERSIONS = [
    ("bubblewrap 0.8.0", (0, 8, 0), True),
    ("bubblewrap 0.11.0", (0, 11, 0), True),
    ("bubblewrap 1.0", (1, 0, 0), True),
    ("bubblewrap 0.7.9", (0, 7, 9), False),
    ("bubblewrap 0.4.1-custom", (0, 4, 1), False),
]


@pytest.mark.parametrize(("said", "version", "new_enough"), VERSIONS)
def test_the_version_of_one_that_is_named(fake, said, version, new_enough):
    path = fake(f"echo '{said}'\n")
    found = find_bubblewrap(path)
    assert found == Bubblewrap(path, version)
    assert found.new_enough is new_enough


@pytest.mark.parametrize(
    "script", ["echo bubblewrap\n", "exit 1\n", "echo 'bubblewrap 0.8.0'; exit 3\n", "printf '\\377\\376'\n", ""]
)
def test_another_program_is_no_bubblewrap(fake, script):
    assert find_bubblewrap(fake(script)) is None


def test_a_path_that_cannot_be_executed_is_none(tmp_path):
    for name, mode in (("garbage", 0o755), ("plain", 0o644)):
        (tmp_path / name).write_bytes(b"\x00\x01\x02")
        (tmp_path / name).chmod(mode)
    for path in (tmp_path, tmp_path / "garbage", tmp_path / "plain", tmp_path / "missing"):
        assert find_bubblewrap(str(path)) is None, path


def test_a_link_is_resolved(fake, tmp_path):
    real = fake("echo 'bubblewrap 0.9.0'\n")
    (tmp_path / "link").symlink_to(real)
    assert find_bubblewrap(str(tmp_path / "link")).path == real


def test_the_first_new_enough_one_on_the_path_counts(fake, tmp_path, monkeypatch):
    old = fake("echo 'bubblewrap 0.1.8'\n", "old/bwrap")
    monkeypatch.setenv("PATH", os.path.dirname(old))
    monkeypatch.setattr(host, "_wheel_bubblewrap", lambda: None)
    assert find_bubblewrap() == Bubblewrap(old, (0, 1, 8))
    new = fake("echo 'bubblewrap 0.11.0'\n", "new/bwrap")
    monkeypatch.setattr(host, "_wheel_bubblewrap", lambda: new)
    assert find_bubblewrap() == Bubblewrap(new, (0, 11, 0))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert find_bubblewrap() == Bubblewrap(new, (0, 11, 0))
    monkeypatch.setattr(host, "_wheel_bubblewrap", lambda: None)
    assert find_bubblewrap() is None


def test_one_that_is_named_has_no_substitute(fake, tmp_path, monkeypatch):
    new = fake("echo 'bubblewrap 0.11.0'\n", "new/bwrap")
    monkeypatch.setenv("PATH", os.path.dirname(new))
    assert find_bubblewrap(str(tmp_path / "missing")) is None


def test_an_obstacle_has_the_machines_reason_and_a_remedy(fake):
    path = fake("echo 'some noise' >&2; echo 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
    obstacle = sandbox_obstacle(Bubblewrap(path, (0, 8, 0)))
    assert obstacle.reason == "bwrap: No permissions to create a new namespace"
    assert obstacle.remedy
    for script, reason in (("exit 7", "exit status 7"), ("printf '\\377\\376\\n' >&2; exit 7", "\ufffd\ufffd")):
        assert sandbox_obstacle(Bubblewrap(fake(script + "\n"), (0, 8, 0))).reason == reason
    assert sandbox_obstacle(Bubblewrap(fake("exit 0\n"), (0, 8, 0))) is None


CUT_SHORT = {
    "killed": "kill -KILL $$\n",
    "what it ran was killed": "exit 137\n",
    "no process": "echo 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2; exit 1\n",
    "no memory": "echo 'clone: Cannot allocate memory' >&2; exit 1\n",
}


@pytest.mark.parametrize("script", CUT_SHORT.values(), ids=CUT_SHORT)
def test_a_look_that_is_cut_short_tells_nothing_of_the_machine(fake, script):
    found = Bubblewrap(fake(script), (0, 8, 0))
    with pytest.raises(host.LookCutShort):
        sandbox_obstacle(found)
    with pytest.raises(host.LookCutShort):
        host.filtered(found, sys.executable, "proxy")
    with pytest.raises(host.LookCutShort):
        find_bubblewrap(found.path)


@pytest.mark.parametrize("problem", [OSError(errno.EAGAIN, "no process"), subprocess.TimeoutExpired("bwrap", 20)], ids=repr)
def test_a_look_that_cannot_begin_or_end_tells_nothing_either(problem):
    def fail(_command):
        raise problem

    with pytest.raises(host.LookCutShort):
        sandbox_obstacle(Bubblewrap("/bwrap", (0, 8, 0)), fail)


def test_a_filter_of_system_calls_that_kills_is_a_fact(fake):
    assert sandbox_obstacle(Bubblewrap(fake("kill -SYS $$\n"), (0, 8, 0))) is not None


def test_a_bubblewrap_that_went_away(tmp_path):
    obstacle = sandbox_obstacle(Bubblewrap(str(tmp_path / "gone"), (0, 8, 0)))
    assert str(tmp_path / "gone") in obstacle.remedy


def test_system_mounts_show_programs_and_no_secrets():
    mounts = host.system_mounts()
    targets = {mount.target for mount in mounts}
    assert "/usr" in targets
    for secret in ("/etc", "/etc/passwd", "/etc/shadow", "/etc/ssh", "/etc/hosts", "/root", "/home", "/var", "/"):
        assert secret not in targets
    assert not any(isinstance(mount, Bind) and mount.writable for mount in mounts)


@pytest.mark.parametrize(
    ("path", "covered"), [("/usr/bin/env", True), ("/bin/sh", True), ("/usr", False), ("/home/x", False)]
)
def test_paths_that_the_system_covers(path, covered):
    assert host.system_covers(path) is covered


def test_a_link_out_of_the_system_is_not_covered(tmp_path):
    (tmp_path / "x").symlink_to("/usr/bin/env")
    (tmp_path / "file").touch()
    assert host.system_covers(str(tmp_path / "x"))
    assert not host.system_covers(str(tmp_path / "file"))


# One real sandbox

LOOK = """
import json, os, socket, subprocess
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def attempt(action):
    try: action()
    except OSError as problem: return problem.strerror
    return None
print(json.dumps({
    "caps": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privs": status["NoNewPrivs"], "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "host": socket.gethostname(), "environ": dict(os.environ), "cwd": os.getcwd(),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "root": attempt(lambda: open("/made", "w")), "shown": attempt(lambda: open("/shown/made", "w")),
    "work": attempt(lambda: open("/w/made", "w")), "hidden": os.path.exists("/shown/hidden/secret"),
    "namespace": subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode,
}))
"""


@pytest.fixture
def real():
    found = find_bubblewrap()
    if found is None or sandbox_obstacle(found) is not None:
        pytest.skip("no sandbox can be made here")
    return found


def run(real, spec):
    read, write = os.pipe()

    def keep_status():
        os.dup2(write, 3)

    with open(os.devnull) as nothing:
        done = subprocess.run(
            (real.path, "--json-status-fd", "3", *launch.command(real.path, spec)[1:]),
            stdin=nothing, capture_output=True, env=dict(spec.environment), timeout=30,
            pass_fds=(3,) if write == 3 else (), preexec_fn=keep_status, close_fds=False, check=False,
        )  # fmt: skip
    os.close(write)
    with open(read, "rb") as file:
        status = file.read()
    return done, status


@pytest.mark.parametrize("network", [Network.NONE, Network.HOST])
def test_a_real_sandbox(real, tmp_path, network):
    work, shown = tmp_path / "work", tmp_path / "shown"
    (shown / "hidden").mkdir(parents=True)
    (shown / "hidden" / "secret").touch()
    work.mkdir()
    mounts = (
        *host.system_mounts(), Processes(), Devices(), Tmpfs("/tmp", 1 << 20, 0o1777), Bind(str(work), "/w", writable=True),
        Bind(str(shown), "/shown"), Tmpfs("/shown/hidden", mode=0o700), Directory("/etc"),
    )  # fmt: skip
    command = ("/usr/bin/python3", "-I", "-S", "-c", LOOK)
    done, status = run(real, Spec(command, (("ONLY", "this"),), mounts, "/w", "bob", network))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert set(seen["caps"]) == {"0" * 16}
    assert seen["no_new_privs"] == "1"
    assert 1 in seen["pids"]
    assert len(seen["pids"]) <= 3
    assert seen["host"] == "bob"
    assert {name for name in seen["environ"] if not name.startswith(("LC_", "PWD"))} == {"ONLY"}
    assert seen["cwd"] == "/w"
    assert (seen["interfaces"] == ["lo"]) or network is Network.HOST
    assert seen["root"] == seen["shown"] == "Read-only file system"
    assert seen["work"] is None
    assert (work / "made").exists()
    assert seen["hidden"] is False
    assert seen["namespace"] != 0
    assert b'"child-pid"' in status
    assert b'"exit-code"' in status


def test_a_real_sandbox_passes_the_exit_code_on(real):
    spec = Spec(("/bin/sh", "-c", "exit 7"), (), host.system_mounts(), "/")
    done, status = run(real, spec)
    assert done.returncode == 7
    assert b'"exit-code": 7' in status


def test_an_optional_source_may_be_missing_and_another_not(real, tmp_path):
    gone = str(tmp_path / "gone")
    mounts = host.system_mounts()
    done, _ = run(real, Spec(("/bin/true",), (), (*mounts, Bind(gone, "/x", optional=True)), "/"))
    assert done.returncode == 0, done.stderr
    done, _ = run(real, Spec(("/bin/true",), (), (*mounts, Bind(gone, "/x")), "/"))
    assert done.returncode != 0
    assert gone.encode() in done.stderr


@pytest.mark.parametrize(
    ("release", "counted"), [("5.13.9", False), ("5.14.0-427.el9", True), ("6.18.44", True), ("4.19", False)]
)
def test_processes_are_limited_where_the_kernel_counts_them_for_each_sandbox(monkeypatch, release, counted):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", release, "v", "x86_64")))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, resource.RLIM_INFINITY))
    assert host.limits(1000, 100, 5) == (("core", 1), ("nofile", 1000), ("data", 5), *([("nproc", 100)] if counted else []))


def test_the_memory_of_a_process_may_be_unlimited():
    assert "data" in dict(host.limits(1000, 100, 5))
    assert "data" not in dict(host.limits(1000, 100, None))


def test_no_limit_is_above_the_daemons_own(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "6.1", "v", "x86_64")))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (0, {resource.RLIMIT_CORE: 0}.get(kind, 64)))
    assert host.limits(1000, 100, host.memory(0)) == (("core", 0), ("nofile", 64), ("data", 64), ("nproc", 64))
