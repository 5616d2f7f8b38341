"""One function for each strategy of the plan: from a `Setting` to its rows, each an `Option`. No torch.

N: parameters of the model. Bytes per parameter come from the `Precision`.
"""

from .hardware import GB, bytes_per_second
from .setting import Held, Traffic, ring

ADAPTERS = 0.01  # of the parameters that LoRA trains
NF4 = 0.516  # bytes per weight: 4 bits, and the double-quantized scale of each block of 64
HOST_LINK = "PCIe 4 x16"


def rows(setting, tensor, stages):
    """All rows. `tensor`, `stages`: as in `plan`."""
    if setting.cluster.gpus == 1:
        return [one_gpu(setting)]
    found = [*ddp(setting), *zero(setting), *fsdp2(setting)]
    found += [*tensor_parallel(setting, tensor), *pipeline(setting, stages)]
    return [*found, *offload(setting), *lora(setting)]


def one_gpu(setting):
    return setting.option("one GPU", "there is nothing to send", _everything(setting), Traffic())


def ddp(setting):
    n, p, N = setting.cluster.gpus, setting.work.precision, setting.model.parameters
    gradients = setting.everywhere(ring(p.reduced * N, n, 2), once=True)
    yield setting.option(
        "DDP",
        "every GPU holds everything, and the gradients a second time in buckets",
        _everything(setting, gradients=2),
        gradients,
    )
    yield setting.option(
        "DDP, bucket views",
        "gradient_as_bucket_view=True: every GPU holds everything once, the buckets all the time",
        Held(p.weights * N, p.gradients * N, p.optimizer * N, p.copies * N),
        gradients,
    )


def zero(setting):
    """DeepSpeed's defaults: 16-bit weights and gradients, fp32 state, and all-reduce where the paper reduces and scatters."""
    n, N = setting.cluster.gpus, setting.model.parameters
    weights, gradients, state = ring(2 * N, n), ring(2 * N, n, 2), 16 * N / n
    yield setting.option(
        "ZeRO-1",
        "16-bit weights and gradients whole, fp32 copies and optimizer state sharded",
        Held(2 * N, 2 * N, state),
        setting.everywhere(gradients + weights, once=True),
    )
    yield setting.option(
        "ZeRO-2",
        "16-bit weights whole, all else sharded; all-reduces gradients after every micro-batch",
        Held(2 * N, 2 * N / n, state),
        setting.everywhere(gradients * setting.work.micro_batches + weights),
    )


def fsdp2(setting):
    cluster, p, N = setting.cluster, setting.work.precision, setting.model.parameters
    yield setting.option(
        "FSDP2 (ZeRO-3)",
        "everything sharded; gathers each layer twice and reduces its gradient in every micro-batch",
        _sharded(setting, cluster.gpus),
        setting.everywhere(ring(_gathered_and_reduced(setting), cluster.gpus)),
    )
    if _has_groups(cluster):
        yield setting.option(
            "HSDP",
            "sharded inside a node, replicated across nodes: only gradients cross, once per step",
            _sharded(setting, cluster.local),
            Traffic(
                ring(_gathered_and_reduced(setting), cluster.local),
                ring(p.reduced * N, cluster.nodes, 2),
                network_once=True,
            ),
        )


def tensor_parallel(setting, tensor):
    """Megatron's split, over the GPUs of a node unless `tensor` says otherwise; DDP between such groups."""
    model, cluster, work = setting.model, setting.cluster, setting.work
    p, N, size = work.precision, model.parameters, tensor or cluster.local
    splits_heads = not any(heads and heads % size for heads in (model.heads, model.kv_heads))
    if not (model.layers and model.hidden and size > 1 and (tensor or splits_heads)):
        return
    groups = cluster.gpus // size
    activation = work.tokens * size * model.hidden * 2  # a group works on the sequences of all its GPUs
    per_layer = 5 if work.checkpointing else 4  # the recomputation repeats one all-reduce
    sums = ring((per_layer * model.layers + 2) * activation * work.micro_batches, size, 2)
    gradients = ring(p.reduced * N / size, groups, 2)
    if cluster.nodes == 1:
        traffic = Traffic(sums + gradients, link_once=True, link_waited=sums)
    elif size <= cluster.local:
        traffic = Traffic(sums, size * gradients, network_once=True, link_waited=sums)
    else:
        across = cluster.local * gradients + sums
        traffic = Traffic(sums, across, network_once=True, link_waited=sums, network_waited=sums)
    yield setting.option(
        "TP" if groups == 1 else f"TP {size} x DDP {groups}",
        f"each matrix split over {size} GPUs; sums activations {'five' if work.checkpointing else 'four'} times per "
        "layer, and the computation waits for each",
        _everything(setting, gradients=1 if groups == 1 else 2, share=1 / size),
        traffic,
    )


