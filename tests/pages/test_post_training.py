"""docs/training/post-training.md and docs/training/grpo.md: their programs do what they say, and TRL decides what they say that TRL decides."""

import importlib.util
import inspect
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import trl
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from programs import ROOT, SNIPPETS, run, shown_message
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, GptOssConfig, Lfm2Config, LlamaConfig
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from trl.experimental import async_grpo
from trl.scripts import vllm_serve

FOLDER = SNIPPETS / "post_training"
PAGES = "".join((ROOT / "docs" / "training" / f"{page}.md").read_text(encoding="utf-8") for page in ("post-training", "grpo"))
ON_CPU = {"use_cpu": True, "report_to": "none"}
SMALL = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, vocab_size=64,
)  # fmt: skip


@pytest.fixture(scope="module")
def tried():
    """What the commands of the section on trying without a GPU leave."""
    programs = ["post_training/tiny.py", "post_training/sft.py", "post_training/dpo.py", "post_training/grpo.py"]
    beside = [*programs, "post_training/sft.json", "post_training/dpo.json", "post_training/grpo.json"]
    return run("post_training/try.sh", beside=beside, environment={"OMP_NUM_THREADS": 1}, timeout=1200)


@pytest.fixture(scope="module")
def tiny(tried):
    return str(tried.folder / "tiny")


def rows(name, number=8):
    return Dataset.from_list([json.loads((FOLDER / f"{name}.json").read_text())] * number)


def no_score(completions, **rest):
    return [0.0] * len(completions)


def adapter():
    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")


def sft(tiny, folder, data=None, model=None, peft_config=None, quantization_config=None, **arguments):
    return SFTTrainer(model or tiny, args=SFTConfig(folder, **ON_CPU, **arguments), train_dataset=data or rows("sft"),
                      peft_config=peft_config, quantization_config=quantization_config)  # fmt: skip


def dtypes(model, trained):
    return {parameter.dtype for parameter in model.parameters() if parameter.requires_grad == trained and parameter.is_floating_point()}


def error(name):
    return shown_message("post_training", name).removeprefix("ValueError: ")


def test_the_programs_leave_an_adapter_of_each_method(tried):
    for folder in ("adapter", "preferred"):
        assert (tried.folder / folder / "adapter_model.safetensors").exists()


def test_the_reward_rises_where_some_answers_are_right(tried):
    rewards = [float(value) for value in re.findall(r"'reward': '([\d.]+)'", tried.stdout)]
    assert len(rewards) == 20
    assert rewards[0] < 0.3 < 0.6 < sum(rewards[-5:]) / 5


def test_the_program_with_tools_wants_a_template_for_them_and_logs_how_often_they_are_called(tried, tmp_path):
    shutil.copytree(tried.folder / "tiny", tmp_path / "tiny")
    (tmp_path / "prompts.jsonl").write_text((FOLDER / "grpo.json").read_text() * 8)
    words = ("post_training/grpo_tools.py", "--model", "tiny", "--tokens", 8, "--steps", 1)
    refused = run(*words, start=tmp_path, check=False)
    assert "The provided chat template does not support tool calling" in refused.stderr
    templates = Path(inspect.getfile(trl)).parent / "chat_templates"
    shutil.copy(templates / "qwen3.jinja", tmp_path / "tiny" / "chat_template.jinja")
    made = run(*words, start=tmp_path)
    assert "'tools/call_frequency': '0'" in made.stdout and "'tools/failure_frequency'" in made.stdout
    assert (made.folder / "adapter" / "adapter_model.safetensors").exists()


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        (LlamaConfig(**SMALL), {"use_liger_kernel": True}, "`use_liger_kernel` is not supported yet"),
        (Lfm2Config(**SMALL, layer_types=["conv", "full_attention"]), {}, "a recurrent or convolutional layer"),
        (GptOssConfig(**SMALL, head_dim=16, num_local_experts=2, num_experts_per_tok=1), {}, "uses attention sinks"),
    ],
)
def test_the_asynchronous_trainer_refuses_what_the_page_says(tmp_path, config, options, words):
    fields = async_grpo.AsyncGRPOConfig.__dataclass_fields__
    assert (fields["max_staleness"].default, fields["dtype"].default) == (4, "float32")
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises((NotImplementedError, ValueError), match=words):
        async_grpo.AsyncGRPOTrainer(str(tmp_path), reward_funcs=no_score, train_dataset=rows("grpo"),
                                    args=async_grpo.AsyncGRPOConfig(tmp_path, bf16=False, **ON_CPU, **options))  # fmt: skip


