"""The tables of accelerators and links: complete, sourced, and without contradiction."""

import dataclasses
import json
import re

import pytest

from dryrun.tables import data_sheets, gpu_files, hardware
from fitting import published

DATE = r"\d{4}(-\d\d){0,2}"


def problems(row, where):
    """What is missing or wrong in the origin of a value."""
    if not re.fullmatch(DATE, row.get("date") or ""):
        yield f"{where}: date {row.get('date')!r}"
    if not (row.get("source") or "").startswith(("https://", "http://")) and row.get("read") != "community":
        yield f"{where}: source {row.get('source')!r}"


def changed(key, **values):
    """One row with other values, and those that it is compared with: of the same chip."""
    row = hardware.ACCELERATORS[key]
    new = {name: dataclasses.replace(row.values[name], value=value) for name, value in values.items()}
    alike = {other: each for other, each in hardware.ACCELERATORS.items() if each.architecture == row.architecture}
    return {**alike, key: dataclasses.replace(row, values=row.values | new)}


def doubted(rows):
    return {(key, name) for key, name, _ in data_sheets.doubts(rows)}


def test_a_row_is_complete_or_says_what_is_missing():
    assert list(data_sheets.faults()) == []


@pytest.mark.parametrize(
    ("name", "change", "said", "fix"),
    [
        ("memory", {"value": "48"}, "the value is '48'", "write a number of GB above 0"),
        ("tdp", {"value": None, "note": None}, "is missing", "in W, or say below [none] why"),
        ("l2", {"date": "November"}, "the date of its source is 'November'", "2026-11"),
        ("clock", {"source": "a sheet"}, "its source is 'a sheet'", "give the address"),
        ("units", {"read": "vendor-quote"}, "`read` is 'vendor-quote' (did you mean vendor-quoted?)", "write one of"),
    ],
)
def test_a_fault_of_one_value_is_named_with_its_fix(name, change, said, fix):
    row = hardware.ACCELERATORS["l40s"]
    rows = {"l40s": dataclasses.replace(row, values=row.values | {name: dataclasses.replace(row.values[name], **change)})}
    ((key, where, found, help),) = data_sheets.faults(rows)
    assert (key, where) == ("l40s", name) and found.startswith(said) and fix in help


def test_a_value_that_is_missing_or_misspelt_is_named_with_the_nearest():
    row = hardware.ACCELERATORS["l40s"]
    values = {name.replace("bandwidth", "band_width"): value for name, value in row.values.items()}
    found = {name: said for _, name, said, _ in data_sheets.faults({"l40s": dataclasses.replace(row, values=values, family="")})}
    assert found == {"band_width": "there is no such value (did you mean bandwidth?)", "family": "is empty"}


def test_a_row_without_a_peak_in_16_bits_is_named():
    rows = {"l40s": changed("l40s", bf16=None, fp16=None)["l40s"]}
    assert [(name, said) for _, name, said, _ in data_sheets.faults(rows) if "16 bits" in said] == [("bf16", "there is no peak in 16 bits, so no time would be predicted")]


# What contradicts itself


def test_no_value_of_the_table_contradicts_another_without_a_reason():
    assert list(data_sheets.doubts()) == []


def test_a_reason_is_there_only_where_a_value_needs_one():
    for key, row in hardware.ACCELERATORS.items():
        for name in row.exceptions:
            bare = {**hardware.ACCELERATORS, key: dataclasses.replace(row, exceptions={})}
            assert (key, name) in doubted(bare), (key, name)
        if row.clock_exception:
            assert doubted({**hardware.ACCELERATORS, key: dataclasses.replace(row, clock_exception=None)}), key


def test_the_l40_with_its_sparse_peaks_is_found():
    row = hardware.accelerator("L40")
    sparse = {"tf32": 181.0, "bf16": 362.1, "fp16": 362.1, "fp8": 724.1, "int8": 724.1}
    note = {"read": "derived", "note": "142 SMs x 1024 per clock x 2.49 GHz"}
    values = {name: dataclasses.replace(row.values[name], value=peak, **note) for name, peak in sparse.items()}
    rate = {"operations_name": "ada-pro", "operations": hardware.accelerator("L40S").operations}
    was = dataclasses.replace(row, values=row.values | values, exceptions={}, **rate)
    found = [said for key, _, said in data_sheets.doubts({**hardware.ACCELERATORS, "l40": was}) if key == "l40"]
    assert len(found) == 1 and "none was printed" in found[0]
    assert doubted(changed("l40", bf16=362.1, fp16=362.1)) >= {("l40", "fp16")}


