"""When a person is told: once for each cause."""

from substrat.core.agents import bell
from substrat.core.agents.attention import Attention, AttentionKind, Level
from substrat.core.agents.lifecycle import Phase
from tests.support.cases import each


@each("kind", list(AttentionKind))
def test_what_needs_a_person_is_told_once_and_nothing_else_is(kind):
    found = Attention(kind, "why", 12.5)
    needs = found.level is not Level.INFO
    assert bell.is_due(found, None, Phase.IDLE) == needs
    assert not bell.is_due(found, bell.cause(found), Phase.IDLE)
    assert bell.is_due(found._replace(since=13.0), bell.cause(found), Phase.IDLE) == needs
    told = bell.cause(found)
    assert not bell.is_due(found._replace(text="why now"), told, Phase.IDLE), "a question's words may be cut otherwise"
    is_urgent = found.level is Level.URGENT
    assert bell.is_due(found, None, Phase.SUSPENDED) == is_urgent, "a person knows what they have suspended"


def test_a_command_that_goes_on_failing_is_tried_less_and_less():
    pauses = [bell.pause(failures) for failures in (1, 2, 3, 20, 2000)]
    assert pauses == [30, 60, 120, 3600, 3600]
