"""A machine of the tests' own: Debian's systemd as the first process of namespaces, and the checkout installed in it."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.support import descriptors
from tests.support.optional import present
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("machine.sh")
PATIENCE = 30.0

SUITES = {"bookworm": ("3.11", 36), "trixie": ("3.13", 41)}
"""Debian's releases with the versions of Python and glibc in them. They have systemd 252, which can't let a service divide
its cgroup, and 257, which can."""
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd",
    "python3", "python3-venv", "bubblewrap", "git",
)  # fmt: skip
TOOLS = ("unshare", "nsenter", "setpriv", "mount", "pivot_root", "chroot")
INSTALLED = "/opt/substrat"
USER, UID = "anna", 1000
UNIT = "substratd.service"
DAYS_UNUSED = 30


# The file system that machines boot from


def _dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["web"]]


def _cache():
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(parent, "substrat-tests")


def _run(*command, **how):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **how)


def _last_line(done):
    return ((done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines())[-1]


def _need_tools():
    if os.geteuid() != 0:
        pytest.skip("only root can boot a systemd in namespaces with a root file system of its own")
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        pytest.skip(f"these programs, which make the machine, aren't installed here: {', '.join(missing)}")


def _need_debootstrap():
    if shutil.which("debootstrap") is None:
        if shutil.which("apt-get") is None:
            pytest.skip("debootstrap, which makes the machine's file system, isn't installed here and apt-get isn't either")
        _run("apt-get", "update", "-qq")
        done = _run("apt-get", "install", "-qq", "-y", "--no-install-recommends", "debootstrap", "debian-archive-keyring")
        if done.returncode != 0:
            pytest.skip(f"debootstrap can't be installed: {_last_line(done)}")


def _base(suite):
    """Return the base that machines boot from: Debian and Substrat's dependencies; made once and kept in the cache."""
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(repr((suite, PACKAGES, platform.machine(), _dependencies())).encode()).hexdigest()[:12]
    base = cache / f"systemd-{key}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not base.exists():
            _need_debootstrap()
            # The lock is ours, so an unfinished base was left by a run that was killed.
            for unfinished in cache.glob("systemd-*.part"):
                shutil.rmtree(unfinished)
            part = cache / f"systemd-{key}.part"
            try:
                _make_base(part, suite)
                part.rename(base)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        os.utime(base)
        for other in cache.glob("systemd-*"):
            if time.time() - other.stat().st_mtime > DAYS_UNUSED * 86400:
                shutil.rmtree(other)
    return base


