"""The page your-model in a browser: it asks dryrun itself, and its address is the question."""

import json
import re
import shlex
from pathlib import Path

import pytest
from built import console, host, tab

from dryrun.door import web
from evidence.site import answers, planner

SNIPPETS = Path(__file__).parents[2] / "snippets"

SECONDS = 120  # Python for the browser starts in a few, on a machine with nothing else to do


@pytest.fixture
def ask():
    """Opens the page with a question in its address, and waits for the answer."""

    with tab() as page:

        def asked(question):
            page.goto(f"{host().address}your-model/{question}")
            page.locator("#planner-answer[aria-busy=false] .planner-verdict").wait_for(timeout=1000 * SECONDS)
            return page

        yield asked


def command(page):
    """The arguments of the command that the page says to type."""
    return shlex.split(page.locator("#planner-answer pre code").first.inner_text().splitlines()[0])[1:]


def numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", text)]


def test_the_page_answers_what_the_command_below_the_answer_answers(ask):
    page = ask("?task=qlora&model=qwen3-8b&gpu=rtx-3090&length=4096&rows=1000&price=2")
    asked = command(page)
    assert asked == ["train", "qwen3-8b", "--gpu", "rtx-3090", "--qlora", "--length", "4096", "--checkpointing", "--rows", "1000", "--price", "2", "--largest-batch"]
    found = web.ask(asked)
    expected, high, size, _ = numbers(page.locator(".planner-verdict").inner_text())
    assert (expected, high, size) == pytest.approx((found["expected_gib"], found["high_gib"], found["gpu_gib"]), rel=0.01)
    speed, low, high = numbers(page.locator(".planner-facts dd").first.inner_text())
    assert speed == pytest.approx(found["tokens_per_second"], rel=0.01)
    assert low < speed < high
    cost = page.locator("dt:has-text('Cost') + dd b").inner_text()
    assert numbers(cost) == pytest.approx([found["cost"]], rel=0.01)


def test_a_change_is_one_click_away_and_the_address_says_it(ask):
    page = ask("?task=lora&model=llama3-8b&gpu=rtx-4090&checkpointing=0")
    assert "It does not fit" in page.locator(".planner-verdict").inner_text()
    page.locator("tr:has-text('activation checkpointing') button").click()
    page.locator(".planner-verdict.fits, .planner-verdict.maybe").wait_for(timeout=1000 * SECONDS)
    assert "--checkpointing" in command(page)
    assert "checkpointing=0" not in page.url and "model=llama3-8b" in page.url


def test_the_verdict_comes_before_what_would_help_and_typing_goes_on_meanwhile(ask):
    page = ask("?task=lora&model=llama3-8b&gpu=rtx-4090&length=1024")
    field, answer = page.locator("input[name=length]"), page.locator("#planner-answer")
    field.fill("3072")
    page.locator("#planner-answer[aria-busy=true] pre:has-text('--length 3072')").first.wait_for(timeout=1000 * SECONDS)
    assert "What would help …" in answer.inner_text() and "tokens/s" in answer.inner_text()
    field.press_sequentially("0", delay=20)
    page.locator("#planner-answer[aria-busy=false] h2:has-text('What would')").wait_for(timeout=1000 * SECONDS)
    assert command(page)[command(page).index("--length") + 1] == "30720"


def test_several_gpus_have_their_strategies_and_a_row_of_the_table_can_be_taken(ask):
    page = ask("?task=full&model=llama3-8b&gpu=h100-sxm5&gpus=8")
    page.locator("h2:has-text('Which strategy')").wait_for(timeout=1000 * SECONDS)
    _, plan = (shlex.split(line)[1:] for line in page.locator("#planner-answer pre code").first.inner_text().splitlines())
    options = web.ask(plan)
    shown = page.locator("h2:has-text('Which strategy') + .scroll tbody b").all_inner_texts()
    assert shown == [option["strategy"] for option in options if option["fit"] != "no"]
    folded = page.locator("details:has(summary:has-text('strategies that do not fit')) b")
    assert {*shown, *folded.all_text_contents()} == {option["strategy"] for option in options}
    page.locator("button:has-text('on every GPU')").click()
    row = page.locator("#planner-table tr:has-text('B200 180GB') button")
    row.wait_for(timeout=1000 * SECONDS)
    row.click()
    page.locator("#planner-answer pre:has-text('b200-hgx')").wait_for(timeout=1000 * SECONDS)
    assert "gpu=b200-hgx" in page.url


