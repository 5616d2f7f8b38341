"""Models that differ in their sizes alone are answered from the profile of their family: what it says is what a trace says."""

import json
import subprocess
import sys

import pytest
from same_trace import ROOT, SIZES, same, without_torch

from dryrun import Cluster, Job, predict
from dryrun.door import web
from dryrun.models import families, models
from dryrun.models.families import OfNoFamily, member, member_of
from dryrun.step import profiles
from dryrun.step.profiles import VARIANTS
from dryrun.step.workload import Workload
from dryrun.tracing import profile_trace, step_trace

OWN = {
    "llama": "llama:layers=6,hidden=768,heads=12,kv_heads=4,ffn=2048,vocab=30011",
    "llama-tied": "llama:layers=7,hidden=640,heads=10,ffn=1728,vocab=50257,tied",
    "mistral": "mistral:layers=9,hidden=1000,heads=7,kv_heads=7,head_dim=96,ffn=2500,vocab=32768",
    "qwen2": "qwen2:layers=5,hidden=1024,heads=16,kv_heads=2,ffn=2816,vocab=151936",
    "qwen2-tied": "qwen2:layers=24,hidden=896,heads=14,kv_heads=2,ffn=4864,vocab=151936,tied",
    "qwen3": "qwen3:layers=12,hidden=1536,heads=10,kv_heads=5,head_dim=128,ffn=4096,vocab=151936",
    "qwen3-tied": "qwen3:layers=8,hidden=512,heads=8,kv_heads=4,head_dim=128,ffn=1536,vocab=60000,tied",
    "olmo2": "olmo2:layers=10,hidden=2048,heads=16,kv_heads=4,ffn=8192,vocab=100352",
    "phi3": "phi3:layers=6,hidden=960,heads=15,kv_heads=5,ffn=2560,vocab=32064",
}
ASKED = [(name, variant, SIZES[index % len(SIZES)], (16, 8, 64)[index % 3]) for index, (name, variant) in enumerate(zip(OWN, VARIANTS, strict=False))]


QLORA = [(*asked[:1], "qlora checkpointing", *asked[2:]) for asked in ASKED[::4]]


@pytest.mark.parametrize("name, variant, size, rank", [*ASKED[::2], *(pytest.param(*asked, marks=pytest.mark.nightly) for asked in (*ASKED[1::2], *QLORA))])
def test_sizes_that_no_profile_was_made_from_come_out_as_a_trace_of_them(name, variant, size, rank):
    batch, length = size
    workload = Workload(families.of_words(OWN[name]), batch, 1 if variant == "decode" else length, **profile_trace.options_of(variant, rank))
    assert profiles.profiled(workload)
    same(workload)


@pytest.mark.parametrize("scaling", [{"rope_type": "linear", "factor": 2.0}, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
                                     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}])  # fmt: skip
def test_positions_that_are_stretched_once_run_the_same(scaling):
    fields = json.loads(families.of_words(OWN["llama"])) | {"rope_scaling": scaling, "max_position_embeddings": 32768}
    workload = Workload(json.dumps(fields), 2, 300, **VARIANTS["lora checkpointing"])
    assert profiles.profiled(workload)
    same(workload)