def test_all_weights_are_trained_with_the_reference_computed_before(tried):
    made = run("post_training/dpo.py", "--model", "tiny", "--data", "dpo.jsonl", "--steps", 1, "--full", start=tried.folder)
    assert "Computing reference log probs" in made.stderr
    assert AutoModelForCausalLM.from_pretrained(made.folder / "preferred").dtype == torch.float32


def test_the_program_trains_on_weights_in_4_bits_too(tried):
    made = run("post_training/sft.py", "--model", "tiny", "--data", "sft.jsonl", "--steps", 1, "--four-bit", start=tried.folder)
    assert (made.folder / "adapter" / "adapter_model.safetensors").exists()


# fp32


def test_trl_loads_in_fp32_what_transformers_loads_in_bf16(tiny, tmp_path):
    assert AutoModelForCausalLM.from_pretrained(tiny).dtype == torch.bfloat16
    assert dtypes(sft(tiny, tmp_path).model, trained=True) == {torch.float32}
    for trainer, config, data in ((DPOTrainer, DPOConfig, "dpo"), (GRPOTrainer, GRPOConfig, "grpo")):
        more = {"reward_funcs": no_score} if trainer is GRPOTrainer else {}
        made = trainer(tiny, args=config(tmp_path, **ON_CPU), train_dataset=rows(data), **more)
        assert dtypes(made.model, trained=True) == {torch.float32}


def test_frozen_weights_stay_in_bf16_where_one_says_so_or_passes_the_model(tiny, tmp_path):
    named = sft(tiny, tmp_path, model_init_kwargs={"dtype": "bfloat16"}, peft_config=adapter())
    passed = sft(tiny, tmp_path, model=AutoModelForCausalLM.from_pretrained(tiny), peft_config=adapter())
    for made in (named, passed):
        assert dtypes(made.model, trained=False) == {torch.bfloat16}


def test_what_qlora_leaves_unquantized_follows_the_dtype(tiny, tmp_path):
    for said, expected in ((None, torch.float32), ({"dtype": "bfloat16"}, torch.bfloat16)):
        four_bit = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
        made = sft(tiny, tmp_path, model_init_kwargs=said, peft_config=adapter(), quantization_config=four_bit)
        assert made.model.get_input_embeddings().weight.dtype == expected


# What TRL decides


def test_the_defaults_of_the_table(tiny, tmp_path):
    made = sft(tiny, tmp_path).args
    assert (made.bf16, made.activation_checkpointing, made.max_length, made.learning_rate) == (True, True, 1024, 2e-5)
    assert SFTConfig(tmp_path, fp16=True, **ON_CPU).bf16 is False
    assert [config(tmp_path, **ON_CPU).learning_rate for config in (DPOConfig, GRPOConfig)] == [1e-6, 1e-6]


def test_what_is_longer_loses_its_end_and_an_answer_behind_the_cut_is_dropped(tiny, tmp_path):
    lengths = ((900, 400), (1200, 3))
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": "a" * asked}], "completion": [{"role": "assistant", "content": "b" * answer}]}
                              for asked, answer in lengths])  # fmt: skip
    kept = sft(tiny, tmp_path, data).train_dataset
    assert [len(row["input_ids"]) for row in kept] == [1024]


