"""A drawing that a reader goes through step by step."""

from built import host, tab

from evidence.site.browser import violations
from evidence.site.diagrams import batching

PAGE = "inference/batches-and-caches/"
PASSES = batching.continuous()


def drawing(opened):
    opened.goto(host().address + PAGE)
    return opened.locator(".diagram[data-steps]", has_text="Continuous batching")


def shown(figure):
    return figure.locator("svg:visible g:not(.later)").count()


def test_each_step_adds_the_requests_of_its_pass_and_says_what_they_do():
    with tab() as opened:
        figure = drawing(opened)
        assert shown(figure) == sum(map(len, PASSES)), "at first all is shown"
        following = figure.get_by_role("button", name="Next step")
        for number, (_, text) in enumerate(batching.steps(PASSES), 1):
            following.press("Enter")
            assert figure.locator("output").inner_text() == text
            assert shown(figure) == sum(map(len, PASSES[:number]))
            assert figure.locator("svg:visible .now").count() == len(PASSES[number - 1])
        following.press("Enter")
        assert shown(figure) == len(PASSES[0]), "after the last comes the first"
        figure.get_by_role("button", name="One step back").click()
        assert shown(figure) == sum(map(len, PASSES))


def test_the_slider_goes_to_any_step_by_keyboard_and_says_which():
    with tab() as opened:
        figure = drawing(opened)
        slider = figure.get_by_role("slider")
        slider.focus()
        opened.keyboard.press("Home")
        opened.keyboard.press("ArrowRight")
        assert shown(figure) == sum(map(len, PASSES[:2]))
        assert slider.get_attribute("aria-valuetext").startswith("Pass 2: ")
        assert violations(opened) == []


def test_without_scripts_the_drawing_shows_all_steps_and_no_button():
    with tab(scripts=False) as opened:
        figure = drawing(opened)
        assert shown(figure) == sum(map(len, PASSES)) and figure.get_by_role("button").count() == 0
