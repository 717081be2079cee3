"""A table of the state: its SQL, and the decoding and encoding of its rows, made from its columns."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from substrat.errors import StateUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.daemon.state.columns import Column

R = TypeVar("R")


class RowDamaged(StateUnusable):
    """A row has a value that the daemon can't have written; the message names the table and the column."""


class Table(Generic[R]):
    """A table of the state.

    Args:
        name: its name.
        row: makes a record from the values of the columns, in their order; raises ValueError for values that can't go
            together. None: a row becomes a tuple.
        owner: the column that names the agent a row belongs to; None where rows belong to no agent.
        with_agent: whether an agent is set aside for a row of it that can't be read; otherwise the row alone is.
        columns: the columns by name.
    """

    def __init__(
        self,
        name: str,
        row: Callable[..., R] | None = None,
        owner: str | None = None,
        *,
        with_agent: bool = False,
        columns: dict[str, Column],
    ) -> None:
        self.column_kinds = columns
        self.name = name
        self.owner = owner
        self.with_agent = with_agent
        self.names = tuple(columns)
        self.columns = ", ".join(columns)
        """The columns as SELECT and INSERT list them."""
        self.select = f"SELECT {self.columns} FROM {name}"  # noqa: S608 - constants
        self.checked_columns = ", ".join(
            name if column.sample is None else f"CASE typeof({name}) WHEN 'text' THEN '{column.sample}' ELSE {name} END"
            for name, column in columns.items()
        )
        """The columns as SELECT lists them to find out whether a row can be read: prose isn't loaded for that."""
        self._row: Callable[..., R] = row or _as_tuple  # type: ignore[assignment]
        self._readers = tuple(column.read for column in columns.values())
        self._writers = tuple((place, column.write) for place, column in enumerate(columns.values()) if column.write)

    def insert(self, how: str = "INSERT", without: tuple[str, ...] = ()) -> str:
        """Return the statement that inserts a row.

        Args:
            how: its beginning, such as "INSERT OR REPLACE".
            without: columns that SQLite fills in.
        """
        names = [name for name in self.names if name not in without]
        return f"{how} INTO {self.name} ({', '.join(names)}) VALUES ({','.join('?' * len(names))})"

    def upsert(self, key: str, kept: tuple[str, ...] = (), where: str = "TRUE") -> str:
        """Return the statement that inserts a row or replaces the values of the one with the same key.

        Args:
            key: the column that tells rows apart.
            kept: columns whose stored value stays where the new one is NULL,
            where: and this condition holds.
        """
        changes = ", ".join(
            f"{name}=CASE WHEN {where} THEN coalesce(excluded.{name}, {name}) ELSE excluded.{name} END"
            if name in kept
            else f"{name}=excluded.{name}"
            for name in self.names
            if name != key
        )
        return f"{self.insert()} ON CONFLICT ({key}) DO UPDATE SET {changes}"

    def read(self, values: Sequence[Any]) -> R:
        """Decode a row.

        Args:
            values: its values in the order of `columns`.

        Raises:
            RowDamaged: a value can't have been written by the daemon.
        """
        try:
            return self._row(*[read(value) for read, value in zip(self._readers, values, strict=True)])
        except (ValueError, RecursionError) as problem:
            raise self._damage(values, problem) from None

    def read_all(self, found: Sequence[Sequence[Any]]) -> list[R]:
        """Decode many rows, several times as fast as one by one: equal values of a column are decoded once.

        Args:
            found: the rows, each in the order of `columns`.

        Raises:
            RowDamaged: a value can't have been written by the daemon.
        """
        try:
            decoded = [
                _read_column(read, column) for read, column in zip(self._readers, zip(*found, strict=True), strict=False)
            ]
            read_rows = list(starmap(self._row, zip(*decoded, strict=True)))
        except (ValueError, RecursionError):
            return [self.read(values) for values in found]  # which raises, with the column's name
        return read_rows

    def _damage(self, values: Sequence[Any], problem: Exception) -> RowDamaged:
        complaints = []
        for name, read, value in zip(self.names, self._readers, values, strict=True):
            try:
                read(value)
            except (ValueError, RecursionError) as complaint:
                complaints.append(f"{self.name}.{name} {complaint}")
        return RowDamaged("; ".join(complaints or [f"{self.name}.{problem}"]))

    def write(self, record: object, **others: object) -> list[Any]:
        """Encode a record, in the order of `columns`: each is its attribute of that name, or given by name.

        For example `FINDINGS.write(finding, number=0, accepted_at=None)`.
        """
        values = [others[name] if name in others else getattr(record, name) for name in self.names]
        for place, write in self._writers:
            values[place] = write(values[place])
        return values


def _as_tuple(*values: object) -> tuple[object, ...]:
    return values


def _read_column(read: Callable[[Any], Any], column: Sequence[Any]) -> list[Any]:
    if len({*map(type, column)} - {type(None)}) > 1:
        return [read(value) for value in column]  # 1 and 1.0 are equal, but not to every reader
    known = {value: read(value) for value in set(column)}
    return list(map(known.__getitem__, column))