def learned(trainer):
    row = next(iter(trainer.get_train_dataloader()))
    return trainer.processing_class.decode([token for token in row["labels"][0].tolist() if token != -100])


def test_prompt_and_completion_learn_the_completion_and_messages_learn_everything(tiny, tmp_path):
    pair = json.loads((FOLDER / "sft.json").read_text())
    messages = Dataset.from_list([{"messages": pair["prompt"] + pair["completion"]}] * 8)
    assert "What" not in learned(sft(tiny, tmp_path)).replace(" ", "")
    assert "What" in learned(sft(tiny, tmp_path, messages)).replace(" ", "")


def test_assistant_only_loss_stops_where_it_knows_no_template_of_the_model(tiny, tmp_path):
    pair = json.loads((FOLDER / "sft.json").read_text())
    messages = Dataset.from_list([{"messages": pair["prompt"] + pair["completion"]}] * 8)
    with pytest.raises(ValueError, match="template"):
        sft(tiny, tmp_path, messages, assistant_only_loss=True)


def test_a_padding_token_that_is_the_end_token_is_still_learned(tiny, tmp_path):
    made = sft(tiny, tmp_path)
    made.processing_class.pad_token = made.processing_class.eos_token
    assert made.processing_class.eos_token in learned(made)


QWEN3 = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"


@pytest.mark.parametrize(
    ("answer", "more", "thinks"),
    [
        ({}, {}, "<think></think>"),
        ({"reasoning_content": "seven"}, {}, "<think>seven</think>"),
        ({}, {"chat_template_kwargs": {"enable_thinking": False}}, ""),
    ],
)
def test_qwen3_learns_empty_think_tags_from_an_answer_without_reasoning_unless_they_belong_to_the_prompt(
    tiny, tmp_path, answer, more, thinks
):
    pair = json.loads((FOLDER / "sft.json").read_text())
    pair["completion"][0].update(answer)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.chat_template = QWEN3.read_text()
    made = SFTTrainer(tiny, args=SFTConfig(tmp_path, **ON_CPU), processing_class=tokenizer,
                      train_dataset=Dataset.from_list([{**pair, **more}] * 8))  # fmt: skip
    row = made.train_dataset[0]
    said = "".join(tokenizer.decode([token for token in row["labels"] if token != -100]).split())
    assert said == f"{thinks}7<|im_end|>"


def test_trl_casts_adapters_to_bf16_with_qlora_alone(tiny, tmp_path):
    four_bit = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    for quantization, expected in ((None, torch.float32), (four_bit, torch.bfloat16)):
        made = sft(tiny, tmp_path, peft_config=adapter(), quantization_config=quantization)
        assert dtypes(made.model, trained=True) == {expected}


def test_adapters_that_are_cast_back_train_in_fp32(tiny, tmp_path):
    four_bit = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    trainer = sft(tiny, tmp_path, peft_config=adapter(), quantization_config=four_bit, max_steps=1, save_strategy="no")
    line = re.search(r"`(for weight in trainer\.model\.parameters\(\): .*)`", PAGES)[1]
    exec(line, {"trainer": trainer})
    trainer.train()
    assert {state["exp_avg"].dtype for state in trainer.optimizer.state.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("config", "name"), [(SFTConfig, "max_seq_length"), (GRPOConfig, "max_prompt_length")]
)
def test_an_argument_that_is_gone_is_unexpected(tmp_path, config, name):
    assert f"`{name}=`" in PAGES
    with pytest.raises(TypeError, match=name):
        config(tmp_path, **{name: 8})


