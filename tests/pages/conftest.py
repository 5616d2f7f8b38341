"""One thread for what the tests of pages compute themselves; the programs that they start have what a reader's have.

Workers of pytest-xdist share the cores, and threads of a small product that wait for each other take many times as long.
"""

import pytest
import torch
import torch.distributed as dist

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def mesh():
    """A process group of one, in this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.fixture
def forget_deepspeed():
    """transformers remembers the last configuration, and builds every later model by it."""
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    yield
    unset_hf_deepspeed_config()