def test_what_does_not_fit_is_answered_with_what_would_and_one_click_takes_it(ask):
    page = ask("?task=infer&model=Llama 3.3 70B&gpu=rtx-3090&gpus=2&users=3")
    assert "on each GPU" in page.locator(".planner-verdict.no").inner_text()
    page.locator("tr:has-text('4 bits') button").click()
    page.locator(".planner-verdict.fits").wait_for(timeout=1000 * SECONDS)
    assert "weights=int4-128" in page.url and page.locator(".planner-verdict").evaluate("shown => shown === document.activeElement")
    assert page.locator("#planner-answer pre code").nth(1).inner_text().startswith("vllm serve MODEL --tensor-parallel-size 2")
    assert page.locator("a:has-text('Look for it on the Hub')").get_attribute("href").endswith("?search=Llama-3.1-70B+AWQ")


def test_the_table_of_gpus_has_the_hours_of_the_data(ask):
    page = ask("?task=qlora&model=qwen3-8b&gpu=rtx-3090&tokens=20 million")
    page.locator("button:has-text('on every GPU')").click()
    row = page.locator("#planner-table tr:has-text('RTX 3090 24GB')")
    row.wait_for(timeout=1000 * SECONDS)
    hours = numbers(row.locator("td").nth(3).inner_text())
    assert hours == pytest.approx(numbers(page.locator("dt:has-text('Your data') + dd b").inner_text()), rel=0.02)
    row.locator("input").fill("0.5")
    assert numbers(row.locator("td").nth(2).inner_text()) == pytest.approx([hours[0] * 0.5], rel=0.02)
    page.locator("#planner-table select").select_option("cost")
    assert "RTX 3090 24GB" in page.locator("#planner-table tbody tr").first.inner_text(), "the only one with a price"
    address = page.evaluate("location.href")
    assert "table=gpu&by=cost&prices=rtx-3090%3A0.5" in address, address
    again = ask(address[address.index("?") :])
    again.locator("#planner-table tbody tr:first-child:has-text('RTX 3090 24GB')").wait_for(timeout=1000 * SECONDS)
    assert numbers(again.locator("#planner-table tbody tr").first.locator("td").nth(2).inner_text()) == pytest.approx([hours[0] * 0.5], rel=0.02)
    assert again.evaluate("location.href") == address
    again.locator("input[name=length]").fill("1024")
    again.locator("#planner-answer pre:has-text('--length 1024')").first.wait_for(timeout=1000 * SECONDS)
    again.locator("#planner-table tr:has-text('RTX 3090 24GB')").wait_for(timeout=1000 * SECONDS)
    assert "length=1024" in again.url and "table=gpu&by=cost&prices=rtx-3090%3A0.5" in again.url, "the table is that of the new question"


def test_rows_that_come_do_not_take_the_cursor_from_a_price(ask):
    page = ask("?task=qlora&model=qwen3-8b&gpu=rtx-3090&tokens=20 million")
    page.locator("button:has-text('on every GPU')").click()
    page.locator("#planner-table input").first.click(timeout=1000 * SECONDS)
    page.keyboard.type("1")
    page.wait_for_timeout(2000)
    page.keyboard.type("2")
    assert page.evaluate("document.activeElement.value") == "12"
    page.locator(".planner-verdict").click()
    page.locator("#planner-table tbody tr").nth(30).wait_for(timeout=1000 * SECONDS)


def test_a_mac_is_asked_for_its_memory_and_answers_for_one_reader(ask):
    page = ask("?task=infer&model=llama3-70b&gpu=m4-max&weights=q4_k_m&memory=48")
    assert "more than the system leaves the GPU" in page.locator(".planner-verdict").inner_text()
    assert page.locator("input[name=memory]").is_visible() and command(page)[-4:] == ["--memory", "48", "--weights", "q4_k_m"]
    assert numbers(page.locator("dt:has-text('Speed') + dd b").inner_text())[0] == pytest.approx(web.ask(command(page))["speed"]["tokens_per_second"], rel=0.02)
    page.locator("input[name=users]").fill("3")
    page.locator("text=published runs of such machines write one sequence at a time").wait_for(timeout=1000 * SECONDS)
    page.locator("input[name=gpu]").fill("l4")
    page.locator("input[name=memory]").wait_for(state="hidden", timeout=1000 * SECONDS)


