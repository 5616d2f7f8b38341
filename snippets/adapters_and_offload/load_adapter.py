"""An adapter, saved, and loaded again: to go on training, and to run."""
import tempfile

from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=1000)


def base_model():
    """The same weights each time; yours come from `from_pretrained`."""
    set_seed(0)
    return LlamaForCausalLM(config)


folder = tempfile.mkdtemp()
get_peft_model(base_model(), LoraConfig(target_modules="all-linear")).save_pretrained(folder)

# --8<-- [start:load]
model = PeftModel.from_pretrained(base_model(), folder, is_trainable=True)  # to go on training
model.print_trainable_parameters()  # 0 without is_trainable
# --8<-- [end:load]

frozen = PeftModel.from_pretrained(base_model(), folder)  # to run
frozen.print_trainable_parameters()
