"""What each program of a page that trains or generates must show while it runs: test_programs_do_what_they_say.py asks for it.

The rates: a range less than a hundred wide for each kind of training, so that a rate a hundred times too high is outside
whatever it was.
"""

import dataclasses
from pathlib import Path

SNIPPETS = Path(__file__).resolve().parent.parent / "snippets"
RATES = {
    "pretrained": (2e-6, 1e-4),  # all weights, by AdamW and its kin; Trainer's default lies inside
    "new": (1e-4, 5e-3),  # weights that begin at random
    "adapters": (1e-5, 5e-4),
    "rewards": (1e-6, 5e-5),  # adapters that learn from their own answers, or all weights from preferences
    "steep": (1e-2, 0.5),  # SGD and its kin; a model of one layer; two rows of an embedding
}


@dataclasses.dataclass(frozen=True)
class Shows:
    name: str
    rate: str = None  # of RATES; None: it does not train
    arguments: tuple = ()
    how: dict = dataclasses.field(default_factory=dict)  # more arguments of `run`, those of the test of its page
    by: str = None  # the program that starts it
    after: str = None  # the program in whose folder it starts
    clips: bool = False  # before each step, at 1
    recomputes: float = 0.0  # the share of the layers that the backward pass computes again
    samples: bool = True  # the model returns the loss: its slope tells sums from means
    falls: bool = True  # the loss of the samples of the first step, by that step
    greedy: float = (
        0.0  # generates without sampling: this share of its tokens is the first choice of a plain forward pass
    )
    wastes: int = 0  # graphs that nobody goes backward through: forward passes to look at something
    compiled: bool = False  # steps alone are watched: hooks on modules would become a part of the graphs

    @property
    def program(self):
        return self.name.rpartition("/")[2]


def trainer(name, rate="pretrained", *more, **shows):
    """Trainer clips by itself."""
    return Shows(name, rate, *more, **{"clips": True} | shows)


def options(script, program):
    """What a page's script gives to a program."""
    (line,) = (line for line in (SNIPPETS / script).read_text().splitlines() if f"{program} " in line)
    return tuple(line.partition(f"{program} ")[2].split())


