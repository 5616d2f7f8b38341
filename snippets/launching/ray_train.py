"""Starts train.py on a Ray cluster: each worker is one rank, and when one dies, all start again from the checkpoint.

ray job submit --working-dir . -- python ray_train.py
"""

import sys

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from train import train


def worker(settings):
    train(**settings)


if __name__ == "__main__":
    shared = sys.argv[1] if len(sys.argv) > 1 else "/shared/run"  # change: a folder that all nodes see
    # --8<-- [start:trainer]
    trainer = TorchTrainer(
        worker,
        train_loop_config={"checkpoint": f"{shared}/checkpoint.pt"},
        torch_config=TorchConfig(timeout_s=600),  # Ray makes the process group: train() cannot set its time-out
        scaling_config=ScalingConfig(num_workers=2, use_gpu=True),  # change: GPUs of all nodes; False for CPUs
        run_config=RunConfig(name="train", storage_path=shared, failure_config=FailureConfig(max_failures=3)),
    )
    trainer.fit()
    # --8<-- [end:trainer]