def _make_base(part, suite):
    def do(*command):
        done = _run(*command)
        if done.returncode != 0:
            pytest.skip(f"the machine's file system can't be made: {command[0]}: {_last_line(done)}")

    # In namespaces, so that no mount and no process of its package scripts outlives it.
    alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
    do(*alone, "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, part, MIRROR)
    python, glibc = SUITES[suite]
    wheels = part / "wheels"
    libraries = [f"manylinux_2_{number}_{platform.machine()}" for number in range(5, glibc + 1)]
    platforms = [f"--platform={name}" for name in (*libraries, f"manylinux2014_{platform.machine()}")]
    # Fetched from outside, where pip is set up for the network that there is.
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--only-binary=:all:")
    do(*pip, f"--python-version={python}", "--implementation=cp", *platforms, "-d", wheels, *_dependencies())
    do(*alone, "chroot", part, "python3", "-m", "venv", INSTALLED)
    pip_inside = (f"{INSTALLED}/bin/pip", "--isolated", "install", "--quiet", "--no-index", "--no-deps")
    do(*alone, "chroot", part, *pip_inside, *(f"/wheels/{path.name}" for path in wheels.iterdir()))
    for clutter in (wheels, part / "var/cache/apt/archives", part / "var/lib/apt/lists", part / "usr/share/doc"):
        shutil.rmtree(clutter, ignore_errors=True)


@pytest.fixture(scope="session", params=SUITES)
def suite(request):
    """Which of Debian's releases the machine is."""
    return request.param


@pytest.fixture(scope="session")
def base(suite):
    _need_tools()
    return _base(suite)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The checkout as it would be installed."""
    target = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "-w", target, ".")
    done = _run(*pip, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (path,) = target.glob("*.whl")
    return path


# The machine


def _namespaces(pid):
    try:
        return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("pid", "net")}
    except OSError:
        return set()


def _removed(cgroup):
    """Remove a cgroup and those in it; returns whether it is gone. They are busy until their last process is buried."""
    for directory, _, _ in os.walk(cgroup, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return not cgroup.exists()


def _name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().removesuffix("\n")
    except OSError:
        return ""


class Machine:
    """A machine that can be booted, used, shut down and cut off, and of which nothing is left in the end."""

    def __init__(self, base, directory):
        self.name = f"substrat-test-{os.getpid()}"
        self._work = directory
        self._boots = 0
        self._boot = None
        self._init = None
        self._pinned = []
        # Ends by itself with the tests, however they end, because its standard input does.
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", SCRIPT, "hold", base, directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self._holder.stdout.readline() != "held\n":
            reason = self._holder.stderr.read().strip()
            self.remove()
            pytest.skip(f"this kernel or container doesn't let us make the machine's mounts: {reason}")
        self._clear_after_others()

    def boot(self):
        """Boot and wait until everything that starts at boot has been started."""
        self._boots += 1
        log = self._work.with_name(f"boot-{self._boots}.log")
        with log.open("wb") as output:
            # --pdeathsig: killed tests leave no machine. unshare takes its first process along.
            enter = ("setpriv", "--pdeathsig", "KILL", "nsenter", "-t", str(self._holder.pid), "-m")
            self._boot = subprocess.Popen(
                [*enter, "sh", SCRIPT, "boot", self._work, f"{self.name}-{self._boots}"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

        def first_process():
            if self._boot.poll() is not None:
                pytest.skip(f"this kernel or container doesn't let us make the machine's namespaces: {log.read_text()}")
            children = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children").read_text().split()
            with contextlib.suppress(OSError):
                return children and Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n" and int(children[0])
            return None

        self._init = wait_until(first_process, "systemd as the first process")
        # Held open, so that no other namespace gets their numbers before we have seen that no process is left.
        self._pinned += [os.open(f"/proc/{self._init}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("pid", "net")]
        descriptors.keep(*self._pinned)
        wait_until(lambda: self.path("/run/systemd/private").exists(), "systemd's socket")
        state = self.run("systemctl", "is-system-running", "--wait", check=False).stdout.strip()
        assert state == "running", self.run("systemctl", "--failed", "--no-pager").stdout
        return self

    @property
    def is_on(self):
        return self._init is not None

    def power_off(self):
        """Shut down in order."""
        self.run("systemctl", "poweroff")
        self._boot.wait(PATIENCE * 2)
        self._clear_away()

    def cut_power(self):
        """End every process at the same time."""
        os.kill(present(self._init), signal.SIGKILL)
        self._boot.wait(PATIENCE)
        self._clear_away()

    def path(self, path):
        """The machine's file as it is seen from here."""
        return Path(f"/proc/{self._init}/root{path}")

    def run(self, *command, user="root", check=True, stdin=""):
        """Run a command as a user who is logged in; the environment is built."""
        home = "/root" if user == "root" else f"/home/{user}"
        uid = 0 if user == "root" else UID
        path = f"{home}/.local/bin:{INSTALLED}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        environment = {
            "HOME": home, "USER": user, "LOGNAME": user, "LANG": "C.UTF-8", "PATH": path, "SYSTEMD_PAGER": "",
            "XDG_RUNTIME_DIR": f"/run/user/{uid}", "DBUS_SESSION_BUS_ADDRESS": f"unix:path=/run/user/{uid}/bus",
        }  # fmt: skip
        inside = ("nsenter", "-t", str(self._init), "-m", "-p", "-u", "-i", "-n", "-C")
        become = ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--init-groups", "env", "-i", "-C", home)
        pairs = [f"{name}={value}" for name, value in environment.items()]
        words = [*inside, *become, *pairs, *map(str, command)]
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False, timeout=PATIENCE * 2)
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def processes(self, name):
        """The machine's processes of some name, those in sandboxes too, as they are numbered here."""
        found = set()
        for group, _, _ in os.walk(self._cgroup):
            try:
                found |= {int(pid) for pid in Path(group, "cgroup.procs").read_text().split()}
            except OSError as problem:
                if problem.errno not in {errno.ENOENT, errno.ENODEV}:  # removed before it was opened, or since
                    raise
        return {pid for pid in found if _name(pid) == name}

    def wait_for_user(self, uid):
        """Wait until a user's own service manager has been started; this starts nothing."""
        words = ("systemctl", "show", "--value", "-p", "ActiveState", f"user@{uid}.service")
        wait_until(lambda: self.run(*words).stdout == "active\n", "the user's manager")

    def write(self, path, text, user="root"):
        """Write a file as a user."""
        self.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && cat > "$1"', "sh", path, user=user, stdin=text)

    def remove(self):
        """End and take away everything, and see that it is gone."""
        if self._boot is not None and self._boot.poll() is None:
            # Its parent sees its end and ends too. The other way round, its zombie would be the host's to bury.
            os.kill(self._init or self._boot.pid, signal.SIGKILL)
            self._boot.wait(PATIENCE)
        if self._holder.poll() is None:
            self._clear_away()
            self._holder.stdin.close()
        self._holder.wait(PATIENCE)
        for stream in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            stream.close()
        ours = {os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in self._pinned}
        left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _namespaces(pid) & ours]
        while self._pinned:
            os.close(self._pinned.pop())
        assert not left, "processes of the machine are left"
        self._work.rmdir()

    @property
    def _cgroups(self):
        return Path(f"/proc/{self._holder.pid}/root{self._work}/cgroup")

    @property
    def _cgroup(self):
        return self._cgroups / f"{self.name}-{self._boots}"

    def _clear_away(self):
        """Remove the cgroup of a boot that has ended."""
        self._init = None
        top = self._cgroup
        wait_until(lambda: _removed(top), "an empty cgroup")

    def _clear_after_others(self):
        """Remove the empty cgroups of tests that were killed: the one thing that doesn't end by itself."""
        for top in self._cgroups.glob("substrat-test-*-*"):
            if not os.path.exists(f"/proc/{top.name.split('-')[2]}"):
                _removed(top)


