"""Which totals a fact adds to, and how the stored ones are put together."""

from dataclasses import replace

from substrat.core.agents import totals
from substrat.core.agents.records import Outcome, Turn
from tests.support.cases import each

ENDED = Turn("t", "a", 1, 1000.0, outcome=Outcome.SUCCESS, ended_at=1042.0, model="gpt-5")


def stored(*additions):
    """The totals after some additions."""
    found: dict[tuple[str, str], float] = {}
    for one in additions:
        found[one.name, one.label] = found.get((one.name, one.label), 0) + one.value
    return found


def test_a_turn_adds_its_outcome_its_duration_and_its_tokens():
    usage = {"inputTokens": 7, "outputTokens": 2, "cacheReadTokens": 0, "webSearches": 3}
    assert stored(*totals.of_end(replace(ENDED, usage=usage), ())) == {
        ("turns", "success"): 1, ("turn_seconds", "60"): 1, ("turn_seconds_sum", ""): 42.0, ("tokens", "input gpt-5"): 7,
        ("tokens", "output gpt-5"): 2,
    }  # fmt: skip


@each(
    ("seconds", "bound"),
    [(0.0, "0.5"), (0.5, "0.5"), (0.51, "1"), (3600.0, "3600"), (14400.5, "inf"), (9e9, "inf"), (-5.0, "0.5")],
)
def test_a_duration_is_counted_under_the_smallest_bound_that_holds_it(seconds, bound):
    found = stored(*totals.of_begin(seconds))
    assert found == {("queue_seconds", bound): 1, ("queue_seconds_sum", ""): max(0.0, seconds)}


@each(
    ("model", "known", "named"),
    [
        ("gpt-5", 0, "gpt-5"),
        ("gpt-5", totals.MOST_MODELS - 1, "gpt-5"),
        ("gpt-5", totals.MOST_MODELS, "other"),
        ("model 3", totals.MOST_MODELS, "model 3"),
        (None, 0, "other"),
    ],
)
def test_tokens_are_counted_by_name_for_so_many_models(model, known, named):
    models = totals.models_of(f"{kind} model {number}" for kind in ("input", "output") for number in range(known))
    found = totals.of_end(replace(ENDED, usage={"inputTokens": 1}, model=model), models)
    assert ("tokens", f"input {named}", 1) in found


def test_a_program_that_lies_about_its_tokens_uses_up_no_precision():
    (found,) = [one for one in totals.of_end(replace(ENDED, usage={"inputTokens": 2**62}), ()) if one.name == "tokens"]
    assert found.value * 100_000 < 2**53


def test_events_are_counted_by_kind():
    kinds = ["tool-call-started", "tool-call-completed", "assistant", "tool-call-started", "network:denied", "message:sent"]
    assert stored(*totals.of_events(kinds)) == {
        ("tool_calls", ""): 2, ("network", "denied"): 1, ("messages", "accepted"): 1,
    }  # fmt: skip
    assert totals.of_events(["assistant"]) == []


def test_totals_without_additions_are_zero():
    found = totals.put_together({})
    assert found["turns"] == dict.fromkeys(["success", "error", "interrupted", "timed_out", "lost"], 0)
    assert (found["tokens"], found["tool_calls"]) == ([], 0)
    assert found["network"] == {"allowed": 0, "denied": 0}


def test_a_buckets_count_is_of_all_durations_up_to_its_bound():
    waited = [0.1, 0.2, 4.0, 50_000.0]
    found = totals.put_together(stored(*(one for seconds in waited for one in totals.of_begin(seconds))))
    histogram = found["queue_seconds"]
    assert isinstance(histogram, dict)
    assert (histogram["count"], histogram["sum"]) == (4, sum(waited))
    counts = [(bucket["up_to"], bucket["count"]) for bucket in histogram["buckets"]]
    assert [counts[0], counts[2], counts[-2], counts[-1]] == [(0.5, 2), (5.0, 3), (14400.0, 3), (None, 4)]


def test_labels_that_were_never_written_are_left_out():
    found = totals.put_together({("tokens", "zz top"): 1.0, ("turn_seconds", "zz"): 1.0, ("nothing", ""): 1.0})
    assert found == totals.put_together({})
