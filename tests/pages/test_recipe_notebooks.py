"""notebooks/recipes/: each runs from top to bottom without GPU and network, and decides on a GPU as its page says."""

import inspect
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import nbformat
import pandas as pd
import pytest
import torch
from accelerate import Accelerator
from bs4 import BeautifulSoup
from programs import ROOT
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

from evidence import notebooks, offline_hub, recipes
from fitting import published

CHAT = "finetune_chat_model"
FOLDER = "finetuned/SmolLM2-135M-Instruct"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # other tests use the other core; threads that wait for it slow down both


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    offline_hub.make(folder)
    return folder


@pytest.fixture(scope="module")
def finetuned(hub, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetuned")
    return SimpleNamespace(folder=folder, notebook=recipes.run(CHAT, hub, folder, lambda text: None, ONE_THREAD))


def said(notebook):
    """All that the cells of an executed notebook print and show, as text."""
    shown = []
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        html = output.get("data", {}).get("text/html")
        if output.get("name") != "stderr":
            shown.append(BeautifulSoup(html, "html.parser").get_text(" ") if html else output.get("text", ""))
    return "\n".join(shown)


def test_a_chat_model_learns_to_answer_questions_that_it_never_saw(finetuned):
    before, after = (re.search(rf"{when}: (\d+) of 16 held-out", said(finetuned.notebook))[1] for when in ("before", "after"))
    assert int(before) == 0 and int(after) >= 8


def test_the_merged_model_alone_answers_as_the_adapter_does(finetuned):
    alone = re.search(r"^(SELECT .+ FROM \w+.*)\s+finetuned/.+/adapter: ", said(finetuned.notebook), re.M)[1]
    (table,) = [cell for cell in finetuned.notebook.cells if "after = answers(" in cell.source]
    _, _, after, _ = [cell.text for cell in BeautifulSoup(table.outputs[-1]["data"]["text/html"], "html.parser").select("tbody tr")[0].select("td")]
    assert alone.strip() == after.strip()
    model = AutoModelForCausalLM.from_pretrained(finetuned.folder / FOLDER / "merged")
    assert not hasattr(model, "peft_config")


def test_it_leaves_the_adapter_and_the_merged_model_and_no_checkpoint(finetuned):
    assert sorted(path.name for path in (finetuned.folder / FOLDER).iterdir()) == ["adapter", "merged"]


def test_a_chat_model_writes_in_every_way_and_faster_by_eight_at_a_time(hub, tmp_path):
    printed = said(recipes.run("write_fast", hub, tmp_path, lambda text: None, ONE_THREAD))
    rates = {way: int(rate.replace(",", "")) for way, rate in re.findall(r"^(.+): ([\d,]+) tokens/s$", printed, re.M)}
    assert set(rates) == {f"{way}, {batch} at a time" for way in ("as it comes", "static cache") for batch in (1, 8)}
    assert rates["as it comes, 8 at a time"] > 1.5 * rates["as it comes, 1 at a time"]


def test_an_encoder_is_exported_with_the_same_neighbors_and_serves_sixteen_users(hub, tmp_path):
    printed = said(recipes.run("serve_encoder", hub, tmp_path, lambda text: None, ONE_THREAD))
    cosine, same = float(re.search(r"to PyTorch in fp32: ([\d.]+)", printed)[1]), float(re.search(r"([\d.]+)% of the texts keep", printed)[1])
    assert cosine > 0.99 and same > 95
    assert re.search(r"16 users, at most \d+ at a time: \d+ texts/s; half wait \d+ ms or less", printed)
    assert (tmp_path / "encoder" / "openvino.xml").is_file()


@pytest.fixture
def on(monkeypatch):
    """Runs the cells of a recipe that a word stands in, as if this machine had a GPU."""

    def on_gpu(gpu, disk, *words, recipe=CHAT, **names):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: gpu != "Tesla T4")
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8 * 2**30, 15 * 2**30))
        monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=disk * 1e9))
        return run_cells(names, *words, recipe=recipe)

    return on_gpu


