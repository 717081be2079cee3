"""What a hostile program reaches that has no place in the file system: IPC by key or number, core dumps, other programs."""

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys

import pytest

from tests.redteam.hostile import INSIDE, TRIED, again, said


def outside(code, cwd):
    """Run the same code without a sandbox; returns what it left in `answer`."""
    source = f"import json, os, subprocess, sys\n{code}\nprint(json.dumps(answer))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", source], cwd=cwd, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


REACH = (
    TRIED
    + r"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
def call(function, *arguments):
    def do():
        done = function(*arguments)
        if done in (-1, None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "")
        return "reached"
    return tried(do)
one = json.load(open("objects"))
there = bytes(100)
answer = {
    "shared memory by key": call(libc.shmget, one["key"], 0, 0),
    "shared memory by number": call(libc.shmat, one["shm"], None, 0),
    "semaphores by key": call(libc.semget, one["key"], 0, 0),
    "semaphores by number": call(libc.semctl, one["sem"], 0, 12),
    "messages by key": call(libc.msgget, one["key"], 0),
    "messages by number": call(libc.msgsnd, one["msg"], ctypes.create_string_buffer(b"\1" + bytes(15)), 1, 0o4000),
    "a message queue": call(libc.mq_open, one["queue"].encode(), os.O_RDWR),
    "shared memory by name": tried(lambda: open("/dev/shm" + one["queue"]).read() and "reached"),
}
"""
)
IPC_CREAT, IPC_RMID = 0o1000, 0


@pytest.fixture
def objects():
    """Objects of the host's that everybody may use."""
    libc = ctypes.CDLL(None, use_errno=True)
    key, name = 0x53550000 + os.getpid() % 0xFFFF, f"/substrat-test-{os.getpid()}"
    shm = libc.shmget(key, 4096, IPC_CREAT | 0o666)
    sem = libc.semget(key, 1, IPC_CREAT | 0o666)
    msg = libc.msgget(key, IPC_CREAT | 0o666)
    queue = libc.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    with open(f"/dev/shm{name}", "w") as file:
        file.write("there")
    try:
        if -1 in {shm, sem, msg, queue}:
            pytest.skip("this kernel has no such objects")
        yield {"key": key, "shm": shm, "sem": sem, "msg": msg, "queue": name}
    finally:
        os.unlink(f"/dev/shm{name}")
        libc.mq_unlink(name.encode())
        libc.shmctl(shm, IPC_RMID, None)
        libc.semctl(sem, 0, IPC_RMID)
        libc.msgctl(msg, IPC_RMID, None)
        if queue != -1:
            os.close(queue)


def test_no_object_of_the_hosts_ipc_is_reached(hostile, objects):
    work = hostile.workspace()
    (work / "objects").write_text(json.dumps(objects))
    control = outside(REACH, work)
    assert set(control.values()) == {"reached"}, control
    for network in ("filtered", "host"):
        name = f"with-{network}"
        fresh = said(hostile.spawn(name, work, REACH, "--network", network))
        for found in (fresh, again(hostile, name, REACH)):
            assert "reached" not in found.values(), found


CRASH = (
    TRIED
    + """
import ctypes, mmap, platform, resource
SETRLIMIT, PRLIMIT = {"x86_64": (160, 302), "aarch64": (164, 261)}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
low = libc.mmap(ctypes.c_void_p(0x100000000), ctypes.c_size_t(4096), 3, 0x100022, -1, ctypes.c_long(0))
assert low == 0x100000000, "an address whose lower half is 0"
own, zero = resource.getrlimit(resource.RLIMIT_CORE), ctypes.c_void_p(0)
def by_setrlimit(value):
    ctypes.memmove(low, (ctypes.c_ulong * 2)(value, value), 16)
    return libc.syscall(SETRLIMIT, ctypes.c_long(resource.RLIMIT_CORE), ctypes.c_void_p(low))
def by_prlimit(value, pid=0):
    ctypes.memmove(low, (ctypes.c_ulong * 2)(value, value), 16)
    return libc.syscall(PRLIMIT, ctypes.c_long(pid), ctypes.c_long(resource.RLIMIT_CORE), ctypes.c_void_p(low), zero)
def by_prlimit_of_another(value):
    return by_prlimit(value, os.getppid())
def by_libc(value):
    try:
        return resource.setrlimit(resource.RLIMIT_CORE, (value, own[1])) or 0
    except (OSError, ValueError):
        return -1
def crash():
    # A process of its own: a hard limit that was lowered can't be raised again.
    child = os.fork()
    if child == 0:
        os.abort()
    return os.WCOREDUMP(os.waitpid(child, 0)[1])
answer = {"limits": [], "said": [], "dumped": []}
for how in (by_setrlimit, by_prlimit, by_prlimit_of_another, by_libc):
    for value in (0, (1 << 64) - 1 if how is not by_libc else resource.RLIM_INFINITY):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            done = how(value)
            os.write(writing, json.dumps([done, resource.getrlimit(resource.RLIMIT_CORE), crash()]).encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        done, limits, dumped = json.loads(os.read(reading, 4096))
        answer["said"].append(done)
        answer["limits"].append(limits)
        answer["dumped"].append(dumped)
answer["files"] = [name for name in os.listdir(".") if name.startswith("core")]
"""
)


def test_a_crash_leaves_no_core_and_makes_the_host_run_nothing(hostile, tmp_path):
    """Neither a file nor a pipe to a program of the host's (core(5)), which would run outside, with the host's rights."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] not in {resource.RLIM_INFINITY} and os.geteuid() != 0:
        pytest.skip("core dumps are forbidden to this user anyway")
    control = outside(CRASH, tmp_path)
    assert [0, 0] in control["limits"], "the control: it can be lowered"
    work = hostile.workspace()
    for found in (said(hostile.spawn("anna", work, CRASH)), again(hostile, "anna", CRASH)):
        assert found == {"limits": [[1, 1]] * 8, "said": [0] * 8, "dumped": [False] * 8, "files": []}
    if not any(control["dumped"]):
        pytest.skip("this machine dumps no cores outside either")


FEXECVE = (
    TRIED
    + """
answer = []
for how in ("path", "descriptor", "memory"):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        program = os.open("other", os.O_RDONLY)
        if how == "memory":
            copied = os.memfd_create("other", 0)
            os.write(copied, os.read(program, 1 << 24))
            try:
                os.fchmod(copied, 0o6755)
            except PermissionError:
                pass  # inside; then it isn't set-id, and executed as what it is
            program = os.open(f"/proc/self/fd/{copied}", os.O_RDONLY)
            os.close(copied)
        os.execve("./other" if how == "path" else program, ["id", "-u"], {})
    os.close(writing)
    answer.append(os.read(reading, 99).decode().strip())
    os.close(reading)
    os.waitpid(child, 0)
"""
)


def test_no_way_of_executing_gives_another_user(hostile):
    """By its path, by a descriptor (fexecve(3)), and out of memory; the program is another user's, and set-id."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a program to another user")
    work = hostile.workspace()
    shutil.copy("/usr/bin/id", work / "other")
    os.chown(work / "other", 65534, 65534)
    (work / "other").chmod(0o6755)
    control = outside(FEXECVE, work)
    if control[0] != "65534":
        pytest.skip(f"{work} is mounted without setuid")
    assert control[:2] == ["65534"] * 2, control
    for found in (said(hostile.spawn("anna", work, FEXECVE)), again(hostile, "anna", FEXECVE)):
        assert found == [str(INSIDE[0])] * 3, found


CAPABILITY = (
    TRIED
    + """
import shutil
shutil.copy("/usr/bin/id", "mine")
# cap_sys_admin, permitted and effective (linux/capability.h: struct vfs_cap_data, revision 2)
capability = bytes.fromhex("0100000200002000000000000000000000000000")
answer = tried(lambda: os.setxattr("mine", "security.capability", capability))
"""
)


def test_no_file_of_its_own_is_given_capabilities(hostile, tmp_path):
    if os.geteuid() == 0:
        assert outside(CAPABILITY, tmp_path) is None, "the control: root gives them outside"
    work = hostile.workspace()
    for found in (said(hostile.spawn("anna", work, CAPABILITY)), again(hostile, "anna", CAPABILITY)):
        assert found in {"ENOTSUP", "EOPNOTSUPP"}
        assert "security.capability" not in os.listxattr(work / "mine")
