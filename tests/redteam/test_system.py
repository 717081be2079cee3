"""What a hostile agent finds of the operating system around it: secrets, memory without a bound, mounts that move."""

import os
import subprocess
from pathlib import Path

import pytest

from sandbox import unreadable
from substrat import paths
from tests.redteam.hostile import PROGRAM, TRIED, again, said
from tests.support.daemon import PROGRAMS
from tests.support.waiting import wait_until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can put files below /usr")


GAMES = Path("/usr/games")
"""A directory of the system's that nothing in a test needs."""


@pytest.fixture
def below_usr(daemon):
    """`GAMES` of one daemon, in memory: in a mount namespace of its own, because other tests start sandboxes meanwhile.

    What that daemon notes of it no other one takes over.
    """
    notes = paths.runtime_dir(daemon.environment())
    script = (
        f"mkdir -pm 700 {notes} && mount -t tmpfs -o mode=700 notes {notes} && mount -t tmpfs -o mode=755 games {GAMES}"
    )
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"{script} && mkdir {GAMES}/kept && echo made && exec cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout.readline() == b"made\n"
    daemon.prefix = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--")
    yield Path(f"/proc/{holder.pid}/root") / GAMES.relative_to("/") / "kept"
    daemon.stop()
    holder.communicate()


def inside(name):
    """The path of what is below `GAMES`, as an agent sees it."""
    return str(GAMES / "kept" / name)


READ = """
def read(path):
    return open(path).read() if not os.path.isdir(path) else sorted(os.listdir(path))
"""


@as_root
def test_what_others_cannot_read_below_the_system_is_covered(daemon, below_usr):
    """Fresh, resumed, and through `exec`: files of the owner's, of a group's, and directories."""
    kept = {"key": 0o600, "group": 0o640, "program": 0o711}
    for name, mode in kept.items():
        (below_usr / name).write_text("canary")
        (below_usr / name).chmod(mode)
    (below_usr / "closed").mkdir()
    (below_usr / "closed" / "inner").write_text("canary")
    (below_usr / "closed").chmod(0o700)
    (below_usr / "open").write_text("plain")
    daemon.start(agent=daemon.program(PROGRAM))
    names = [inside(name) for name in (*kept, "closed", "closed/inner", "open")]
    script = f"{TRIED}{READ}answer = [tried(lambda: read(path)) for path in {names!r}]"
    expected = ["EACCES"] * 5 + ["plain"]
    assert said(daemon.spawn("anna", daemon.workspace(), script)) == expected
    daemon.ok("suspend", "anna")
    daemon.ok("resume", "anna", script, "--wait")
    assert said(daemon.wait("anna")) == expected
    done = daemon.ctl("exec", "anna", "--", "cat", inside("key"))
    assert (done.code, done.out) == (1, "")


@pytest.mark.slow
@as_root
def test_what_is_covered_is_looked_for_again_by_the_next_daemon(daemon, below_usr):
    script = f"{TRIED}{READ}answer = tried(lambda: read({inside('key')!r}))"
    (below_usr / "key").write_text("canary")
    daemon.start(agent=daemon.program(PROGRAM))
    assert said(daemon.spawn("anna", daemon.workspace(), script)) == "canary", "the control: others may read it"
    (below_usr / "key").chmod(0o600)
    (below_usr / "new").touch()  # a mode alone is noticed later
    note = Path(f"/proc/{daemon.process.pid}/root{paths.runtime_dir(daemon.environment())}/unreadable.json")
    os.utime(note, (1, 1))  # one that is younger is taken over
    daemon.stop()
    daemon.start()
    assert said(daemon.ok("send", "anna", script, "--wait")) == "EACCES"


