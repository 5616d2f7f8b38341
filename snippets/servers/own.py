"""Answers many requests at once from one model: each waits for its own tokens, and transformers batches them."""
import asyncio
import uuid

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
torch.manual_seed(0)
gpu = torch.cuda.is_available()
model = AutoModelForCausalLM.from_config(config).to("cuda" if gpu else "cpu").eval()
batching = ContinuousBatchingConfig()  # on a GPU it sizes its cache by the free memory
if not gpu:
    batching = ContinuousBatchingConfig(num_blocks=16, page_size=32, max_batch_tokens=64)
greedy = GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)


# --8<-- [start:answer]
async def answer(manager, ids, new=8, seconds=60):
    """The tokens after a prompt. Call it in an `async def` handler: a `def` handler runs in a thread without a loop."""
    name, done = uuid.uuid4().hex, asyncio.get_running_loop().create_future()
    # Register first: what is ready before that goes to a queue that all share, and this request never sees it.
    manager.register_result_handler(name, lambda result: done.done() or done.set_result(result))
    if manager.add_request(ids, request_id=name, max_new_tokens=new) is None:
        raise RuntimeError("the worker has stopped")
    try:
        result = await asyncio.wait_for(done, seconds)
    except (TimeoutError, asyncio.CancelledError):  # too late, or the client has left
        manager.cancel_request(name)
        raise
    if result.error:  # an error is kept in the result, and not raised
        raise RuntimeError(result.error)
    return result.generated_tokens
# --8<-- [end:answer]


async def main(manager):
    prompts = [torch.randint(1, 1000, (length,)).tolist() for length in (5, 32, 12, 7)]
    answers = await asyncio.gather(*(answer(manager, ids) for ids in prompts))
    print([len(tokens) for tokens in answers])


if __name__ == "__main__":
    with model.continuous_batching_context_manager(greedy, continuous_batching_config=batching) as manager:
        asyncio.run(main(manager))
