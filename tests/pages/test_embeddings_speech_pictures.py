"""docs/inference/embeddings-speech-pictures.md, sentence by sentence."""

import inspect
import re
from types import SimpleNamespace

import numpy
import pytest
import torch
from built import ROOT
from programs import load, run, shown_message
from transformers import (
    AutomaticSpeechRecognitionPipeline,
    AutoModelForImageTextToText,
    Gemma3Config,
    GenerationConfig,
    LlamaForCausalLM,
    LlavaConfig,
    Pipeline,
    Qwen2_5_VLConfig,
    Qwen2VLImageProcessorPil,
    Qwen3Config,
    Qwen3ForCausalLM,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    pipelines,
)
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas
from transformers.models.pixtral.image_processing_pil_pixtral import get_resize_output_image_size
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

PAGE = ROOT / "docs" / "inference" / "embeddings-speech-pictures.md"
IMAGES = "embeddings_speech_pictures/images.py"


def raised(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return f"{type(caught.value).__name__}: {str(caught.value).strip()}"


# The programs


@pytest.mark.parametrize(
    "name, says",
    [
        ("embeddings_speech_pictures/embeddings.py", "(30, 64)"),
        ("embeddings_speech_pictures/images.py", "at most 16384: 999 tokens from 3996 patches"),
        ("embeddings_speech_pictures/rerank.py", "9 documents"),
    ],
)
def test_every_program_of_the_page_runs(name, says):
    assert says in run(name).stdout


# Embeddings and rerankers


def test_a_reranker_needs_the_logits_of_one_position():
    made = load("embeddings_speech_pictures/rerank.py")
    ids = torch.nn.utils.rnn.pad_sequence(made.pairs[:4], batch_first=True, padding_side="left")
    with torch.no_grad():
        every = made.model(input_ids=ids, attention_mask=ids.ne(0).long()).logits
    assert every.shape[1] == ids.shape[1]
    expected = every[:, -1, [made.NO, made.YES]].softmax(-1)[:, 1]
    assert torch.allclose(made.scores(made.pairs[:4]), expected, atol=1e-5)


@pytest.mark.parametrize("name, function", [("embeddings", "embed"), ("rerank", "scores")])
def test_token_0_in_a_text_counts_and_the_padding_beside_it_does_not(name, function, monkeypatch):
    made = load(f"embeddings_speech_pictures/{name}.py")
    short, long = torch.tensor([0, 5, 0, 6]), torch.arange(1, 40)
    compute, forward, masks = getattr(made, function), made.model.forward, []
    monkeypatch.setattr(made.model, "forward", lambda **given: masks.append(given["attention_mask"]) or forward(**given))
    together, alone = compute([short, long])[0], compute([short])[0]
    assert torch.allclose(together, alone, atol=1e-5)
    assert masks[-1].tolist() == [[1, 1, 1, 1]], "the two tokens 0 are words, not padding"


def test_an_embedder_keeps_a_cache_unless_told_not_to():
    shape = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, head_dim=32)
    config = Qwen3Config(**shape, num_key_value_heads=1, vocab_size=500, pad_token_id=0)
    model = Qwen3ForCausalLM(config).model.eval()
    assert model(torch.arange(5, 37)[None]).past_key_values is not None
    assert model(torch.arange(5, 37)[None], use_cache=False).past_key_values is None


class Echo(Pipeline):
    """A pipeline that takes itself for one on a GPU, and computes nothing."""

    def __init__(self):
        self.call_count, self.device, self._num_workers, self._batch_size = 0, torch.device("cuda"), None, None
        self._preprocess_params = self._forward_params = self._postprocess_params = {}

    def _sanitize_parameters(self, **given):
        return {}, {}, {}

    def run_single(self, inputs, *params):
        return inputs

    preprocess = _forward = postprocess = None  # nothing calls them


def test_the_pipeline_says_that_it_is_in_a_loop(monkeypatch):
    said, pipeline = [], Echo()
    monkeypatch.setattr(pipelines.base.logger, "warning_once", said.append)
    for _ in range(10):
        pipeline("one text")
    assert not said
    pipeline("one text")
    assert "You seem to be using the pipelines sequentially on GPU" in said[0]


# Speech


def test_whisper_pads_a_second_to_thirty():
    extractor = WhisperFeatureExtractor()
    lengths = [
        extractor(numpy.zeros(16000 * seconds, dtype="float32"), sampling_rate=16000)["input_features"].shape[-1]
        for seconds in (1, 30)
    ]
    assert lengths == [3000, 3000]
    assert WhisperForConditionalGeneration._supports_sdpa and WhisperForConditionalGeneration._can_compile_fullgraph


def test_the_pipeline_cuts_a_recording_in_advance_only_when_told_and_warns(monkeypatch):
    cut = inspect.signature(AutomaticSpeechRecognitionPipeline.preprocess).parameters["chunk_length_s"]
    assert cut.default == 0
    said, whisper = [], SimpleNamespace(type="seq2seq_whisper", model=None, generation_config=None)
    monkeypatch.setattr(pipelines.automatic_speech_recognition.logger, "warning", said.append)
    for told in ({}, {"chunk_length_s": 30, "ignore_warning": True}):
        AutomaticSpeechRecognitionPipeline._sanitize_parameters(whisper, **told)
    assert not said
    AutomaticSpeechRecognitionPipeline._sanitize_parameters(whisper, chunk_length_s=30)
    assert "The results will not necessarily" in said[0] and "ignore_warning=True" in said[0]


