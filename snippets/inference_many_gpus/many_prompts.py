"""Answers the lines of a file with one copy of the model per GPU. After a crash, start it again: it goes on.

accelerate launch --num-processes 4 --max-restarts 3 many_prompts.py prompts.txt
"""
import contextlib
import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import PartialState
from transformers import AutoModelForCausalLM, LlamaConfig

# A rank that is done early waits for the others, and NCCL soon gives up unless told otherwise.
state = PartialState(cpu=not torch.accelerator.is_available(), timeout=timedelta(days=7))
# With the Hub: model = AutoModelForCausalLM.from_pretrained(name, device_map={"": state.device}), and its tokenizer.
torch.manual_seed(0)  # the same random weights on every rank; a token is a byte
config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                     bos_token_id=None, eos_token_id=None, pad_token_id=0)  # fmt: skip
model = AutoModelForCausalLM.from_config(config).to(state.device).eval()


def answers_to(texts, new=16):
    rows = [torch.tensor(list(text.encode())) for text in texts]
    masks = [torch.ones_like(row) for row in rows]
    ids, mask = (torch.nn.utils.rnn.pad_sequence(part, batch_first=True, padding_side="left") for part in (rows, masks))
    tokens = model.generate(ids.to(state.device), attention_mask=mask.to(state.device), max_new_tokens=new)
    return [bytes(row.tolist()).decode(errors="replace") for row in tokens[:, ids.shape[1] :]]


# --8<-- [start:work]
BATCH, FOLDER = 8, Path("answers")
prompts = Path(sys.argv[1]).read_text().splitlines()


def saved():
    """{index: answer}. The line that a killed process left unfinished is no JSON, so its prompt counts as open."""
    found = {}
    for line in "\n".join(path.read_text() for path in FOLDER.glob("*.jsonl")).splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            row = json.loads(line)
            if prompts[row["index"] : row["index"] + 1] == [row["prompt"]]:  # not of an older prompts file
                found[row["index"]] = row["answer"]
    return found


FOLDER.mkdir(exist_ok=True)
done = saved()
todo = sorted(set(range(len(prompts))) - set(done), key=lambda index: (-len(prompts[index]), index))  # longest first
state.print(f"{len(done)} of {len(prompts)} answers are saved, {len(todo)} to go on {state.num_processes} ranks")
state.wait_for_everyone()  # every rank has read what is saved before any rank writes
with open(FOLDER / f"{state.process_index}.jsonl", "a") as file:
    batches = [todo[start : start + BATCH] for start in range(0, len(todo), BATCH)]
    for batch in batches[state.process_index :: state.num_processes]:  # in turn, so that all ranks get similar lengths
        try:
            answers = answers_to([prompts[index] for index in batch])
        except Exception as error:
            raise RuntimeError(f"rank {state.process_index} failed at the prompts {batch} of {sys.argv[1]}") from error
        for index, answer in zip(batch, answers):
            file.write("\n" + json.dumps({"index": index, "prompt": prompts[index], "answer": answer}))
        file.flush()
if state.num_processes > 1:
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
if state.is_main_process:
    Path("answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for _, answer in sorted(saved().items())))
    print(f"{len(prompts)} answers in answers.jsonl, in the order of the prompts")
# --8<-- [end:work]
state.destroy_process_group()
