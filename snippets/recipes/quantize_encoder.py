"""Rounds the folder `encoder` to int8 as `encoder-int8`, and says for how many texts of yours nothing changes.

    python quantize_encoder.py texts.txt
"""
import sys
from pathlib import Path

import nncf
import numpy
import openvino
from transformers import AutoTokenizer

texts = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()  # one in each line, of the kind that you will serve
examples, judged = texts[::2][:300], texts[1::2]  # no text in both
tokenizer = AutoTokenizer.from_pretrained("encoder")


def tokens_of(text):
    tokens = tokenizer(text, truncation=True, max_length=512, return_tensors="np")
    return [tokens["input_ids"], tokens["attention_mask"]]


def choices(model):
    """For each judged text the nearest other one, or of a classifier the label."""
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    vectors = numpy.concatenate([compiled(tokens_of(text))[0] for text in judged])
    if not numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=0.01):  # logits
        return vectors.argmax(1)
    similarity = vectors @ vectors.T
    numpy.fill_diagonal(similarity, -1)
    return similarity.argmax(1)


# --8<-- [start:quantize]
whole = openvino.Core().read_model("encoder/openvino.xml")
small = nncf.quantize(whole, nncf.Dataset(examples, tokens_of), model_type=nncf.ModelType.TRANSFORMER)
openvino.save_model(small, "encoder-int8/openvino.xml")
tokenizer.save_pretrained("encoder-int8")
print(f"{100 * (choices(small) == choices(whole)).mean():.0f} % of {len(judged)} texts keep their nearest text or label")
# --8<-- [end:quantize]
