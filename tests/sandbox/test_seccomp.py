"""The filter as the kernel runs it: every row of the table, everything that isn't in it, every foreign interface."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import seccomp
from sandbox.seccomp import ALLOW, ARCHITECTURES, ENOSYS, EPERM, KILL, REFUSE, TABLE, Argument, CallRule
from tests.support.cases import each

MACHINES = tuple(ARCHITECTURES.values())
WORD = 0xFFFFFFFF

machines = st.sampled_from(MACHINES)
words = st.integers(0, WORD)
wide = st.integers(0, 2**64 - 1)
arguments = st.tuples(*[wide] * 6)


def run(machine, number, args=(0,) * 6, audit=None):
    """Run a filter over one call as `seccomp_run_filters` does; returns its verdict and how many steps it took."""
    data = struct.pack("<IIQ6Q", number & WORD, machine.audit if audit is None else audit, 0xDEAD_BEEF, *args)
    program = [*struct.iter_unpack("=HBBI", seccomp.program(machine.name))]
    at = steps = accumulator = 0
    while True:
        code, true, false, operand = program[at]
        at, steps = at + 1, steps + 1
        match code:
            case 0x20:  # BPF_LD | BPF_W | BPF_ABS
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:  # BPF_ALU | BPF_AND | BPF_K
                accumulator &= operand
            case 0x05:  # BPF_JMP | BPF_JA
                at += operand
            case 0x15:  # BPF_JMP | BPF_JEQ | BPF_K
                at += true if accumulator == operand else false
            case 0x35:  # BPF_JMP | BPF_JGE | BPF_K
                at += true if accumulator >= operand else false
            case 0x06:  # BPF_RET | BPF_K
                return operand, steps
            case _:
                raise AssertionError(f"the kernel takes no instruction {code:#x} here")


def verdict(*how, **more):
    return run(*how, **more)[0]


def numbered(machine):
    """The table's rows that a machine has, each with its number there."""
    found = ((getattr(rule, machine.name), rule) for rule in TABLE)
    return [(number, rule) for number, rule in found if number is not None]


def expected(machine, number, args):
    for known, rule in numbered(machine):
        if known == number and all(condition.holds(args) for condition in rule.when):
            return REFUSE | rule.error
    return ALLOW


ROWS = [(machine, number, rule) for machine in MACHINES for number, rule in numbered(machine)]


@each(("machine", "number", "rule"), [row for row in ROWS if not row[2].when])
def test_a_row_without_conditions_is_always_refused(machine, number, rule):
    for args in ((0,) * 6, (2**64 - 1,) * 6):
        assert verdict(machine, number, args) == REFUSE | rule.error


@given(machines, st.data(), arguments)
def test_a_row_with_conditions_is_refused_when_they_all_hold(machine, data, args):
    number, rule = data.draw(st.sampled_from([row for row in numbered(machine) if row[1].when]))
    drawn = list(args)
    for condition in rule.when:
        # Near the interesting values, with rubbish in the half that the kernel doesn't look at.
        near = data.draw(st.sampled_from(condition.values) | st.integers(0, 50) | words)
        drawn[condition.index] = near | data.draw(words) << 32
    assert verdict(machine, number, tuple(drawn)) == expected(machine, number, drawn)


@given(machines, st.integers(0, 0x3FFFFFFF) | st.integers(0, 600), arguments)
def test_every_call_that_is_not_in_the_table_is_allowed(machine, number, args):
    if number not in dict(numbered(machine)):
        assert verdict(machine, number, args) == ALLOW


@given(machines, wide, arguments, words)
def test_a_call_of_another_architecture_kills(machine, number, args, audit):
    if audit != machine.audit:
        assert verdict(machine, number, args, audit=audit) == KILL


@pytest.mark.parametrize("audit", [0x40000003, 0x40000028, 0xB7, 0x800000B7, 0x3E, 0])
def test_32_bit_and_big_endian_calls_kill(audit):  # i386, arm, aarch64_be and numbers without their flags
    assert {verdict(machine, 0, audit=audit) for machine in MACHINES} == {KILL}


@given(st.integers(0x40000000, WORD), arguments)
def test_x32_calls_do_not_exist(number, args):
    assert verdict(ARCHITECTURES["x86_64"], number, args) == REFUSE | ENOSYS