@pytest.fixture(scope="module")
def booted(base, wheel, tmp_path_factory):
    """A running machine with Substrat, and a user whose services need no login."""
    directory = tmp_path_factory.mktemp("machine") / "disk"
    directory.mkdir()
    machine = Machine(base, directory)
    try:
        machine.boot()
        machine.path(f"/root/{wheel.name}").write_bytes(wheel.read_bytes())
        machine.run(f"{INSTALLED}/bin/pip", "--isolated", "install", "-q", "--no-index", "--no-deps", f"/root/{wheel.name}")
        machine.run("useradd", "--create-home", "--uid", str(UID), USER)
        machine.run("loginctl", "enable-linger", USER)
        machine.wait_for_user(UID)
        probe = machine.run(
            "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true", user=USER, check=False
        )
        if probe.returncode != 0:
            pytest.skip(f"this kernel gives ordinary users no sandboxes inside of namespaces: {probe.stderr.strip()}")
        yield machine
    finally:
        machine.remove()


class Service:
    """Substrat on the machine, as its user has it."""

    def __init__(self, machine, user=USER, *, manager="--user"):
        self.machine = machine
        self.user = user
        self.manager = manager
        self._since = time.time_ns() // 1000
        self.home = "/root" if user == "root" else f"/home/{user}"

    def run(self, *command, **how):
        return self.machine.run(*command, user=self.user, **how)

    def ctl(self, *arguments, **how):
        return self.run("substratctl", *arguments, **how)

    def ok(self, *arguments, **how):
        return json.loads(self.ctl(*arguments, "--json", **how).stdout)

    def systemctl(self, *arguments, **how):
        user = self.user if self.manager == "--user" else "root"
        return self.machine.run("systemctl", self.manager, *arguments, user=user, **how)

    def show(self, *names, unit=UNIT):
        """Properties of the unit."""
        lines = self.systemctl("show", unit, *(f"--property={name}" for name in names)).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def value(self, name):
        return self.show(name)[name]

    @property
    def pid(self):
        return int(self.value("MainPID"))

    def wait_for(self, **properties):
        wait_until(lambda: self.show(*properties) == properties, f"{properties}")

    def journal(self):
        """Return the journal's entries of the unit since the test began, of the present boot alone."""
        lines = self.run("journalctl", self.manager, "-b", "-u", UNIT, "-o", "json").stdout.splitlines()
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if int(entry["__REALTIME_TIMESTAMP"]) >= self._since]

    def said(self):
        """Return the lines that the daemon logged, decoded."""
        return [json.loads(entry["MESSAGE"]) for entry in self.journal() if entry["_COMM"] == "substratd"]

    def configure(self, text):
        self.machine.write(f"{self.home}/.config/substrat/config.toml", text, self.user)

    def drop_in(self, text):
        self.machine.write(f"{self.home}/.config/systemd/user/{UNIT}.d/test.conf", text, self.user)
        self.systemctl("daemon-reload")

    def install(self):
        self.ctl("service", "install")
        return self

    def file(self, path):
        return self.machine.path(f"{self.home}/{path}")

    def exists(self, path):
        return self.file(path).exists()

    def touch(self, path):
        self.run("touch", f"{self.home}/{path}")

    def spawn(self, name, prompt):
        self.run("mkdir", "-p", f"{self.home}/{name}")
        self.ctl("spawn", name, "-w", f"{self.home}/{name}", "--prompt-file", "-", stdin=prompt)

    def held(self, name):
        """Spawn an agent whose turn runs until its workspace has the file `go`; returns it once it runs."""
        self.spawn(name, "/shell touch ready; while [ ! -e go ]; do sleep 0.02; done\n/say freed")
        wait_until(lambda: self.exists(f"{name}/ready"), f"the start of {name}")
        return self.ok("show", name)

    def wait(self, name):
        """Wait for an agent, also for one that has failed then (status 5); returns it."""
        done = self.ctl("wait", name, "--timeout", "20", "--json", check=False)
        assert done.returncode in {0, 5}, done
        return json.loads(done.stdout)

    def sandboxes(self):
        """The processes of bubblewrap that run on the machine, as they are numbered here."""
        return self.machine.processes("bwrap")

    def clear(self):
        """Take everything away, so that the next test finds the machine as if it were new."""
        if not self.machine.is_on:
            self.machine.boot()
            self.machine.wait_for_user(UID)
        self.systemctl("stop", UNIT, check=False)
        self.systemctl("disable", UNIT, check=False)
        for pid in self.sandboxes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.sandboxes(), "the end of all sandboxes")
        self.run("sh", "-c", "rm -rf ~/.local ~/.config ~/.cursor ~/[a-z]*")
        self.systemctl("daemon-reload")
        self.systemctl("reset-failed")