@as_root
def test_what_is_renewed_in_a_covered_directory_stays_covered(daemon, below_usr):
    """The host renames a new file into the old one's place while the turn runs."""
    (below_usr / "closed").mkdir(mode=0o700)
    (below_usr / "closed" / "key").write_text("canary")
    daemon.start(agent=daemon.program(PROGRAM))
    work = daemon.workspace()
    look = f"tried(lambda: read({inside('closed/key')!r}))"
    script = f"{TRIED}{READ}first = {look}\nmark('ready')\nwait_for('go')\nanswer = [first, {look}]"
    daemon.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=script.encode())
    wait_until((work / "ready").exists, "the start of the turn")
    (below_usr / "closed" / "new").write_text("canary")
    os.replace(below_usr / "closed" / "new", below_usr / "closed" / "key")
    (work / "go").touch()
    assert said(daemon.wait("anna")) == ["EACCES"] * 2


def test_private_keys_are_not_shown_and_certificates_are(hostile):
    shown = ("/etc/ssl/private", "/etc/pki/tls/private", "/etc/ssl/certs", "/etc/ssl/openssl.cnf")
    found = said(hostile.spawn("anna", hostile.workspace(), f"answer = [os.path.exists(path) for path in {shown!r}]"))
    assert found == [False, False, *map(os.path.exists, shown[2:])]


# The walk


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    for name, mode in (("open", 0o755), ("closed", 0o750), ("no-list", 0o711), ("no-enter", 0o754)):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text("x")
        (root / name / "secret").write_text("x")
        (root / name / "secret").chmod(0o640)
        (root / name).chmod(mode)
    (root / "link").symlink_to("/etc/shadow")
    root.chmod(0o755)
    return root


def listed(note, *roots, key="key"):
    command = [PROGRAMS / "python", "-I", "-S", unreadable.__file__, note, "600", key, *roots]
    done = subprocess.run(command, capture_output=True, check=True)
    return sorted(path.rpartition("/root/")[2] for path in done.stdout.decode().split("\0") if path)


def test_what_others_cannot_read_is_listed(tree, tmp_path):
    expected = ["closed", "no-enter", "no-list", "open/secret"]
    memory = tmp_path / "memory" / "unreadable.json"
    for _ in range(2):
        assert listed("-", tree) == listed(memory, tree) == expected
    (tree / "open" / "new").write_text("x")
    (tree / "open" / "new").chmod(0o600)
    more = sorted([*expected, "open/new"])
    assert listed(memory, tree) == more, "a new file changes its directory"
    memory.write_text("{")
    assert listed(memory, tree) == more, "a damaged memory is none"
    assert listed(tmp_path / "memory", tree) == more, "nor is a directory"
    (tree / "open").chmod(0o700)
    assert "open" in listed(memory, tree), "another mode of a directory is seen too"


@pytest.fixture
def old(tree):
    """The tree, in which nothing was made or removed within the clock's last tick."""
    for directory, _, _ in os.walk(tree):
        os.utime(directory, (1, 1))
    return tree


def test_a_note_is_the_answer_as_long_as_it_is_true(old, tmp_path):
    note = tmp_path / "note"
    expected = listed(note, old)
    (old / "open" / "file").chmod(0o600)  # changes no directory
    assert listed(note, old) == expected
    (old / "open" / "file").chmod(0o644)
    for change in (
        lambda: (old / "open" / "new").touch(0o600),
        (old / "open" / "new").unlink,
        lambda: (old / "no-enter").chmod(0o755),
        lambda: (old / "open" / "secret").chmod(0o644),
        lambda: (old / "open").chmod(0o700),
        lambda: (old / "open").chmod(0o755),
        lambda: (old / "open").rename(old / "other"),
    ):
        change()
        for _ in range(2):
            assert listed(note, old) == listed("-", old)
        for directory, _, _ in os.walk(old):
            os.utime(directory, (1, 1))
        assert listed(note, old) == listed("-", old)


def test_a_root_that_is_a_file_comes_and_goes(tmp_path):
    note, root = tmp_path / "note", tmp_path / "root" / "file"
    root.parent.mkdir()
    for change in (lambda: None, root.touch, lambda: root.chmod(0o600), lambda: root.chmod(0o644), root.unlink):
        change()
        assert listed(note, root) == listed("-", root)


