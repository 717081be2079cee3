"""The system calls that a sandbox refuses: a table to read, and the kernel's filter program made from it. Pure.

Namespaces and capabilities already keep an agent from using most of these calls. The filter is for the day the kernel has
a bug in them: a call that is refused can't be attacked, and these are the parts where such bugs were found.

Everything else is allowed, because agents run any program that a developer runs, and a call of a new kernel must not
break it. A refusal is an error that programs know how to take; only calls through a foreign interface, whose numbers mean
something else than here, end the program.

The numbers are the kernel's own: `arch/x86/entry/syscalls/syscall_64.tbl` for x86-64, `scripts/syscall.tbl` (before 6.11
`include/uapi/asm-generic/unistd.h`) for aarch64. A number never changes. Left out of the table on purpose:

- `adjtimex` and `clock_adjtime`: reading the clock's state can't be told from setting it, which the kernel refuses anyway;
- `seccomp` and `prctl`: a further filter can only take more away;
- `landlock_*`, `pidfd_open`, `memfd_create`: they make programs safer, or give nothing that wasn't there;
- `mkdir`, `mkdirat`: the kernel takes no set-id bit from them.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

EPERM, ENOSYS, EOPNOTSUPP = errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP

MAX_INSTRUCTIONS = 4096
"""The longest program the kernel takes (BPF_MAXINSNS, linux/bpf_common.h)."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A condition on one argument of a call.

    Only the lower 32 bits are looked at, because that is all the kernel takes of a number in the table; a filter that
    compared all 64 could be passed with rubbish above them. Of a pointer the kernel takes all 64, so whether there is one
    takes two conditions: `upper` stands for the other half.

    Args:
        index: which argument, from 0.
        values: the numbers that it is compared with.
        among: whether it must be one of `values`, or must not.
        mask: the bits that count.
        upper: whether the upper 32 bits are looked at instead.
    """

    index: int
    values: tuple[int, ...]
    among: bool = True
    mask: int = 0xFFFFFFFF
    upper: bool = False

    def holds(self, args: tuple[int, ...]) -> bool:
        """Say whether a call's arguments meet the condition."""
        half = args[self.index] >> 32 if self.upper else args[self.index]
        return ((half & self.mask) in self.values) is self.among


@dataclass(frozen=True, slots=True)
class CallRule:
    """A call that is refused, or, with the error 0, does nothing and says that it has.

    Args:
        name: the call, as its manual page is named.
        x86_64: its number there, None where there is no such call.
        aarch64: its number there.
        why: its use to an attacker.
        when: conditions that must all hold; none: it is refused always.
        error: the error that the caller gets.
    """

    name: str
    x86_64: int | None
    aarch64: int | None
    why: str
    when: tuple[Argument, ...] = ()
    error: int = EPERM


# linux/sched.h: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME can't be given to clone:
# its bit belongs to the exit signal there.
_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16  # linux/socket.h
_FAMILIES = (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK)
_NETLINK_ROUTE = 0  # linux/netlink.h: getifaddrs(3) asks it
_SOCK_PACKET, _SOCKET_KIND = 10, 0xF  # linux/net.h: the type's other bits are flags
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # asm-generic/ioctls.h, the same on both
_PER_LINUX, _PERSONALITY_ASKED = 0, 0xFFFFFFFF  # personality(2)

_SET_ID = 0o6000  # linux/stat.h: S_ISUID, S_ISGID
_MAKES = 0o100 | 0o20000000  # asm-generic/fcntl.h: O_CREAT, __O_TMPFILE; without them there is no mode to look at
_F_SETLEASE = 1024  # linux/fcntl.h
_RLIMIT_CORE = 4  # asm-generic/resource.h
_NOTHING_DONE = 0

