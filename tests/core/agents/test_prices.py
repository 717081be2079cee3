"""List prices: the table of the package, the names of models, and what a turn costs."""

from importlib import resources

import pytest

from substrat.core.agents import prices
from substrat.core.agents.prices import Price

TABLE = prices.parse("""
[anthropic]
"claude-sonnet-4-5" = { input = 3, cache_read = 0.3, cache_write = 3.75, output = 15 }
[openai]
"gpt-9" = { input = 1, output = 8 }
""")


def test_each_kind_of_tokens_has_its_price():
    usage = {"inputTokens": 1000, "cacheReadTokens": 20_000, "cacheWriteTokens": 0, "outputTokens": 500}
    assert prices.cost(TABLE, "claude-sonnet-4-5", usage) == pytest.approx(0.003 + 0.006 + 0.0075)
    assert prices.cost(TABLE, "gpt-9", {}) == 0.0


@pytest.mark.parametrize(
    "model",
    ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5@20250929", "Sonnet-4.5", "sonnet-4.5-thinking",
     "sonnet-4.5-high",
     "anthropic/claude-sonnet-4.5"],
)  # fmt: skip
def test_programs_write_a_models_name_in_their_own_ways(model):
    assert prices.cost(TABLE, model, {"inputTokens": 1_000_000}) == 3.0


@pytest.mark.parametrize("model", ["auto", None, "", "sonnet", "sonnet-4", "gpt-9-fast", "opus-4.5"])
def test_another_model_has_no_price(model):
    assert prices.cost(TABLE, model, {"inputTokens": 1}) is None


def test_a_kind_without_a_price_costs_what_input_does():
    assert prices.cost(TABLE, "gpt-9", {"cacheWriteTokens": 500_000, "outputTokens": 1_000_000}) == 8.5


def test_a_snapshot_with_a_price_of_its_own_keeps_it():
    table = {**TABLE, "gpt-9-2026-01-02": Price(input=5.0, output=9.0)}
    assert prices.cost(table, "gpt-9-2026-01-02", {"inputTokens": 1_000_000}) == 5.0
    assert prices.cost(table, "gpt-9-2026-03-04", {"inputTokens": 1_000_000}) == 1.0


def test_a_claim_of_tokens_below_zero_costs_nothing():
    assert prices.cost(TABLE, "gpt-9", {"inputTokens": -5}) == 0.0


def test_the_table_of_the_package_has_the_vendors_of_our_programs():
    text = resources.files("substrat.core").joinpath("prices.toml").read_text(encoding="utf-8")
    table = prices.parse(text)
    for name in ("sonnet-4-5", "opus-4-1", "gpt-5", "gpt-5-codex", "gemini-2-5-pro"):
        price = table[name]
        assert price.input is not None
        assert price.output is not None
        assert 0 < price.input < price.output < 1000, (name, price)