def run_cells(names, *words, recipe=CHAT):
    """Runs the cells that a word stands in, with these names."""
    for word in words:
        (cell,) = [cell for cell in recipes.read_source(recipe).cells if cell.cell_type == "code" and word in cell.source]
        exec(cell.source, names)
    return names


TABLE = ("MODELS = ", "found = []")
CHOICE = (*TABLE, "MODEL = ")


@pytest.mark.parametrize(
    ("gpu", "disk", "model", "at_a_time", "dtype"),
    [
        ("Tesla T4", 70, "Qwen/Qwen3-14B", 2, torch.float16),  # Colab without paying
        ("Tesla T4", 40, "Qwen/Qwen3-8B", 8, torch.float16),  # no room for the download and the merged model
        ("NVIDIA L4", 200, "Qwen/Qwen3-14B", 8, torch.bfloat16),
        ("NVIDIA A100-SXM4-40GB", 200, "Qwen/Qwen3-14B", 8, torch.bfloat16),
        ("NVIDIA GeForce RTX 3060", 200, "Qwen/Qwen3-8B", 4, torch.bfloat16),
    ],
)
def test_the_model_is_the_largest_that_the_gpu_trains_in_half_an_hour_and_the_disk_holds_twice(on, gpu, disk, model, at_a_time, dtype):
    names = on(gpu, disk, *CHOICE)
    (row,) = [row for row in names["found"] if row["model"] == model]
    assert (names["MODEL"], names["dtype"], row["possible"]) == (model, dtype, "yes")
    assert row["minutes at most"] < 30 and 2 * row["GB to download"] < disk
    assert names["BATCH"] == row["at a time"] == at_a_time and names["BATCH"] * names["ACCUMULATION"] == 16
    assert all(other["possible"].startswith("no: ") for other in names["found"][: names["found"].index(row)])


LINES = "\n".join(json.dumps({"question": f"What is {number}?", "answer": str(number)}) for number in range(30))


@pytest.mark.parametrize("given", ["a paste", "a file", "the Hub"])
def test_a_reader_s_own_rows_come_from_a_paste_a_file_or_the_hub(monkeypatch, tmp_path, given):
    (tmp_path / "lines.jsonl").write_text(LINES)
    own = {"a paste": LINES, "a file": str(tmp_path / "lines.jsonl"), "the Hub": "somebody/rows"}[given]
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: [json.loads(line) for line in LINES.splitlines()])
    names = own_rows(own)
    assert len(names["learned"]) == 27 and len(names["held_out"]) == 3
    assert names["question"](names["table"][0])[0]["content"].startswith("What is ")


def test_rows_without_a_question_are_refused_with_their_columns():
    with pytest.raises(ValueError, match="OWN: its rows have text, label. Fix: call two of these columns question and answer"):
        own_rows('{"text": "a", "label": 1}')


def own_rows(own):
    """Runs the cell of the data with these rows of one's own, and a tokenizer that writes each word as a number."""
    (cell,) = [cell for cell in recipes.read_source(CHAT).cells if "\nOWN = " in cell.source and cell.cell_type == "code"]

    def written(messages, add_generation_prompt=False, **more):
        return {"input_ids": [len(word) for message in messages for word in message["content"].split()]}

    tokenizer = SimpleNamespace(pad_token="x", apply_chat_template=written)
    auto = SimpleNamespace(from_pretrained=lambda *given, **more: tokenizer)
    names = {"Path": Path, "pd": pd, "HTML": str, "MODEL": "", "LENGTH": 256, "ROWS": 800, "HELD_OUT": 32, "AutoTokenizer": auto}
    source = cell.source.replace('\nOWN = ""', f"\nOWN = {own!r}").replace("from transformers import AutoTokenizer", "")
    exec(source, names)
    return names


