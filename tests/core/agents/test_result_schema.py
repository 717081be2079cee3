"""Which results fit a schema, and which schemas can be used."""

import json

import pytest

from substrat.core.agents import result_schema

SCHEMA = {
    "type": "object", "required": ["score"], "additionalProperties": False,
    "properties": {"score": {"type": "integer", "minimum": 0}, "tags": {"type": "array", "items": {"enum": ["a", 1]}}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ('{"score": 3, "tags": ["a", 1]}', None),
        ('{"score": 3.0}', None),
        ('{"score": true}', "'score' of the result must be of type integer"),
        ('{"score": NaN}', "NaN is no JSON"),
        ('{"score": -1}', "less than 0"),
        ('{"score": 1, "tags": [true]}', "item 0 of 'tags' of the result must be one of"),
        ('{"score": 1, "more": 2}', "'more', which the schema doesn't know"),
        ("[" * 100_000, "must be JSON"),
        ("{}", "lacks 'score'"),
        ("done", "must be JSON"),
    ],
)
def test_a_misfit_is_named_with_its_place(result, words):
    found = result_schema.misfit(json.dumps(SCHEMA), result)
    assert found is None if words is None else words in (found or "")


@pytest.mark.parametrize(
    "schema", ["x", {"$ref": "#"}, {"type": "date"}, {"required": "score"}, {"properties": {"a": {"pattern": ".*"}}}]
)
def test_a_schema_that_cannot_be_used_is_refused(schema):
    assert result_schema.problem(schema) is not None
    assert result_schema.problem(SCHEMA) is None
