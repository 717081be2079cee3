"""When a person is told: once for each cause."""

from substrat.core.agents import bell
from substrat.core.agents.attention import Attention, AttentionKind, Level
from tests.support.cases import each


@each("kind", list(AttentionKind))
def test_what_needs_a_person_is_told_once_and_nothing_else_is(kind):
    found = Attention(kind, "why", 12.5)
    needs = found.level is not Level.INFO
    assert bell.is_due(found, None) == needs
    assert not bell.is_due(found, bell.cause(found))
    assert bell.is_due(found._replace(since=13.0), bell.cause(found)) == needs
    assert not bell.is_due(found._replace(text="why now"), bell.cause(found)), "a question's words may be cut otherwise"
