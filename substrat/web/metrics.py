"""The daemon's metrics in the formats that Prometheus reads; `docs/metrics.md` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from substrat.protocol.objects import HistogramObject, MetricsObject

    Counts = Iterable[tuple[tuple[str, ...], int]]


def encode(found: MetricsObject, accept: str | None) -> tuple[bytes, str]:
    """Return the metrics as a text, and its Content-Type.

    Args:
        found: the numbers.
        accept: the formats that the client takes (`Accept`): OpenMetrics if it is among them, else the plain text.
    """
    # A registry of its own for each answer: the library's global one would add this process's numbers.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(found))
    try:
        encoder, kind = choose_encoder(accept or "")
    except (TypeError, ValueError):  # a version that is no number
        encoder, kind = choose_encoder("")
    return encoder(registry), kind


class _Collected(Collector):
    def __init__(self, found: MetricsObject) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        yield from _now(self._found)
        yield from _totals(self._found)


def _now(found: MetricsObject) -> Iterator[Metric]:
    """Yield the numbers of now."""
    yield InfoMetricFamily("substrat_build", "The daemon's version.", {"version": found["version"]})
    yield _gauge("substrat_agents", "Agents by state.", ("state",), _each(found["agents"]))
    kinds = (((one["kind"], one["level"]), one["count"]) for one in found["attention"])
    yield _gauge("substrat_attention_agents", "Agents by the one reason why they need a person.", ("kind", "level"), kinds)
    yield GaugeMetricFamily("substrat_queued_agents", "Agents that wait for their turns.", found["queued"])
    yield GaugeMetricFamily("substrat_open_questions", "Questions that no person has answered.", found["questions"])
    yield GaugeMetricFamily("substrat_open_waits", "Open waits of agents for others.", found["waits"])
    yield GaugeMetricFamily("substrat_event_cursor", "The newest event's cursor.", found["cursor"])
    yield GaugeMetricFamily("substrat_state_bytes", "Size of the database and its log.", found["state_bytes"])


def _totals(found: MetricsObject) -> Iterator[Metric]:
    """Yield the counters and histograms, which go on over restarts."""
    yield _counter("substrat_turns", "Turns that have ended.", ("outcome",), _each(found["turns"]))
    yield _histogram("substrat_turn_duration_seconds", "Durations of the turns that ended.", found["turn_seconds"])
    about = "How long agents were queued before their turns began."
    yield _histogram("substrat_queue_wait_seconds", about, found["queue_seconds"])
    used = (((one["type"], one["model"]), one["count"]) for one in found["tokens"])
    yield _counter("substrat_tokens", "Tokens that the turns that ended have reported.", ("type", "model"), used)
    yield _counter("substrat_tool_calls", "Tool calls that began.", (), [((), found["tool_calls"])])
    yield _counter("substrat_messages", "Messages that agents sent.", ("outcome",), _each(found["messages"]))
    about = "Decisions of filtered networks, as told in events."
    yield _counter("substrat_network_decisions", about, ("decision",), _each(found["network"]))


def _each(counts: Mapping[str, int]) -> Counts:
    return (((label,), count) for label, count in counts.items())


def _gauge(name: str, about: str, labels: tuple[str, ...], counts: Counts) -> Metric:
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, count in counts:
        family.add_metric(values, count)
    return family


def _counter(name: str, about: str, labels: tuple[str, ...], counts: Counts) -> Metric:
    """Make a counter; the library appends `_total` to its name."""
    family = CounterMetricFamily(name, about, labels=labels)
    for values, count in counts:
        family.add_metric(values, count)
    return family


def _histogram(name: str, about: str, found: HistogramObject) -> Metric:
    buckets = [
        ("+Inf" if one["up_to"] is None else str(float(one["up_to"])), float(one["count"])) for one in found["buckets"]
    ]
    return HistogramMetricFamily(name, about, buckets=buckets, sum_value=found["sum"])
