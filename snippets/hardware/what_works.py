"""What of PyTorch and transformers works on this machine? Tries each, and says in one line what does not."""

import copy

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

# --8<-- [start:device]
device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")  # cuda is ROCm, too
# --8<-- [end:device]
config = LlamaConfig(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=512, pad_token_id=0
)
ids = torch.arange(1, 65, device=device)[None]


def model(dtype, **options):
    return AutoModelForCausalLM.from_config(config, dtype=dtype, **options).to(device)


def step(model, **options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    return model


def four_bits():
    model(torch.bfloat16).save_pretrained("small")
    four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    loaded = AutoModelForCausalLM.from_pretrained("small", quantization_config=four, device_map={"": device})
    loaded(input_ids=ids)


def compiled():
    plain = model(torch.float32)
    other = torch.compile(copy.deepcopy(plain))
    torch.testing.assert_close(other(input_ids=ids).logits, plain(input_ids=ids).logits, rtol=1e-3, atol=1e-3)


# --8<-- [start:tries]
TRIES = {
    "a step in fp32, SDPA": lambda: step(model(torch.float32)),
    "a step in bf16, SDPA": lambda: step(model(torch.bfloat16)),
    "a step in fp16, SDPA": lambda: step(model(torch.float16)),
    "fused AdamW": lambda: step(model(torch.float32), fused=True),
    "eager attention": lambda: step(model(torch.float32, attn_implementation="eager")),
    "torch.compile": compiled,
    "4 bits by bitsandbytes": four_bits,
}
# --8<-- [end:tries]
print(f"{device.type}, torch {torch.__version__}")
for name, works in TRIES.items():
    try:
        works()
        print(f"{name:26} yes")
    except Exception as error:  # whatever a backend raises
        print(f"{name:26} no: {type(error).__name__}: {' '.join(str(error).split())[:80]}")