def test_a_mac_that_is_chosen_is_asked_in_the_format_that_is_usual_there(ask):
    page = ask("?task=infer&model=qwen3-8b&gpu=l4")
    for gpu, weights in (("m4-max", "q4_k_m"), ("l4", "published")):
        page.locator("input[name=gpu]").fill(gpu)
        page.keyboard.press("Tab")
        page.locator(f".planner-echo:has-text('{gpu[:2].upper()}')").wait_for(timeout=1000 * SECONDS)
        assert page.locator("select[name=weights]").input_value() == weights


def test_generated_text_has_a_cost_and_each_gpu_its_own_price(ask):
    page = ask("?task=infer&model=llama3-8b&gpu=l40s&users=50&price=2&table=gpu")
    found = web.ask(command(page))
    assert command(page)[-2:] == ["--price", "2"]
    assert numbers(page.locator("dt:has-text('Cost') + dd b").inner_text()) == pytest.approx([found["cost_of_million"]], rel=0.02)
    mine, other = (page.locator(f"#planner-table tr:has(button:text-is('{name}'))") for name in ("L40S 48GB", "A100 80GB"))
    mine.wait_for(timeout=1000 * SECONDS)
    other.wait_for(timeout=1000 * SECONDS)
    assert numbers(mine.locator("td").nth(2).inner_text()) == pytest.approx([found["cost_of_million"]], rel=0.02)
    assert other.locator("td").nth(2).inner_text() == "–" and other.locator("input").input_value() == "", "the price of the form is of its GPU"
    assert page.locator("#planner-table tr:has-text('M4 Max') td").last.inner_text() == "not predicted", "of 50 users"


def test_a_mac_as_people_write_it_is_the_same_mac(ask):
    page = ask("?task=infer&model=qwen3-30b-a3b&gpu=M4 Max 64GB")
    assert command(page)[2:6] == ["--gpu", "m4-max", "--memory", "64"] and page.locator("input[name=memory]").input_value() == "64"
    assert "It may fit" in page.locator(".planner-verdict").inner_text()


def test_eight_gpus_in_one_word_are_eight_of_the_one_that_is_sold_most(ask):
    page = ask("?task=full&model=llama3-8b&gpu=8xA100")
    assert command(page)[2:6] == ["--gpu", "a100-sxm4-80", "--gpus", "8"]
    assert "8 x A100 80GB" in page.locator(".planner-echo").inner_text()


def test_a_size_alone_offers_the_models_of_that_size_and_one_click_takes_one(ask):
    page = ask("?task=qlora&model=70B&gpu=h200")
    page.locator(".planner-verdict button:has-text('llama3-70b')").click()
    page.locator("#planner-answer pre:has-text('llama3-70b')").first.wait_for(timeout=1000 * SECONDS)


def test_rows_and_tokens_are_not_given_both(ask):
    page = ask("?task=lora&model=llama3-8b&gpu=h200&rows=1000")
    page.locator("input[name=tokens]").fill("20M")
    page.locator("#planner-answer pre:has-text('--tokens 20M')").first.wait_for(timeout=1000 * SECONDS)
    assert page.locator("input[name=rows]").input_value() == ""


def test_prices_are_typed_one_after_the_other_and_the_next_tab_is_in_the_table(ask):
    page = ask("?task=qlora&model=qwen3-8b&gpu=rtx-3090&tokens=20 million&table=gpu")
    page.locator("#planner-table tbody tr").nth(60).wait_for(state="attached", timeout=1000 * SECONDS)
    page.locator("#planner-table input").first.focus()
    for price in "123":
        page.keyboard.type(price)
        page.keyboard.press("Enter")
        page.wait_for_timeout(700)
    page.keyboard.press("Tab")
    page.wait_for_timeout(700)
    assert page.evaluate("document.activeElement.closest('#planner-table') !== null")
    assert page.url.count("%3A") == 3, page.url


def test_an_answer_is_there_before_python_is_and_it_is_the_same():
    with tab() as page:
        page.route("**/pyodide.asm.wasm.packed", lambda route: route.abort())
        page.goto(f"{host().address}your-model/")
        page.locator(".planner-verdict").wait_for(timeout=5000)
        early = page.locator(".planner-verdict").inner_text()
        assert command(page) == ["train", "qwen3-8b", "--gpu", "rtx-4090", "--lora", "--checkpointing", "--largest-batch"]
        found = web.ask(command(page))
        assert numbers(early)[:2] == pytest.approx((found["expected_gib"], found["high_gib"]), rel=0.01)


