"""docs/inference/many-gpus.md, docs/inference/tensor-parallelism.md and docs/inference/vllm-many-gpus.md, sentence by sentence. Its figures are claims of its notebook."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from accelerate import PartialState, state
from accelerate.commands.launch import launch_command_parser
from built import ROOT
from programs import SNIPPETS, run, shown_message
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, NVFP4Config
from transformers.distributed import DistributedConfig
from transformers.quantizers import quantizer_nvfp4

from evidence.launch import run_ranks

FOLDER = SNIPPETS / "inference_many_gpus"
PAGE = ROOT / "docs" / "inference" / "many-gpus.md"
PROMPTS = [f"prompt number {number}" + "!" * (number % 7 * 5) for number in range(21)]
PROGRAM = "inference_many_gpus/many_prompts.py"
WITH_RESTARTS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def error(name):
    return shown_message("inference_many_gpus", name)


def answered(prompts, **how):
    """The run of the program on these prompts."""
    return run(
        PROGRAM, "prompts.txt", files={"prompts.txt": "\n".join(prompts)}, environment={"OMP_NUM_THREADS": 1}, **how
    )


def saved_in(folder):
    """[(index, prompt)] of all complete lines that ranks have written."""
    lines = (line for path in Path(folder, "answers").glob("*.jsonl") for line in path.read_text().splitlines() if line)
    rows = (json.loads(line) for line in lines if line.endswith("}"))
    return [(row["index"], row["prompt"]) for row in rows]


@functools.cache
def on_two_ranks():
    ended = run_ranks(ROOT / "tests" / "pages" / "ranks" / "inference_many_gpus.py", timeout=600)
    return json.loads(ended.stdout[0].splitlines()[-1])


# A split model


def tokens_of(name, ranks):
    printed = run(f"inference_many_gpus/{name}.py", processes=ranks, torchrun=True).ranks[0].stdout
    return re.search(r"\[\[.*\]\]", printed)[0]


def test_two_and_four_ranks_give_the_tokens_of_one():
    one = tokens_of("tensor_parallel", 1)
    assert len(json.loads(one)[0]) == 12
    assert tokens_of("tensor_parallel", 2) == tokens_of("tensor_parallel", 4) == one


def test_experts_on_two_ranks_give_the_tokens_of_one():
    assert tokens_of("experts", 2) == tokens_of("experts", 1)
    assert "4 experts on each rank" in run("inference_many_gpus/experts.py", processes=2, torchrun=True).ranks[0].stdout


def test_heads_that_do_not_divide_end_the_program_with_both_numbers():
    ended = run("inference_many_gpus/tensor_parallel.py", processes=3, check=False)
    assert ended.returncode
    assert any(error("heads") in rank.stderr for rank in ended.ranks)


def test_a_token_makes_two_sums_in_each_layer_and_one_for_the_embedding_and_gathers_the_logits():
    found = on_two_ranks()["collectives"]
    layers, width, vocabulary, size = 3, 64, 500, 4
    assert found["all-reduce"] == [2 * layers + 1, (2 * layers + 1) * width * size]
    assert found["all-gather"] == [1, vocabulary * size]


def test_each_rank_keeps_its_share_of_the_kv_heads():
    assert on_two_ranks()["heads"] == 4 // 2


def test_ranks_that_draw_with_other_seeds_go_on_with_different_texts():
    first, second = on_two_ranks()["same seed"]
    assert first == second
    first, second = on_two_ranks()["other seeds"]
    assert first != second


def test_padding_on_the_left_gives_the_tokens_of_one_process_and_on_the_right_other_ones():
    found = on_two_ranks()
    split, alone = found["left"]
    assert split == alone
    assert alone[0] == found["first alone"][0]
    assert found["right"][0] != found["first alone"][0]


@pytest.mark.parametrize("name", ["mesh", "device_map"])
def test_the_message_is_that_of_the_page(name):
    assert on_two_ranks()[name] == error(name)


def test_transformers_names_no_heads_where_they_do_not_divide():
    shape = r"RuntimeError: shape '\[2, \d+, -1, 22\]' is invalid for input of size \d+"
    assert re.fullmatch(shape, on_two_ranks()["three heads"])
    assert re.fullmatch(shape, shown_message("model_parallelism", "heads"))


def test_a_split_model_without_torchrun_gives_the_message_of_the_page(tmp_path, monkeypatch):
    for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    small = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    LlamaForCausalLM(small).save_pretrained(tmp_path)
    with pytest.raises(OSError) as caught:
        AutoModelForCausalLM.from_pretrained(tmp_path, distributed_config=DistributedConfig(tp_size=2))
    assert f"OSError: {caught.value}" == error("no_torchrun")


def test_bitsandbytes_fails_under_a_split_and_int8_of_torchao_does_not():
    in_4_bits, in_8_bits = on_two_ranks()["bitsandbytes"]
    assert in_4_bits and in_8_bits == error("bitsandbytes_split")
    assert on_two_ranks()["int8"] < 0.05
    split = SimpleNamespace(config=SimpleNamespace(distributed_config=DistributedConfig(tp_size=2)))
    with pytest.raises(ValueError, match="NVFP4 quantization does not support tensor parallelism yet"):
        quantizer_nvfp4.NVFP4HfQuantizer(NVFP4Config(), pre_quantized=False).update_parallel_plan(split, {})


# One copy on each GPU


def test_two_ranks_answer_each_prompt_once_in_order_and_as_one_process_does():
    two, one = answered(PROMPTS, processes=2), answered(PROMPTS)
    assert "0 of 21 answers are saved, 21 to go on 2 ranks" in two.ranks[0].stdout
    assert sorted(saved_in(two.folder)) == list(enumerate(PROMPTS))
    assert len(list(Path(two.folder, "answers").iterdir())) == 2
    answers = Path(two.folder, "answers.jsonl").read_text()
    assert len(answers.splitlines()) == len(PROMPTS)
    assert answers == Path(one.folder, "answers.jsonl").read_text()


def test_a_finished_run_that_is_started_again_on_another_number_of_ranks_computes_nothing():
    two = answered(PROMPTS, processes=2)
    again = answered(PROMPTS, start=two.folder)
    assert "21 of 21 answers are saved, 0 to go on 1 ranks" in again.stdout
    assert sorted(saved_in(again.folder)) == list(enumerate(PROMPTS))


def test_answers_of_another_prompts_file_and_unfinished_lines_do_not_count():
    broken = '\n{"index": 0, "prompt": "something else", "answer": "x"}\n{"index": 1, "prompt": "prom'
    files = {"prompts.txt": "\n".join(PROMPTS[:3])}
    made = run(PROGRAM, "prompts.txt", files=files, environment={"OMP_NUM_THREADS": 1})
    folder = Path(made.folder)
    start = folder.parent / "broken"
    shutil.copytree(folder, start, dirs_exist_ok=True)
    (start / "answers" / "0.jsonl").write_text(broken)
    again = run(PROGRAM, "prompts.txt", files=files, environment={"OMP_NUM_THREADS": 1}, start=start)
    assert "0 of 3 answers are saved, 3 to go" in again.stdout
    assert Path(again.folder, "answers.jsonl").read_text() == (folder / "answers.jsonl").read_text()


def test_a_rank_that_fails_names_its_prompts_and_the_fixed_run_goes_on():
    """A batch of empty lines: the model gets no token at all."""
    prompts = [f"prompt number {number:02}" for number in range(16)]
    failed = answered([*prompts, *[""] * 8, ""], processes=2, check=False)
    assert failed.returncode
    said = "".join(rank.stderr for rank in failed.ranks)
    assert re.search(r"RuntimeError: rank 0 failed at the prompts \[16, .*23\] of prompts.txt", said)
    assert "Root Cause (first observed failure)" in failed.stderr
    kept = saved_in(failed.folder)
    assert {index for index, _ in kept} >= set(range(8))  # the first batch of the rank that failed
    again = answered(prompts, processes=2, start=failed.folder)
    assert f"{len(kept)} of 16 answers are saved, {16 - len(kept)} to go on 2 ranks" in again.ranks[0].stdout
    assert sorted(saved_in(again.folder)) == list(enumerate(prompts))
    assert len(Path(again.folder, "answers.jsonl").read_text().splitlines()) == 16


def started(folder, prompts):
    """torchrun with one restart, as the page starts it, but on two processes."""
    (folder / "prompts.txt").write_text("\n".join(prompts))
    shutil.copy(SNIPPETS / PROGRAM, folder)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [
        "torchrun",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "many_prompts.py",
        "prompts.txt",
    ]
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PATH": path}
    with open(folder / "output", "w") as output:
        return subprocess.Popen(
            command, cwd=folder, env=os.environ | quiet | WITH_RESTARTS, stdout=output, stderr=output
        )


def wait_for(what, job, seconds=300):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert job.poll() is None and time.monotonic() < end, "the program ended, or nothing came"
        time.sleep(0.002)
    return found


def test_a_run_survives_a_killed_rank_and_keeps_what_was_saved(tmp_path):
    finished = answered(PROMPTS, processes=2)
    shutil.copytree(Path(finished.folder, "answers"), tmp_path / "answers")
    before = (tmp_path / "answers" / "1.jsonl").stat().st_size
    prompts = [*PROMPTS, *(f"one more prompt, number {number}" for number in range(600))]
    job = started(tmp_path, prompts)

    def second_rank():
        children = psutil.Process(job.pid).children(recursive=True)
        return [child for child in children if child.environ().get("RANK") == "1"]

    try:
        [victim] = wait_for(second_rank, job)
        wait_for(lambda: (tmp_path / "answers" / "1.jsonl").stat().st_size > before, job)
        victim.kill()
        job.wait(600)
    finally:
        for process in [*psutil.Process(job.pid).children(recursive=True)] if job.poll() is None else []:
            process.kill()
        job.kill()
    said = (tmp_path / "output").read_text()
    assert job.returncode == 0, said[-3000:]
    assert "exitcode: -9" in said
    counts = [int(count) for count in re.findall(r"(\d+) of 621 answers are saved", said)]
    assert counts[0] == 21
    assert 21 < counts[1] < 621
    assert sorted(saved_in(tmp_path)) == list(enumerate(prompts))
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 621


def test_the_launcher_knows_the_options_of_the_page():
    words = (FOLDER / "launch.sh").read_text().splitlines()[1].split()
    assert words[:2] == ["accelerate", "launch"]
    known = launch_command_parser().parse_args(words[2:])
    assert (known.multi_gpu, known.num_processes, known.max_restarts) == (True, 4, 3)
    assert known.training_script == "many_prompts.py"


@pytest.mark.parametrize("more, last", [({}, [3, 4]), ({"apply_padding": True}, [3, 4, 4])])
def test_accelerate_splits_into_blocks_and_repeats_the_last_prompt_only_when_asked(more, last):
    for index, expected in enumerate(([0, 1, 2], last)):
        one = SimpleNamespace(num_processes=2, process_index=index)
        with PartialState.split_between_processes(one, [0, 1, 2, 3, 4], **more) as part:
            assert part == expected


def test_the_message_for_geforce_rtx_40_is_that_of_accelerate(monkeypatch):
    monkeypatch.setattr(state, "check_cuda_p2p_ib_support", lambda: False)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cuda")
    for variable in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"):
        monkeypatch.delenv(variable, raising=False)
    PartialState._reset_state()
    try:
        with pytest.raises(NotImplementedError) as caught:
            PartialState()
    finally:
        PartialState._reset_state()
    assert f"NotImplementedError: {caught.value}" == error("rtx_4000")


# Engines, played by a script of that name

ENGINE = """
echo "${CUDA_VISIBLE_DEVICES:--} $*" >> calls.txt
if [ "$1" = run-batch ]; then cp "$3" "$5"; fi
"""


def calls_in(folder):
    return sorted((folder / "calls.txt").read_text().splitlines())


def test_each_line_of_a_batch_goes_to_one_of_four_engines_with_a_gpu_each():
    lines = [f"request {number}" for number in range(10)]
    files = {"requests.jsonl": "\n".join(lines) + "\n"}
    made = run("inference_many_gpus/vllm_batch.sh", files=files, stand_ins={"vllm": ENGINE})
    calls = calls_in(made.folder)
    assert [call.split()[0] for call in calls] == ["0", "1", "2", "3"]
    assert [call.split()[3] for call in calls] == [f"part0{gpu}.jsonl" for gpu in range(4)]
    assert sorted((made.folder / "answers.jsonl").read_text().splitlines()) == lines


def test_two_gpus_of_24_gb_share_one_engine_that_leaves_little_unused():
    made = run("inference_many_gpus/vllm_two.sh", stand_ins={"vllm": ENGINE})
    [call] = calls_in(made.folder)
    assert "--tensor-parallel-size 2" in call
    share, tokens = (float(re.search(rf"--{name} (\S+)", call)[1]) for name in ("gpu-memory-utilization", "max-model-len"))
    weights = 68.5e9 * 4.25 / 8 + 2 * 2 * 1.05e9  # of AWQ, with both ends in 16 bits
    cache = tokens * 2 * 80 * 8 * 128 * 2
    seen = 23.56 * 2**30  # by CUDA, on an RTX 3090
    assert (weights + cache) / 2 + 0.7 * 2**30 < share * seen


def test_both_nodes_start_the_same_engine_with_another_rank_and_one_is_headless():
    names = {"MODEL": "model", "FIRST": "10.0.0.1"}
    made = run("inference_many_gpus/vllm_nodes.sh", environment=names, stand_ins={"vllm": ENGINE})
    first, second = calls_in(made.folder)
    assert "--node-rank 0 --master-addr 10.0.0.1" in first
    assert second.replace("--node-rank 1", "--node-rank 0").removesuffix(" --headless") == first != second


def test_data_parallel_of_pytorch_does_not_generate():
    small = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(AttributeError) as caught:
        torch.nn.DataParallel(LlamaForCausalLM(small)).generate(torch.ones(1, 2))
    assert str(caught.value) in PAGE.read_text()


# The other programs


def test_the_count_of_a_model_is_that_of_the_page():
    lines = run("inference_many_gpus/fits.py").stdout.splitlines()
    assert lines[2] == "4 GPUs: 33.5 GiB on each, fits"
    assert lines[1].endswith("does not fit")


def test_the_program_that_measures_a_sum_prints_what_tensor_parallelism_gives_with_it():
    said = run("inference_many_gpus/worth_it.py", processes=2).ranks[0].stdout
    micro, token = re.search(r"a sum takes (\d+) µs, those of a token ([\d.]+) ms", said).groups()
    gain = float(re.search(r"with this sum ([\d.]+)x the tokens/s", said)[1])
    alone = 141e9 / 1008e9 * 1e3
    assert float(token) == pytest.approx(160 * int(micro) / 1e3, abs=0.2)
    assert gain == pytest.approx(alone / (alone / 2 + float(token)), rel=0.02)
