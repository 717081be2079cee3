"""The certificate authorities that agents trust: the system's, and a company's own (`sandbox.ca`) with them in one file.

A program looks for authorities in one of a few files, or where a variable says, or brings its own, as node, uv and
python's requests do. So the one file is shown in the place of each of those files, and the variables name it. Without a
company's they name the system's if its administrator has added some to it; else they stay unset, because python's
requests puts its variable before the `Session.verify` of a program.
"""

from __future__ import annotations

import binascii
import os
import re
from typing import TYPE_CHECKING

from sandbox.spec import Bind
from substrat.daemon.kernel import nofollow
from substrat.errors import SandboxFailed
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.spec import Mount

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora and its kin
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine
)
"""Where systems keep all authorities in one file."""
ADDED = (
    "/usr/local/share/ca-certificates",  # Debian, Ubuntu, Alpine: update-ca-certificates(8)
    "/etc/pki/ca-trust/source/anchors",  # Fedora and its kin: update-ca-trust(8)
    "/etc/pki/trust/anchors",  # openSUSE
    "/etc/ca-certificates/trust-source/anchors",  # Arch
)
"""Where administrators put authorities that are to be added to those files."""
IN_SANDBOX = "/run/substrat/authorities.pem"
VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL, and so python and cargo; go, uv
    "NODE_EXTRA_CA_CERTS",  # nodejs.org/api/cli.html
    "REQUESTS_CA_BUNDLE",  # python's requests, and pip
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
)

_LARGEST = 4 << 20
"""Bytes of one file of authorities: Debian's has some 200 KiB."""
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+?)-----END CERTIFICATE-----")


def write(named: str, path: str) -> tuple[str, ...]:
    """Write all authorities into one file, unless it holds them already.

    Args:
        named: the company's file, as the configuration names it.
        path: the file to write; a reader sees the old or the new one, whole.

    Returns:
        The system's files in whose place it is to be shown.

    Raises:
        SandboxFailed: the company's file can't be read or has no certificate in it, or there are no system's.
    """
    own = read(named)
    bundles = [bundle for bundle in BUNDLES if os.path.isfile(bundle)]
    if not bundles:
        raise SandboxFailed("sandbox.ca: this system's own authorities aren't found: install its package ca-certificates")
    try:
        wanted = _contents(bundles[0]).rstrip(b"\n") + b"\n" + own
        if nofollow.read_own(path, 2 * _LARGEST) != wanted:
            part = f"{path}.part"
            with open(part, "wb") as file:
                file.write(wanted)
            os.replace(part, path)
    except OSError as problem:
        raise SandboxFailed(f"sandbox.ca: {path} can't be made from {bundles[0]}: {problem.strerror}") from None
    # A mount over a link lands on the link's target, which is another of them or isn't shown.
    return tuple(bundle for bundle in bundles if not os.path.islink(bundle))


def extended_bundle(system: Iterable[Mount]) -> str:
    """Return the system's file of all authorities as a sandbox shows it, if an administrator has added some; else nothing.

    Args:
        system: the operating system's mounts.
    """
    if not any(map(_has_files, ADDED)):
        return ""
    shown = [mount.target for mount in system if isinstance(mount, Bind)]
    for bundle in BUNDLES:
        real = os.path.realpath(bundle)  # which needn't be shown if the bundle itself is: a mount follows links
        if os.path.isfile(real) and (bundle in shown or any(is_within(real, target) for target in shown)):
            return bundle
    return ""


def read(named: str) -> bytes:
    """Return a company's authorities; raises `SandboxFailed` if the file can't be read, or has no certificate in it."""
    try:
        data = _contents(named)
    except OSError as problem:
        raise SandboxFailed(f"sandbox.ca: {named} can't be read ({problem.strerror}): correct it in config.toml") from None
    found = _CERTIFICATE.findall(data)
    if not found or not all(map(_is_base64, found)):
        raise SandboxFailed(f"sandbox.ca: {named} isn't a file of certificates in PEM form: correct it in config.toml")
    return data


def _has_files(directory: str) -> bool:
    return any(files for _, _, files in os.walk(directory))


def _contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_LARGEST)


def _is_base64(text: bytes) -> bool:
    try:
        return bool(binascii.a2b_base64(text, strict_mode=False))
    except binascii.Error:
        return False