def pipeline(setting, stages):
    """One stage on each GPU."""
    model, gpus, work = setting.model, setting.cluster.gpus, setting.work
    if not (model.layers and model.hidden and (stages or model.layers % gpus == 0)):
        return
    p, in_flight = work.precision, work.micro_batches * gpus
    held = model.body / gpus + model.root / (1 if model.tied else 2)  # a tied embedding is on both ends
    sent = 2 * work.tokens * model.hidden * 2 * in_flight  # an activation and its gradient
    if model.tied:
        sent += ring(p.reduced * model.root, 2, 2)
    yield setting.option(
        "pipeline",
        f"{model.layers // gpus} layers on each GPU; sends little, waits in the bubble of {gpus} stages and "
        f"{in_flight} micro-batches",
        Held(p.weights * held, p.gradients * held, p.optimizer * held, p.copies * held),
        setting.everywhere(sent),
        bubble=(gpus - 1) / (in_flight + gpus - 1),
    )


def offload(setting):
    """FSDP2 whose shards wait in host memory. AdamW's time on the CPU is not counted."""
    cluster, p, N = setting.cluster, setting.work.precision, setting.model.parameters
    moved = (2 * p.weights + p.reduced) * N / cluster.gpus * setting.work.micro_batches
    host_gb = (p.weights + p.gradients + p.optimizer) * N / cluster.nodes / GB
    yield setting.option(
        "FSDP2 + offload",
        f"weights, gradients and optimizer state wait in {host_gb:,.0f} GB of each host's memory, behind PCIe 4; add the "
        "time of the update on the CPU",
        Held(0.0, 0.0, 0.0, _gathered(setting)),
        setting.everywhere(ring(_gathered_and_reduced(setting), cluster.gpus)),
        host_seconds=moved / bytes_per_second(HOST_LINK),
    )


def lora(setting):
    """Frozen weights in 16 or 4 bits, sharded; fp32 adapters with their gradients and AdamW state."""
    model, cluster, work = setting.model, setting.cluster, setting.work
    adapters = ADAPTERS * model.parameters
    sizes = {"LoRA": (16, 2 * model.parameters), "QLoRA": (4, NF4 * model.body + 2 * model.root)}
    for name, (bits, stored) in sizes.items():
        gathered = 2 * stored * work.micro_batches
        why = f"{bits}-bit weights sharded; trains adapters of one hundredth of them"

        def held(parts, stored=stored):
            shards = [size / parts for size in (stored + 4 * adapters, 4 * adapters, 8 * adapters)]
            return Held(*shards, 2 * (model.root + 2 * model.layer))

        everywhere = setting.everywhere(ring(gathered, cluster.gpus))
        yield setting.option(f"{name}, sharded", why, held(cluster.gpus), everywhere, trains="adapters")
        if _has_groups(cluster):
            inside, across = ring(gathered, cluster.local), ring(4 * adapters, cluster.nodes, 2)
            yield setting.option(
                f"{name}, HSDP",
                f"{why}; only their gradients leave a node",
                held(cluster.local),
                Traffic(inside, across, network_once=True),
                trains="adapters",
            )


def _everything(setting, gradients=1, share=1.0):
    """Unsharded, or a `share` of each tensor. With accumulation autocast's copies coexist with all gradients."""
    p, N = setting.work.precision, setting.model.parameters * share
    copies = p.copies if setting.work.micro_batches > 1 else 0
    return Held(p.weights * N, gradients * p.gradients * N, p.optimizer * N, copies * N)


def _sharded(setting, ranks):
    p, N = setting.work.precision, setting.model.parameters
    return Held(p.weights * N / ranks, p.gradients * N / ranks, p.optimizer * N / ranks, _gathered(setting))


def _gathered(setting):
    """The root and two layers, of which one is prefetched; one layer's gradients, before and after they are reduced."""
    p, model = setting.work.precision, setting.model
    return p.sent * (model.root + 2 * model.layer) + (p.sent + p.reduced) * model.layer


def _gathered_and_reduced(setting):
    """What a step gathers (each layer twice, the root once) and reduces, before it goes round a ring."""
    p, model = setting.work.precision, setting.model
    return (p.sent * (2 * model.body + model.root) + p.reduced * model.parameters) * setting.work.micro_batches


def _has_groups(cluster):
    return cluster.nodes > 1 and cluster.local > 1