def test_a_doubled_peak_is_found():
    """One peak, or all of a row, as with sparsity."""
    tried, missed = 0, []
    for key, row in hardware.ACCELERATORS.items():
        if row.operations and row.get("clock"):
            peaks = {name: 2 * row.get(name) for name in data_sheets.MATRIX if row.get(name)}
            for names in (tuple(peaks), *((name,) for name in set(peaks) - set(row.exceptions))):
                tried += 1
                if key not in {where for where, _ in doubted(changed(key, **{name: peaks[name] for name in names}))}:
                    missed.append((key, names))
    assert tried > 100 and missed == []


def test_a_tenth_of_a_bandwidth_is_found():
    tried, missed = 0, []
    for key, row in hardware.ACCELERATORS.items():
        if str(row.get("memory_type")).startswith(("GDDR", "HBM")) and row.get("memory"):
            tried += 1
            if (key, "bandwidth") not in doubted(changed(key, bandwidth=row.get("bandwidth") / 10)):
                missed.append(key)
    assert tried > 50 and missed == []


def test_a_link_that_is_none_of_the_table_is_found_with_the_nearest():
    rows = changed("l40s", peer_link="PCIe 5.0 x16")
    (said,) = (said for key, name, said in data_sheets.doubts(rows) if (key, name) == ("l40s", "peer_link"))
    assert said.startswith("'PCIe 5.0 x16' is none of links.json: PCIe 5 x16, ")


@pytest.fixture
def l40s(monkeypatch, tmp_path):
    """Reads the file of the L40S alone, in which something was replaced."""
    text = (gpu_files.FOLDER / "l40s.toml").read_text()

    def read(old, new):
        assert old in text
        (tmp_path / "l40s.toml").write_text(text.replace(old, new, 1))
        with monkeypatch.context() as patch:
            patch.setattr(gpu_files, "FOLDER", tmp_path)
            patch.setattr(gpu_files, "_shown", lambda path: path.name)
            return {row.key: row for row in hardware._accelerators(gpu_files.read())}

    return read


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('label = "L40S 48GB"', "", r"l40s.toml: label is missing. Fix: write it above the first section"),
        ("label =", "title = 3\nlabel =", r"l40s.toml: there is no field title. Fix: a value stands below"),
        ("[stas]", "[my-sheet]", r"l40s.toml: \[my-sheet\] is no entry of dryrun/data/sources.toml.* Fix: write an entry"),
        ("[notes]", "[note]", r"\[note\] is no entry of .* \(did you mean notes\?\)"),
        ('"ada-pro"', '"ada-por"', r"operations: 'ada-por' is no generation of .*: ada-pro, .* Fix: "),
        ("tdp = 350", "tdp = 350\nunits = 142", r"units stands below two sources. Fix: "),
        ('"L40S 48GB"', "L40S 48GB", r"l40s.toml: no TOML: .*line \d+.* Fix: "),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_its_fix(l40s, old, new, said):
    with pytest.raises(ValueError, match=said):
        l40s(old, new)


def test_a_value_that_a_file_forgets_is_missed_and_a_peak_that_it_leaves_out_follows_from_the_clock(l40s):
    assert [(name, said) for _, name, said, _ in data_sheets.faults(l40s("bandwidth = 864", ""))] == [("bandwidth", "is missing")]
    made = l40s("tf32 = 183\n", "")["l40s"]["tf32"]
    assert (made.value, made.read, made.note) == (183.2, "derived", "142 units x 512 per clock x 2.52 GHz")


def test_the_page_reads_the_accelerators_from_one_file_as_the_library_reads_them_from_many(monkeypatch, tmp_path):
    packed = tmp_path / "accelerators.json"
    packed.write_text(json.dumps(gpu_files.read()))
    monkeypatch.setattr(gpu_files, "PACKED", packed)
    monkeypatch.setattr(gpu_files, "_toml", lambda path: pytest.fail(f"{path} was read"))
    assert {row.key: row for row in hardware._accelerators(gpu_files.read())} == hardware.ACCELERATORS


def test_the_l2_of_another_card_than_the_same_chip_has_is_found():
    assert ("l40s", "l2") in doubted(changed("l40s", l2=48))
    assert ("arc-pro-b60", "l2") in doubted(changed("arc-pro-b60", l2=4))


