"""Which rule of `docs/protocol.md` a test holds the daemon to; `test_documents.py` checks that none is without one."""


def rule(*ids):
    """Mark a test with the rules it tests."""

    def mark(function):
        function.rules = ids
        return function

    return mark