@pytest.mark.parametrize("question", ["?task=lora&model=Qwen/Qwen3-14B&gpu=H100&gpus=2", "?task=infer&model=qwen3-14b&gpu=h100-sxm5&users=8&weights=int8"])
def test_a_common_question_is_answered_from_the_files_of_the_site_until_python_is_there(question):
    (model,) = (one for one in planner.choices()["models"] if one["name"] == "qwen3-14b")
    stored = answers.of(answers._model(model), "h100-sxm5", "/")
    with tab() as page:
        page.route("**/answers/qwen3-14b/h100-sxm5.json", lambda route: route.fulfill(json=stored))
        waiting = []
        page.route("**/pyodide.asm.wasm.packed", lambda route: waiting.append(route))  # it takes as long as the test
        page.goto(f"{host().address}your-model/{question}")
        page.locator(".planner-verdict").wait_for(timeout=10_000)
        expected, high, *_ = numbers(page.locator(".planner-verdict").inner_text())
        speed, *_ = numbers(page.locator(".planner-facts dd").first.inner_text())
        assert page.locator(".planner-wait").is_visible(), "more follows"
        words = {"lora": "train qwen3-14b --gpu h100-sxm5 --gpus 2 --lora --checkpointing", "infe": "infer qwen3-14b --gpu h100-sxm5 --batch 8 --weights int8"}
        found = web.row(words[question[6:10]].split())
        assert (expected, high, speed) == pytest.approx((found["expected_gib"], found["high_gib"], found["tokens_per_second"]), rel=0.01)
        for route in waiting:
            route.abort()


def test_the_first_question_of_each_task_is_answered_before_python_is():
    with tab() as page:
        page.goto(f"{host().address}planner/first.json")
        stored = {" ".join(one["asked"]) for one in json.loads(page.locator("pre").inner_text())}
    with tab() as page:
        page.add_init_script("Object.defineProperty(navigator, 'connection', {value: {saveData: true}})")
        for task in ("lora", "qlora", "full", "infer"):
            page.goto(f"{host().address}your-model/?task={task}")
            page.locator("#planner-answer pre").first.wait_for()
            assert " ".join(command(page)) in stored, task


def test_printed_the_table_names_its_gpus_and_the_form_is_gone(ask):
    page = ask("?task=lora&model=qwen3-8b&gpu=rtx-4090&table=gpu")
    page.locator("#planner-table tbody tr").nth(20).wait_for(timeout=1000 * SECONDS)
    page.emulate_media(media="print")
    assert not page.locator("#planner").is_visible() and not page.locator(".planner-brief").is_visible()
    assert page.locator("#planner-table tr:has-text('H100 80GB') td").first.locator("button").is_visible()


def test_generated_text_has_users_and_a_first_token(ask):
    page = ask("?task=infer&model=llama3-8b&gpu=l4&weights=int4-128&users=4")
    found = web.ask(command(page))
    assert found["users"] == numbers(page.locator("dt:has-text('Users at once') + dd").inner_text())[0]
    assert page.locator("dt:has-text('First token') + dd").is_visible()
    assert page.locator("input[name=length]").is_hidden()


@pytest.mark.parametrize(
    "question, file, values",
    [
        ("?task=qlora&model=qwen3-8b&length=1024&accumulation=8", "recipes/finetune_8b.py", {"--model": "Qwen/Qwen3-8B", "--bits": "4", "--length": "1024", "--batch": "8"}),
        ("?task=full&model=qwen3-8b&gpu=h100&gpus=8&batch=2&accumulation=2&dtype=mixed", "recipes/finetune_14b.py", {"--batch": "32", "--micro-batch": "2"}),
        ("?task=lora&model=qwen3-8b&gpu=h200&epochs=2", "recipes/finetune_8b.py", {"--bits": "16", "--epochs": "2"}),
        ("?task=full&model=qwen3-8b&gpu=h100&gpus=8&batch=2&dtype=mixed", "recipes/finetune_14b.py", {"--nproc-per-node": "8", "--batch": "64", "--micro-batch": "2"}),
    ],
)
def test_the_program_of_the_recipe_is_given_the_values_of_the_question(ask, question, file, values):
    page, program = ask(question), (SNIPPETS / file).read_text(encoding="utf-8")
    words = shlex.split(page.locator("#planner-answer pre code").nth(1).inner_text())
    given = dict(zip(words, words[1:]))
    assert {name: given[name] for name in values} == values
    assert file.rpartition("/")[2] in words
    if "accumulation" not in question:
        assert f'"--batch", type=int, default={given["--batch"]},' in program, "the program's own"
    assert all(f'"{word}"' in program for word in words[words.index(file.rpartition("/")[2]) :] if word.startswith("--"))


