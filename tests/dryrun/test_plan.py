"""The decision arithmetic, on figures that can be checked by hand."""

import pytest

from dryrun.plan import gpu, model, plan, seconds

A100 = gpu("A100 40GB")
N = model("llama-8b")["parameters"]


def options(**arguments):
    return {option.strategy: option for option in plan(**({**model("llama-8b"), **A100} | arguments))}


def test_mixed_precision_is_sixteen_bytes_per_parameter_and_ddp_holds_gradients_twice():
    found = options(gpus=8)
    assert found["DDP"].total == 20 * N
    assert (
        found["DDP, bucket views"].total == 16 * N + 2 * N
    )  # the copies of autocast, beside buckets that are always there
    assert options(gpus=8, precision="bf16")["DDP, bucket views"].total == 8 * N


def test_with_accumulation_the_copies_of_autocast_stand_beside_all_gradients():
    one, four = (options(gpus=1, micro_batches=number)["one GPU"].total for number in (1, 4))
    assert (one, four) == (16 * N, 18 * N)
    assert options(gpus=1, micro_batches=4, precision="bf16")["one GPU"].total == 8 * N
    assert options(gpus=8, micro_batches=4)["DDP"].total == 22 * N


def test_adapters_need_no_gradient_of_the_frozen_weights():
    for on, share in ((True, 6 / 8), (False, 4 / 6)):
        found = options(gpus=8, checkpointing=on)
        assert found["LoRA, sharded"].seconds_compute == pytest.approx(share * found["FSDP2 (ZeRO-3)"].seconds_compute)


def test_a_tied_embedding_is_on_both_ends_of_a_pipeline():
    tied = {**model("llama-1b"), "precision": "bf16"}
    root, total = 128256 * 2048, tied["parameters"]
    found = options(gpus=2, **tied)["pipeline"]
    assert found.total == 8 * ((total - root) / 2 + root)
    assert found.sent == 2 * 4096 * 2048 * 2 * 2 + 2 * root  # an activation and its gradient, twice; the tied gradient


def test_zero_2_is_what_deepspeed_estimates():
    """deepspeed/runtime/zero/stage_1_and_2.py, estimate_zero2_model_states_mem_needs: 2N + 18N/W."""
    assert options(gpus=8)["ZeRO-2"].total == pytest.approx(2 * N + 18 * N / 8)


def test_fsdp2_holds_a_part_and_the_gathered_layers():
    found = options(gpus=8)["FSDP2 (ZeRO-3)"]
    assert found.weights + found.gradients + found.optimizer == 16 * N / 8
    root = 2 * 128256 * 4096
    layer = (N - root) / 32
    assert found.transient == 2 * (root + 2 * layer) + 6 * layer


def test_a_ring_sends_less_than_twice_the_gradients():
    assert options(gpus=2)["DDP"].sent == 4 * N
    assert options(gpus=8)["DDP"].sent == 2 * 7 / 8 * 4 * N


def test_accumulation_costs_fsdp2_each_time_and_ddp_once():
    one, four = options(gpus=8), options(gpus=8, micro_batches=4)
    assert four["DDP"].sent == one["DDP"].sent
    assert four["FSDP2 (ZeRO-3)"].sent == 4 * one["FSDP2 (ZeRO-3)"].sent
    assert four["DDP"].seconds_compute == 4 * one["DDP"].seconds_compute


def test_between_nodes_the_network_decides():
    inside, across = options(gpus=16), options(gpus=16, nodes=2, network="100 GbE")
    fsdp2 = across["FSDP2 (ZeRO-3)"]
    assert fsdp2.seconds_network == fsdp2.sent / 12.5e9 > inside["FSDP2 (ZeRO-3)"].seconds
    assert across["HSDP"].sent_network == 4 * N  # 2 (nodes - 1) / nodes of the fp32 gradients
    two = options(gpus=16, nodes=2, network="100 GbE", adapters=2)
    assert two["HSDP"].seconds_network == across["HSDP"].seconds_network / 2


def test_options_that_fit_come_first_then_full_training_then_the_fastest():
    found = plan(**model("llama-7b"), **A100, gpus=8)
    assert [option.fits for option in found] == sorted((option.fits for option in found), reverse=True)
    fitting = [option for option in found if option.fits]
    full = [option for option in fitting if option.trains == "all"]
    assert fitting[: len(full)] == full
    times = [(option.seconds_overlapped, option.seconds) for option in full]
    assert times == sorted(times)
    assert found[0].strategy == "ZeRO-2"


def test_the_bubble_of_a_pipeline_shrinks_with_micro_batches():
    assert options(gpus=8)["pipeline"].bubble == 7 / 15
    assert options(gpus=8, micro_batches=4)["pipeline"].bubble == 7 / 39
    assert options(gpus=8)["pipeline"].efficiency[1] == pytest.approx(8 / 15)


def test_efficiency_lies_between_no_overlap_and_full_overlap():
    for option in plan(**model("llama-8b"), **A100, gpus=64, nodes=8, network="100 GbE"):
        low, high = option.efficiency
        assert 0 < low <= high <= 1