@pytest.mark.parametrize("name", [name for name in models.configurations() if member_of(name)])
def test_a_model_of_the_table_has_the_sizes_that_transformers_reads(name):
    model_class, config = models.configuration(name)
    found = member_of(name)
    assert found.model_class == model_class.__name__
    assert found.family.endswith("-tied") == config.tie_word_embeddings
    sizes = found.sizes
    said = (config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads, config.vocab_size,
            config.max_position_embeddings)  # fmt: skip
    assert (sizes.hidden, sizes.ffn, sizes.layers, sizes.heads, sizes.kv_heads, sizes.vocab, sizes.positions) == said
    assert sizes.head_dim == (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


@pytest.mark.parametrize("kind", families.config_file.OF_KIND)
def test_a_field_that_a_config_json_leaves_out_is_what_transformers_takes(kind):
    values = {"model_type": kind, "hidden_size": 8192, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 64, "vocab_size": 1000}
    _, config = models.of_config(values)
    if getattr(config, "sliding_window", None):
        assert member_of(json.dumps(values)) is None
        values["sliding_window"] = None
    sizes = member_of(json.dumps(values)).sizes
    assert sizes.kv_heads == config.num_key_value_heads
    assert sizes.positions == config.max_position_embeddings
    assert sizes.head_dim == (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    assert not config.tie_word_embeddings


LLAMA = json.loads(families.of_words(OWN["llama"]))


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"sliding_window": 1024}, "sliding_window is 1024"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling is 'dynamic'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "computed in another way"),
        ({"layer_types": ["sliding_attention", "full_attention"] * 3}, "layers differ"),
        ({"rope_parameters": {"rope_type": "yarn", "llama_4_scaling_beta": 0.1}}, "computed in another way"),
        ({"residual_multiplier": 0.22}, "residual_multiplier: it is not known"),
        ({"num_hidden_layers": 4}, "layers is 4"),
        ({"num_key_value_heads": 1}, "kv_heads is 1"),
        ({"head_dim": 320}, "head_dim is 320"),
    ],
)
def test_whatever_else_a_configuration_says_its_model_is_traced(fields, said):
    with pytest.raises(OfNoFamily, match=said):
        member("LlamaForCausalLM", LLAMA | fields)
    assert not profiles.has(json.dumps(LLAMA | fields))


def test_a_tied_model_of_a_family_that_was_traced_untied_is_traced():
    with pytest.raises(OfNoFamily, match="tie_word_embeddings"):
        member("Phi3ForCausalLM", LLAMA | {"tie_word_embeddings": True})


def test_a_classifier_of_the_same_layers_is_traced():
    assert member_of(json.dumps(LLAMA | {"architectures": ["LlamaForSequenceClassification"]})) is None


@pytest.mark.parametrize("values", [{"hidden_size": "x"}, {"num_attention_heads": 0}, {"num_key_value_heads": 5}, {"layer_types": [{}]}, {"layer_types": 5},
                                    {"rope_scaling": 3}, {"hidden_size": True}, {"text_config": []}])  # fmt: skip
def test_a_configuration_of_nonsense_is_of_no_family(values):
    assert member_of(json.dumps(LLAMA | values)) is None


VL = {"model_type": "qwen2_5_vl", "vision_config": {}, "text_config": {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
                                                                       "num_key_value_heads": 2, "vocab_size": 151936}}  # fmt: skip


@pytest.mark.parametrize(
    "values, family",
    [
        (VL, "qwen2"),
        (VL | {"tie_word_embeddings": True}, "qwen2-tied"),
        (VL | {"text_config": VL["text_config"] | {"tie_word_embeddings": True}}, "qwen2-tied"),
        (VL | {"text_config": {name: value for name, value in VL["text_config"].items() if name != "num_key_value_heads"}}, None),
        ({"model_type": "mistral3", "text_config": LLAMA | {"model_type": "mistral"}}, "llama"),
        ({"model_type": "mistral3", "text_config": LLAMA | {"model_type": "ministral3"}}, None),
        ({"model_type": "phi3"} | {name: value for name, value in LLAMA.items() if name != "model_type"}, "phi3"),
        (LLAMA | {"model_type": "phi3", "rope_scaling": {"type": "yarn"}}, None),
    ],
)
def test_the_part_that_reads_text_has_a_family_of_its_own(values, family):
    assert getattr(member_of(json.dumps(values)), "family", None) == family


def test_what_is_beside_the_text_is_not_invented():
    text = json.dumps({"model_type": "mpt", "architectures": ["MptForCausalLM"], "attn_config": {"attn_type": "multihead_attention"}})
    assert models.left_out(text) == ""


@pytest.mark.parametrize("words", OWN.values())
def test_words_say_all_of_a_model(words):
    found = member_of(families.of_words(words))
    again = member_of(families.of_words(families.in_words(found)))
    assert again == found