def test_what_a_gpu_took_is_compared_and_offered_as_a_row_of_published_measurements(on, capsys):
    names = on("Tesla T4", 70, *CHOICE, "compared = None", "compared.row", lengths=[90, 110] * 20,
               clock=SimpleNamespace(seconds=[9.0, 4.0, 4.2, 4.1]), json=json)  # fmt: skip
    printed = capsys.readouterr().out
    assert re.search(r"seconds of an update +[\d.]+ +[\d.]+ +[\d.]+ +4.15\n", printed)
    assert re.search(r"GiB of the GPU: [\d.]+ predicted, [\d.]+ at most, 7.0 measured", printed)
    row = json.loads(printed[printed.index("{") :])
    assert not list(published.row_problems(row | {"url": "https://example.org/1"}))
    assert (row["model"], row["seq"], row["gpu"], row["klass"]) == ("qwen3-14b", 110, "t4", "train-qlora")
    assert names["compared"].seconds == 4.15 and (row["precision"], row["attention"]) == ("fp16", "efficient")


@pytest.mark.parametrize(("gpu", "model"), [("Tesla T4", "Qwen/Qwen3-4B"), ("NVIDIA A100-SXM4-40GB", "Qwen/Qwen3-14B")])
def test_a_gpu_runs_the_largest_model_that_surely_fits_in_16_bits_and_its_token_is_compared(on, capsys, gpu, model):
    speed = {("static cache", 1): 20.0}
    names = on(gpu, 200, *CHOICE, "compared = None", "compared.row", recipe="write_fast", speed=speed, json=json)
    assert names["MODEL"] == model and names["dtype"] == (torch.float16 if gpu == "Tesla T4" else torch.bfloat16)
    printed = capsys.readouterr().out
    row = json.loads(printed[printed.index("{") :])
    assert "seconds of a token" in printed and (row["seconds"], row["klass"]) == (0.05, "decode-compiled")
    assert not list(published.row_problems(row | {"url": "https://example.org/1"}))


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ("NVIDIA GeForce RTX 5060 Ti", r"RTX 5060 Ti \(is not known\)\. .+\nIf it is one of rtx-5060ti-16, .+, write that name as GPU\."),
        ("AMD Instinct MI300X", r"MI300X \(no time is predicted, because it is of AMD: .+\)\. So the table has no minutes"),
    ],
)
def test_a_gpu_without_a_prediction_trains_what_its_memory_holds_and_its_time_is_said_alone(on, capsys, gpu, said):
    names = on(gpu, 200, *CHOICE, "compared = None", "compared.row", lengths=[90, 110] * 20,
               clock=SimpleNamespace(seconds=[9.0, 4.0, 4.2, 4.1]), json=json)  # fmt: skip
    printed = capsys.readouterr().out
    assert re.search(rf"No time is predicted for .+{said}", printed)
    largest = next(row for row in names["found"] if row["GiB at most"] <= 15)  # of the GPU of the fixture
    assert (names["MODEL"], largest["minutes at most"], largest["possible"]) == (largest["model"], "not predicted", "yes")
    assert f"An update took 4.15 seconds. No time is predicted for {gpu}." in printed and "7.0 measured" in printed
    assert "There is nothing to send." in printed


def test_a_gpu_without_a_prediction_writes_with_the_largest_model_that_its_memory_holds(on, capsys):
    speed = {("static cache", 1): 20.0}
    gpu = "NVIDIA GeForce GTX 1080 Ti"
    names = on(gpu, 200, *CHOICE, "compared = None", "compared.row", recipe="write_fast", speed=speed, json=json)
    printed = capsys.readouterr().out
    assert f"No speed is predicted for {gpu} (is not known)." in printed and f"No time is predicted for {gpu}." in printed
    assert names["MODEL"] == "Qwen/Qwen3-4B" and {row["tokens/s, 1 user"] for row in names["found"]} == {"-"}


class Fp16OnCpu(Accelerator):
    mixed_precision = "fp16"