def test_nothing_hides_what_tensor_parallelism_sends_inside_a_layer():
    found = options(gpus=8)["TP"]
    assert found.seconds_overlapped == found.seconds > found.seconds_compute
    beside = options(gpus=16, nodes=2, network="100 GbE")["TP 8 x DDP 2"]  # its gradients can be hidden
    assert beside.seconds_communication == beside.seconds_link + beside.seconds_network
    assert beside.seconds_compute + beside.seconds_link <= beside.seconds_overlapped < beside.seconds


def test_what_is_sent_once_per_step_hides_behind_the_last_backward_pass_only():
    slow = {"gpus": 16, "nodes": 2, "network": "100 GbE", "micro_batches": 8}
    for name in ("DDP", "HSDP", "ZeRO-1"):
        found = options(**slow)[name]
        backward = 6 / 8 * found.seconds_compute / 8  # of eight FLOPs two are the forward pass
        assert found.seconds_overlapped == pytest.approx(found.seconds - backward)
    every_time = options(**slow)["FSDP2 (ZeRO-3)"]
    assert every_time.seconds_overlapped == max(every_time.seconds_compute, every_time.seconds_communication)


def test_tensor_parallelism_over_pcie_is_slower_than_what_can_be_hidden():
    names = [o.strategy for o in plan(**model("llama-1b"), **gpu("RTX 4090 24GB"), gpus=2)]
    assert names.index("TP") > max(map(names.index, ("ZeRO-1", "ZeRO-2", "FSDP2 (ZeRO-3)")))


def test_checkpointing_makes_tensor_parallelism_send_a_fifth_time():
    once, again = (options(gpus=8, checkpointing=on)["TP"].sent for on in (False, True))
    assert again / once == pytest.approx((5 * 32 + 2) / (4 * 32 + 2))


def test_offload_shares_the_slot_with_the_other_gpus_where_there_is_no_nvlink():
    found = options(gpus=8, link="PCIe 4 x16", memory_gb=24)
    both = found["FSDP2 + offload"].seconds_link - found["FSDP2 (ZeRO-3)"].seconds_link
    assert both == pytest.approx((2 * 4 + 4) * N / 8 / 31.5e9)
    linked = options(gpus=8)["FSDP2 + offload"]
    assert linked.seconds_communication == pytest.approx(both)  # NVLink is faster than the slot, and beside it


def test_one_gpu_sends_nothing():
    (only,) = plan(**model("llama-8b"), **A100, gpus=1)
    assert (only.strategy, only.sent, only.total) == ("one GPU", 0, 16 * N)


def test_without_heads_that_divide_there_is_no_tensor_parallelism():
    assert "TP" in options(gpus=8)
    assert "TP" not in options(gpus=6)
    assert not any(name.startswith("TP") for name in options(gpus=8, layers=None, hidden=None))


def test_a_link_takes_bytes_over_its_bandwidth():
    assert seconds(12.5e9, "100 GbE") == 1
    assert seconds(12.5e9, "100 GbE", adapters=4) == 0.25


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"gpus": 7, "nodes": 2, "network": "10 GbE"}, "gpus=7 do not divide into 2 nodes of one size: take 8"),
        ({"gpus": 2, "nodes": 4, "network": "10 GbE"}, "nodes=4: there are only 2 GPUs, so at most 2 nodes"),
        ({"gpus": 8, "tensor": 3}, "tensor=3 does not divide gpus=8: take 4"),
        ({"gpus": 16, "tensor": 16}, "tensor=16 does not divide kv_heads=8: take 8"),
        ({"gpus": 8, "stages": 16}, "stages=16: one stage on each GPU, so 8"),
        ({"gpus": 3, "stages": 3}, "stages=3 does not divide layers=32: take 4 GPUs"),
        ({"gpus": 16, "nodes": 2}, "name the network between them"),
        ({"gpus": 16, "nodes": 2, "network": "Infiniband NDR"}, "did you mean 'InfiniBand NDR'"),
        ({"gpus": 0}, "gpus=0: give a whole number, 1 or more"),
        ({"gpus": 8, "memory_gb": -1}, "memory_gb=-1: give a number above zero"),
        ({"gpus": 8, "parameters": 7}, "so 7e9 for a model of 7 billion"),
        ({"gpus": 8, "utilization": 40}, "utilization=40: give a share between 0 and 1"),
        ({"gpus": 8, "precision": "fp8"}, "precision='fp8' is not known"),
    ],
)
def test_impossible_input_is_named_with_the_nearest_that_is_right(wrong, message):
    with pytest.raises(ValueError) as caught:
        options(**wrong)
    assert message in str(caught.value)


def test_an_unknown_model_or_gpu_names_the_nearest():
    with pytest.raises(ValueError, match="is not known. Choose one of: gpt2; llama-1b"):
        model("???")
    with pytest.raises(ValueError, match="did you mean 'llama-8b'"):
        model("llama8b")
    with pytest.raises(ValueError, match="did you mean 'A100 40GB'"):
        gpu("A100-40GB")
