"""What forbids user namespaces, on machines that are made up, and the commands that allow them."""

import shlex
import subprocess

import pytest

from sandbox import walls
from sandbox.walls import Walls

APPARMOR = Walls(apparmor=True)
BWRAP = "/usr/bin/bwrap"


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (APPARMOR, "sudo apparmor_parser -r /etc/apparmor.d/substrat-bwrap"),
        (Walls(closed=True), "kernel.unprivileged_userns_clone=1"),
        (Walls(most=0), "user.max_user_namespaces=10000"),
        (Walls(most=0, root=True), "user.max_user_namespaces=10000"),
        (Walls(most=0, container="docker"), "on the host: echo user.max_user_namespaces=10000"),
        (Walls(container="docker", filtered=True), "docker run --security-opt seccomp=unconfined"),
        (Walls(container="docker", root=True, apparmor=True), "docker run"),
        (Walls(container="podman"), "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL"),
        (Walls(container="lxc"), "security.nesting true"),
        (Walls(container="systemd-nspawn"), "(systemd-nspawn)"),
        (Walls(filtered=True, most=100), "SystemCallFilter="),
        (Walls(closed=True, apparmor=True, root=True), "see what it says"),
        (Walls(), "see what it says"),
    ],
)
def test_the_remedy_fits_the_machine(machine, said):
    assert said in walls.remedy(machine, BWRAP)


def test_the_launcher_is_an_ordinary_python_so_a_profile_is_none_for_it():
    assert "apparmor_restrict_unprivileged_userns=0" in walls.filtered_remedy(APPARMOR, BWRAP)
    for machine in (Walls(closed=True), Walls(most=0), Walls(container="docker", apparmor=True), Walls()):
        assert walls.filtered_remedy(machine, BWRAP) == walls.remedy(machine, BWRAP)


@pytest.mark.parametrize("program", [BWRAP, "/home/a b/it's/$(x)/bwrap"])
def test_the_profile_is_written_by_one_command(tmp_path, program):
    """The command as it is, but for root and AppArmor."""
    command = walls.profile("substrat-bwrap", program)
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
    assert walls.setting("a.b", "1") == "echo a.b=1 | sudo tee -a /etc/sysctl.d/60-substrat.conf && sudo sysctl --system"


def test_this_machine_can_be_looked_at():
    found = walls.here()
    assert found.most is None or found.most >= 0
    assert walls.sysctl("kernel/ostype") == "Linux"
    assert walls.sysctl("no/such/thing") is None
    assert walls.seccomp_mode() in {"0", "1", "2", None}