@pytest.fixture
def in_fp16(tmp_path, monkeypatch):
    """Runs the training cells with a small Qwen3 on a CPU as a GPU without bf16 would, where the gradients of some updates are infinite."""
    set_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "head_dim": 16, "vocab_size": 50}
    config = Qwen3Config(**sizes, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "model")
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)

    def train(infinite, rows=24):
        class Scaler(torch.amp.GradScaler):
            updates = 0

            def unscale_(self, optimizer):
                self.updates += 1
                if self.updates in infinite:
                    optimizer.param_groups[0]["params"][0].grad.view(-1)[0] = float("inf")
                return super().unscale_(optimizer)

        class OnCpu(Trainer):
            def __init__(self, **given):
                super().__init__(**given)
                if names["asked"]["fp16"]:
                    self.accelerator.__class__, self.accelerator.native_amp, self.accelerator.scaler = Fp16OnCpu, True, Scaler("cpu")

        def arguments(folder, **given):
            names["asked"] = given
            return TrainingArguments(folder, **given | {"fp16": False})  # which is refused on a CPU

        tokens = {"input_ids": list(range(8)), "attention_mask": [1] * 8, "labels": list(range(8))}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"<pad>": 0}, "<pad>")), pad_token="<pad>")
        names = {"MODEL": tmp_path / "model", "GPU": None, "dtype": torch.float16, "FOLDER": tmp_path / "run", "torch": torch,
                 "BATCH": 2, "ACCUMULATION": 2, "learned": [(None, tokens)] * rows, "held_out": [(None, tokens)] * 2,
                 "tokenizer": tokenizer}  # fmt: skip
        run_cells(names, "def load(dtype)", "class Watch")
        names |= {"Trainer": OnCpu, "TrainingArguments": arguments}
        return run_cells(names, "def trained(watch)", "trainer = trained(", "right.axvline")

    return train


def test_an_update_that_the_scaler_skips_is_counted_and_the_schedule_waits_for_it(in_fp16, capsys):
    names = in_fp16(infinite=[3])
    log = [entry for entry in names["trainer"].state.log_history if "grad_norm" in entry]
    assert names["dtype"] == torch.float16 and names["model"].dtype == torch.float16 and names["skipped"] == [3]
    rates = [entry["learning_rate"] for entry in log]
    assert len(log) == 6 and rates[1] < rates[2] == rates[3] < rates[4]  # the third update is the skipped one
    assert "skipped because a gradient overflowed: 1 of 6 updates" in capsys.readouterr().out


def test_a_model_whose_gradients_no_scale_keeps_in_range_is_trained_in_fp32(in_fp16, capsys):
    names = in_fp16(infinite=range(100), rows=48)
    assert (names["dtype"], names["BATCH"], names["ACCUMULATION"], names["model"].dtype) == (torch.float32, 1, 4, torch.float32)
    assert len(names["norms"]) == 12 and names["skipped"] == [] and names["asked"]["optim"] == "adamw_torch_fused"
    assert "it is trained in fp32" in capsys.readouterr().out


def test_fp32_goes_on_from_a_checkpoint_of_fp16_whose_scale_it_has_no_use_for(in_fp16):
    names = in_fp16(infinite=range(11, 100), rows=100)  # the tenth update is saved
    assert (len(names["norms"]), len(names["clock"].seconds), names["dtype"]) == (25, 15, torch.float32)


def test_a_new_session_goes_on_from_the_last_complete_checkpoint(in_fp16, tmp_path):
    in_fp16(infinite=[], rows=48)  # ends with the twelfth update, and saves it
    cut = tmp_path / "run" / "checkpoints" / "checkpoint-20"
    cut.mkdir()
    (cut / "adapter_model.safetensors").write_bytes(b"cut off")
    names = in_fp16(infinite=[], rows=100)
    assert (len(names["norms"]), len(names["clock"].seconds)) == (25, 13)


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """An empty folder as the one that cells run in."""
    monkeypatch.setattr(notebooks, "FOLDER", ROOT / notebooks.FOLDER)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def colab(elsewhere, monkeypatch):
    """Stands in for Colab's own package: notes which folder is mounted and what is downloaded."""
    noted = SimpleNamespace(mounted=[], downloaded=[], refused=False)

    def mount(folder):
        if noted.refused:
            raise ValueError("mount failed")
        noted.mounted.append(folder)

    drive, files = SimpleNamespace(mount=mount), SimpleNamespace(download=noted.downloaded.append)
    monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace(drive=drive, files=files))
    return noted


