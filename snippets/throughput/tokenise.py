"""Tokenizes a corpus once, in batches, into one file of ids; training reads fixed rows from it, mapped from disk."""
import pydoc_data.topics

import numpy
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import TokenizersBackend

texts = list(pydoc_data.topics.topics.values())  # your corpus; here, text that ships with Python
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=2000, special_tokens=["<end>"], show_progress=False))
tokenizer = TokenizersBackend(tokenizer_object=bpe, eos_token="<end>")
# With a pretrained one: tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")

# --8<-- [start:tokenise]
END = tokenizer.eos_token_id
with open("ids.bin", "wb") as file:
    for first in range(0, len(texts), 1000):  # a list at a time: it uses all cores, one text at a time uses one
        for ids in tokenizer(texts[first : first + 1000])["input_ids"]:
            file.write(numpy.array([*ids, END], dtype=numpy.uint32).tobytes())


class Rows(torch.utils.data.Dataset):
    """Rows of `length` tokens, read from disk when they are asked for. Positions start again with each text."""

    def __init__(self, path, length):
        self.ids, self.length = numpy.memmap(path, dtype=numpy.uint32, mode="r"), length

    def __len__(self):
        return len(self.ids) // self.length

    def __getitem__(self, row):
        ids = torch.from_numpy(self.ids[row * self.length : (row + 1) * self.length].astype(numpy.int64))
        begins = torch.cat([torch.tensor([True]), ids[:-1] == END])  # the row's first token, and each after an END
        place = torch.arange(self.length)
        positions = place - torch.where(begins, place, 0).cummax(0).values
        return {"input_ids": ids, "labels": ids.masked_fill(begins, -100), "position_ids": positions}
# --8<-- [end:tokenise]


rows = Rows("ids.bin", 128)
print(f"{len(texts):,} texts, {len(rows.ids):,} tokens, {len(rows):,} rows of {rows.length}")