def test_a_young_note_of_another_daemon_is_taken_over(old, tmp_path):
    note = tmp_path / "note"
    found = unreadable.young_answer(str(note), "key", [str(old)], 600)
    assert found is None
    expected = listed(note, old)
    found = unreadable.young_answer(str(note), "key", [str(old)], 600)
    assert sorted(path.rpartition("/root/")[2] for path in found) == expected
    assert unreadable.young_answer(str(note), "of another system", [str(old)], 600) is None
    assert unreadable.young_answer(str(note), "key", [str(old), "/usr"], 600) is None
    os.utime(note, (1, 1))
    assert unreadable.young_answer(str(note), "key", [str(old)], 600) is None
    listed(note, old)
    assert unreadable.young_answer(str(note), "key", [str(old)], 600), "it was found to be true again"


def test_a_note_that_others_may_write_to_is_not_believed(tree, tmp_path):
    note = tmp_path / "unreadable.json"
    listed(note, tree)
    assert unreadable.read_note(str(note)), "the control"
    for mode in (0o666, 0o620):
        note.chmod(mode)
        assert unreadable.read_note(str(note)) is None
    for damaged in ("{", "[]", "{}", note.read_text().replace('"times": [[', '"times": [[1], ['), "0", ""):
        note.unlink()
        note.write_text(damaged)
        assert unreadable.read_note(str(note)) is None


def test_too_much_is_said(tree, monkeypatch, capsysbinary):
    monkeypatch.setattr(unreadable, "MOST_ENTRIES", 3)
    assert unreadable.main(["-", "600", "key", str(tree)]) == unreadable.TOO_MUCH
    capsysbinary.readouterr()


# Memory, devices, mounts

WRITABLE = """
answer = {}
for line in open("/proc/self/mountinfo"):
    before, _, after = line.partition(" - ")
    place, options = before.split()[4:6]
    kind, _, superblock = after.split()[:3]
    if "rw" in options.split(","):
        size = [word for word in superblock.split(",") if word.startswith("size=")]
        answer[place] = [kind, size[0] if size else None]
"""


def test_every_writable_mount_has_a_bound_or_is_the_agents_own(hostile):
    networks = ("none", "filtered", "host")
    works = {network: hostile.workspace(network) for network in networks}
    for network in networks:
        hostile.ok(
            "spawn", network, "-w", works[network], "--network", network, "--prompt-file", "-", stdin=WRITABLE.encode()
        )
    for network in networks:
        check_writable(hostile, works[network], said(hostile.wait(network)))
    first = said(hostile.show("filtered"))
    resumed = said(hostile.ok("send", "filtered", WRITABLE, "--wait"))
    assert memory_of(resumed).keys() == memory_of(first).keys()


def memory_of(found):
    return {place: size for place, (kind, size) in found.items() if kind == "tmpfs"}


def check_writable(hostile, work, found):
    home = str(hostile.home)
    own = {str(work), f"{home}/.cursor", f"{home}/.cursor/chats", f"{home}/.cache", "/run/substrat/shared"}
    devices = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")}
    memory = memory_of(found)
    assert set(memory) - own == {"/tmp", "/var/tmp", "/run", "/dev/shm", home, f"{home}/.config"}
    assert all(memory.values()), "each has a size"
    rest = set(found) - set(memory) - own - devices - {"/dev/pts"}
    assert all(path.startswith((str(work), f"{home}/.cursor/chats/")) for path in rest), rest


