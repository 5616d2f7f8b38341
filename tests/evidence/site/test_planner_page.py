"""The planner answers in the page what the command answers: questions of each kind in one page that stays open. All else about the
page: tests/pages/test_your_model.py."""

import json
import re
import shlex

import pytest
from built import console, host, tab

from dryrun.door import web

QUESTIONS = {  # address: (what only its command says)
    "?task=qlora&model=qwen3-8b&gpu=rtx-3090&length=4096&rows=1000&price=2": "--rows 1000",
    "?task=lora&model=llama3-8b&gpu=rtx-4090&checkpointing=0": "train llama3-8b --gpu rtx-4090",
    "?task=full&model=llama3.2-1b&gpu=l40s&batch=4&accumulation=2": "--gpu l40s",
    "?task=full&model=qwen3-8b&gpu=h100-sxm5&gpus=8": "--gpus 8",
    "?task=lora&model=qwen3-14b&gpu=a100-sxm4-80&objective=dpo": "--objective dpo",
    "?task=infer&model=llama3-8b&gpu=l4&weights=int4-128&users=4": "infer llama3-8b --gpu l4",
    "?task=infer&model=llama3-70b&gpu=rtx-3090&gpus=2&users=3": "infer llama3-70b",
    "?task=infer&model=qwen3-14b&gpu=m4-max&weights=q4_k_m": "--gpu m4-max",
}
GO = "question => { history.pushState(null, '', question); dispatchEvent(new PopStateEvent('popstate')) }"


@pytest.fixture(scope="module")
def page():
    with tab() as opened, console(opened) as messages:
        opened.goto(f"{host().address}your-model/{next(iter(QUESTIONS))}")
        yield opened
        assert [message for message in messages if "404" not in message] == []  # this build has no stored answers: `make site` adds them


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_page_answers_what_the_command_that_it_shows_answers(page, question):
    page.evaluate(GO, question)
    page.locator(f"#planner-answer[aria-busy=false] pre:has-text({json.dumps(QUESTIONS[question])})").first.wait_for(timeout=120_000)
    asked = shlex.split(page.locator("#planner-answer pre code").first.inner_text().splitlines()[0])[1:]
    found = web.ask(asked)
    words = page.locator(".planner-verdict").inner_text()
    expected, high, *_ = (float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", words))
    assert (expected, high) == pytest.approx((found["expected_gib"], found["high_gib"]), rel=0.01)
    assert page.locator(".planner-verdict.no").count() == (found["fit"] == "no")
    speed = found["tokens_per_second"] if asked[0] == "train" else (found["speed"] or {}).get("tokens_per_second")
    if speed and found["fits"]:
        shown = re.search(r"\d[\d,]*\.?\d*", page.locator(".planner-facts dd").first.inner_text())[0]
        assert float(shown.replace(",", "")) == pytest.approx(speed, rel=0.01)
