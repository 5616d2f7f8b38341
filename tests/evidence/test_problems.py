"""A message names file and line, what is wrong, the nearest right thing and the fix."""

from evidence.problems import nearest


def test_the_nearest_name_is_offered_and_a_far_one_is_not():
    assert nearest("peak-memry", ["peak-memory", "step-speed"]) == " (did you mean peak-memory?)"
    assert nearest("qqq", ["peak-memory", "step-speed"]) == ""
    assert nearest("anything", []) == ""
