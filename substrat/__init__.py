"""Substrat: runs cursor-agent in bubblewrap sandboxes; this module names the version and the Python way in.

It imports nothing at start-up: `substratctl` and the stand-in pay for every module that is imported here.
"""

__version__ = "0.1.0"
__all__ = ["Client", "__version__"]


TYPE_CHECKING = False  # checkers take this name for true, and importing `typing` for it would cost

if TYPE_CHECKING:
    from substrat.client import Client as Client
else:

    def __getattr__(name: str) -> object:
        """Import `Client` (which needs Trio) only when somebody asks for it."""
        if name == "Client":
            from substrat.client import Client

            return Client
        raise AttributeError(f"module 'substrat' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