def test_what_the_recipe_has_no_option_for_is_said_below_its_command(ask):
    page = ask("?task=qlora&model=qwen3-8b&gpu=h200&fused-loss=1")
    assert "finetune_8b.py" in page.locator("#planner-answer pre code").nth(1).inner_text()
    assert "Add to its TrainingArguments: use_liger_kernel=True (fused loss, after pip install liger-kernel)" in page.locator("#planner-answer").inner_text()


@pytest.mark.parametrize("other", ["checkpointing=0", "batch=4", "objective=dpo", "model=llama3-8b", "gpu=t4", "optimizer=sgd"])
def test_no_program_is_shown_that_runs_another_step(ask, other):
    asked = {"task": "qlora", "model": "qwen3-8b", "gpu": "h200"} | dict([other.split("=")])
    page = ask("?" + "&".join(f"{name}={value}" for name, value in asked.items()))
    assert page.locator("#planner-answer pre").count() == 1


def test_a_click_into_a_list_shows_all_of_it_and_leaving_brings_the_choice_back(ask):
    page = ask("?task=lora&model=llama3-8b&gpu=l4")
    page.locator("input[name=gpu]").click()
    assert page.locator("input[name=gpu]").input_value() == ""
    page.locator("input[name=length]").click()
    assert page.locator("input[name=gpu]").input_value() == "l4" and "gpu=l4" in page.url


def test_a_message_marks_its_field_until_the_question_is_right(ask):
    page = ask("?task=infer&model=llama3-8b&gpu=l4&users=-1")
    assert "Users at once" in page.locator(".planner-verdict").inner_text()
    assert page.locator("[aria-invalid=true]").get_attribute("name") == "users"
    page.locator("input[name=users]").fill("2")
    page.locator("text=For each user").wait_for(timeout=1000 * SECONDS)
    assert not page.locator("[aria-invalid=true]").count()


def test_a_message_stays_while_python_loads():
    with tab() as page:
        waiting = []
        page.route("**/pyodide.asm.wasm.packed", lambda route: waiting.append(route))
        page.goto(f"{host().address}your-model/?task=infer&model=llama3-8b&gpu=l4&users=-1")
        page.locator(".planner-verdict").wait_for(timeout=10_000)
        while not waiting:
            page.wait_for_timeout(100)
        waiting.pop().continue_()
        page.wait_for_timeout(2000)
        assert "Users at once" in page.locator(".planner-verdict").inner_text()


def test_an_address_with_a_book_in_it_is_cut(ask):
    page = ask(f"?model={'x' * 5000}&gpu=l4")
    assert "Not a choice of this page" in page.locator("#planner-answer").inner_text() and len(page.locator("#planner-answer").inner_text()) < 2500


SMALL_LLAMA = {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16, "vocab_size": 32000}


def test_the_sizes_of_a_model_can_be_changed_and_the_command_says_them(ask):
    page = ask("?task=full&model=llama3-8b&gpu=h200")
    page.locator("#planner-own summary").click()
    assert page.locator("[data-size=hidden]").input_value() == "4096"
    page.locator("[data-size=layers]").fill("20")
    page.locator("#planner-answer pre:has-text('layers=20')").wait_for(timeout=1000 * SECONDS)
    asked = command(page)
    assert asked[1] == "llama:layers=20,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256"
    expected, *_ = numbers(page.locator(".planner-verdict").inner_text())
    assert expected == pytest.approx(web.ask(asked)["expected_gib"], rel=0.01)
    assert "model=llama%3Alayers%3D20" in page.url


def test_the_fields_of_a_model_that_comes_in_one_size_are_empty(ask):
    page = ask("?task=lora&model=qwen3-8b&gpu=h200")
    page.locator("#planner-own summary").click()
    page.locator("input[name=model]").fill("mixtral-8x7b")
    page.locator("#planner-answer pre:has-text('mixtral')").wait_for(timeout=1000 * SECONDS)
    assert page.locator("[data-size=layers]").input_value() == ""


