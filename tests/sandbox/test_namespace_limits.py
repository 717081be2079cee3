"""The reasons why machines forbid user namespaces, on made-up machines, and the commands that allow them."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from sandbox import launch, namespace_limits
from sandbox.namespace_limits import Launcher, NamespaceLimits

APPARMOR = NamespaceLimits(apparmor=True)
BWRAP = "/usr/bin/bwrap"


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (APPARMOR, "sudo apparmor_parser -r /etc/apparmor.d/substrat-bwrap"),
        (NamespaceLimits(closed=True), "kernel.unprivileged_userns_clone=1"),
        (NamespaceLimits(most=0), "user.max_user_namespaces=10000"),
        (NamespaceLimits(most=0, root=True), "user.max_user_namespaces=10000"),
        (NamespaceLimits(most=0, container="docker"), "on the host: echo user.max_user_namespaces=10000"),
        (NamespaceLimits(container="docker", filtered=True), "docker run --security-opt seccomp=unconfined"),
        (NamespaceLimits(container="docker", root=True, apparmor=True), "docker run"),
        (NamespaceLimits(container="podman"), "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL"),
        (NamespaceLimits(container="lxc"), "security.nesting true"),
        (NamespaceLimits(container="systemd-nspawn"), "(systemd-nspawn)"),
        (NamespaceLimits(filtered=True, most=100), "SystemCallFilter="),
        (NamespaceLimits(closed=True, apparmor=True, root=True), "see what it says"),
        (NamespaceLimits(), "see what it says"),
    ],
)
def test_the_remedy_fits_the_machine(machine, said):
    assert said in namespace_limits.remedy(machine, BWRAP)


LAUNCHER = Launcher(
    "/opt/it's here/netlaunch.py", "/usr/local/libexec/substrat-netlaunch", "#!/usr/bin/python3 -IS", "try it"
)


def test_the_launcher_gets_a_path_and_a_profile_of_its_own():
    assert namespace_limits.filtered_remedy(APPARMOR, BWRAP, LAUNCHER) == namespace_limits.install(LAUNCHER)
    for machine in (
        NamespaceLimits(closed=True),
        NamespaceLimits(most=0),
        NamespaceLimits(container="docker", apparmor=True),
        NamespaceLimits(filtered=True),
    ):
        assert namespace_limits.filtered_remedy(machine, BWRAP, LAUNCHER) == namespace_limits.remedy(machine, BWRAP)
    for machine in (NamespaceLimits(), NamespaceLimits(root=True, closed=True), NamespaceLimits(root=True, apparmor=True)):
        assert namespace_limits.filtered_remedy(machine, BWRAP, LAUNCHER) == "see what it says: try it"


def pasted(command, root):
    """Run a command as it is, but for root and AppArmor, with root's directories below another one."""
    for directory in ("/etc/apparmor.d", "/usr/local/libexec"):
        command = command.replace(directory, f"{root}{directory}")
    command = command.replace("sudo ", "").replace("apparmor_parser -r", "cat")
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("before", ["nothing", "another version", "a link"])
def test_one_command_installs_the_launcher(tmp_path, before):
    source = tmp_path / "it's $(here)" / "netlaunch.py"
    source.parent.mkdir()
    source.write_bytes(Path(launch.SOURCE).read_bytes())
    (tmp_path / "etc/apparmor.d").mkdir(parents=True)
    made = tmp_path / "usr/local/libexec/substrat-netlaunch"
    victim = tmp_path / "victim"
    victim.touch()
    if before != "nothing":
        made.parent.mkdir(parents=True)
    if before == "another version":
        made.write_text("old")
    if before == "a link":
        made.symlink_to(victim)
    launcher = Launcher(str(source), launch.INSTALLED, launch.SHEBANG, "")
    done = pasted(namespace_limits.install(launcher), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert made.read_bytes() == launch.installed()
    assert made.stat().st_mode & 0o7777 == 0o755
    assert not made.is_symlink()
    assert victim.read_bytes() == b""
    profile = (tmp_path / "etc/apparmor.d/substrat-netlaunch").read_text()
    assert done.stdout == profile
    assert profile == (
        "abi <abi/4.0>,\ninclude <tunables/global>\n"
        f'profile substrat-netlaunch "{tmp_path}{launch.INSTALLED}" flags=(unconfined) {{ userns, }}\n'
    )
    # It is a program that reports its own errors, for every user.
    said = subprocess.run([made, "enter", "-", "443", str(os.getpid())], capture_output=True, text=True, check=False)
    assert (said.returncode, "substrat: no filtered network" in said.stderr) == (125, True), said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of root's")
def test_only_ours_and_only_roots_is_used(tmp_path):
    path = tmp_path / "launcher"
    path.write_bytes(launch.installed())
    path.chmod(0o755)
    assert launch.is_installed(str(path))
    for mode in (0o775, 0o757, 0o644):
        path.chmod(mode)
        assert not launch.is_installed(str(path))
    path.chmod(0o755)
    os.chown(path, 12345, -1)
    assert not launch.is_installed(str(path))
    os.chown(path, 0, -1)
    (tmp_path / "link").symlink_to(path)
    assert not launch.is_installed(str(tmp_path / "link"))
    path.write_bytes(launch.installed() + b"\n")
    assert not launch.is_installed(str(path))
    assert not launch.is_installed(str(tmp_path / "nothing"))
    assert not launch.is_installed(str(tmp_path))


@pytest.mark.parametrize("program", [BWRAP, "/home/a b/it's/$(x)/bwrap"])
def test_the_profile_is_written_by_one_command(tmp_path, program):
    """The command as it is, but for root and AppArmor."""
    command = namespace_limits.profile("substrat-bwrap", program)
    command = command.replace("/etc/apparmor.d", shlex.quote(str(tmp_path))).replace("sudo ", "")
    command = command.replace("apparmor_parser -r", "cat")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    profile = (tmp_path / "substrat-bwrap").read_text()
    assert profile == (
        "abi <abi/4.0>,\ninclude <tunables/global>\n"
        f'profile substrat-bwrap "{program}" flags=(unconfined) {{ userns, }}\n'
    )  # fmt: skip
    assert done.stdout == profile * 2


def test_a_setting_is_for_now_and_for_ever():
    assert (
        namespace_limits.setting("a.b", "1")
        == "echo a.b=1 | sudo tee -a /etc/sysctl.d/60-substrat.conf && sudo sysctl --system"
    )


def test_this_machine_can_be_looked_at():
    found = namespace_limits.here()
    assert found.most is None or found.most >= 0
    assert namespace_limits.sysctl("kernel/ostype") == "Linux"
    assert namespace_limits.sysctl("no/such/thing") is None
    assert namespace_limits.seccomp_mode() in {"0", "1", "2", None}
