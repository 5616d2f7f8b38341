"""docs/inference/servers.md, sentence by sentence. Its figures are claims of the notebook of inference on one GPU."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from programs import SNIPPETS, load, run
from transformers.cli import serve

FOLDER = SNIPPETS / "servers"


def test_serve_knows_the_options_of_the_page():
    known = set(inspect.signature(serve.Serve.__init__).parameters)
    words = (FOLDER / "serve.sh").read_text().split()
    given = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    assert given == {"continuous_batching", "device", "dtype", "port"}
    assert given <= known
    assert inspect.signature(serve.Serve.__init__).parameters["continuous_batching"].default is False


def test_four_requests_at_once_are_all_answered():
    assert "[8, 8, 8, 8]" in run("servers/own.py").stdout


def finished(coroutine):
    """What the coroutine returns, run on an event loop of its own: playwright's keeps running in the thread of the tests."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, coroutine).result()


@pytest.fixture(scope="module")
def own():
    """The program of the page, and its queue at work."""
    made = load("servers/own.py")
    with made.model.continuous_batching_context_manager(
        made.greedy, continuous_batching_config=made.batching
    ) as manager:
        yield made, manager


def test_requests_at_the_same_time_get_the_tokens_that_each_gets_alone(own):
    made, manager = own
    prompts = [list(range(first, first + length)) for first, length in ((5, 32), (100, 7), (300, 12), (700, 1))]

    async def together():
        return await asyncio.gather(*(made.answer(manager, ids) for ids in prompts))

    for ids, tokens in zip(prompts, finished(together()), strict=True):
        alone = made.model.generate(torch.tensor([ids]), generation_config=made.greedy)
        assert alone[0, len(ids) :].tolist() == tokens


class AtOnce:
    """A queue that is ready the moment it is asked: who registers afterwards hears nothing."""

    def __init__(self):
        self.handlers = {}

    def register_result_handler(self, name, handler):
        self.handlers[name] = handler

    def add_request(self, ids, request_id, max_new_tokens):
        if request_id in self.handlers:
            self.handlers[request_id](SimpleNamespace(error=None, generated_tokens=ids * max_new_tokens))
        return request_id

    def cancel_request(self, name):
        pass


def test_the_program_hears_an_answer_that_is_ready_at_once():
    assert finished(load("servers/own.py").answer(AtOnce(), [1], new=3, seconds=5)) == [1, 1, 1]


def test_what_is_ready_before_its_handler_is_registered_never_reaches_it(own):
    made, manager = own

    async def late():
        heard = []
        manager.add_request([5, 6, 7], request_id="late", max_new_tokens=1)
        while manager.output_router.output_queue.empty():
            await asyncio.sleep(0.01)
        manager.register_result_handler("late", heard.append)
        await asyncio.sleep(0.5)
        return heard

    assert finished(asyncio.wait_for(late(), 60)) == []
    assert manager.get_result("late", timeout=10).generated_tokens


def test_a_handler_in_a_thread_has_no_event_loop_to_register_on(own):
    _, manager = own
    with ThreadPoolExecutor(1) as threads, pytest.raises(RuntimeError, match="no running event loop"):
        threads.submit(manager.register_result_handler, "thread", print).result()


def test_a_request_to_a_worker_that_has_stopped_fails_at_once():
    made = load("servers/own.py")
    with made.model.continuous_batching_context_manager(
        made.greedy, continuous_batching_config=made.batching
    ) as manager:
        finished(made.answer(manager, [5, 6, 7]))
    with pytest.raises(RuntimeError, match="the worker has stopped"):
        finished(asyncio.wait_for(made.answer(manager, [5, 6, 7]), 10))


def test_a_request_that_takes_too_long_is_cancelled_and_the_queue_goes_on(own):
    made, manager = own
    with pytest.raises(TimeoutError):
        finished(made.answer(manager, [5, 6, 7], new=400, seconds=0.01))
    assert len(finished(made.answer(manager, [5, 6, 7]))) == 8