def test_a_pasted_config_json_is_the_model_or_says_why_it_is_not(ask):
    page = ask("?task=lora&model=qwen3-8b&gpu=t4&rank=32")
    page.locator("#planner-own summary").click()
    page.locator("#planner-config").fill(json.dumps(SMALL_LLAMA | {"hidden_act": "gelu"}))
    page.locator("#planner-own-said:has-text(\"hidden_act is 'gelu'\")").wait_for(timeout=1000 * SECONDS)
    assert page.locator(".planner-verdict").inner_text().startswith("No answer"), "that of the model before is gone"
    page.locator("#planner-config").fill(json.dumps(SMALL_LLAMA))
    page.locator("#planner-answer pre:has-text('layers=12')").wait_for(timeout=1000 * SECONDS)
    assert command(page)[1:6] == ["llama:layers=12,hidden=1024,heads=16,ffn=2816,vocab=32000,positions=2048", "--gpu", "t4", "--lora", "32"]
    assert page.locator("[data-size=ffn]").input_value() == "2816"


def test_what_an_address_brings_is_quoted_for_a_shell():
    with tab() as page:
        page.add_init_script("Object.defineProperty(navigator, 'connection', {value: {saveData: true}})")
        page.goto(f"{host().address}your-model/?model=$(id)&gpu='; id; '")
        line = page.locator("#planner-answer pre code").first.inner_text()  # before there is an answer
        assert shlex.split(line)[2:5] == ["$(id)", "--gpu", "'; id; '"] and "'$(id)'" in line


def test_a_text_where_a_number_belongs_is_named_with_its_field(ask):
    page = ask("?task=lora&model=llama3-8b&gpu=l4")
    page.locator("input[name=length]").fill("")
    page.locator("input[name=length]").press_sequentially("e")
    page.locator(".planner-verdict:has-text('Tokens of a sequence: give a number')").wait_for(timeout=1000 * SECONDS)
    assert page.locator(".planner-busy").is_hidden() and page.locator("#planner-answer").get_attribute("aria-busy") == "false"
    page.locator("input[name=length]").fill("1024")
    page.locator("#planner-answer pre:has-text('--length 1024')").first.wait_for(timeout=1000 * SECONDS)


def test_an_applied_change_is_taken_back_by_the_back_button(ask):
    page = ask("?task=lora&model=llama3-8b&gpu=rtx-4090&checkpointing=0")
    page.locator("tr:has-text('activation checkpointing') button").click()
    page.locator("#planner-answer pre:has-text('--checkpointing')").first.wait_for(timeout=1000 * SECONDS)
    page.go_back()
    page.locator("#planner-answer pre:has-text('--checkpointing')").first.wait_for(state="detached", timeout=1000 * SECONDS)
    assert not page.locator("input[name=checkpointing]").is_checked()


def test_back_brings_the_table_of_its_own_question(ask):
    page = ask("?task=qlora&model=qwen3-8b&gpu=rtx-3090&table=gpu")
    page.locator("#planner-table tr:has-text('L4 24GB') button").click(timeout=1000 * SECONDS)
    page.locator("#planner-answer pre:has-text('--gpu l4')").first.wait_for(timeout=1000 * SECONDS)
    page.locator("button:has-text('every model on this GPU')").click()
    page.locator("#planner-table tr:has-text('llama3-8b')").first.wait_for(timeout=1000 * SECONDS)
    page.go_back()
    page.locator("#planner-table tr:has-text('RTX 3090 24GB')").wait_for(timeout=1000 * SECONDS)
    assert "gpu=rtx-3090" in page.url and "table=gpu" in page.url


def test_grpo_begins_with_several_answers_and_calls_them_so(ask):
    page = ask("?task=lora&model=qwen3-8b&gpu=h200")
    page.locator("select[name=objective]").select_option("grpo")
    page.locator("#planner-answer pre:has-text('--objective grpo')").first.wait_for(timeout=1000 * SECONDS)
    assert command(page)[command(page).index("--batch") + 1] == "8"
    assert page.locator("label:has(input[name=batch])").inner_text().startswith("Answers at once")
    assert page.locator("a:has-text('GRPO with TRL')").is_visible()
    page.locator("select[name=objective]").select_option("sft")
    page.locator("#planner-answer pre:has-text('--objective')").first.wait_for(state="detached", timeout=1000 * SECONDS)
    assert page.locator("input[name=batch]").input_value() == "1"