@pytest.fixture
def service(booted):
    """The service before it is installed; the stand-in is where the agent program's installer puts it, in ~/.local/bin."""
    service = Service(booted)
    service.run(
        "sh", "-c", f"mkdir -p ~/.local/bin && ln -s {INSTALLED}/bin/cursor-agent-standin ~/.local/bin/cursor-agent"
    )
    yield service
    service.clear()


@pytest.fixture
def root_service(booted):
    """The service of root, which has a user manager too once root lingers."""
    service = Service(booted, "root")
    service.configure(f'[agent]\nbinary = "{INSTALLED}/bin/cursor-agent-standin"\n')
    booted.run("loginctl", "enable-linger", "root")
    booted.wait_for_user(0)
    yield service
    service.clear()
    booted.run("loginctl", "disable-linger", "root")


@pytest.fixture
def system_service(booted):
    """The unit that would be installed for the user, put by hand where the system's units are."""
    service = Service(booted, manager="--system")
    service.configure(f'[agent]\nbinary = "{INSTALLED}/bin/cursor-agent-standin"\n')
    unit = service.ok("service", "install", "--dry-run")["text"]
    booted.write(f"/etc/systemd/system/{UNIT}", unit)
    extra = f"[Service]\nUser={USER}\nEnvironment=XDG_RUNTIME_DIR=/run/user/{UID}\n"
    order = f"[Unit]\nRequires=user-runtime-dir@{UID}.service\nAfter=user-runtime-dir@{UID}.service\n"
    booted.write(f"/etc/systemd/system/{UNIT}.d/user.conf", order + extra)
    booted.run("systemctl", "daemon-reload")
    yield service
    service.clear()
    booted.run("rm", "-r", f"/etc/systemd/system/{UNIT}", f"/etc/systemd/system/{UNIT}.d")
    booted.run("systemctl", "daemon-reload")


@pytest.fixture
def running(service):
    """The service, installed and started."""
    return service.install()
