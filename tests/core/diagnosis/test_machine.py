"""Every judgement of `core.diagnosis`, on facts of machines that are made up."""

from functools import partial

from substrat.core.diagnosis import machine
from substrat.core.diagnosis.machine import BROKEN, GOOD, WEAKER, Bwrap, CgroupFacts, Kernel, Systemd
from substrat.core.programs.table import CURSOR
from tests.support.cases import each

_login = partial(machine.login, CURSOR.login)

LEAST = (0, 8, 0)
MIB = 1 << 20
ALL = frozenset({"cpu", "memory", "pids", "io"})
USER = Systemd(True, True, True, "ann", "/home/ann/.config/systemd/user/substratd.service", True)

# fmt: off
CASES = {
    "no bubblewrap": (machine.bubblewrap(None, "", LEAST), BROKEN, "none on PATH", "sudo apt install bubblewrap"),
    "none where it was named": (machine.bubblewrap(None, "/x/bwrap", LEAST), BROKEN, "none at /x/bwrap", "sudo apt"),
    "an old bubblewrap": (machine.bubblewrap(Bwrap("/b", (0, 4, 1)), "", LEAST), BROKEN, "0.4.1 at /b", "0.8.0 or newer"),
    "an old one that was named":
        (machine.bubblewrap(Bwrap("/b", (0, 7, 9)), "/b", LEAST), BROKEN, "0.7.9 at /b", "take sandbox.bwrap out"),
    "a good bubblewrap": (machine.bubblewrap(Bwrap("/b", (0, 8, 0)), "", LEAST), GOOD, "0.8.0 at /b", ""),
    "forbidden namespaces": (machine.namespaces("bwrap: no", "sysctl this"), BROKEN, "bwrap: no", "sysctl this"),
    "namespaces": (machine.namespaces(None, ""), GOOD, "was made", ""),
    "another machine":
        (machine.system_calls("riscv64", ("x86_64", "aarch64"), has_seccomp=True), BROKEN, "no table of them for riscv64",
         "x86_64 or aarch64"),
    "no seccomp": (machine.system_calls("x86_64", ("x86_64",), has_seccomp=False), BROKEN, "can't filter", "SECCOMP"),
    "seccomp": (machine.system_calls("x86_64", ("x86_64",), has_seccomp=True), GOOD, "the table for x86_64", ""),
    "no prlimit": (machine.limits(prlimit=False, setsid=True), BROKEN, "/usr/bin/prlimit", "apt install util-linux"),
    "no setsid": (machine.limits(prlimit=True, setsid=False), WEAKER, "no /usr/bin/setsid", "apt install util-linux"),
    "no limit of memory": (
        machine.limits(prlimit=True, setsid=True, process_memory=False),
        WEAKER, "sandbox.process_memory is off", "substratctl service install",
    ),
    "limits": (machine.limits(prlimit=True, setsid=True), GOOD, "prlimit", ""),
    "a very old kernel": (machine.kernel(Kernel((4, 19))), BROKEN, "Linux 4.19 without", "Linux 5.3"),
    "a filtered pidfd": (machine.kernel(Kernel((6, 1), pidfd=False)), BROKEN, "without pidfd_open", "boot"),
    "no children": (machine.kernel(Kernel((6, 1), children=False)), WEAKER, "can't be frozen", "CONFIG_PROC_CHILDREN"),
    "an old kernel": (machine.kernel(Kernel((5, 10))), WEAKER, "aren't limited", "Linux 5.14 or newer"),
    "no git": (machine.git(None), WEAKER, "no private clones", "apt install git"),
    "an old git": (machine.git((2, 37)), WEAKER, "2.37: work in clones can't be landed", "git 2.38 or newer"),
    "a git": (machine.git((2, 38)), GOOD, "2.38", ""),
    "a kernel": (machine.kernel(Kernel((5, 14))), GOOD, "Linux 5.14", ""),
    "no cursor-agent":
        (machine.agent_program_missing("it isn't on PATH: name it", CURSOR.install), BROKEN, "it isn't on PATH",
         "curl https://cursor.com/install -fsS | bash"),
    "no other program":
        (machine.agent_program_missing("/x doesn't exist: correct it", None), BROKEN, "/x", "correct it"),
    "a program that can't run": (machine.agent_program("/x", None, "no"), WEAKER, "its version: no", "/x --version"),
    "a program without a version": (machine.agent_program("/x", " \n"), GOOD, "/x (it names no version)", ""),
    "a program": (machine.agent_program("/x", "1.2\nmore\n"), GOOD, "/x (1.2)", ""),
    "a key": (_login(in_environment=True, file=None, needed=True), GOOD, "is passed on", ""),
    "a login": (_login(in_environment=False, file="~/auth.json", needed=True), GOOD, "auth.json", ""),
    "no login": (_login(in_environment=False, file=None, needed=True), WEAKER, "no login", "agent login"),
    "the stand-in": (_login(in_environment=False, file=None, needed=False), GOOD, "needs none", ""),
    "closed chats": (machine.chats("/h/c", "/h", "ann", writable=False), BROKEN, "/h isn't", "sudo chown ann /h"),
    "no chats yet": (machine.chats("/h/c", "/h", "ann", writable=True), GOOD, "/h/c (made when needed)", ""),
    "chats": (machine.chats("/h/c", "/h/c", "ann", writable=True), GOOD, "/h/c", ""),
    "no filtered network by default":
        (machine.network("filtered", None, "unshare: no", "sysctl"), BROKEN, "--network none and host work", "sysctl"),
    "no filtered network, not by default":
        (machine.network("none", None, "unshare: no", "sysctl"), WEAKER, "no", "sysctl"),
    "the whole network": (machine.network("host", None, None, ""), WEAKER, "whole network", "sandbox.network"),
    "the proxy form, for want of the other":
        (machine.network("filtered", "proxy", "unshare: no", "install"), WEAKER, "proxy form, which only", "install"),
    "the proxy form, as was wanted": (machine.network("filtered", "proxy", None, ""), GOOD, "made (proxy form)", ""),
    "a filtered network": (machine.network("filtered", "transparent", None, ""), GOOD, "'filtered'", ""),
    "no cgroups": (machine.cgroups(CgroupFacts(0)), WEAKER, "no cgroups", "systemd.unified_cgroup_hierarchy=1"),
    "old cgroups": (machine.cgroups(CgroupFacts(1)), WEAKER, "v1 only", "systemd.unified_cgroup_hierarchy=1"),
    "cgroups of nobody's": (machine.cgroups(CgroupFacts(2)), WEAKER, "none to divide", "substratctl service install"),
    "cgroups without cpu":
        (machine.cgroups(CgroupFacts(2, ALL - {"cpu"}, 254)), WEAKER, "without cpu", "Delegate=cpu memory pids"),
    "cgroups that can't be divided": (machine.cgroups(CgroupFacts(2, ALL, 253)), WEAKER, "systemd 253", "systemd 254"),
    "cgroups": (machine.cgroups(CgroupFacts(2, ALL, 257)), GOOD, "cpu, memory, pids", ""),
    "a full disk": (machine.disk("/s", 100 * MIB, 512 * MIB), BROKEN, "below 512 MiB (disk.free)", "free some"),
    "a disk without a watermark": (machine.disk("/s", 100 * MIB, 0), WEAKER, "0.1 GiB free at /s", "free some"),
    "a nearly full disk": (machine.disk("/s", 3000 * MIB, 2000 * MIB), WEAKER, "2.9 GiB", "free some"),
    "a disk": (machine.disk("/s", 5000 * MIB, 512 * MIB), GOOD, "4.9 GiB free at /s", ""),
    "no systemd": (machine.systemd(Systemd(False)), WEAKER, "isn't running", "start substratd by hand"),
    "no manager": (machine.systemd(Systemd(True)), WEAKER, "no user manager", "log in"),
    "no lingering": (machine.systemd(USER._replace(lingers=False)), WEAKER, "log out", "loginctl enable-linger ann"),
    "lingering": (machine.systemd(USER), GOOD, "outlive", ""),
    "no service": (machine.service(USER._replace(installed=False)), WEAKER, "not installed", "service install"),
    "a service": (machine.service(USER), GOOD, "substratd.service", ""),
}
# fmt: on


@each(("finding", "state", "detail", "remedy"), CASES.values())
def test_a_judgement(finding, state, detail, remedy):
    assert finding.state == state
    assert detail in finding.detail
    assert remedy in finding.remedy
    assert (finding.state == GOOD) == (finding.remedy == "")
    assert "\n" not in finding.detail + finding.remedy


def test_there_is_no_service_without_systemd():
    assert machine.service(Systemd(False, True)) is None
    assert machine.service(Systemd(True, False)) is None