@pytest.mark.parametrize("typed, said", [("22 %", "% of the peak"), ("22", "for a part of the peak write 22 %"), ("22,6 %", "23 % of the peak"), ("0.22", "write 22 %")])
def test_what_a_reader_measured_is_judged_as_it_is_meant(ask, typed, said):
    page = ask(f"?task=full&model=llama3-8b&gpu=a100-sxm4-80&gpus=8&measured={typed.replace('%', '%25')}")
    assert said in page.locator("dt:has-text('Yours') + dd").inner_text()


def test_a_choice_that_the_page_does_not_have_is_said(ask):
    page = ask("?task=full&model=qwen3-8b&gpu=h200&optimizer=muon")
    assert "optimizer=muon" in page.locator(".planner-note").inner_text()


@pytest.mark.parametrize(
    "question, said",
    [("?model=llama3-9b", "Is it one of these? llama3-8b"), ("?model=llama3-8b&gpu=h300", "Is it one of these? H100"), ("?model=vit-base", "no trace of this model"), ("?length=-4&model=llama3-8b", "Tokens of a sequence: give 32 or more"), ("?model=qwen3-8b&length=50000", "take 40,960"), ("?task=lora&model=llama3-8b&gpu=m4-max", "Other hardware"), ("?model=llama3-8b&tokens=many", "or tokens in all: 'many'"), ("?model=llama:layers=x", "give a whole number"), ("?model=llama:", "layers, hidden, heads, ffn, vocab missing")],
)
def test_nonsense_is_answered_in_a_line_that_says_what_is_right(ask, question, said):
    page = ask(question)
    assert said in page.locator(".planner-verdict").inner_text()
    assert page.locator("#planner-answer pre").count() == ("with torch" in page.locator(".planner-verdict").inner_text()), "a command that answers"


def test_the_page_asks_no_other_host_and_says_nothing_in_the_console():
    with tab() as page, console(page) as said:
        hosts = set()
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.goto(f"{host().address}your-model/")
        page.locator(".planner-verdict").wait_for(timeout=1000 * SECONDS)
        assert len(hosts) == 1
    assert not said


def test_without_scripts_the_page_leads_to_the_command():
    with tab(scripts=False) as page:
        page.goto(f"{host().address}your-model/")
        assert page.locator("noscript a[href='../dryrun/']").is_visible()
        assert page.locator("#planner").is_hidden()


def test_on_a_phone_the_verdict_stays_in_sight_and_leads_to_the_answer():
    with tab(viewport={"width": 390, "height": 844}) as page:
        page.goto(f"{host().address}your-model/?model=qwen3-8b&gpu=rtx-4090")
        page.locator("#planner-answer[aria-busy=false] .planner-verdict").wait_for(timeout=1000 * SECONDS)
        brief, verdict = page.locator(".planner-brief"), page.locator(".planner-verdict")
        page.evaluate("scrollTo(0, 0)")
        page.locator(".planner-brief:not(.seen)").wait_for()
        page.locator("input[name=length]").focus()
        box = brief.bounding_box()
        assert 0 < box["y"] < page.locator("input[name=length]").bounding_box()["y"] and verdict.bounding_box()["y"] > 844
        assert brief.inner_text().startswith("It fits · ") and "tokens/s" in brief.inner_text()
        brief.click()
        page.locator(".planner-brief.seen").wait_for(state="attached")
        assert 0 < verdict.bounding_box()["y"] < 400
        assert not brief.is_visible()


def test_a_price_may_have_a_decimal_comma_and_letters_are_refused_by_the_name_of_the_field(ask):
    page = ask("?task=lora&model=qwen3-8b&gpu=h100-sxm5&rows=1000")
    page.locator("[name=price]").evaluate("field => { field.closest('details').open = true }")
    page.fill("[name=price]", "1,4")
    page.locator("#planner-answer :text('1.4')").first.wait_for(timeout=1000 * SECONDS)
    assert command(page)[command(page).index("--price") + 1] == "1.4"
    page.fill("[name=price]", "cheap")
    page.locator("#planner-answer :text('Price of a GPU hour')").first.wait_for(timeout=1000 * SECONDS)