def tiny_whisper():
    config = WhisperConfig(
        vocab_size=100, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(
        decoder_start_token_id=3, eos_token_id=2, pad_token_id=0, bos_token_id=1, return_timestamps=False
    )
    return model


def test_more_than_one_window_needs_timestamps():
    told = raised(tiny_whisper().generate, torch.randn(1, 80, 6000), max_new_tokens=4)
    assert told.startswith("ValueError: You have passed more than 3000 mel input features") and "return_timestamps=True" in told


def test_whisper_takes_a_batch_and_a_static_cache():
    model, windows = tiny_whisper(), torch.randn(3, 80, 3000)
    static = model.generate(windows, max_new_tokens=4, do_sample=False, cache_implementation="static")
    assert torch.equal(static, model.generate(windows, max_new_tokens=4, do_sample=False))


# Pictures


PICTURES = ((768, 1024), (3000, 4000))


def tokens_of_pictures():
    """{model: its tokens for each picture}, by the processors of transformers and the limits of the published checkpoints."""
    qwen = [smart_resize(*picture, 28, 4 * 28**2, 16384 * 28**2) for picture in PICTURES]
    qwen3 = [smart_resize(*picture, 32, 64 * 32**2, 16384 * 32**2) for picture in PICTURES]
    tiles = [get_optimal_tiled_canvas(picture, (448, 448), 1, 12) for picture in PICTURES]
    rows = [get_resize_output_image_size(numpy.zeros((*picture, 3)), (1540, 1540), (28, 28)) for picture in PICTURES]
    encoder = LlavaConfig().vision_config
    return {
        "LLaVA-1.5": [(encoder.image_size // encoder.patch_size) ** 2] * 2,
        "Gemma 3": [Gemma3Config().mm_tokens_per_image] * 2,
        "Mistral-Small-3.1": [high // 28 * (wide // 28 + 1) for high, wide in rows],
        "InternVL3": [256 * (columns * lines + 1) for columns, lines in tiles],
        "Qwen2.5-VL": [high * wide // 28**2 for high, wide in qwen],
        "Qwen3-VL": [high * wide // 32**2 for high, wide in qwen3],
    }


def test_the_tokens_of_a_picture_are_those_of_the_processors():
    text = PAGE.read_text()
    rows = text[
        text.index("| Model | Tokens | 1,024 x 768 |") : text.index("**What it costs.** A token of Qwen2.5-VL-7B")
    ]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows.strip().splitlines()[2:]]
    shown = {name: [int(cell.replace(",", "")) for cell in (small, large)] for name, _, small, large, _ in cells}
    assert shown == tokens_of_pictures()


def test_fewer_pixels_are_fewer_tokens_and_less_cache():
    found = re.findall(r"at most (\d+): (\d+) tokens from (\d+) patches, cache (\d+)", run(IMAGES).stdout)
    most, tokens, patches, cache = ([int(row[column]) for row in found] for column in range(4))
    assert all(fewer <= limit for fewer, limit in zip(tokens, most, strict=True))
    assert patches == [4 * count for count in tokens]
    assert tokens == sorted(tokens, reverse=True) and cache == sorted(cache, reverse=True) and cache[2] < cache[0] / 5


def test_sdpa_runs_a_call_for_each_window_of_the_encoder(monkeypatch):
    made, lengths = load(IMAGES), []
    real = torch.nn.functional.scaled_dot_product_attention

    def counted(query, *arguments, **options):
        lengths.append(query.shape[-2])
        return real(query, *arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    inputs = made.processor(
        images=[made.picture], size={"shortest_edge": 3136, "longest_edge": 16384 * 28**2}, return_tensors="pt"
    )
    made.model.model.visual(inputs["pixel_values"], grid_thw=inputs["image_grid_thw"])
    assert len([length for length in lengths if length <= 64]) == 70  # one windowed layer, windows of 112 pixels
    assert lengths.count(3996) == 1  # one full layer
    encoder = Qwen2_5_VLConfig().vision_config
    assert (encoder.depth, len(encoder.fullatt_block_indexes)) == (32, 4)


def test_each_part_takes_its_own_attention_and_one_dtype():
    parts = {"vision_config": "eager", "text_config": "sdpa"}
    config = load(IMAGES).config
    model = AutoModelForImageTextToText.from_config(config, attn_implementation=parts, dtype=torch.bfloat16)
    assert model.model.visual.config._attn_implementation == "eager"
    assert model.model.language_model.config._attn_implementation == "sdpa"
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


def test_max_pixels_works_when_the_processor_is_made_and_warns_in_a_call():
    picture = load(IMAGES).picture
    limit = 128 * 28**2
    made = Qwen2VLImageProcessorPil(max_pixels=limit)(images=[picture], return_tensors="pt")
    assert int(made["image_grid_thw"].prod()) // 4 <= 128
    with pytest.warns(FutureWarning, match="size="):
        Qwen2VLImageProcessorPil()(images=[picture], min_pixels=3136, max_pixels=limit, return_tensors="pt")


def test_picture_tokens_that_are_cut_off_give_the_message_of_the_page():
    made = load(IMAGES)
    assert raised(made.model, made.ids[:, :-10], **made.inputs) == shown_message("embeddings_speech_pictures", "image_tokens")


def test_continuous_batching_takes_token_ids_and_no_pixels():
    assert "pixel_values" not in inspect.signature(LlamaForCausalLM.generate_batch).parameters
    assert inspect.signature(LlamaForCausalLM.generate_batch).parameters["inputs"].annotation == list[list[int]]
