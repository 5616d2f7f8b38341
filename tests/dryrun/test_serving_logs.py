"""Start-up logs of llama.cpp, vLLM and SGLang that others published, against the weights and the KV cache that `dryrun` says. Nothing is traced."""

import json
import statistics

import pytest

from fitting import serving_logs


@pytest.fixture(scope="module")
def compared():
    return serving_logs.compared()


def one_of(compared, *parts):
    """The only row whose address and model hold these words."""
    found = [each for each in compared if all(part in each[0]["url"] + each[0]["model"] + each[0]["format"] for part in parts)]
    assert len(found) == 1
    return found[0]


def test_every_row_has_an_address_and_is_compared_or_has_a_reason(compared):
    assert len(compared) == len(serving_logs.rows()) > 120
    for row, *both in compared:
        assert row["url"].startswith("https://")
        assert all(each if isinstance(each, str) else each > 0 for each in both)


def test_no_thread_gives_the_same_row_twice():
    found = [tuple(sorted((key, str(value)) for key, value in row.items())) for row in serving_logs.rows()]
    assert len(set(found)) == len(found)


def test_rows_are_of_three_engines_and_many_families(compared):
    engines = {row["engine"].split()[0] for row, *_ in compared}
    assert {"llama.cpp", "ik_llama.cpp", "vLLM", "SGLang"} <= engines
    assert len({serving_logs.family(row) for row, *_ in compared} - {serving_logs.UNLISTED}) >= 12


@pytest.mark.parametrize("which, at_most, nine_of_ten", [(1, 0.03, 0.25), (2, 0.01, 0.15)])
def test_the_median_error_of_models_stays_below_what_the_page_says(compared, which, at_most, nine_of_ten):
    each = sorted(serving_logs.errors(which, compared).values())
    assert len(each) > 20 and statistics.median(each) < at_most
    assert each[round(0.9 * (len(each) - 1))] < nine_of_ten


@pytest.mark.parametrize(
    "name, part, gpus, dtype",
    [("qwen2.5-1.5b", "all", 1, "fp8_e4m3"), ("gemma-4-31b", "window", 2, "fp8_e5m2"), ("deepseek-v3", None, 1, "q8_0"), ("glm-5", None, 8, "fp8")],
)
def test_a_cache_is_that_of_the_log_for_heads_windows_latents_and_indexes(compared, name, part, gpus, dtype):
    found = [cache for row, _, cache in compared if (row["name"], row.get("part"), row["gpus"], row["kv_dtype"]) == (name, part, gpus, dtype)]
    assert found and all(ratio == pytest.approx(1, abs=0.01) for ratio in serving_logs.ratios(found))
    assert serving_logs.ratios(found)


# Speculative tokens, tokens of a prompt in layers with a window, padded pages, and a GPU with less room than the one that the log shows.
CACHES_THAT_ARE_OFF = ("nemotron-3-super", "issues/33333", "v1_w16kv8", "v1_w8kv8", "gemma4_26b_a4b_bf16", "club-3090/issues/612", "club-3090/issues/652", "club-3090/pull/594", "issues/13061")


def far_off(compared):
    """Addresses of caches that are not those of the log, beside the known ones."""
    caches = [(row["url"], cache) for row, _, cache in compared if not isinstance(cache, str)]
    return [url for url, ratio in caches if abs(ratio - 1) > 0.012 and not any(part in url for part in CACHES_THAT_ARE_OFF)]


def changed_copy(folder, change):
    """A copy of the logs with a change in one row whose cache is compared."""
    changed = json.loads(serving_logs.LOGS.read_text(encoding="utf-8"))
    row = next(row for row in changed["rows"] if row["kv_gib"] and not serving_logs.why_not_cache(row))
    row.update(change(row))
    copy = folder / "serving_logs.json"
    copy.write_text(json.dumps(changed), encoding="utf-8")
    return copy, row["url"]


def test_all_caches_but_a_known_few_are_those_of_the_log(compared):
    assert far_off(compared) == []


def test_a_digit_that_changed_is_caught(monkeypatch, tmp_path):
    copy, url = changed_copy(tmp_path, lambda row: {"kv_gib": row["kv_gib"] + 1})
    monkeypatch.setattr(serving_logs, "LOGS", copy)
    assert far_off(serving_logs.compared()) == [url]


def test_a_figure_that_cannot_be_is_caught(monkeypatch, tmp_path):
    copy, _ = changed_copy(tmp_path, lambda row: {"kv_gib": -row["kv_gib"]})
    monkeypatch.setattr(serving_logs, "LOGS", copy)
    with pytest.raises(ValueError, match="compare the row with its log"):
        serving_logs.rows()


def test_a_row_without_an_address_is_caught(monkeypatch, tmp_path):
    copy, _ = changed_copy(tmp_path, lambda row: {"url": ""})
    monkeypatch.setattr(serving_logs, "LOGS", copy)
    with pytest.raises(ValueError, match="cannot be"):
        serving_logs.rows()


def test_concurrency_counts_where_the_engine_counts_tokens_of_each_group_of_layers():
    row = {"context": 1000, "kv_tokens": 5000, "concurrency": 20.0}
    assert serving_logs.tokens(row) == 20_000
    assert serving_logs.tokens(row | {"concurrency": 5.01}) == 5000
    assert serving_logs.tokens(row | {"concurrency": None}) == 5000


def test_keys_and_values_may_have_formats_of_their_own():
    assert serving_logs.element("q8_0") == 8.5 / 8
    assert serving_logs.element("q8_0/f16") == pytest.approx((8.5 / 8 + 2) / 2)
    assert serving_logs.element("turboquant") is None and serving_logs.element(None) is None


@pytest.mark.parametrize("address, model", [("ik_llama.cpp/issues/230", "DeepSeek-Coder-V2-Lite"), ("rotorquant/issues/9", "gemma-4-26B-A4B")])
def test_experts_whose_rows_do_not_divide_into_blocks_of_256_take_more_in_q4_k_m(compared, address, model):
    """1,408 and 704 values: llama.cpp stores their down projections in Q5_0 and Q8_0. Without that both were 8 % and more too small."""
    row, weights, _ = one_of(compared, address, model)
    assert row["weights"] == "q4_k_m" and weights == pytest.approx(1, abs=0.01)


def test_experts_whose_rows_divide_take_what_the_format_says(compared):
    found = [weights for row, weights, _ in compared if row["name"] == "qwen3-235b-a22b" and row["weights"] == "q4_k_m"]
    assert found and found == [pytest.approx(1, abs=0.01)] * len(found)