def test_an_adapter_on_the_output_layer_is_refused(tiny, tmp_path):
    with pytest.raises(ValueError, match="lm_head"):
        sft(tiny, tmp_path, peft_config=LoraConfig(target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM"))


# DPO and GRPO


def test_dpo_holds_a_second_model_in_the_dtype_of_the_first_unless_it_need_not(tiny, tmp_path):
    def reference(peft_config=None, **arguments):
        config = DPOConfig(tmp_path, **ON_CPU, **arguments)
        return DPOTrainer(tiny, args=config, train_dataset=rows("dpo"), peft_config=peft_config).ref_model

    assert reference().dtype == torch.float32
    assert reference(model_init_kwargs={"dtype": "bfloat16"}).dtype == torch.bfloat16
    assert reference(peft_config=adapter()) is None
    assert reference(precompute_ref_log_probs=True) is None


def test_dpo_of_an_adapter_from_sft_keeps_a_frozen_copy_of_it_as_the_reference(tiny, tmp_path):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny), adapter())
    taken = {"args": DPOConfig(tmp_path, **ON_CPU), "train_dataset": rows("dpo")}
    made = DPOTrainer(model, processing_class=AutoTokenizer.from_pretrained(tiny), **taken)
    weights = dict(made.model.named_parameters())
    copies = {name: weight for name, weight in weights.items() if ".ref." in name}
    assert copies and not any(weight.requires_grad for weight in copies.values())
    assert all(torch.equal(weight, weights[name.replace(".ref.", ".default.")]) for name, weight in copies.items())
    with pytest.raises(ValueError, match="first merge"):
        DPOTrainer(model, peft_config=adapter(), **taken)


def test_ppo_is_gone_and_what_the_page_names_besides_is_there():
    gone = ("PPOTrainer", "ORPOTrainer", "GKDTrainer", "OnlineDPOTrainer", "DataCollatorForCompletionOnlyLM", "setup_chat_format")
    for name in gone:
        assert name in PAGES and not hasattr(trl, name)
    for name in ("KTOTrainer", "RLOOTrainer", "RewardTrainer", "DistillationTrainer"):
        assert name in PAGES and hasattr(trl, name)
    for name in ("orpo", "cpo", "online_dpo", "gkd", "gold"):
        assert importlib.util.find_spec(f"trl.experimental.{name}")
    assert not importlib.util.find_spec("trl.experimental.ppo")


def test_grpo_holds_a_second_model_with_beta_alone(tiny, tmp_path):
    def reference(beta, peft_config=None):
        config = GRPOConfig(tmp_path, beta=beta, **ON_CPU)
        return GRPOTrainer(tiny, reward_funcs=no_score, args=config,
                           train_dataset=rows("grpo"), peft_config=peft_config).ref_model  # fmt: skip

    assert GRPOConfig(tmp_path, **ON_CPU).beta == 0
    assert reference(0.0) is None
    assert reference(0.1) is not None
    assert reference(0.1, adapter()) is None


