"""Mounts paths inside a running sandbox: a program of its own, run with `python -I -S`.

- `remount.py cover PID MODE PATH…` enters the mount namespace of process PID and binds each PATH over itself. MODE is a
  word of one letter for each path: `r` read-only, `w` writable. For example `cover 4711 r /work/.git/config` makes that
  file read-only again after a person has replaced it. The program prints nothing; its exit status is 0 when every path was
  mounted, and 125 with one line on stderr when one wasn't.
- `remount.py launch FD REPORT FROM TO FROM TO… -- PROGRAM ARGUMENTS…` becomes PROGRAM, which makes a sandbox. The sandbox's
  first program has a socket at the descriptor FD and says there that it waits (`bwrap.GATE`). A child of PROGRAM's then
  moves the mount at each FROM to TO, and answers with an empty line, or with the reason why one can't be moved. The daemon
  has no part in it, so a sandbox begins all the same where the daemon is killed meanwhile. The file at the descriptor
  REPORT is given the line `{"mounted": 0}` while the sandbox waits, and `{"mounted": 1}` when it needn't any more.

The caller needs no privilege that it hadn't when it made the sandbox: it owns the user namespace that the mount namespace
belongs to (ioctl_ns(2), NS_GET_USERNS), and entering that gives the capabilities to mount (user_namespaces(7)). Paths are
opened once, following no link, and mounted by descriptor, so nothing can be swapped between the look and the mount
(openat2(2), open_tree(2), move_mount(2), and mount_setattr(2) since Linux 5.12).
"""

import _signal  # type: ignore[import-not-found]  # it and _socket take less time to import than signal and socket
import _socket
import ctypes
import fcntl
import os
import sys

FAILED = 125
"""The exit status when something can't be mounted; 126 and 127 are the shell's."""

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
NS_GET_USERNS = 0xB701  # linux/nsfs.h
# The numbers are the same on every architecture that has the calls (asm-generic/unistd.h).
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_OPENAT2 = 437
SYS_MOUNT_SETATTR = 442
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
RESOLVE_NO_SYMLINKS = 0x04
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
S_IFMT, S_IFDIR = 0o170000, 0o040000
_TRIES = 100
"""How often a file is mounted over that is replaced at that moment, as git does with its configuration."""
_CREDENTIALS = 12
"""Bytes of a `struct ucred`: pid, uid and gid."""


def main(arguments: list[str]) -> int:
    """Carry the arguments out; on failure print one line to stderr and return `FAILED`."""
    form, number, *rest = arguments
    if form == "launch":
        end = rest.index("--")
        return launch(int(number), int(rest[0]), rest[1:end], rest[end + 1 :])
    try:
        enter(int(number))
        for mode, path in zip(rest[0], rest[1:], strict=True):
            cover(path, is_writable=mode == "w")
    except OSError as problem:
        return _fail(_sentence(problem))
    return 0


def launch(gate: int, report: int, paths: list[str], program: list[str]) -> int:
    """Become a program that makes a sandbox, with a child that makes the late mounts; returns only where that fails.

    Args:
        gate: the descriptor at which the sandbox waits.
        report: the descriptor of the file that says whether all is mounted.
        paths: where a mount stands and its target, and so on for each, outer ones first.
        program: the program's path and its arguments.
    """
    try:
        ours, theirs = _socket.socketpair()
        ours.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
        os.write(report, b'{"mounted": 0}\n')
        if os.fork() == 0:
            try:
                _serve(ours, report, paths)
            finally:
                os._exit(0)
        os.dup2(theirs.fileno(), gate)
        os.set_inheritable(gate, True)  # dup2 does nothing where it has that number already
        # Python ignores these, and an ignored signal stays ignored in the program (execve(2)).
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        os.execv(program[0], program)  # noqa: S606 - it takes this process's place
    except OSError as problem:
        return _fail(f"can't start {program[0]}: {problem.strerror}")


