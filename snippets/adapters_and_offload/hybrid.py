"""LoRA on a hybrid of attention and Mamba: adapters where the fused kernel respects them, and the layers that have one."""
from peft import LoraConfig, get_peft_model
from transformers import FalconH1Config, FalconH1ForCausalLM

small = FalconH1Config(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, vocab_size=1000,
    mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=16,
)
model = FalconH1ForCausalLM(small)

# --8<-- [start:adapters]
attention, mlp = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]
mamba = ["in_proj"]  # not out_proj, not conv1d
model = get_peft_model(model, LoraConfig(target_modules=attention + mlp + mamba))
reached = {name.split(".lora_A")[0].split("layers.")[-1] for name, _ in model.named_parameters() if "lora_A" in name}
print("layers with adapters:", len({name.split(".")[0] for name in reached}), sorted(reached))  # is each layer there?
# --8<-- [end:adapters]
