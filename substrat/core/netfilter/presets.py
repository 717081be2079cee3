"""Named sets of hosts for allow-lists: `--allow @python` stands for the hosts that pip needs. Pure.

The tools' own documents name these hosts. A host to fetch from is often a host to publish to: an agent that reaches a forge
or a registry, and has or makes an account there, can send data out.
"""

from __future__ import annotations

PRESETS = {
    # packaging.python.org, "Package index"; files are served from the second.
    "python": ("pypi.org", "files.pythonhosted.org"),
    # docs.npmjs.com/cli/configuring-npm/npmrc, `registry`; yarn's default is a name for the same.
    "npm": ("registry.npmjs.org", "registry.yarnpkg.com"),
    # docs.github.com, "Allowing access to GitHub's services from a restricted network"; port 22 is ssh.
    "git": (
        "github.com", "github.com:22", "codeload.github.com", "objects.githubusercontent.com", "raw.githubusercontent.com",
        "ssh.github.com", "gitlab.com", "gitlab.com:22", "bitbucket.org", "bitbucket.org:22",
    ),
    # doc.rust-lang.org/cargo/reference/registries.html; the last is rustup's, rust-lang.github.io/rustup.
    "cargo": ("index.crates.io", "static.crates.io", "crates.io", "static.rust-lang.org"),
    # go.dev/ref/mod, "Module proxies" and "Checksum database"; toolchains come through the proxy too.
    "go": ("proxy.golang.org", "sum.golang.org"),
}  # fmt: skip


def preset_of(host: str) -> str | None:
    """Return the name of the set that has a host at the ports of the web, as it is written in a list: `@python`."""
    return next((f"@{name}" for name, hosts in PRESETS.items() if host in hosts), None)
