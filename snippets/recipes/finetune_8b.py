"""Fine-tunes a chat model by QLoRA on GPUs of 24 GB and saves the adapter. Started again, it goes on where it was.

    python finetune_8b.py --model Qwen/Qwen3-8B --data conversations.jsonl     (torchrun in place of python: a copy on each GPU)
"""
import argparse
import json
import os
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen3-8B", help="a model of the Hub, or a folder")
parser.add_argument("--data", default="conversations.jsonl", help='a {"messages": [...]} in each line')
parser.add_argument("--length", type=int, default=2048, help="tokens; longer conversations are cut")
parser.add_argument("--batch", type=int, default=16, help="conversations for each update, of all GPUs")
parser.add_argument("--epochs", type=float, default=1)
parser.add_argument("--bits", type=int, choices=(4, 16), default=4, help="of the frozen weights: 4 is QLoRA, 16 is LoRA")
parser.add_argument("--held-out", type=int, default=0, help="the last conversations, which are not learned, for eval_loss")
asked = parser.parse_args()

# --8<-- [start:model]
gpu = torch.cuda.is_available()
rank, ranks = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))  # torchrun sets them
if asked.batch % ranks:
    sys.exit(f"--batch {asked.batch}: {ranks} GPUs share it; take {(asked.batch // ranks + 1) * ranks}")
dtype = torch.bfloat16 if gpu else torch.float32  # many CPUs are slow in bf16
tokenizer = AutoTokenizer.from_pretrained(asked.model)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # Llama 3 has none; padding is not learned in any case
four_bit = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype,
)
model = AutoModelForCausalLM.from_pretrained(
    asked.model,
    dtype=dtype,
    quantization_config=four_bit if asked.bits == 4 else None,
    device_map={"": rank} if gpu else None,  # the whole model on this GPU, or an error
)
for layer in () if gpu else model.modules():
    layer.support_avx512bf16_for_cpu = False  # on a CPU the first evaluation would repack 4-bit weights, and end the learning
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
model.print_trainable_parameters()
# --8<-- [end:model]


# --8<-- [start:data]
def tokens_of(messages):
    """The tokens of a conversation, and the labels: only the last answer is learned."""
    question = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True)["input_ids"]
    whole = tokenizer.apply_chat_template(messages)["input_ids"][: asked.length]
    labels = ([-100] * len(question) + whole[len(question) :])[: len(whole)]
    return {"input_ids": whole, "attention_mask": [1] * len(whole), "labels": labels}


conversations = [json.loads(line)["messages"] for line in Path(asked.data).read_text(encoding="utf-8").splitlines()]
rows = [tokens_of(messages) for messages in conversations]
rows = [row for row in rows if any(label != -100 for label in row["labels"])]  # an answer that was cut off teaches nothing
print(f"{len(rows)} of {len(conversations)} conversations, {sum(len(row['input_ids']) for row in rows):,} tokens")
if asked.held_out >= len(rows):
    sys.exit(f"--held-out {asked.held_out} leaves nothing to learn of {len(rows)} conversations")
learned, held_out = rows[: len(rows) - asked.held_out], rows[len(rows) - asked.held_out :]
# --8<-- [end:data]

# --8<-- [start:train]
arguments = TrainingArguments(
    "checkpoints",
    num_train_epochs=asked.epochs,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=asked.batch // ranks,
    activation_checkpointing=True,
    ddp_find_unused_parameters=False,  # every adapter is used
    bf16=gpu,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_steps=5,
    logging_steps=5,
    include_num_input_tokens_seen="non_padding",  # the log says tokens per second
    save_steps=50,
    save_total_limit=1,
    eval_strategy="steps" if held_out else "no",
    eval_steps=50,
    eval_on_start=bool(held_out),
    per_device_eval_batch_size=1,
    prediction_loss_only=True,  # keeps no logits
    use_cpu=not gpu,
    report_to="none",
)
trainer = Trainer(
    model=model, args=arguments, train_dataset=learned, eval_dataset=held_out or None,
    data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
)
whole = [path.parent for path in Path("checkpoints").glob("*/trainer_state.json")]  # written last in each folder
last = max(whole, key=lambda folder: int(folder.name.split("-")[1]), default=None)
trainer.train(resume_from_checkpoint=last and str(last))
if held_out:
    print(f"eval_loss at the end: {trainer.evaluate()['eval_loss']:.3f}")
trainer.save_model("adapter")  # with the tokenizer; every rank calls it, rank 0 writes
if gpu:
    print(f"peak {torch.cuda.max_memory_reserved() / 2**30:.1f} GiB reserved")
# --8<-- [end:train]
