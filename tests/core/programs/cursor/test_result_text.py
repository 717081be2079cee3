"""A turn's result as a person reads it."""

from substrat.core.programs.cursor.answers import result_text


def test_segments_that_were_glued_together_are_set_apart():
    assert result_text("Let me look.Done.", ["Let me look.", "Done."]) == "Let me look.\n\nDone."
    assert result_text("one\ntwo three", ["one\n", "two", " three"]) == "one\ntwo three", "white space is there already"
    assert result_text("", ["one", "two"]) == "one\n\ntwo", "a dialect without a result text"


def test_another_result_is_left_alone():
    assert result_text("a summary", ["Let me look.", "Done."]) == "a summary"
    assert result_text("same", ["same"]) == "same"
    assert result_text("", []) == ""
