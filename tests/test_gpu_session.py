"""gpu_steps/session.py: a session on a lent GPU goes on where it stopped, and one step that fails or hangs costs no other."""

import re
import sys

import pytest
import torch
from programs import ROOT

from evidence import offline_hub, runs_on
from gpu_steps import session, session_recipe


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Runs a session in an empty folder, of steps that are programs; returns its exit status."""
    programs = {"good": "print('made')", "bad": "raise SystemExit(3)", "hangs": "import time; time.sleep(60)"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "command", lambda kind, name, limit, out, scratch: [sys.executable, "-c", programs[name]])

    def run(*arguments, plan=("bad", "hangs", "good"), limit=2):
        monkeypatch.setattr(session, "PLAN", tuple(("steps", name, limit if name == "hangs" else 30) for name in plan))
        return session.main(["--out", str(tmp_path / "out"), *arguments])

    run.out = tmp_path / "out"
    return run


def test_one_that_fails_and_one_that_hangs_cost_no_other_and_are_not_tried_again(planned, capsys):
    assert planned() == 1
    found = {name: one["error"] for name, one in session.read(planned.out).items()}
    assert found == {"bad": "exit 3", "hangs": "longer than 2 s", "good": ""}
    assert (planned.out / "good.log").read_text() == "made\n"
    capsys.readouterr()
    assert planned() == 1 and capsys.readouterr().out == f"1 of 3 held, in {planned.out}\n"
    planned("bad")
    assert "bad: exit 3" in capsys.readouterr().out


def test_what_no_longer_fits_is_left_for_the_next_session(planned, capsys):
    assert planned("--seconds", "10", plan=("good",)) == 1 and "good: not begun, it may take 30 s" in capsys.readouterr().out
    planned.out.mkdir()
    (planned.out / "done.jsonl").write_text('{"name": "good", "err')  # the session was killed while it wrote
    assert planned(plan=("good",)) == 0


def test_the_plan_names_only_notebooks_that_use_a_gpu():
    planned = {name for kind, name, _ in session.PLAN if kind == "record"}
    assert planned <= set(runs_on.named(*runs_on.ON_A_GPU)) and planned >= set(runs_on.named("gpu")) - {"one_gpu"}


def test_a_recipe_finds_the_model_that_it_would_download_in_the_stand_in(tmp_path, monkeypatch):
    from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

    small = Qwen3Config(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    monkeypatch.setattr(session_recipe, "config_of", lambda model, length: (Qwen3ForCausalLM, small))
    tokenizer = tmp_path / "hub" / "models--HuggingFaceTB--SmolLM2-135M-Instruct" / "snapshots" / offline_hub.REVISION
    tokenizer.mkdir(parents=True)
    (tokenizer / "tokenizer_config.json").write_text("{}")
    session_recipe.stand_in(tmp_path, "Qwen/Qwen3-4B", "qwen3-4b")
    made = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B", cache_dir=tmp_path / "hub", local_files_only=True)
    assert made.config.hidden_size == 32 and made.dtype == torch.bfloat16 and (tokenizer.parents[2] / "models--Qwen--Qwen3-4B").is_dir()


@pytest.mark.parametrize("recipe", session_recipe.CHOSEN)
def test_a_t4_would_choose_the_model_that_stands_in(recipe):
    assert {repository for repository, _ in session_recipe.CHOSEN.values()} <= set(re.findall(r"Qwen/Qwen3-\d+B", known(recipe)))


def known(recipe):
    """The source of a recipe with the names that its table is made of."""
    source = (ROOT / "notebooks" / "recipes" / f"{recipe}.py").read_text()
    return source + " ".join(f"Qwen/Qwen3-{size}" for size in re.findall(r'"([\d.]+B)"', source))