CALLS = [
    # name, the filter's answer, arguments: calls that programs make all day, and calls that are refused
    ("clone", ALLOW, 0x01200011),  # fork(3): CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD
    ("clone", ALLOW, 0x003D0F00),  # pthread_create(3)
    ("clone", ALLOW, 0x00004111),  # posix_spawn(3): CLONE_VM | CLONE_VFORK | SIGCHLD
    *(("clone", REFUSE | EPERM, 1 << bit | 17) for bit in (17, 25, 26, 27, 28, 29, 30)),
    ("clone", REFUSE | EPERM, 0xFFFF_FFFF_1000_0011),
    ("ioctl", ALLOW, 1, 0x5401),  # TCGETS
    ("ioctl", ALLOW, 1, 0x5413),  # TIOCGWINSZ
    ("ioctl", REFUSE | EPERM, 0, 0x5412),
    ("ioctl", REFUSE | EPERM, 0, 0xDEAD_BEEF_0000_5412),  # the kernel drops the upper half (CVE-2019-10063)
    ("ioctl", REFUSE | EPERM, 0, 0x541C),
    ("personality", ALLOW, 0),
    ("personality", ALLOW, 0xFFFFFFFF),
    ("personality", ALLOW, 0xFFFF_FFFF_FFFF_FFFF),
    ("personality", REFUSE | EPERM, 0x0040000),
    ("personality", REFUSE | EPERM, 0x0400000),
    ("personality", REFUSE | EPERM, 8),
    *(("socket", ALLOW, family, kind, 0) for family in (1, 2, 10) for kind in (1, 2, 0x80801)),
    ("socket", ALLOW, 16, 0x80003, 0),  # AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE
    *(("socket", REFUSE | 93, 16, 3, protocol) for protocol in range(1, 24)),  # EPROTONOSUPPORT
    *(("socket", REFUSE | 97, family, 3, 0) for family in range(50) if family not in {1, 2, 10, 16}),  # EAFNOSUPPORT
    ("socket", REFUSE | EPERM, 2, 10, 0x0300),  # AF_INET, SOCK_PACKET
    ("socket", REFUSE | EPERM, 2, 0x8080A, 0x0300),
    ("socketpair", ALLOW, 1, 1, 0),
    ("fchmod", ALLOW, 3, 0o1777),
    *(("fchmod", REFUSE | EPERM, 3, mode) for mode in (0o4755, 0o2755, 0o6000, 0xFFFF_FFFF_0000_0800)),
    ("fchmodat", ALLOW, 3, 0, 0o755),
    ("fchmodat", REFUSE | EPERM, 3, 0, 0o4755),
    ("fchmodat2", REFUSE | EPERM, 3, 0, 0o2755, 0),
    ("openat", ALLOW, 3, 0, 0o101, 0o644),
    ("openat", ALLOW, 3, 0, 0o2000000, 0o4755),  # O_CLOEXEC alone: the mode is rubbish
    ("openat", REFUSE | EPERM, 3, 0, 0o101, 0o4644),
    ("openat", REFUSE | EPERM, 3, 0, 0o20200002, 0o2755),  # O_TMPFILE
    ("mknodat", ALLOW, 3, 0, 0o100644, 0),
    ("mknodat", REFUSE | EPERM, 3, 0, 0o104755, 0),
    ("openat2", REFUSE | ENOSYS, 3, 0, 0, 24),
    ("fcntl", ALLOW, 3, 1030, 0),  # F_DUPFD_CLOEXEC
    ("fcntl", REFUSE | EPERM, 3, 1024, 1),
    ("socketpair", REFUSE | 97, 40, 1, 0),
    ("setrlimit", REFUSE | 0, 4, 0x7FFF_0000_0000),  # RLIMIT_CORE: done by saying so
    ("setrlimit", REFUSE | 0, 0xFFFF_FFFF_0000_0004, 0x7FFF_0000_0000),
    ("setrlimit", ALLOW, 7, 0x7FFF_0000_0000),
    ("prlimit64", ALLOW, 0, 4, 0, 0x7FFF_0000_0000),  # getrlimit(3)
    ("prlimit64", REFUSE | 0, 0, 4, 0x7FFF_1234_5678, 0),
    ("prlimit64", REFUSE | 0, 0, 4, 0x7FFF_0000_0000, 0),  # an address whose lower half is 0
    ("prlimit64", REFUSE | 0, 42, 0xDEAD_BEEF_0000_0004, 0x1000, 0),
    ("prlimit64", ALLOW, 0, 7, 0x7FFF_1234_5678, 0),
    *((name, REFUSE | 95, 3, 0, 0, 1) for name in ("setxattr", "lsetxattr", "fsetxattr", "setxattrat")),  # EOPNOTSUPP
]


@each("machine", MACHINES)
@each(("name", "says", "args"), [(name, says, args) for name, says, *args in CALLS])
def test_a_call_with_arguments(machine, name, says, args):
    number = next(number for number, rule in numbered(machine) if rule.name == name)
    assert verdict(machine, number, (*args, *[0] * (6 - len(args)))) == says


