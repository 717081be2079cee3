"""`substratd`: the daemon's command line; everything it does is `app`."""

from __future__ import annotations

import argparse
import os
import sys

import structlog
import trio

from substrat import __version__, config, errors, paths
from substrat.daemon import app, failpoints, logs
from substrat.daemon.kernel import file_server
from substrat.daemon.state.layout import Layout


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="substratd", description="Runs cursor-agent in sandboxes. Stops on SIGTERM (turns go on), reloads on SIGHUP."
    )
    found.add_argument("--state-dir", help="where agents are kept (default: SUBSTRAT_STATE_DIR, or the user's state)")
    found.add_argument("--runtime-dir", help="where sockets are (default: SUBSTRAT_RUNTIME_DIR, or the user's runtime)")
    found.add_argument("--config", help="the configuration file (default: SUBSTRAT_CONFIG, or the user's config.toml)")
    found.add_argument("--points", action="store_true", help=argparse.SUPPRESS)  # for tests: docs/debugging.md
    found.add_argument(
        "--set-aside-damaged-state",
        action="store_true",
        help="go back to the last copy if the database is damaged, or begin anew, and keep the damaged one",
    )
    found.add_argument("--version", action="version", version=f"substratd {__version__}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the daemon in the foreground.

    Args:
        arguments: the command line without the program's name; `sys.argv` when None.

    Returns:
        The exit status.
    """
    given = parser().parse_args(arguments)
    if given.points:
        print(*failpoints.FAILPOINTS, sep="\n")
        return errors.DONE
    environ = dict(os.environ)
    try:
        places = Layout(
            os.path.abspath(given.state_dir or paths.state_dir()), os.path.abspath(given.runtime_dir or paths.runtime_dir())
        )
        config_path = given.config or paths.config_file()
        if given.config and not os.path.exists(given.config):
            raise errors.ConfigInvalid(f"{given.config}: no such file")
        old_words: list[str] = []
        loaded = config.load(config_path, environ, old_words.append)
        logs.configure(loaded.log.level, loaded.log.format, under_systemd="NOTIFY_SOCKET" in environ)
        for sentence in old_words:
            structlog.get_logger("substrat.daemon").warning(sentence)
        with file_server.start() as server:
            settings = app.DaemonSettings(
                places, config_path, loaded, environ, server, begin_anew=given.set_aside_damaged_state
            )
            trio.run(app.run, settings)
    except errors.SubstratError as problem:
        logs.say(f"substratd: {problem.message}")
        return problem.exit_status
    finally:
        logs.let_go()
    return errors.DONE


if __name__ == "__main__":
    sys.exit(main())