def test_gib_counted_as_gb_are_found(monkeypatch):
    assert hardware.accelerator("RTX 4090").bytes == 24 * 2**30
    assert hardware.accelerator("L4").bytes == 22.5 * 2**30, "ECC takes a sixteenth"
    assert ("rtx-4090", "memory") in doubted(changed("rtx-4090", memory=24e9 / 2**30))
    monkeypatch.setattr(hardware, "GiB", 1e9)
    known = {key for key, row in hardware.ACCELERATORS.items() if row.capacity_gib}
    assert {key for key, name in doubted(None) if name == "memory"} == known != set()


def test_ratios_are_computed_from_the_values():
    row = hardware.accelerator("A100 80GB")
    assert row.flop_per_byte == pytest.approx(312e12 / 2039e9)
    assert row.reads_per_second == pytest.approx(2039 / 80)
    assert hardware.accelerator("M4 Max").flop_per_byte is None


@pytest.mark.parametrize(
    ("spelling", "key"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("2080 Ti", "rtx-2080-ti"),
        ("A100-SXM4-80GB", "a100-sxm4-80"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"),
        ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", "rtx-5070ti-laptop"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", "rtx-pro-5000-72-bw"),
        ("NVIDIA GB10", "gb10"),
        ("DGX Spark", "gb10"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"),
        ("AMD Radeon AI PRO R9700", "radeon-ai-pro-r9700"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", "arc-pro-b60"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16"),
    ],
)
def test_a_name_is_found_as_drivers_and_people_spell_it(spelling, key):
    assert hardware.accelerator(spelling).key == key


def test_an_unknown_name_is_one_line_with_the_nearest():
    with pytest.raises(ValueError, match="gpu='a100' is not known: did you mean .*a100-sxm4-80") as caught:
        hardware.accelerator("a100")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"gpu='rtx-4099' is not known: did you mean rtx-4090"):
        hardware.accelerator("rtx-4099")


def test_one_spelling_never_names_two_accelerators():
    rows = {key: hardware.ACCELERATORS[key] for key in ("t4", "l4")}
    rows["l4"] = dataclasses.replace(rows["l4"], aliases=("T4",))
    with pytest.raises(ValueError, match="'T4' names t4 and l4"):
        hardware._names(rows)


def test_every_gpu_of_a_published_row_is_in_the_table():
    assert {row["gpu"] for row in published.rows()} <= set(hardware.ACCELERATORS)


def test_the_planner_gets_memory_peak_and_link_of_each_product():
    wrong = []
    for name, gpu in hardware.GPUS.items():
        right = {"memory": name.endswith(f" {gpu.memory_gb}GB"), "peak": gpu.tflops > 15, "link": gpu.link in hardware.LINKS,
                 "name": hardware.accelerator(name).label == name}  # fmt: skip
        wrong += [(name, what) for what, holds in right.items() if not holds]
    assert wrong == []


def test_a_printed_peak_goes_before_a_derived_one():
    row = hardware.accelerator("RTX 3090")
    assert (row["bf16"].read, row["fp16"].read) == ("derived", "vendor-quoted")
    assert row.half == row.get("fp16") == 71
    assert hardware.GPUS["RTX 3090 24GB"].source == row["fp16"].source


def test_a_link_has_a_bandwidth_with_its_unit_and_source():
    wrong = []
    for name in hardware.LINKS:
        row = hardware.table("links")[name]
        wrong += problems(row, name)
        if row["unit"] != "GB/s" or row["value"] <= 1 or name.endswith("GbE") and row["value"] != int(name.split()[0]) / 8:
            wrong.append(f"{name}: {row['value']} {row['unit']}")
    assert wrong == []


def test_a_memory_that_cpu_and_gpu_share_is_counted_whole_and_once():
    shared = [gpu for gpu in hardware.ACCELERATORS.values() if gpu.shares_memory]
    assert {gpu.key: gpu.usable for gpu in shared} == {gpu.key: gpu.bytes for gpu in shared} and shared


def test_a_data_file_that_is_no_json_is_named_with_its_line(tmp_path, monkeypatch):
    (tmp_path / "links.json").write_text('{"PCIe":\n 1,,}')
    monkeypatch.setattr(hardware, "DATA", tmp_path)
    with pytest.raises(ValueError, match=r"dryrun/data/links\.json:2: no JSON"):
        hardware.table("links")
