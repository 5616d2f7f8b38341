"""Two adapters on one base model: switch between them, and add them. Only "cat" gives their weighted sum."""
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
small = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=1000)
learned = LoraConfig(target_modules="all-linear", init_lora_weights=False)  # as if trained; yours come from load_adapter
model = get_peft_model(LlamaForCausalLM(small), learned, adapter_name="sql")
model.add_adapter("french", learned)

# --8<-- [start:add]
model.add_weighted_adapter(["sql", "french"], weights=[0.5, 0.5], adapter_name="both", combination_type="cat")
model.set_adapter("both")
# --8<-- [end:add]

layer = model.base_model.model.model.layers[0].mlp.up_proj
summed = 0.5 * layer.get_delta_weight("sql") + 0.5 * layer.get_delta_weight("french")
for kind in ("cat", "svd", "linear"):
    model.add_weighted_adapter(["sql", "french"], [0.5, 0.5], adapter_name=kind, combination_type=kind)
    print(kind, f"{(layer.get_delta_weight(kind) - summed).norm() / summed.norm():.1e} off the sum")
