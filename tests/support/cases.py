"""One test for many small cases: cheaper than a test for each, and it names every case that fails."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a test its cases as `pytest.mark.parametrize` does, but run them all in one test.

    It suits cases that share nothing and take no time, such as the rows of a table; what needs a fixture made anew for each
    case, or takes long, is parametrised. Two of these decorators make every combination.

    Args:
        names: the test's arguments, such as `"value"` or `("value", "expected")`.
        cases: a value for each case; where there are several names, a tuple of values.
    """
    listed = (names,) if isinstance(names, str) else names
    rows = [case if len(listed) > 1 else (case,) for case in cases]
    assert rows, "a test without cases shows nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run_all(**fixtures: object) -> None:
            failed = []
            for row in rows:
                try:
                    test(**fixtures, **dict(zip(listed, row, strict=True)))
                except Exception as error:
                    failed.append(f"{', '.join(map(repr, row))}: {type(error).__name__}: {error}")
            assert not failed, f"{len(failed)} of {len(rows)} cases failed:\n" + "\n".join(failed)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in listed]
        run_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined] # pytest asks it
        return run_all

    return decorate
