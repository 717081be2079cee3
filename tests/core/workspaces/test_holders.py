"""Whose work commits are that an ancestor has merged."""

from dataclasses import replace

from substrat.core.workspaces import holders
from substrat.core.workspaces.clones import Clone, Kept


def clone(name, **kept):
    found = Kept(**{"head": f"head of {name}", "ahead": 1, "landed": False, **kept})
    return Clone(name, name, f"/trees/{name}", "/app", "/app/.git", "/app", f"substrat/{name}", kept=found)


ROOT, LEAD, KID = clone("root"), clone("lead"), clone("kid")


def test_the_nearest_ancestor_that_has_a_head_is_its_holder():
    asked = holders.pairs(KID, [LEAD, ROOT], [])
    assert asked == [(KID, LEAD), (KID, ROOT)]
    for answers, holder in (([True, True], "lead"), ([False, True], "root"), ([False, False], None)):
        assert [one.holder for one in holders.settled(asked, answers)] == [holder]


def test_a_head_that_has_changed_since_has_no_holder_and_one_that_another_ancestor_has_stays_its():
    held = replace(KID, held_by="lead", held_head=KID.kept.head)
    assert replace(held, kept=replace(KID.kept, head="another")).holder is None
    assert holders.pairs(ROOT, [], [LEAD, held]) == [(LEAD, ROOT)]
    assert holders.pairs(LEAD, [], [held]) == [(held, LEAD)]
    assert [one.holder for one in holders.settled([(held, LEAD)], [False])] == [None]


def test_work_that_is_nobodys_to_land_or_in_another_repository_is_not_asked_for():
    others = [clone("a", ahead=0), clone("b", landed=True), clone("c", head=None), replace(clone("d"), git_dir="/b/.git")]
    assert holders.pairs(LEAD, [], others) == []