def test_the_red_teams_list_is_in_the_table():
    wanted = {
        "unshare", "clone", "clone3", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount",
        "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "ptrace", "process_vm_readv", "process_vm_writev",
        "pidfd_getfd", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup",
        "io_uring_enter", "io_uring_register", "kexec_load", "kexec_file_load", "init_module", "finit_module",
        "delete_module", "swapon", "swapoff", "reboot", "acct", "quotactl", "quotactl_fd", "ioctl", "personality",
        "socket", "open_by_handle_at", "iopl", "ioperm", "settimeofday", "clock_settime", "syslog",
    }  # fmt: skip
    assert wanted - {rule.name for rule in TABLE} == set()


# The table


def test_numbers_and_names_belong_together():
    for machine in MACHINES:
        assert len({number for number, _ in numbered(machine)}) == len({rule.name for _, rule in numbered(machine)})
    for rule in TABLE:
        assert rule.why
        assert rule.error >= 0
        assert all(0 <= condition.index < 6 for condition in rule.when)
        assert {(other.x86_64, other.aarch64) for other in TABLE if other.name == rule.name} == {
            (rule.x86_64, rule.aarch64)
        }


HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_the_numbers_are_the_kernels(machine):
    header = Path(HEADERS[machine.name])
    if not header.exists():
        pytest.skip(f"there is no {header} here (apt install linux-libc-dev)")
    defined = re.findall(r"^#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", header.read_text(), re.MULTILINE)
    numbers = {name: int(number) for name, number in defined}
    newest = max(numbers.values())
    for number, rule in numbered(machine):
        # A call that came after the header has a higher number than all in it.
        assert numbers.get(rule.name, number) == number, rule.name
        assert rule.name in numbers or number > newest, rule.name
    missing = {rule.name for rule in TABLE if getattr(rule, machine.name) is None}
    assert missing & set(numbers) == set()


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_the_numbers_are_those_of_ausyscall(machine):
    program = shutil.which("ausyscall")
    if program is None:
        pytest.skip("there is no ausyscall here (apt install auditd)")
    said = subprocess.run([program, machine.name, "--dump"], capture_output=True, text=True, check=True).stdout
    numbers = {name: int(number) for number, name in re.findall(r"^(\d+)\s+(\w+)$", said, re.MULTILINE)}
    assert [rule.name for number, rule in numbered(machine) if numbers.get(rule.name, number) != number] == []


# The program


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_the_program_is_one_the_kernel_takes(machine):
    program = [*struct.iter_unpack("=HBBI", seccomp.program(machine.name))]
    assert len(program) < seccomp.MAX_INSTRUCTIONS // 8, "several filters share the kernel's limit"
    for at, (code, true, false, operand) in enumerate(program):  # bpf_check_classic and seccomp_check_filter
        reach = {0x05: (operand,), 0x15: (true, false), 0x35: (true, false)}.get(code, ())
        assert all(at + 1 + jump < len(program) for jump in reach)
        assert code != 0x20 or (operand % 4 == 0 and operand < 64)
    assert program[-1][0] == 0x06


@given(machines, st.integers(0, 600))
def test_an_allowed_call_costs_a_dozen_steps(machine, number):
    says, steps = run(machine, number)
    assert says != ALLOW or number in dict(numbered(machine)) or steps < 25


def test_a_machine_without_a_table_has_no_program():
    with pytest.raises(seccomp.UnknownArchitecture, match="riscv64, only for x86_64 and aarch64"):
        seccomp.program("riscv64")


@given(st.lists(st.builds(Argument, st.integers(0, 5), st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple),
                          st.booleans(), st.sampled_from([1, 3, 7, WORD])), max_size=4).map(tuple),
       st.tuples(*[st.integers(0, 8)] * 6))  # fmt: skip
def test_any_conditions_mean_what_they_say(conditions, args):
    """The compiler against `Argument.holds`, on conditions that the table doesn't have yet."""
    steps = [*seccomp._refusal(CallRule("x", 1, 1, "", conditions)), seccomp.Instruction(0x06, 0, 0, ALLOW)]
    data = struct.pack("<IIQ6Q", 1, 0, 0, *args)
    at = accumulator = 0
    while steps[at].code != 0x06:
        step, at = steps[at], at + 1
        if step.code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, step.operand)
        elif step.code == 0x54:
            accumulator &= step.operand
        else:
            at += step.true if accumulator == step.operand else step.false
    refused = all(condition.holds(args) for condition in conditions)
    assert steps[at].operand == (REFUSE | EPERM if refused else ALLOW)
