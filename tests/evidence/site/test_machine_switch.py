"""One choice of a machine for the claims, tables and charts of the whole site, tried with two machines in a real browser."""

import itertools

import pytest
from built import console, host, tab
from playwright.sync_api import expect

VALUES = "[...document.querySelectorAll('article button.claim')].map(button => button.innerText)"
FIGURES = "[...document.querySelectorAll('article :is(table, figure)')].filter(e => e.checkVisibility()).map(e => e.textContent)"
FIRST, CPU = ["12.5\u00a0GiB", "7.5x", "2.3x"], ["12.5\u00a0GiB", "2.3x", "2.3x"]


def test_the_switch_changes_every_claim_table_and_chart_and_holds_on_other_pages_and_visits(two_machines, small_tab):
    assert small_tab.evaluate(VALUES) == FIRST
    assert all("30.5" in text for text in small_tab.evaluate(FIGURES))
    options = small_tab.locator("#machine option").all_inner_texts()
    assert options == ["NVIDIA X", "Test CPU 2 cores"]
    small_tab.select_option("#machine", "test-cpu-2core")
    assert small_tab.locator(".said").inner_text() == "Measured on Test CPU 2 cores: figures of this page have changed"
    assert small_tab.evaluate(VALUES) == CPU
    shown_now = small_tab.evaluate(FIGURES)
    assert len(shown_now) == 2 and not any("30.5" in text for text in shown_now)
    other = small_tab.context.new_page()
    other.goto(two_machines.address)
    assert other.input_value("#machine") == "test-cpu-2core"
    other.select_option("#machine", "nvidia-x")
    expect(small_tab.locator("#machine")).to_have_value("nvidia-x")  # the other tab follows
    small_tab.reload()
    assert small_tab.evaluate(VALUES) == FIRST
    assert small_tab.locator(".verified").inner_text().endswith("measured on NVIDIA X · Dotted figures open their source")


def test_the_choice_holds_before_the_page_has_a_body(two_machines):
    """So that no other value is ever painted."""
    with tab() as opened:
        opened.add_init_script("""
            localStorage.setItem("machine", "test-cpu-2core")
            localStorage.setItem("scheme", "dark")
            new MutationObserver((_, watch) => {
                if (!document.body) return
                window.atFirst = {...document.documentElement.dataset}
                watch.disconnect()
            }).observe(document, {childList: true, subtree: true})
        """)
        opened.goto(two_machines.address)
        assert opened.evaluate("window.atFirst") == {"machine": "test-cpu-2core", "scheme": "dark"}
        assert opened.evaluate(VALUES) == CPU


def test_the_gpu_of_the_predictions_is_chosen_beside_the_machine(two_machines, small_tab):
    small_tab.goto(f"{two_machines.address}predicted/")
    assert small_tab.locator("#gpu option").all_inner_texts() == ["RTX 4090", "T4", "V100"]
    seen = [small_tab.evaluate(VALUES)]
    for gpu in ("t4", "v100"):
        small_tab.select_option("#gpu", gpu)
        seen.append(small_tab.evaluate(VALUES))
    assert seen == [["1.9x (1.6–2.3)"], ["1.1x (0.90–1.3)"], ["does not apply"]]
    small_tab.locator("article button.claim").click()
    opened = small_tab.locator(".claim-source").inner_text()
    assert "does not apply, because it is bound by launches" in opened
    small_tab.reload()
    assert small_tab.evaluate(VALUES) == ["does not apply"]


def test_an_address_carries_the_gpu_to_somebody_else_and_not_over_what_they_chose(two_machines, small_tab):
    predicted = f"{two_machines.address}predicted/"
    small_tab.goto(predicted)
    small_tab.select_option("#gpu", "t4")
    assert small_tab.url == f"{predicted}?gpu=t4"
    with tab() as opened:
        opened.goto(small_tab.url)
        assert opened.input_value("#gpu") == "t4" and opened.evaluate(VALUES) == ["1.1x (0.90–1.3)"]
        opened.goto(predicted)  # goes on with it
        assert opened.input_value("#gpu") == "t4"
        opened.goto(f"{predicted}?gpu=v100")
        assert opened.evaluate(VALUES) == ["does not apply"]
        opened.goto(predicted)
        assert opened.input_value("#gpu") == "t4"
        opened.goto(f"{predicted}?gpu=h300")  # no GPU of this page
        assert opened.input_value("#gpu") == "t4" and opened.evaluate(VALUES) == ["1.1x (0.90–1.3)"]


def test_a_switch_stands_only_on_pages_where_it_changes_something(two_machines, small_tab):
    def switches():
        return [small_tab.locator(name).is_visible() for name in ("#machine", "#gpu")]

    assert switches() == [True, False]
    small_tab.goto(f"{two_machines.address}predicted/")
    assert switches() == [False, True]
    small_tab.goto(f"{two_machines.address}notebooks/tiny/")
    assert switches() == [False, False]


ACROSS, DOWN = (
    (lambda box: box["x"], lambda box: box["x"] + box["width"]),
    (lambda box: box["y"], lambda box: box["y"] + box["height"]),
)


@pytest.mark.parametrize("page, switches", [("training/one-gpu/", 2), ("inference/one-gpu/", 1), ("training/launching/", 0)])
def test_the_parts_of_the_header_have_room_beside_each_other_on_a_narrow_phone(page, switches):
    with tab({"width": 360, "height": 700}) as opened:
        opened.goto(f"{host().address}{page}")
        assert opened.locator(".machine:visible").count() == switches
        parts = opened.locator(".md-header__inner > :visible:not(.said, .machine), .machine > select:visible").all()
        boxes = [box for box in (part.bounding_box() for part in parts) if box["width"]]
    assert len(boxes) >= 5
    assert min(box["x"] for box in boxes) >= 0 and max(box["x"] + box["width"] for box in boxes) <= 360
    for one, other in itertools.combinations(boxes, 2):  # two switches have a row of their own
        apart = [end(one) <= start(other) + 0.5 or end(other) <= start(one) + 0.5 for start, end in (ACROSS, DOWN)]
        assert any(apart), (one, other)


def test_a_machine_that_is_gone_is_forgotten(two_machines, small_tab):
    small_tab.evaluate("localStorage.setItem('machine', 'gone')")
    small_tab.reload()
    assert small_tab.evaluate(VALUES) == FIRST and small_tab.input_value("#machine") == "nvidia-x"


def test_without_scripts_the_first_machine_is_shown_and_no_switch(two_machines):
    with tab(scripts=False) as opened:
        opened.goto(two_machines.address)
        buttons = [text.strip() for text in opened.locator("article button.claim").all_inner_texts()]
        assert buttons == FIRST and not opened.locator("#machine").is_visible()
        opened.locator("article button.claim").first.click()
        assert opened.locator(".claim-source").first.is_visible()  # where a figure comes from needs no script either


def test_the_site_works_from_a_folder_of_the_disk(two_machines):
    """But for the search, whose index a browser does not read from there."""
    with tab() as opened, console(opened) as messages:
        opened.goto((two_machines.site / "index.html").as_uri())
        opened.select_option("#machine", "test-cpu-2core")
        assert opened.evaluate(VALUES) == CPU and messages == []