def kept(tmp_path, **names):
    """Runs the cells that say where results go and that keep the adapter, up to the merge."""
    saved = SimpleNamespace(save_pretrained=lambda folder: (folder.mkdir(parents=True, exist_ok=True), (folder / "adapter.bin").write_text("1")))
    names = {"sys": sys, "shutil": shutil, "MODEL": "Qwen/Qwen3-4B", "model": saved, "tokenizer": saved} | names
    run_cells(names, "COLAB, DRIVE")
    where = names["FOLDER"]
    if where.is_absolute():
        names["FOLDER"] = tmp_path / "drive"
    return where, run_cells(names, "upload_folder(repo_id", "make_archive")


def test_in_colab_checkpoints_and_adapter_go_to_the_drive(colab, tmp_path):
    where, names = kept(tmp_path)
    assert where == Path("/content/drive/MyDrive/finetuned/Qwen3-4B") and colab.mounted == ["/content/drive"]
    assert names["HERE"] == Path("finetuned/Qwen3-4B") and not colab.downloaded
    assert (tmp_path / "drive" / "adapter" / "adapter.bin").is_file() and (tmp_path / "Qwen3-4B-adapter.zip").is_file()


def test_in_colab_without_a_drive_the_adapter_is_downloaded(colab, tmp_path, capsys):
    colab.refused = True
    where, _ = kept(tmp_path)
    assert where == Path("finetuned/Qwen3-4B") and colab.downloaded == [str(tmp_path / "Qwen3-4B-adapter.zip")]
    assert "No Drive is mounted: mount failed" in capsys.readouterr().out


def test_the_adapter_is_pushed_to_a_private_repository_whose_token_is_asked_for_before_the_training(elsewhere, monkeypatch, tmp_path):
    called = []
    for name in ("whoami", "create_repo", "upload_folder"):
        real = inspect.signature(getattr(huggingface_hub, name))

        def note(*given, name=name, real=real, **more):
            called.append((name, real.bind(*given, **more).arguments))
            return {"name": "somebody"}

        monkeypatch.setattr(huggingface_hub, name, note)
    (choice,) = [cell for cell in recipes.read_source(CHAT).cells if "COLAB, DRIVE" in cell.source]
    pushed = choice.source.replace('PUSH_TO = ""', 'PUSH_TO = "somebody/sql"')
    monkeypatch.setattr(recipes, "read_source", lambda name, real=recipes.read_source: with_cell(real(name), choice.source, pushed))
    kept(tmp_path)
    assert [name for name, _ in called] == ["whoami", "create_repo", "upload_folder"]
    assert called[1][1] == {"repo_id": "somebody/sql", "private": True, "exist_ok": True}
    assert called[2][1]["folder_path"] == Path("finetuned/Qwen3-4B/adapter")


def with_cell(notebook, old, new):
    for cell in notebook.cells:
        cell.source = new if cell.source == old else cell.source
    return notebook


def test_training_that_was_over_before_is_said_and_nothing_is_compared(on, capsys):
    on("Tesla T4", 70, *CHOICE, "compared = None", "compared.row", lengths=[90], clock=SimpleNamespace(seconds=[]), json=json)
    assert "Nothing was timed: training was over before" in capsys.readouterr().out


def test_its_page_shows_what_a_run_of_today_prints(finetuned):
    stored, today = (said(notebook).split("trainable params")[0] for notebook in (nbformat.read(recipes.FOLDER / f"{CHAT}.ipynb", 4), finetuned.notebook))
    assert stored.split() == today.split(), "the stored outputs are older than the predictions: run `make recipes`"


