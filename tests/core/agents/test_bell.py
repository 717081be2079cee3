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


@each("kind", list(AttentionKind))
def test_a_family_rings_once_for_a_reason_but_for_each_question_and_finding(kind):
    found, other = Attention(kind, "why", 12.5), Attention(kind, "why another", 10.0)
    if other.level is not Level.INFO:
        is_shared = kind not in {AttentionKind.ANSWER, AttentionKind.UNSAFE}
        assert bell.is_known(found, [(other, bell.cause(other))]) == is_shared
        assert not bell.is_known(found, [(other, "another 1.000")]), "nobody was told of the other"
        assert not bell.is_known(found, [(Attention(AttentionKind.IDLE, "", 10.0), bell.cause(found))]), "that is settled"


def test_a_command_that_goes_on_failing_is_tried_less_and_less():
    pauses = [bell.pause(failures) for failures in (1, 2, 3, 20, 2000)]
    assert pauses == [30, 60, 120, 3600, 3600]
