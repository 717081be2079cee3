"""What a hostile program tries on the kernel, each attempt in a process of its own; prints what came of each as JSON.

It runs in the sandbox, and outside of it as the control. Outside it may run as root, so every argument is one that the
kernel refuses only after it has seen that the caller may: a bad pointer, a bad descriptor, a number that means nothing.

Usage: attempts.py NUMBERS.json
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import sys
import termios
from pathlib import Path

BAD, NOTHING = -1, 0
POINTER = 1  # to nothing: EFAULT
NEW_USER, NEW_NET, NEW_MOUNT, NEW_IPC, NEW_PID = 0x10000000, 0x40000000, 0x00020000, 0x08000000, 0x20000000
# getpid of 32-bit programs: mov eax, 20; int 0x80; ret
INT_80 = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
numbers: dict[str, int] = {}


def call(number, *arguments):
    done = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if done == -1:
        return errno.errorcode[ctypes.get_errno()]
    return "ok"


def named(name, *arguments):
    return lambda: call(numbers[name], *arguments) if numbers.get(name) is not None else "no such call"


def clone(flags):
    def attempt():
        child = libc.syscall(
            ctypes.c_long(numbers["clone"]), ctypes.c_long(flags | signal.SIGCHLD), *[ctypes.c_long(0)] * 4
        )
        if child == 0:
            os._exit(0)
        if child == -1:
            return errno.errorcode[ctypes.get_errno()]
        os.waitpid(child, 0)
        return "ok"

    return attempt


def type_into_terminal(request):
    def attempt():
        os.setsid()
        _, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        fcntl.ioctl(terminal, request, b"x")
        return "ok"

    return attempt


def opened(*how):
    return lambda: "ok" if socket.socket(*how) else "nothing"


def machine_code():
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(INT_80)
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return "ok" if function() > 0 else "nothing"


def writable(path):
    """Open only: outside nothing is written."""
    return lambda: "ok" if os.open(path, os.O_WRONLY) >= 0 else "nothing"


ATTEMPTS = {
    "namespaces": {
        "unshare user": named("unshare", NEW_USER),
        "unshare net": named("unshare", NEW_NET),
        "unshare mount": named("unshare", NEW_MOUNT),
        "clone user": clone(NEW_USER),
        "clone net": clone(NEW_USER | NEW_NET),
        "clone3": named("clone3", NOTHING, NOTHING),
        "clone ipc": clone(NEW_USER | NEW_IPC),
        "clone pid": clone(NEW_USER | NEW_PID),
        "setns": named("setns", BAD, NOTHING),
        "mount": named("mount", POINTER, POINTER, POINTER, NOTHING, POINTER),
        "umount2": named("umount2", POINTER, NOTHING),
        "pivot_root": named("pivot_root", POINTER, POINTER),
        "chroot": named("chroot", POINTER),
        "open_tree": named("open_tree", BAD, POINTER, NOTHING),
        "move_mount": named("move_mount", BAD, POINTER, BAD, POINTER, NOTHING),
        "fsopen": named("fsopen", POINTER, NOTHING),
        "fsconfig": named("fsconfig", BAD, NOTHING, NOTHING, NOTHING, NOTHING),
        "fsmount": named("fsmount", BAD, NOTHING, NOTHING),
        "fspick": named("fspick", BAD, POINTER, NOTHING),
        "mount_setattr": named("mount_setattr", BAD, POINTER, NOTHING, POINTER, NOTHING),
        "name_to_handle_at": named("name_to_handle_at", BAD, POINTER, POINTER, POINTER, NOTHING),
        "open_by_handle_at": named("open_by_handle_at", BAD, POINTER, NOTHING),
        "open_tree_attr": named("open_tree_attr", BAD, POINTER, NOTHING, NOTHING, NOTHING),
        "fanotify_init": named("fanotify_init", -1, NOTHING),
    },
    "processes": {
        "ptrace me": named("ptrace", 0, NOTHING, NOTHING, NOTHING),
        "process_vm_readv": lambda: call(numbers["process_vm_readv"], os.getpid(), 0, 0, 0, 0, 0),
        "process_vm_writev": lambda: call(numbers["process_vm_writev"], os.getpid(), 0, 0, 0, 0, 0),
        "pidfd_getfd": named("pidfd_getfd", BAD, NOTHING, NOTHING),
        "kcmp": lambda: call(numbers["kcmp"], os.getpid(), os.getpid(), 0, 0, 0),
    },
    "the kernel": {
        "add_key": named("add_key", POINTER, POINTER, NOTHING, NOTHING, NOTHING),
        "request_key": named("request_key", POINTER, POINTER, NOTHING, NOTHING),
        "keyctl": named("keyctl", 0, -3, NOTHING),
        "bpf": named("bpf", 9999, POINTER, NOTHING),
        "perf_event_open": named("perf_event_open", POINTER, NOTHING, BAD, BAD, NOTHING),
        "userfaultfd": named("userfaultfd", 0x7FFF0000),
        "io_uring_setup": named("io_uring_setup", 1, POINTER),
        "io_uring_enter": named("io_uring_enter", BAD, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING),
        "io_uring_register": named("io_uring_register", BAD, NOTHING, NOTHING, NOTHING),
        "kexec_load": named("kexec_load", NOTHING, 0xFFFF, NOTHING, 0xFFF0),
        "kexec_file_load": named("kexec_file_load", BAD, BAD, NOTHING, NOTHING, 0xFFF0),
        "init_module": named("init_module", POINTER, NOTHING, POINTER),
        "finit_module": named("finit_module", BAD, POINTER, 0xFFF0),
        "delete_module": named("delete_module", POINTER, NOTHING),
        "swapon": named("swapon", POINTER, NOTHING),
        "swapoff": named("swapoff", POINTER),
        "reboot": named("reboot", NOTHING, NOTHING, NOTHING, NOTHING),
        "acct": named("acct", POINTER),
        "quotactl": named("quotactl", BAD, POINTER, NOTHING, NOTHING),
        "quotactl_fd": named("quotactl_fd", BAD, NOTHING, NOTHING, NOTHING),
        "iopl": named("iopl", 99),
        "ioperm": named("ioperm", -1, 1, 1),
        "modify_ldt": named("modify_ldt", 0, POINTER, NOTHING),
        "setdomainname": named("setdomainname", POINTER, -1),
        "clock_settime": named("clock_settime", 9999, POINTER),
        "settimeofday": named("settimeofday", POINTER, NOTHING),
        "sethostname": named("sethostname", POINTER, -1),
        "syslog": named("syslog", 9999, NOTHING, NOTHING),
        "personality": named("personality", 0x0040000),
    },
    "other architectures": {
        "int 0x80": machine_code if platform.machine() == "x86_64" else lambda: "no such call",
        "x32": lambda: call(0x40000000 | 39) if platform.machine() == "x86_64" else "no such call",
    },
    "terminals": {
        "TIOCSTI": type_into_terminal(termios.TIOCSTI),
        "TIOCLINUX": type_into_terminal(0x541C),
    },
    "sockets": {
        "AF_PACKET": opened(17, socket.SOCK_DGRAM, 0),
        "AF_VSOCK": opened(40, socket.SOCK_STREAM, 0),
        "AF_ALG": opened(38, socket.SOCK_SEQPACKET, 0),
        "AF_KEY": opened(15, socket.SOCK_RAW, 2),
        "AF_BLUETOOTH": opened(31, socket.SOCK_RAW, 1),
        "NETLINK_SOCK_DIAG": opened(socket.AF_NETLINK, socket.SOCK_RAW, 4),
        "NETLINK_AUDIT": opened(socket.AF_NETLINK, socket.SOCK_RAW, 9),
        "NETLINK_NETFILTER": opened(socket.AF_NETLINK, socket.SOCK_RAW, 12),
        "NETLINK_KOBJECT_UEVENT": opened(socket.AF_NETLINK, socket.SOCK_RAW, 15),
        "AF_TIPC": opened(30, socket.SOCK_RDM, 0),
        "AF_XDP": opened(44, socket.SOCK_RAW, 0),
        "a pair of AF_TIPC": lambda: "ok" if socket.socketpair(30, socket.SOCK_SEQPACKET, 0) else "nothing",
        "SOCK_PACKET": opened(socket.AF_INET, 10, 0),
    },
    "everyday sockets": {
        "AF_UNIX": opened(socket.AF_UNIX, socket.SOCK_STREAM),
        "AF_INET": opened(socket.AF_INET, socket.SOCK_STREAM),
        "AF_INET6": opened(socket.AF_INET6, socket.SOCK_DGRAM),
        "NETLINK_ROUTE": opened(socket.AF_NETLINK, socket.SOCK_RAW, 0),
    },
    "files of the kernel": {
        path: writable(path)
        for path in (
            "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
            "/sys/kernel/uevent_helper", "/sys/power/state",
        )
    },
}  # fmt: skip


def result_of(attempt):
    """Attempt something in a child: what it returned, the error it got, or the signal that ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = attempt()
        except OSError as problem:
            answer = errno.errorcode[problem.errno]
        except BaseException as problem:
            answer = repr(problem)
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answers:
        answer = answers.read().decode()
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else answer


def main():
    numbers.update(json.loads(Path(sys.argv[1]).read_text()))
    found = {item: {name: result_of(attempt) for name, attempt in group.items()} for item, group in ATTEMPTS.items()}
    status = Path("/proc/self/status").read_text().splitlines()
    found["status"] = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    found["limits"] = {
        name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in ("CORE", "NOFILE", "NPROC")
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
