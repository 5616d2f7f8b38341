"""The first program of each guide runs as shown, to its end. Whether each program does what its page says: tests/pages/."""

import pytest
from programs import run

OF_GUIDES = {  # with what a page tells its reader to add
    "one_gpu/mixed_precision.py": {},
    "one_gpu/batch_size.py": {},
    "one_gpu/activation_checkpointing.py": {},
    "optimizers/adamw.py": {},
    "throughput/group_by_length.py": {},
    "adapters_and_offload/lora.py": {},
    "attention_and_loss/attention.py": {},
    "own_loop/accelerate_loop.py": {},
    "post_training/tiny.py": {},
    "data_parallel/trainer.py": {"processes": 2},
    "sharding/fsdp2.py": {"processes": 2},
    "model_parallelism/one_process.py": {},
    "launching/train.py": {"arguments": ["--steps", 5], "processes": 2},
    "many_gpus/decide.py": {},
    "cpu_training/train.py": {},
    "many_cpus/network.py": {},
    "inference_one_gpu/fits.py": {},
    "inference_one_gpu/batches.py": {},
    "inference_many_gpus/fits.py": {},
    "cpu_inference/threads.py": {},
    "big_models/empty.py": {},
    "servers/own.py": {},
    "embeddings_speech_pictures/embeddings.py": {},
    "debugging/where_time_goes.py": {},
    "debugging/environment.py": {},
    "hardware/what_works.py": {},
    "dryrun/ask.py": {},
    "contribute/claim.py": {},
}


@pytest.mark.parametrize("name", OF_GUIDES)
def test_the_first_program_of_a_guide_runs_as_shown_and_says_what_came_out(name):
    options = dict(OF_GUIDES[name])
    made = run(name, *options.pop("arguments", ()), **options)
    assert made.stdout.strip(), f"snippets/{name} printed nothing"
