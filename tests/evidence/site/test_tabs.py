"""One example in several forms: Trainer, Accelerate, PyTorch."""

from built import host, parsed, site, site_pages, tab

from evidence.site.browser import violations

PAGE = "training/batch-size/"
OPEN = "[...document.querySelectorAll('.tabbed-set > input:checked')].map(input => input.labels[0].textContent)"
SHOWN = "[...document.querySelectorAll('.tabbed-block')].filter(block => block.checkVisibility()).length"


def test_at_least_six_examples_stand_in_the_forms_that_readers_use():
    sets = [one for page in site_pages() for one in parsed(page).select(".tabbed-set")]
    names = [[label.get_text() for label in one.select(".tabbed-labels > label")] for one in sets]
    assert sum("Trainer" in labels for labels in names) >= 6
    assert {len(labels) for labels in names} <= {2, 3}, "the style sheet knows three tabs"


def test_tabs_work_without_a_script_and_by_keyboard():
    with tab(scripts=False) as opened:
        opened.goto(host().address + PAGE)
        sets = parsed(PAGE).select(".tabbed-set")
        shown = opened.locator(".tabbed-block:visible")
        assert shown.count() == len(sets)
        opened.locator(".tabbed-set > input").first.focus()
        opened.keyboard.press("ArrowRight")
        second = sets[0].select(".tabbed-block code")[1].get_text()
        wanted = [block.select_one("code").get_text() for block in sets[0].select(".tabbed-block")][1]
        assert second and shown.first.locator("code").first.inner_text().strip() == wanted.strip()


def test_a_tab_that_a_reader_takes_opens_in_every_example_here_and_on_the_next_page():
    with tab() as opened:
        opened.goto(host().address + PAGE)
        opened.locator(".tabbed-labels > label", has_text="PyTorch").first.click()
        assert set(opened.evaluate(OPEN)) == {"PyTorch"}
        opened.goto(f"{host().address}training/throughput/")
        assert set(opened.evaluate(OPEN)) == {"PyTorch"}


def test_no_tab_is_inaccessible():
    with tab() as opened:
        opened.goto(host().address + PAGE)
        opened.locator(".tabbed-labels > label", has_text="Accelerate").first.click()
        assert violations(opened) == []


def test_a_print_shows_every_tab():
    with tab() as opened:
        opened.goto(host().address + PAGE)
        opened.emulate_media(media="print")
        assert opened.evaluate(SHOWN) == len(parsed(PAGE).select(".tabbed-block"))


def test_who_arrives_from_the_search_sees_a_word_that_stands_in_a_closed_tab():
    with tab() as opened:
        opened.goto(f"{host().address}{PAGE}?h=sync_gradients")
        opened.goto(f"{host().address}training/precision/?h=GradScaler")
        shown = opened.locator(".tabbed-block:visible", has_text="GradScaler")
        assert shown.count() >= 1


def test_the_copy_as_markdown_holds_every_tab_under_its_name():
    text = (site() / "training/batch-size.md").read_text(encoding="utf-8")
    at = text.index("accelerator.accumulate(model)")
    assert text.rindex("**Trainer**", 0, at) < text.rindex("**Accelerate**", 0, at) < at < text.index("**PyTorch**", at)