ATTRIBUTES = (
    TRIED
    + """
def fill(top, bound):
    '''How many bytes of attributes fit into a directory's files, and the error that was their end.'''
    taken = 0
    while taken < bound:
        path = f"{top}/{taken}"
        open(path, "w").close()
        for number in range(8):
            came = tried(lambda: os.setxattr(path, f"user.{number}", b"x" * 57344))
            if came:
                return [taken, came]
            taken += 57344
    return [taken, None]


answer = {top: fill(top, 8 << 20) for top in ("/tmp", "/run", "/dev/shm", os.path.expanduser("~"), ".")}
"""
)


def test_no_memory_is_taken_by_extended_attributes(daemon):
    daemon.start(agent=daemon.program(PROGRAM), config="[sandbox]\nmemory_dir_bytes = 2097152\n")
    for found in (said(daemon.spawn("anna", daemon.workspace(), ATTRIBUTES)), again(daemon, "anna", ATTRIBUTES)):
        assert set(map(tuple, found.values())) <= {(0, "ENOTSUP"), (0, "EOPNOTSUPP")}, found


USED = (
    TRIED
    + """
import multiprocessing, multiprocessing.shared_memory
block = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
block.buf[0] = 7
lock = multiprocessing.Semaphore(1)
master, slave = os.openpty()
os.write(master, b"x\\n")
answer = [
    block.buf[0], lock.acquire(), os.read(slave, 2).decode(), os.ttyname(slave)[:9],
    os.write(os.open("/dev/null", os.O_WRONLY), b"x"), len(os.read(os.open("/dev/urandom", os.O_RDONLY), 4)),
    subprocess.run(["cat", "/dev/fd/0"], input="y", capture_output=True, text=True).stdout,
    subprocess.run(["cat", "/dev/stdin"], input="z", capture_output=True, text=True).stdout,
    tried(lambda: open("/dev/new", "w")), tried(lambda: os.mkdir("/dev/new")), tried(lambda: os.unlink("/dev/core")),
]
block.close()
block.unlink()
"""
)


def test_devices_work_and_no_file_can_be_made_beside_them(hostile):
    answer = said(hostile.spawn("anna", hostile.workspace(), USED))
    assert answer == [7, True, "x\n", "/dev/pts/", 1, 4, "y", "z", "EROFS", "EROFS", "EROFS"]


MOVE = (
    TRIED
    + """
places = {line.split()[4] for line in open("/proc/self/mountinfo")} - {"/"}
ways = places | {path[:at] for path in places for at, letter in enumerate(path) if letter == "/" and at}
answer = {way: tried(lambda: os.rename(way, way + "-aside")) for way in sorted(ways)}
"""
)


def test_nothing_that_is_mounted_can_be_moved_aside(hostile):
    """Every mount, and every directory on the way to one."""
    work, extra = hostile.home / "one" / "two" / "work", hostile.home / "data" / "inner" / "extra"
    for path in (work, extra):
        path.mkdir(parents=True)
    hostile.ok("spawn", "anna", "-w", work, "--bind-ro", extra, "--prompt-file", "-", stdin=MOVE.encode())
    found = said(hostile.wait("anna"))
    assert {"/run/substrat", f"{hostile.home}/.config", f"{hostile.home}/one", f"{hostile.home}/data"} <= set(found)
    assert {path: came for path, came in found.items() if came is None} == {}


FACTS = ("keys", "key-users", "cmdline", "kcore", "timer_list", "kallsyms", "config.gz", "sched_debug", "latency_stats")


def test_the_machines_own_facts_are_covered_in_proc(hostile):
    script = f"{TRIED}{READ}answer = {{n: tried(lambda: read('/proc/' + n)) for n in {FACTS!r}}}"
    found = said(hostile.spawn("anna", hostile.workspace(), script))
    assert set(found.values()) <= {"EACCES", "ENOENT"}, found
    assert Path("/proc/cmdline").read_text(), "the control"
    script = "answer = [bool(open('/proc/' + n).read()) for n in ('meminfo', 'cpuinfo', 'stat', 'uptime', 'self/status')]"
    assert said(hostile.ok("send", "anna", script, "--wait")) == [True] * 5, "what programs need is there"
