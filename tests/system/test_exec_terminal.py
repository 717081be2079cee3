"""`substratctl exec` on a terminal: its job control, modes, hang-up and pagers."""

from tests.support.daemon import PROGRAMS
from tests.support.processes import arguments_of
from tests.support.terminal import Screen
from tests.system.test_exec import anna, left_over

__all__ = ["anna"]


def on_a_terminal(daemon, line):
    """Run a line of bash's on a terminal, in which EXEC runs a command in anna's sandbox."""
    return Screen(daemon, "-c", f"PATH='{PROGRAMS}':$PATH; EXEC='substratctl exec anna --'; {line}", program="/bin/bash")


def test_a_shell_on_a_terminal(anna, until):
    with Screen(anna, "exec", "anna", "--", "/bin/bash", "--norc", "-i") as screen:
        screen.type("PS1='>'\n")
        screen.until("\n")
        screen.type("stty size; tty >/dev/null || echo unnamed; echo $TERM; : < /dev/tty && echo has-$((1+1))-one\n")
        screen.until("xterm")
        screen.until("has-2-one")
        # Job control: an interrupt ends the command in the foreground, not the shell.
        screen.type("sleep 1000; echo went-$((2+2))-on\n")
        until(lambda: any(arguments_of(pid)[:2] == ["sleep", "1000"] for pid in anna.sandboxed()))
        screen.type("\x03")
        screen.type("echo still-$((3+3))-there; sleep 1001 &\n")
        screen.until("still-6-there")
        assert "went-4-on" not in screen.shown
        screen.type("exit 5\n")
        assert screen.end() == 5
    assert "no job control" not in screen.shown
    until(lambda: left_over(anna) == [])


def test_a_terminal_shows_everything_and_is_as_it_was(anna):
    script = "import sys\nfor n in range(20000): print('line', n)\nsys.stderr.write('the end')"
    with Screen(anna, "exec", "anna", "--", "/usr/bin/python3", "-c", script) as screen:
        assert screen.end() == 0
    lines = screen.shown.split("\r\n")
    assert lines == [*(f"line {number}" for number in range(20000)), "the end"]


def test_a_command_leaves_neither_modes_nor_a_clipboard(anna):
    printed = r"\033[?1049h\033[?1000h\033[?25l\033]52;c;aGk=\007hi"
    for line in ("$EXEC {}", "echo | $EXEC {}"):
        with on_a_terminal(anna, line.format(f"sh -c 'printf \"{printed}\"; kill -9 $$'; echo back")) as screen:
            assert screen.end() == 0
        assert screen.shown == "\x1b[?1049h\x1b[?1000h\x1b[?25l\x1b\\hi\x1b[?1000l\x1b[?1049l\x1b[?25hback\r\n", line


def test_a_terminal_that_hangs_up(anna, until):
    with Screen(anna, "exec", "anna") as screen:
        screen.type("touch up\n")
        until((anna.directory / "work" / "up").exists)
        screen.hang_up()
    until(lambda: left_over(anna) == [])


def test_a_sandbox_cannot_type_into_the_persons_terminal(anna):
    script = "import fcntl; fcntl.ioctl(0, 0x5412, b'x')"
    with Screen(anna, "exec", "anna", "--", "/usr/bin/python3", "-c", script) as screen:
        assert screen.end() == 1
    assert "PermissionError" in screen.shown


def test_in_front_of_a_pager_what_is_typed_is_the_pagers(anna):
    line = "$EXEC sh -c 'cat; echo ready' | (sed s/y/ied/; read -r word < /dev/tty; echo got $word)"
    with on_a_terminal(anna, line) as screen:
        screen.until("readied")
        screen.type("something\n")
        screen.until("got something")
        assert screen.end() == 0


def test_a_terminal_and_something_else(anna):
    with on_a_terminal(anna, "echo hello | $EXEC sh -c 'cat; test -t 1 || echo a pipe; echo complaint >&2'") as screen:
        assert screen.end() == 0
    assert screen.shown.split("\r\n") == ["hello", "a pipe", "complaint", ""]
    script = "sh -c 'test -t 0 && test -t 1 && ! test -t 2 && tty > /dev/null; seq 100000 >&2; echo shown'"
    with on_a_terminal(anna, f"$EXEC {script} 2> {anna.directory}/errors") as screen:
        assert screen.end() == 0
    assert screen.shown == "shown\r\n"
    assert (anna.directory / "errors").read_text().splitlines()[-1] == "100000"
