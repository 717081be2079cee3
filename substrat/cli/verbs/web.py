"""`web`: serves the page and its API on the loopback."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli.options import Arguments, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

COMMAND = Command(
    "web",
    options=(
        Option("--port", value="N", about="the port on 127.0.0.1; default: 8675, 0: any that is free"),
        Option("--url", about="print the links of the servers that run, with the token, and serve nothing"),
        Option("--new-token", about="make another token first: links with the old one end"),
        Option("--read-only", about="refuse everything that changes something"),
        Option("--behind-proxy", about="answer to the origin of --origin too"),
        Option(
            "--origin", value="URL", about="with --behind-proxy: the address that people see, such as https://box.example"
        ),
    ),
    notes=(
        "The first line is the link. On a terminal it has the token; elsewhere, as in a unit's journal, it "
        "doesn't. Who has the token can do all that you can with substratctl. It listens on the loopback "
        "alone. Needs the extra `web`."
    ),
)


def run(arguments: Arguments) -> int:
    """Serve the page until it is told to stop, and return the exit status."""
    port = arguments.whole("port")
    if port is not None and not 0 <= port <= 65535:
        raise COMMAND.wrong(f"there is no port {port}: it takes a number from 0 to 65535")
    origin = _origin(arguments)
    main = server()
    if arguments.flag("url"):
        sys.stdout.write(main.links(port, new_token=arguments.flag("new-token")))
        return errors.DONE
    wanted = main.PORT if port is None else port
    main.serve(main.Options(wanted, origin, arguments.flag("read-only"), arguments.flag("new-token")))
    return errors.DONE


def server() -> ModuleType:
    """Return the server's module.

    Raises:
        NotAvailable: the extra `web` isn't installed.
    """
    try:
        from substrat.web import main
    except ModuleNotFoundError as problem:
        raise errors.NotAvailable(
            f"the extra 'web' isn't installed ({problem.name} is missing): pip install 'substrat[web]', or "
            "pipx inject substrat starlette uvicorn websockets prometheus-client, or uv tool install 'substrat[web]'"
        ) from None
    return main


def _origin(arguments: Arguments) -> str | None:
    """Return the proxy's origin; its form is that of the header `Origin` (RFC 6454, 6.2).

    Raises:
        UsageError: it isn't one, or the two options didn't come together.
    """
    given = arguments.value("origin")
    if arguments.flag("behind-proxy") != (given is not None):
        raise COMMAND.wrong("--behind-proxy and --origin URL go together")
    if given is None:
        return None
    scheme, mark, host = given.rstrip("/").partition("://")
    if scheme not in {"http", "https"} or not mark or not host or any(letter in host for letter in "/?#@ "):
        raise COMMAND.wrong(f"--origin takes an address such as https://box.example, not {given!r}")
    # Browsers leave the scheme's own port out.
    return f"{scheme}://{host.lower().removesuffix(':443' if scheme == 'https' else ':80')}"
