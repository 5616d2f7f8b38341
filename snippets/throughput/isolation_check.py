"""Does your model keep the sequences of a padding-free row apart? Then changing the first leaves the others alone."""
import torch
from transformers import BertConfig, BertForMaskedLM, DataCollatorWithFlattening, LlamaConfig, LlamaForCausalLM

shape = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
llama, bert = LlamaForCausalLM(LlamaConfig(**shape)).eval(), BertForMaskedLM(BertConfig(**shape)).eval()
sequences = [torch.randint(0, 500, (length,)).tolist() for length in (5, 40, 17)]

# --8<-- [start:check]
flatten = DataCollatorWithFlattening(return_tensors="pt")


@torch.no_grad()
def check(model, **more):
    def logits_after(first):
        row = flatten([{"input_ids": ids} for ids in (first, *sequences[1:])])
        return model(**row, **more).logits[:, len(first) :]

    first, another = sequences[0], sequences[1][: len(sequences[0])]
    return "isolated" if torch.allclose(logits_after(first), logits_after(another), atol=1e-5) else "leaks"


print("Llama, no cache, no mask:", check(llama, use_cache=False))
print("Llama, use_cache=True:", check(llama, use_cache=True))
print("Llama, attention_mask:", check(llama, attention_mask=torch.ones(1, sum(map(len, sequences)))))
print("BERT:", check(bert))
# --8<-- [end:check]
