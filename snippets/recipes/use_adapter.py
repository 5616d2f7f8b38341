"""Asks a model with its adapter, and writes both as one model for an inference server."""
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

name, question = sys.argv[1], sys.argv[2]  # Qwen/Qwen3-8B "What did we learn?"
tokenizer = AutoTokenizer.from_pretrained("adapter")
base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)  # not in 4 bits: a merge would round again
model = PeftModel.from_pretrained(base, "adapter").merge_and_unload()
model.save_pretrained("merged")
tokenizer.save_pretrained("merged")

if torch.cuda.is_available():
    model.to("cuda")
asked = tokenizer.apply_chat_template(
    [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt",
).to(model.device)
answer = model.generate(**asked, max_new_tokens=64, do_sample=False)
print(tokenizer.decode(answer[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))
