"""The model names the stand-in accepts and how it shows them; there is no model behind any of them."""

from __future__ import annotations

import re

DEFAULT_MODEL = "auto"

CATALOGUE = (
    "auto", "composer-2.5", "composer-2.5-fast", "gpt-5.5", "gpt-5.5-fast", "gpt-5.5-high", "gpt-5.5-codex", "sonnet-4.6",
    "sonnet-4.6-thinking", "opus-4.8", "opus-4.8-thinking", "claude-haiku-5", "gemini-3.5-pro", "gemini-3.5-flash",
    "grok-4.7", "grok-4.7-fast",
)  # fmt: skip

# The real catalogue has hundreds of ids and changes weekly: any id of a known family counts as one of them.
_FAMILIES = (
    r"(composer|gpt|sonnet|opus|haiku|claude|gemini|grok|kimi|deepseek|glm|cursor)-[a-z0-9][a-z0-9.-]*"
    r"|o[1-9](-[a-z0-9.-]+)?"
)
_SPELLED = {"gpt": "GPT", "glm": "GLM", "deepseek": "DeepSeek"}
_TWO_PART_CALL_IDS = ("auto", "gpt", "grok", "o")


def is_known(slug: str) -> bool:
    """Whether `--model SLUG` is accepted."""
    return slug in CATALOGUE or re.fullmatch(_FAMILIES, slug) is not None


def display_name(slug: str) -> str:
    """The name that `system/init` shows for a slug: `composer-2.5-fast` is `Composer 2.5 Fast`."""
    return " ".join(_SPELLED.get(word, word[:1].upper() + word[1:]) for word in slug.split("-"))


def has_two_part_call_ids(slug: str) -> bool:
    """Whether tool calls of this model have an id with a newline in it."""
    return slug.partition("-")[0].rstrip("0123456789") in _TWO_PART_CALL_IDS