# A row longer than a line would be harder to compare with its neighbours, not easier to read.
# fmt: off
TABLE = (
    # Namespaces: the maker of a user namespace has every capability in it, and with them most of the kernel's code.
    CallRule("clone", 56, 220, "makes namespaces", (Argument(0, (0,), among=False, mask=_NAMESPACES),)),
    CallRule("clone3", 435, 435, "makes namespaces, its flags lie in memory no filter sees; libc falls back", error=ENOSYS),
    CallRule("unshare", 272, 97, "makes namespaces"),
    CallRule("setns", 308, 268, "enters namespaces"),

    # Mounts.
    CallRule("mount", 165, 40, "changes what is visible"),
    CallRule("umount2", 166, 39, "uncovers what is hidden"),
    CallRule("pivot_root", 155, 41, "changes the root"),
    CallRule("chroot", 161, 51, "changes the root"),
    CallRule("open_tree", 428, 428, "copies mounts"),
    CallRule("open_tree_attr", 467, 467, "copies mounts"),
    CallRule("move_mount", 429, 429, "changes what is visible"),
    CallRule("fsopen", 430, 430, "mounts file systems"),
    CallRule("fsconfig", 431, 431, "mounts file systems"),
    CallRule("fsmount", 432, 432, "mounts file systems"),
    CallRule("fspick", 433, 433, "changes mounted file systems"),
    CallRule("mount_setattr", 442, 442, "makes read-only mounts writable"),
    CallRule("name_to_handle_at", 303, 264, "names files past the mounts that hide them"),
    CallRule("open_by_handle_at", 304, 265, "opens files past the mounts that hide them"),
    CallRule("fanotify_init", 300, 262, "watches whole file systems"),

    # Other processes: the namespace's first one is bubblewrap's and writes the exit code down.
    CallRule("ptrace", 101, 117, "takes another process over"),
    CallRule("process_vm_readv", 310, 270, "reads another process's memory"),
    CallRule("process_vm_writev", 311, 271, "writes another process's memory"),
    CallRule("pidfd_getfd", 438, 438, "takes another process's descriptors"),
    CallRule("kcmp", 312, 272, "tells kernel addresses apart"),

    # Parts of the kernel with a history.
    CallRule("add_key", 248, 217, "the kernel's keys know no namespaces but the user's"),
    CallRule("request_key", 249, 218, "the same, and starts programs outside"),
    CallRule("keyctl", 250, 219, "the same"),
    CallRule("bpf", 321, 280, "runs programs in the kernel"),
    CallRule("perf_event_open", 298, 241, "watches the kernel and other processes"),
    CallRule("userfaultfd", 323, 282, "holds the kernel in the middle of a copy, the tool of many exploits"),
    CallRule("io_uring_setup", 425, 425, "makes calls that no filter sees; programs fall back", error=ENOSYS),
    CallRule("io_uring_enter", 426, 426, "the same", error=ENOSYS),
    CallRule("io_uring_register", 427, 427, "the same", error=ENOSYS),
    CallRule("modify_ldt", 154, None, "16-bit segments, for emulators only", error=ENOSYS),
    CallRule("uselib", 134, None, "loads libraries as thirty years ago", error=ENOSYS),
    CallRule("nfsservctl", 180, 42, "gone from the kernel, kept from coming back", error=ENOSYS),
    CallRule("lookup_dcookie", 212, 18, "tells a profiler paths of the host"),
    CallRule("personality", 135, 92, "turns protections off (READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE)",
         (Argument(0, (_PER_LINUX, _PERSONALITY_ASKED), among=False),)),

    # The machine.
    CallRule("kexec_load", 246, 104, "replaces the kernel"),
    CallRule("kexec_file_load", 320, 294, "replaces the kernel"),
    CallRule("init_module", 175, 105, "loads code into the kernel"),
    CallRule("finit_module", 313, 273, "loads code into the kernel"),
    CallRule("delete_module", 176, 106, "removes code from the kernel"),
    CallRule("reboot", 169, 142, "ends everything"),
    CallRule("swapon", 167, 224, "writes memory to a file of its choice"),
    CallRule("swapoff", 168, 225, "takes memory away"),
    CallRule("acct", 163, 89, "records everybody's processes in a file"),
    CallRule("quotactl", 179, 60, "changes quotas"),
    CallRule("quotactl_fd", 443, 443, "changes quotas"),
    CallRule("iopl", 172, None, "talks to devices"),
    CallRule("ioperm", 173, None, "talks to devices"),
    CallRule("settimeofday", 164, 170, "sets the clock"),
    CallRule("clock_settime", 227, 112, "sets the clock"),
    CallRule("sethostname", 170, 161, "renames the sandbox"),
    CallRule("setdomainname", 171, 162, "renames the sandbox"),
    CallRule("syslog", 103, 116, "reads the kernel's log, with its addresses"),
    CallRule("vhangup", 153, 58, "hangs the terminal up"),

    # A limit of 1 byte is the only one that keeps the kernel from piping a core dump to a program of the host's; lowered to
    # 0 it would be piped again (do_coredump in fs/coredump.c). Programs that hide secrets lower it, or end if they can't.
    CallRule(
        "setrlimit", 160, 164, "lets a crash run a program of the host's", (Argument(0, (_RLIMIT_CORE,)),), _NOTHING_DONE
    ),
    CallRule("prlimit64", 302, 261, "the same; asking for the limit stays allowed",
         (Argument(1, (_RLIMIT_CORE,)), Argument(2, (0,), among=False)), _NOTHING_DONE),
    CallRule("prlimit64", 302, 261, "the same, from an address whose lower half is 0",
         (Argument(1, (_RLIMIT_CORE,)), Argument(2, (0,), among=False, upper=True)), _NOTHING_DONE),

    # Terminals: characters put into somebody else's input are commands.
    CallRule("ioctl", 16, 29, "types into a terminal", (Argument(1, (_TIOCSTI, _TIOCLINUX)),)),

    # Files of the workspace are the user's outside too: a program with a set-id bit would run as that user for everybody.
    CallRule("chmod", 90, None, "sets set-id bits", (Argument(1, (0,), among=False, mask=_SET_ID),)),
    CallRule("fchmod", 91, 52, "sets set-id bits", (Argument(1, (0,), among=False, mask=_SET_ID),)),
    CallRule("fchmodat", 268, 53, "sets set-id bits", (Argument(2, (0,), among=False, mask=_SET_ID),)),
    CallRule("fchmodat2", 452, 452, "sets set-id bits", (Argument(2, (0,), among=False, mask=_SET_ID),)),
    CallRule("creat", 85, None, "makes files with set-id bits", (Argument(1, (0,), among=False, mask=_SET_ID),)),
    CallRule("open", 2, None, "makes files with set-id bits",
         (Argument(1, (0,), among=False, mask=_MAKES), Argument(2, (0,), among=False, mask=_SET_ID))),
    CallRule("openat", 257, 56, "makes files with set-id bits",
         (Argument(2, (0,), among=False, mask=_MAKES), Argument(3, (0,), among=False, mask=_SET_ID))),
    CallRule("openat2", 437, 437, "the same, its mode lies in memory no filter sees; programs fall back", error=ENOSYS),
    CallRule("mknod", 133, None, "makes files with set-id bits", (Argument(1, (0,), among=False, mask=_SET_ID),)),
    CallRule("mknodat", 259, 33, "makes files with set-id bits", (Argument(2, (0,), among=False, mask=_SET_ID),)),
    CallRule("fcntl", 72, 25, "takes leases, which hold up any opener of the file outside", (Argument(1, (_F_SETLEASE,)),)),

    # Extended attributes: a file in memory may have thousands, and its directory's size doesn't count them. EOPNOTSUPP is
    # the answer of file systems without them: programs that copy them go on. Access lists (ACL) are set by the same calls.
    CallRule("setxattr", 188, 5, "takes memory that no directory's size bounds", error=EOPNOTSUPP),
    CallRule("lsetxattr", 189, 6, "the same", error=EOPNOTSUPP),
    CallRule("fsetxattr", 190, 7, "the same", error=EOPNOTSUPP),
    CallRule("setxattrat", 463, 463, "the same", error=EOPNOTSUPP),

    # Sockets: only the families that programs need. The others load modules by their number, and many bugs were there.
    CallRule("socket", 41, 198, "AF_PACKET, AF_VSOCK, AF_ALG, AF_BLUETOOTH and some forty others",
         (Argument(0, _FAMILIES, among=False),), errno.EAFNOSUPPORT),
    CallRule("socket", 41, 198, "netlink but for routes: firewall, audit, devices, crypto",
         (Argument(0, (_AF_NETLINK,)), Argument(2, (_NETLINK_ROUTE,), among=False)), errno.EPROTONOSUPPORT),
    CallRule("socket", 41, 198, "AF_PACKET by its old name",
         (Argument(0, (_AF_INET,)), Argument(1, (_SOCK_PACKET,), mask=_SOCKET_KIND))),
    CallRule("socketpair", 53, 199, "the same families",
         (Argument(0, _FAMILIES, among=False),), errno.EAFNOSUPPORT),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of machine.

    Args:
        name: as `uname -m` says it, and the column of `CallRule` that holds its numbers.
        audit: how the kernel names it to filters (linux/audit.h).
        foreign_bit: a bit in call numbers that stands for another interface, 0 where there is none.
    """

    name: str
    audit: int
    foreign_bit: int = 0


ARCHITECTURES = {
    found.name: found
    for found in (
        Architecture("x86_64", 0xC000003E, 0x40000000),  # x32's calls (asm/unistd.h: __X32_SYSCALL_BIT)
        Architecture("aarch64", 0xC00000B7),
    )
}


class UnknownArchitecture(LookupError):
    """There are no call numbers for this kind of machine."""


@cache
def program(machine: str) -> bytes:
    """Return the filter for a machine, as bubblewrap's `--seccomp` reads it: an array of the kernel's `sock_filter`.

    Args:
        machine: as `uname -m` says it.

    Raises:
        UnknownArchitecture: there is no table for it.
    """
    if machine not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise UnknownArchitecture(f"there is no table of system calls for {machine}, only for {known}")
    return b"".join(struct.pack("=HBBI", *step) for step in instructions(ARCHITECTURES[machine]))


# The program. A step is one instruction of classic BPF (linux/filter.h): an operation, how far it jumps when a comparison
# is true and when it is false, an operand. Jumps only go forward, so a part of a program can be put anywhere.


class Instruction(NamedTuple):
    """An instruction: `struct sock_filter`."""

    code: int
    true: int
    false: int
    operand: int


# linux/bpf_common.h
LOAD, AND, JUMP, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
# linux/seccomp.h: SECCOMP_RET_*, the error in the lower half
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
# linux/seccomp.h: where struct seccomp_data has the number, the architecture and the first argument's lower half. Both
# architectures are little-endian: a big-endian aarch64 has another audit value.
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16


def instructions(machine: Architecture) -> list[Instruction]:
    """Return the filter's steps for a kind of machine."""
    steps = [
        Instruction(LOAD, 0, 0, ARCHITECTURE),
        Instruction(JUMP_EQUAL, 1, 0, machine.audit),
        Instruction(RETURN, 0, 0, KILL),
        Instruction(LOAD, 0, 0, NUMBER),
    ]
    if machine.foreign_bit:
        steps += [Instruction(JUMP_AT_LEAST, 0, 1, machine.foreign_bit), Instruction(RETURN, 0, 0, REFUSE | ENOSYS)]
    return steps + _search(sorted(_by_number(machine).items()))


def _by_number(machine: Architecture) -> dict[int, list[CallRule]]:
    found: dict[int, list[CallRule]] = {}
    for rule in TABLE:
        number: int | None = getattr(rule, machine.name)
        if number is not None:
            found.setdefault(number, []).append(rule)
    return found


def _search(calls: list[tuple[int, list[CallRule]]]) -> list[Instruction]:
    """Find a call by halving the list: seven comparisons instead of seventy for the calls that are allowed."""
    if len(calls) == 1:
        number, rules = calls[0]
        body = [step for rule in rules for step in _refusal(rule)]
        return [Instruction(JUMP_EQUAL, 0, len(body), number), *body, Instruction(RETURN, 0, 0, ALLOW)]
    middle = len(calls) // 2
    lower, upper = _search(calls[:middle]), _search(calls[middle:])
    # A comparison jumps 255 steps at most, a plain jump as far as it takes.
    return [Instruction(JUMP_AT_LEAST, 0, 1, calls[middle][0]), Instruction(JUMP, 0, 0, len(lower)), *lower, *upper]


def _refusal(rule: CallRule) -> list[Instruction]:
    """Refuse if every condition holds; else go on behind the last step."""
    steps = [Instruction(RETURN, 0, 0, REFUSE | rule.error)]
    for condition in reversed(rule.when):
        steps = _condition(condition, len(steps)) + steps
    return steps


def _condition(condition: Argument, away: int) -> list[Instruction]:
    """Go on if a condition holds; else jump `away` steps further."""
    steps = [Instruction(LOAD, 0, 0, ARGUMENTS + 8 * condition.index + (4 if condition.upper else 0))]
    if condition.mask != 0xFFFFFFFF:
        steps.append(Instruction(AND, 0, 0, condition.mask))
    for left, value in zip(range(len(condition.values) - 1, -1, -1), condition.values, strict=True):
        if not condition.among:
            steps.append(Instruction(JUMP_EQUAL, left + away, 0, value))
        else:
            steps.append(Instruction(JUMP_EQUAL, left, 0 if left else away, value))
    return steps
