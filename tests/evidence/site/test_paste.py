"""The paste box of Debugging: an error, or a log that holds one, leads to its section and to what that says to do first."""

import pytest
import yaml
from built import ROOT, console, host, tab

PASTED = yaml.safe_load((ROOT / "tests" / "data" / "error_messages.yml").read_text(encoding="utf-8"))
RECALL = 0.9  # of the messages: the box answers with their section
LOG = """\
Loading checkpoint shards: 100%|██████████| 4/4 [00:02<00:00]
2026-11-26 10:00:01 INFO trainer.py:512 step 120
dataloader.py:627: UserWarning: This DataLoader will create 8 worker processes in total.
{{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.01}}
Traceback (most recent call last):
  File "train.py", line 88, in <module>
    main()
{}
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
2026-11-26 10:00:02 INFO trainer.py:512 the end
"""


@pytest.fixture(scope="module")
def box():
    """Pastes a text; returns the sections that it leads to."""
    with tab() as opened, console(opened) as messages:
        opened.goto(host().address + "debugging/")

        def paste(text):
            opened.fill("#paste-log", "")
            opened.locator("#paste-found > *").first.wait_for(state="detached")
            opened.fill("#paste-log", text)
            opened.locator("#paste-found > *").first.wait_for(timeout=120_000)
            links = opened.evaluate("[...document.querySelectorAll('.paste-title a')].map(link => link.pathname + link.hash)")
            return [link.removeprefix(host().path) for link in links]

        paste.page = opened
        yield paste
        assert messages == []


@pytest.mark.nightly
def test_a_message_in_a_log_leads_to_its_section(box):
    """Alone the search finds it: test_search.py."""
    missed = []
    for case in PASTED:
        page, _, section = case["entry"].partition("#")
        found = box(LOG.format(case["message"]))
        if f"{page}/#{section}" not in found:
            missed.append(f"{case['entry']}: {found}")
    print(f"{len(missed)} of {len(PASTED)} missed", *missed, sep="\n")
    assert len(missed) <= (1 - RECALL) * len(PASTED), missed


def test_the_answer_says_what_to_do_after_that_message_and_links_lead_from_there(box):
    box("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn")
    shown = box.page.locator("#paste-found section").first
    assert "enable_input_require_grads" in shown.inner_text() and "harmless" not in shown.inner_text()
    for link in shown.locator("a").all():
        assert link.evaluate("link => link.href").startswith(("http://127.0.0.1", "https://"))


def test_what_a_section_says_before_its_message_is_shown_too(box):
    box("[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=35, OpType=ALLREDUCE, NumelIn=1) ran for 600029 milliseconds")
    said = box.page.locator("#paste-found").inner_text()
    assert "Read the logs of all ranks" in said and not said.split("If that is not it")[0].strip().endswith(":")


def test_several_errors_are_answered_each_the_first_first(box):
    first, second = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "ValueError: Attempting to unscale FP16 gradients."
    noise = "\n".join(f"2026-11-26 10:00:0{second} INFO step" for second in range(8))
    assert box(f"{noise}\n{first}\n{noise}\n{first}\n{noise}\n{second}\n")[:2] == ["debugging-memory/#oom-message", "training/precision/#mixed-precision"]


def test_what_is_pasted_is_shown_as_text_and_sent_nowhere(box):
    asked = []
    box.page.on("request", lambda request: asked.append((request.method, request.url)))
    box("ValueError: <img src=x onerror=alert(1)> secret-of-mine")
    assert "<img src=x" in box.page.locator(".paste-said").first.inner_text() and not box.page.locator("#paste-found img").count()
    assert all(method == "GET" and "secret-of-mine" not in url for method, url in asked)


@pytest.mark.parametrize("words", ["?", *(pytest.param(words, marks=pytest.mark.nightly) for words in ("x", "x.", "x\n", "ValueError: x\n"))], ids=repr)
def test_nonsense_is_answered_in_words(box, words):
    """A hundred thousand times, in one line or in many."""
    box("KeyError: 'nothing'")
    put = "text => { const log = document.getElementById('paste-log'); log.value = text; log.dispatchEvent(new InputEvent('input')) }"
    box.page.evaluate(put, words * 100_000)
    box.page.locator("#paste-found", has_not_text="KeyError").wait_for(timeout=60_000)
    assert box.page.locator("#paste-found").inner_text().strip()
    box.page.evaluate(put, "")