def test_accumulation_writes_more_answers_at_once_unless_steps_per_generation_says_otherwise(tmp_path):
    accumulated = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 8}
    assert GRPOConfig(tmp_path, **ON_CPU, **accumulated).generation_batch_size == 64
    assert GRPOConfig(tmp_path, **ON_CPU, **accumulated, steps_per_generation=1).generation_batch_size == 8


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("divisible", {"per_device_train_batch_size": 1, **ON_CPU}), ("one_answer", {"num_generations": 1, **ON_CPU})],
)
def test_a_wrong_batch_is_refused_in_the_words_of_the_page(tmp_path, name, arguments):
    with pytest.raises(ValueError) as refused:
        GRPOConfig(tmp_path, **arguments)
    assert str(refused.value) == error(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")
def test_without_use_cpu_bf16_is_refused(tmp_path):
    with pytest.raises(ValueError) as refused:
        SFTConfig(tmp_path)
    assert str(refused.value) == error("no_bf16")


def test_continuous_batching_leaves_the_whole_model_in_bf16(tiny, tmp_path):
    config = GRPOConfig(tmp_path, max_steps=1, max_completion_length=4, use_transformers_continuous_batching=True, **ON_CPU)
    made = GRPOTrainer(tiny, reward_funcs=no_score, args=config, train_dataset=rows("grpo"))
    assert dtypes(made.model, trained=True) == {torch.float32}
    made.train()
    assert dtypes(made.model, trained=True) == {torch.bfloat16}


def test_a_reward_model_trains_its_whole_scoring_layer_with_its_task_type_alone(tiny, tmp_path):
    asked = [{"role": "user", "content": "What is 2 + 5?"}]
    pair = {name: [*asked, {"role": "assistant", "content": text}] for name, text in (("chosen", "7"), ("rejected", "8"))}
    for task, whole in (("SEQ_CLS", True), (None, False)):
        made = trl.RewardTrainer(tiny, args=trl.RewardConfig(tmp_path, **ON_CPU), train_dataset=Dataset.from_list([pair] * 8),
                                 peft_config=LoraConfig(r=4, target_modules="all-linear", task_type=task))  # fmt: skip
        names = [name for name, weight in made.model.named_parameters() if weight.requires_grad and ".score." in name]
        assert names and all(("modules_to_save" in name) == whole for name in names)


def test_grpo_clips_for_each_token_and_dapo_is_the_loss_by_default(tmp_path):
    made = GRPOConfig(tmp_path, **ON_CPU)
    assert (made.importance_sampling_level, made.loss_type, made.epsilon, made.num_iterations) == ("token", "dapo", 0.2, 1)
    assert (made.entropy_coef, made.num_generations_eval, made.max_tool_calling_iterations) == (0.0, None, None)


def test_the_options_of_vllm_are_those_of_the_page(tmp_path):
    made = GRPOConfig(tmp_path, **ON_CPU)
    assert (made.vllm_mode, made.vllm_gpu_memory_utilization, made.vllm_enable_sleep_mode) == ("colocate", 0.3, False)
    assert (made.vllm_max_model_length, made.ds3_gather_for_generation, made.use_transformers_continuous_batching) == (None, True, False)
    assert (made.top_p, made.top_k, made.mask_truncated_completions) == (1.0, 0, False)


def test_the_metrics_of_the_page_are_logged(tried):
    for name in ("frac_reward_zero_std", "completions/clipped_ratio", "rewards/margins", "rewards/chosen", "rewards/accuracies"):
        assert f"'{name}'" in tried.stdout
        assert f"`{name}`" in PAGES


def test_the_server_and_the_training_are_given_other_gpus():
    says = 'echo "$CUDA_VISIBLE_DEVICES: $@"'
    stand_ins = {"vllm": f"{says}; touch up", "accelerate": f"until [ -e up ]; do sleep 0.1; done; {says}"}
    server, training = sorted(run("post_training/server.sh", stand_ins=stand_ins).stdout.splitlines(), reverse=True)
    assert not set(server.split(":")[0].split(",")) & set(training.split(":")[0].split(","))
    assert f"--num_processes {len(training.split(':')[0].split(','))} " in training
    assert f"--tensor-parallel-size {len(server.split(':')[0].split(','))}" in server


def test_the_server_has_the_options_that_trl_would_give_it():
    asked = vllm_serve.build_command(vllm_serve.ScriptArguments(model="Qwen/Qwen3-8B", tensor_parallel_size=2))
    said = shlex.split((SNIPPETS / "post_training/server.sh").read_text().replace("\\\n", " "), comments=True)
    imposed = asked[asked.index("--weight-transfer-config") :]
    assert said[: said.index("&")][-len(imposed) :] == imposed
    assert "VLLM_SERVER_DEV_MODE=1" in said


def test_the_install_line_names_the_versions_that_the_tests_use():
    locked = (ROOT / "requirements" / "test.in").read_text() + (ROOT / "requirements" / "test.txt").read_text()
    for package in (SNIPPETS / "post_training/install.sh").read_text().split()[2:]:
        assert package in locked