TWO = {"processes": 2}
ONE_THREAD = {"environment": {"OMP_NUM_THREADS": "1"}}
TRIES = [
    "post_training/tiny.py",
    *(f"post_training/{name}.{kind}" for kind in ("py", "json") for name in ("sft", "dpo", "grpo")),
]
TRY = {"by": "post_training/try.sh", "how": {"beside": TRIES, "environment": {"OMP_NUM_THREADS": 1}}}
TRAIN = [
    trainer("one_gpu/baseline.py"),
    trainer("one_gpu/batch_size.py"),
    trainer("one_gpu/gradient_accumulation.py"),
    trainer("one_gpu/activation_checkpointing.py", recomputes=1),
    trainer("one_gpu/every_second_layer.py", recomputes=0.5),
    trainer("one_gpu/mixed_precision.py"),
    trainer("one_gpu/pure_bf16.py", falls=False),  # in bf16 one step of this rate is less than the rounding
    trainer("one_gpu/all_together.py", recomputes=1),
    trainer("one_gpu/own_loss.py", samples=False),
    Shows("one_gpu/accumulation_pytorch.py", "new"),
    Shows("one_gpu/accumulation_accelerate.py", "new"),
    Shows("one_gpu/loop_pytorch.py", "new", clips=True, recomputes=1),
    Shows("one_gpu/loop_accelerate.py", "new", clips=True, recomputes=1),
    trainer("adapters_and_offload/lora.py", "adapters", recomputes=1),
    trainer("adapters_and_offload/qlora.py", "adapters", recomputes=1),
    # The new rows begin near zero, and a norm divides by their size: the loss is no straight line there.
    trainer("adapters_and_offload/new_tokens.py", "steep", samples=False, wastes=2),
    trainer("adapters_and_offload/offload_activations.py", recomputes=1),
    Shows("adapters_and_offload/cpu_offload_optimizer.py", "pretrained", falls=False),
    Shows("adapters_and_offload/quantization_aware.py", "new"),
    trainer("attention_and_loss/attention.py"),
    trainer("attention_and_loss/chunked_loss.py"),
    Shows("attention_and_loss/contrastive.py", "pretrained", samples=False),
    Shows("attention_and_loss/flex_training.py", "new"),
    trainer("big_models/files.py", "new", how={"beside": ["big_models/small.py"]}),
    trainer("cpu_training/train.py"),
    trainer("cpu_training/lora.py", "adapters"),
    trainer("cpu_training/less_memory.py", recomputes=1),
    trainer("cpu_training/compile.py", compiled=True),
    Shows("data_parallel/ddp.py", "new", how=TWO),
    trainer("data_parallel/trainer.py", how=TWO),
    trainer("data_parallel/quantized.py", "adapters", how=TWO, recomputes=1),
    Shows("data_parallel/accelerate_loop.py", "steep", how=TWO, samples=False),
    Shows("data_parallel/compression.py", "new", how=TWO, samples=False),
    Shows("launching/train.py", "new", ("--steps", 5), how=TWO, samples=False),
    trainer("launching/trainer_resume.py", arguments=("run",), how=TWO),
    Shows("many_cpus/compress.py", "new", how=TWO, samples=False),
    Shows("many_cpus/local_sgd.py", "new", how=TWO),
    trainer("many_cpus/trainer.py", how=TWO),
    trainer("optimizers/adamw.py"),
    trainer("optimizers/adafactor.py"),
    trainer("optimizers/apollo.py", "new"),
    trainer("optimizers/bitsandbytes_8bit.py"),
    trainer("optimizers/bitsandbytes_all_8bit.py"),
    trainer("optimizers/ema.py", "new"),
    trainer("optimizers/galore.py", "new"),
    trainer("optimizers/groups.py", "new"),
    trainer("optimizers/muon.py", "new"),
    trainer("optimizers/schedule_free.py", "new"),
    trainer("optimizers/torchao_4bit.py", compiled=True),
    Shows("optimizers/in_backward.py", "new", samples=False),
    Shows("optimizers/schedule_free_loop.py", "steep", samples=False),
    Shows("own_loop/accelerate_loop.py", "new", clips=True),
    trainer("own_loop/trainer.py", "new"),
    trainer("own_loop/last_whole.py"),
    trainer("own_loop/snapshot_of_oom.py"),
    trainer("post_training/sft.py", "adapters", recomputes=1, **TRY),
    trainer("post_training/dpo.py", "rewards", samples=False, recomputes=1, **TRY),
    trainer(
        "post_training/grpo.py", "steep", samples=False, recomputes=1, **TRY
    ),  # the rate of the script; its own is asked for below
    # What a slope is taken of moves less than the 16 bits that these two compute in.
    trainer(
        "recipes/finetune_8b.py",
        "adapters",
        options("recipes/offline.sh", "finetune_8b.py"),
        ONE_THREAD,
        after="recipes/small.py",
        recomputes=1,
        samples=False,
    ),
    trainer(
        "recipes/finetune_14b.py",
        "pretrained",
        options("recipes/offline_14b.sh", "finetune_14b.py"),
        TWO,
        after="recipes/small.py",
        recomputes=1,
        samples=False,
    ),  # fmt: skip
    Shows("sharding/fsdp2.py", "new", how=TWO, clips=True, recomputes=1),
    Shows("sharding/offload.py", "new", how=TWO, clips=True),
    Shows("sharding/load_broadcast.py", "new", how=TWO, clips=True),
    Shows("sharding/zero1.py", "new", how=TWO, clips=True),
    Shows("sharding/checkpoint.py", "new", how=TWO, clips=True),
    Shows("sharding/ema.py", "new", how=TWO),
    Shows("sharding/hsdp.py", "new", (2,), how={"processes": 4}, clips=True),
    trainer("sharding/trainer_fsdp.py", how=TWO),
    Shows("model_parallelism/one_process.py", "steep"),
    trainer("throughput/data_loading.py"),
    trainer("throughput/group_by_length.py"),
    trainer("throughput/padding_free.py"),
    trainer("throughput/compile.py", compiled=True),
    Shows("throughput/compile_pytorch.py", "new", compiled=True),
    Shows("throughput/compile_accelerate.py", "new", compiled=True),
]
GENERATE = [  # but chunked.py, which counts forward passes, and would count the one that judges it
    Shows("inference_one_gpu/speculative.py", "new", greedy=1),
    *[Shows(f"inference_one_gpu/{name}.py", greedy=1) for name in ("batches", "first_and_later", "prefix")],
    # 8 bits round: of 150 models with other random weights 6 fell below this share, so these two are always the same.
    *[Shows(f"{page}/caches.py", how={"environment": {"WATCH_SEED": "1"}}, greedy=0.9) for page in ("inference_one_gpu", "cpu_inference")],
    Shows("inference_one_gpu/static_cache.py", greedy=1, compiled=True),
    *[Shows(f"cpu_inference/{name}.py", greedy=1) for name in ("batches", "first_token", "precision", "speculative")],
    Shows("inference_many_gpus/experts.py", how=TWO | {"torchrun": True}, greedy=1),
]  # fmt: skip
EVALUATE = [
    Shows("own_loop/evaluation.py"),
    Shows("embeddings_speech_pictures/embeddings.py"),
    Shows("embeddings_speech_pictures/rerank.py"),
    Shows("cpu_inference/by_length.py"),
    Shows("cpu_inference/quality.py"),
    Shows("throughput/isolation_check.py"),
]
ALL = [*TRAIN, *GENERATE, *EVALUATE]
WATCHED = {each.name for each in ALL}
FILES = WATCHED | {file for each in ALL for file in (each.by, each.after, *each.how.get("beside", ())) if file}  # that the runs take
COMPILED = {each.name for each in ALL if each.compiled}