@pytest.mark.parametrize(
    "words, said",
    [
        ("lllama:layers=6", "did you mean 'llama'"),
        ("llama:", "layers, hidden, heads, ffn, vocab missing"),
        ("llama:layers=6,hidden_sizes=64", "did you mean 'hidden'"),
        ("llama:layers=x", "layers='x': give a whole number"),
        ("llama:layers=0", "layers='0': give a whole number"),
        ("llama:layers=9999,hidden=64,heads=2,ffn=64,vocab=64", "at most 2,000 makes sense"),
        ("llama:layers=6,hidden=64,heads=7,ffn=64,vocab=64", "7 heads do not divide it"),
        ("llama:layers=6,hidden=64,heads=8,kv_heads=3,ffn=64,vocab=64", "3 kv_heads do not divide it"),
        ("llama:layers=6,hidden=6,heads=2,ffn=64,vocab=64", "need an even one"),
    ],
)
def test_words_that_mean_no_model_are_refused_in_one_line(words, said):
    with pytest.raises(ValueError, match=said) as refused:
        Job(words)
    assert "\n" not in str(refused.value)


def test_words_a_config_json_and_python_are_answered_the_same(tmp_path):
    words, path = OWN["qwen3-tied"], tmp_path / "config.json"
    path.write_text("\n" + families.of_words(words))
    said = {json.dumps(vars(predict(Job(given, 2, 512, checkpointing=True), Cluster("rtx-4090"))), default=str).replace(given, "") for given in (words, str(path))}
    assert len(said) == 1


def test_without_torch_a_file_and_words_are_answered_and_another_model_says_what_to_install(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(families.of_words(OWN["llama"]))
    asked = [["train", str(path), "--gpu", "t4", "--lora", "32"], ["infer", OWN["phi3"], "--gpu", "t4"], ["plan", OWN["llama"], "--gpu", "l4", "--gpus", "4"]]
    out = without_torch(f"from dryrun.door import web\nfor asked in {asked!r}: print('error' in web.ask(asked))")
    assert out.split() == ["False"] * 3
    path.write_text(json.dumps(LLAMA | {"hidden_act": "gelu"}))
    assert "torch is not installed" in without_torch(f"from dryrun.answer import job\ntry: job.model({str(path)!r})\nexcept ModuleNotFoundError as error: print(error)")


def test_a_pasted_configuration_is_said_in_words_or_why_it_is_not():
    assert web.in_words(json.dumps(LLAMA))["model"] == OWN["llama"]
    assert "attention_bias is True" in web.in_words(json.dumps(LLAMA | {"attention_bias": True}))["error"]
    assert "this is no JSON" in web.in_words("{")["error"]
    assert '"model_type" is missing' in web.in_words("[]")["error"]


def test_a_number_that_is_no_product_of_sizes_makes_no_family():
    symbols = profile_trace.PRIME_SIZES.symbols(profile_trace.PRIME_RANK)
    assert profile_trace.formula(2 * symbols["hidden"] * symbols["ffn"]) == "2 hidden ffn"
    with pytest.raises(profile_trace.NotExact):
        profile_trace.formula(symbols["hidden"] + symbols["ffn"])


@pytest.mark.nightly
def test_a_formula_that_is_wrong_is_found_before_its_profile_is_written(monkeypatch):
    """As a family would be whose models differ in more than their sizes."""
    monkeypatch.setattr(profile_trace, "VARIANTS", {"forward": {"kind": "forward"}})
    formula = profile_trace.formula
    monkeypatch.setattr(profile_trace, "formula", lambda value: "3 hidden" if formula(value) == "2 hidden" else formula(value))
    with pytest.raises(profile_trace.NotExact, match="runs another step than its family's formulas say"):
        profile_trace.make_family("llama")


def test_the_command_takes_words():
    done = subprocess.run([sys.executable, "-m", "dryrun", "train", OWN["llama"], "--gpu", "t4", "--json"], capture_output=True, text=True, cwd=ROOT, check=True)
    assert json.loads(done.stdout)["fits"]
    assert step_trace.parameters(families.of_words(OWN["llama"])) == json.loads(done.stdout)["parameters"]
