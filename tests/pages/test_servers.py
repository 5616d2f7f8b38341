"""docs/inference/servers.md, sentence by sentence. Its figures are claims of the notebook of inference on one GPU."""

import inspect
import re

import torch
import yaml
from built import ROOT
from programs import SNIPPETS
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.cli import serve
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager

FOLDER = SNIPPETS / "servers"
PAGE = ROOT / "docs" / "inference" / "servers.md"
QUESTIONS = yaml.safe_load((ROOT / "tests" / "data" / "questions_servers.yml").read_text())


def llama():
    shape = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
    return LlamaForCausalLM(LlamaConfig(**shape, bos_token_id=None, eos_token_id=None, pad_token_id=0)).eval()


def test_serve_knows_the_options_of_the_page():
    known = set(inspect.signature(serve.Serve.__init__).parameters)
    words = (FOLDER / "serve.sh").read_text().split()
    given = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    assert given == {"continuous_batching", "device", "dtype", "port"}
    assert given <= known
    assert inspect.signature(serve.Serve.__init__).parameters["continuous_batching"].default is False


def test_the_manager_of_a_server_knows_the_calls_of_the_page():
    assert {"request_id", "streaming"} <= inspect.signature(ContinuousBatchingManager.add_request).parameters.keys()
    assert {"request_id", "callback"} <= inspect.signature(
        ContinuousBatchingManager.register_result_handler
    ).parameters.keys()
    assert "request_id" in inspect.signature(ContinuousBatchingManager.cancel_request).parameters
    with llama().continuous_batching_context_manager(
        generation_config=GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0),
        continuous_batching_config=ContinuousBatchingConfig(num_blocks=16, page_size=32, max_batch_tokens=64),
    ) as manager:
        name = manager.add_request(torch.arange(5, 37).tolist(), request_id="one")
        answer = next(iter(manager.request_id_iter(name)))
    assert len(answer.generated_tokens) == 4 and not answer.error


def test_questions_of_readers_have_a_section_each():
    sections = set(re.findall(r"\{ #([\w-]+) \}", PAGE.read_text()))
    assert len({question["thread"] for question in QUESTIONS}) >= 15
    assert not [question for question in QUESTIONS if question["section"] not in sections]
    assert all(question["thread"].startswith("https://") and len(question["asks"]) > 20 for question in QUESTIONS)
