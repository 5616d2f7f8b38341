"""A tiny model with its tokenizer, without a network: the folder `tiny`. It knows nothing, and trains in seconds."""
import string

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import Qwen3Config, Qwen3ForCausalLM, TokenizersBackend, set_seed

SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>"]
vocabulary = {token: number for number, token in enumerate([*SPECIAL, *string.printable])}
characters = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
tokenizer = TokenizersBackend(tokenizer_object=characters, pad_token="<pad>", eos_token="<|im_end|>")
tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
tokenizer.chat_template = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
tokenizer.save_pretrained("tiny")

set_seed(0)
config = Qwen3Config(
    vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=512, initializer_range=0.1,
    pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
)
Qwen3ForCausalLM(config).bfloat16().save_pretrained("tiny")  # checkpoints of the Hub are in bf16 too