def test_its_page_shows_the_predictions_of_today():
    stored = nbformat.read(recipes.FOLDER / f"{CHAT}.ipynb", 4)
    asked, cell = [cell for cell in stored.cells if cell.cell_type == "code" and any(word in cell.source for word in TABLE)]
    exec(f"{asked.source}\n{cell.source}", today := {})
    columns = [name for name in today["found"][0] if name != "possible"]  # that depends on the host
    rows = BeautifulSoup(cell.outputs[-1]["data"]["text/html"], "html.parser").select("tbody tr")
    shown = [[cell.text for cell in row.select("td")][: len(columns)] for row in rows]
    assert shown == [[str(row[name]) for name in columns] for row in today["found"]], "predictions have changed: run `make recipes`"


def test_a_model_that_dryrun_has_no_name_for_is_predicted_by_its_configuration(on, monkeypatch, tmp_path):
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 512, "intermediate_size": 1024,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file: str(tmp_path / file))
    for recipe in (CHAT, "write_fast"):
        (cell,) = [cell for cell in recipes.read_source(recipe).cells if cell.cell_type == "code" and "SMALL = " in cell.source]
        names = on("Tesla T4", 70, *TABLE, recipe=recipe)
        exec(re.sub(r"^MODEL = .+", 'MODEL = "somebody/a-model-of-their-own"', cell.source, flags=re.M), names)
        assert names["KNOWN"].endswith("config.json") and 0 < names["download"] < 0.1


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """A repository with one recipe, in which something is changed: what `check` says of it."""

    def problems(change, name=f"{CHAT}.py"):
        for path in (ROOT / "pyproject.toml", ROOT / "requirements" / "test.txt", *(ROOT / recipes.FOLDER).glob(f"{CHAT}.*")):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        edited = recipes.FOLDER / name
        text = edited.read_text(encoding="utf-8")
        assert change(text) != text
        edited.write_text(change(text), encoding="utf-8")
        return [str(problem) for problem in recipes.check(CHAT)]

    return problems


def test_another_version_than_that_of_the_tests_is_named_with_its_line(edited):
    problems = edited(lambda text: text.replace("peft==0.21.2", "peft==0.20.0"))
    assert any(re.search(r"\.py:\d+: it installs peft 0\.20\.0, and the tests run 0\.21\.2\. Fix: write", line) for line in problems)


def test_code_that_was_not_run_is_named_with_the_command(edited):
    (problem,) = edited(lambda text: text.replace("r=16, lora_alpha=32", "r=8, lora_alpha=16"))
    assert f"is not the one in {CHAT}.ipynb: edited without running. Fix: run `make recipes RECIPES={CHAT}`" in problem


def test_an_output_that_was_edited_is_named(edited):
    (problem,) = edited(lambda text: re.sub(r"\d+ of 16 held-out", "7 of 16 held-out", text), f"{CHAT}.ipynb")
    assert problem.endswith(f"an output was edited or cleared since the run. Fix: run `make recipes RECIPES={CHAT}`")


def test_words_that_were_edited_need_no_run(edited):
    (problem,) = edited(lambda text: text.replace("# ## Clean up", "# ## Tidy up"))
    assert problem.endswith("its words differ. Fix: run `make pair`")


def test_a_figure_s_text_that_was_edited_reaches_the_page_by_a_pair_too(edited):
    (problem,) = edited(lambda text: text.replace("update by update: both fall.", "update by update."))
    assert problem.endswith("its words differ. Fix: run `make pair`")


@pytest.mark.parametrize(
    ("address", "another"),
    [
        (recipes.site_address(), "https://somebody.github.io/else/"),
        ("](" + recipes.project()["urls"]["Repository"], "](https://github.com/somebody/else"),
        (f"@v{recipes.project()['version']}#", "@v9#"),
    ],
)
def test_an_address_that_is_not_that_of_the_project_is_named(edited, address, another):
    problems = edited(lambda text: text.replace(address, another))
    assert any("an address of this project that is not that of pyproject.toml. Fix: write " in line for line in problems)
