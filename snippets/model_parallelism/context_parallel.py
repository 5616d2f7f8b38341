"""Context parallelism by PyTorch's own ring attention; needs GPUs. Run: torchrun --nproc-per-node 2 context_parallel.py"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

# --8<-- [start:mask]
# Each rank gets two pieces of the sequence. transformers takes a jump in the positions for a packed sequence and makes a
# mask, which the ring can't use. It makes none for an attention that it does not know.
AttentionInterface.register("sdpa_without_mask", sdpa_attention_forward)
# --8<-- [end:mask]
size = int(os.environ["WORLD_SIZE"])
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = "cuda" if gpu else "cpu"
mesh = init_device_mesh(device, (size,), mesh_dim_names=("cp",))
config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False, attn_implementation="sdpa_without_mask",
)
torch.manual_seed(0)
model = LlamaForCausalLM(config).to(device, torch.bfloat16)  # the flash kernel takes 16-bit types only
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1)).to(device)
labels = F.pad(ids[:, 1:], (0, 1), value=-100)  # shifted before the cut
positions = torch.arange(32, device=device).expand(8, -1).contiguous()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    # --8<-- [start:context]
    my_ids, my_labels, my_positions = ids.clone(), labels.clone(), positions.clone()  # inside, each rank has a part
    with (
        context_parallel(mesh, buffers=[my_ids, my_labels, my_positions], buffer_seq_dims=[1, 1, 1]),
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
    ):
        logits = model(input_ids=my_ids, position_ids=my_positions).logits.float()
        loss = F.cross_entropy(logits.flatten(0, 1), my_labels.flatten(), reduction="sum") / (labels != -100).sum()
        loss.backward()
    # --8<-- [end:context]
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if mesh.get_rank() == 0:
        print(f"loss {total.item():.4f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
