"""LoRA on the language model of a vision-language model: the vision tower stays as it is."""
from peft import LoraConfig, get_peft_model
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

rotary = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "vocab_size": 500, "rope_parameters": rotary}
vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32}
model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))

# --8<-- [start:adapters]
model = get_peft_model(model, LoraConfig(target_modules="all-linear", exclude_modules=r".*visual.*"))
# --8<-- [end:adapters]

adapted = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
print("adapters in the language model:", sum("language_model" in name for name in adapted))
print("adapters in the vision tower:", sum("visual" in name for name in adapted))