def _serve(ours: "_socket.socket", report: int, paths: list[str]) -> None:
    """Wait for a sandbox's first program, make its late mounts, and answer it; one that has ended gets no answer."""
    # Its lock, its output and the other end of the socket are the sandbox's alone, so that they end with it.
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in (ours.fileno(), report):
            os.closerange(number, number + 1)  # no error for the one that the list itself had
    said, credentials, *_ = ours.recvmsg(1, _socket.CMSG_SPACE(_CREDENTIALS))
    if not said:
        return
    # The kernel says which process has sent it, by its pid out here (unix(7), SCM_CREDENTIALS).
    pid = int.from_bytes(credentials[0][2][:4], sys.byteorder)
    answer = ""
    try:
        enter(pid)
        for source, target in zip(paths[::2], paths[1::2], strict=True):
            move(source, target)
        os.write(report, b'{"mounted": 1}\n')
    except OSError as problem:
        answer = _sentence(problem)
    ours.send(f"{answer}\n".encode())


def _fail(sentence: str) -> int:
    os.write(2, f"substrat: {sentence}\n".encode())
    return FAILED


def _sentence(problem: OSError) -> str:
    where = os.fsencode(problem.filename or "").decode("utf-8", "replace")
    return f"can't mount {where}: {problem.strerror}"


def enter(pid: int) -> None:
    """Enter a process's mount namespace, and the user namespace that owns it first.

    Raises:
        OSError: it is gone, or the kernel doesn't allow it.
    """
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(namespace, NS_GET_USERNS)
    ours, theirs = os.stat("/proc/self/ns/user"), os.fstat(owner)
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        _call("setns", owner, CLONE_NEWUSER)
    _call("setns", namespace, CLONE_NEWNS)


def move(source: str, target: str) -> None:
    """Move the mount at a path to another one, which is made where it is missing, as bubblewrap makes mount points.

    For example a clone has no directory `data` that git ignores, and the agent was given yours.

    Raises:
        OSError: one of them is a link or lies behind one, or the mount can't be moved.
    """
    moved = _open(source)
    try:
        left = _TRIES
        while not _is_moved(moved, target, is_last=not (left := left - 1)):
            pass
    finally:
        os.close(moved)


def _is_moved(moved: int, target: str, *, is_last: bool) -> bool:
    """Move a mount to a path; say whether that is done. Unless it is the last try, a file that is replaced is no error."""
    try:
        found = _open(target)
    except FileNotFoundError:
        _make(target, is_directory=os.fstat(moved).st_mode & S_IFMT == S_IFDIR)
        found = _open(target)
    try:
        _move(target, moved, found)
    except FileNotFoundError:
        if is_last:
            raise
        return False
    finally:
        os.close(found)
    return True


def cover(path: str, *, is_writable: bool) -> None:
    """Bind a file or directory over itself.

    Raises:
        OSError: it isn't there, is a link or lies behind one, or can't be mounted.
    """
    found = _open(path)
    try:
        flags = OPEN_TREE_CLONE | AT_EMPTY_PATH | os.O_CLOEXEC
        tree = _system_call(SYS_OPEN_TREE, path, found, b"", flags)
        try:
            attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (0 if is_writable else MOUNT_ATTR_RDONLY)
            wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
            _system_call(SYS_MOUNT_SETATTR, path, tree, b"", AT_EMPTY_PATH, wanted, ctypes.sizeof(wanted))
            _move(path, tree, found)
        finally:
            os.close(tree)
    finally:
        os.close(found)


def _make(path: str, *, is_directory: bool) -> None:
    """Make a directory, or an empty file, and the directories above it; a link on the way is an error."""
    *above, name = path.strip("/").split("/")
    place = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for part in above:
        _make_one(part, place, is_directory=True)
        inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
        os.close(place)
        place = inner
    _make_one(name, place, is_directory=is_directory)
    os.close(place)


def _make_one(name: str, place: int, *, is_directory: bool) -> None:
    try:
        if is_directory:
            os.mkdir(name, 0o755, dir_fd=place)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=place))
    except FileExistsError:
        pass


def _open(path: str) -> int:
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS)
    return _system_call(SYS_OPENAT2, path, AT_FDCWD, os.fsencode(path), how, ctypes.sizeof(how))


def _move(path: str, tree: int, target: int) -> None:
    _system_call(SYS_MOVE_MOUNT, path, tree, b"", target, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _system_call(number: int, path: str, *arguments: object) -> int:
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return result


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
