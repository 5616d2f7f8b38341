"""Peak memory by category and FLOPs of a training step, at full scale, without a GPU.

The real model code runs on *fake* tensors: they have a shape, a dtype and a storage size, and no data. A tracker sees
every operator, adds up the storages that are alive, and counts the FLOPs. So an 8-billion-parameter step takes seconds
and a few hundred MiB, and its bytes are those of the real tensors (`tests/test_trace.py` compares them on a small model).

The fake tensors stand for a GPU's, so the operators are a GPU's too (`GpuOperators`): the attention kernel that CUDA
would choose, the fused dropout with its one-byte mask, and CUDA's list of what autocast keeps in fp32.

What the allocator of a real GPU adds is *not* in these figures: rounding to blocks, fragmentation, workspaces of cuBLAS
and of kernels, and the CUDA context. Bytes are bytes; 1 GiB = 2**30 bytes.
"""

import contextlib
import copy
import functools
import gc
import os
import time
import weakref
from collections import Counter
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import (
    _DISPATCH_HANDLE_DIRECTLY,
    _DISPATCH_META_HANDLERS,
    FakeTensor,
    FakeTensorMode,
    _BypassDispatchCache,
    _CacheKeyState,
    _DispatchCacheValidEntry,
    disable_fake_tensor_cache,
)
from torch.autograd.graph import _engine_run_backward
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry, register_flop_formula
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_layers import GradientCheckpointingLayer

GiB = 2**30

# On real tensors transformers looks at the mask and drops it when no token is padding, which lets PyTorch choose the
# flash kernel. Fake tensors have no values to look at. A name that transformers has no mask for is given none.
UNMASKED_SDPA = "sdpa_without_mask"
AttentionInterface.register(UNMASKED_SDPA, sdpa_attention_forward)

aten = torch.ops.aten

if aten._grouped_mm not in flop_registry:  # the experts of a mixture; torch 2.13 has no formula for it

    @register_flop_formula(aten._grouped_mm)
    def grouped_mm_flop(left_shape, right_shape, *args, out_shape=None, **kwargs):
        """FLOPs of (tokens, k) times (experts, k, n), whatever the expert of a token."""
        return 2 * left_shape[-2] * left_shape[-1] * right_shape[-1]


# Arguments of operators that are their own key.
PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
NO_SYMBOLS = _CacheKeyState(None)  # every size is a number
UNKNOWN = object()
DEVICE = torch.ops.prim.device.default
VIEW, UNSAFE_VIEW = aten.view.default, aten._unsafe_view.default  # here the same; PyTorch keeps nothing of the second

OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "adamw_foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw_loop": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, foreach=False),
    "sgd_momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, foreach=False),
}

# What CUDA's autocast runs in fp32, by the names in ATen/autocast_mode.h, and what else Python calls it. The CPU's leaves
# most of it in 16 bits.
# fmt: off
FP32_UNDER_CUDA_AUTOCAST = {
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan",
    "pow", "__pow__", "__rpow__", "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm", "norm",
    "frobenius_norm", "nuclear_norm", "linalg_vector_norm", "linalg_matrix_norm", "vector_norm", "matrix_norm", "renorm",
    "cosine_similarity", "dist", "pdist", "cdist", "cross_entropy", "nll_loss", "nll_loss2d", "poisson_nll_loss", "mse_loss",
    "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits",
    "softmax", "log_softmax", "sum", "prod", "cumsum", "cumprod", "logsumexp", "interpolate",
}
# fmt: on
ATTENTION_KERNELS = {
    aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_backward,
    aten._scaled_dot_product_efficient_attention,
    aten._scaled_dot_product_efficient_attention_backward,
}


@dataclass
class Trace:
    """One traced training step. Sizes in bytes, FLOPs as multiply and add counted apart (a matrix product is 2mnk)."""

    parameters: int = 0  # number of parameters, not bytes
    peak: int = 0
    peak_by_category: dict = field(default_factory=dict)
    after_forward: dict = field(default_factory=dict)  # of the last micro-batch, before its backward pass
    flops: dict = field(default_factory=dict)  # forward, backward (with the recomputation), recomputation
    parts: list = field(default_factory=list)  # (peak, {category: bytes}) of each part of the step, see `line_of`
    timeline: list = field(default_factory=list)  # {category: bytes} every `TIMELINE_EVERY` operators, if asked for
    seconds: float = 0.0  # that the tracing took

    def take(self, tracker):
        """What the tracker has seen of a step whose last part has ended."""
        self.parts = [(peak, tracker.in_order(by_category)) for peak, by_category, _ in tracker.parts]
        self.peak, self.peak_by_category = max(self.parts, key=lambda part: part[0])
        self.flops, self.timeline = dict(tracker.flops), tracker.timeline

    @property
    def peak_gib(self):
        return self.peak / GiB

    def gib(self, category):
        """GiB of one category at the moment of the peak."""
        return self.peak_by_category.get(category, 0) / GiB


class GpuOperators(TorchFunctionMode):
    """Calls, on CPU-labelled tensors, the operators that a CUDA device would run.

    `attention`: "auto" chooses as CUDA does (flash for 16 bits without a mask and heads of one size up to 256, else the
    memory-efficient kernel, or math where heads are grouped); "flash" and "efficient" force one.
    """

    def __init__(self, attention="auto"):
        super().__init__()
        if attention not in ("auto", "flash", "efficient"):
            raise ValueError(f"attention={attention!r}: choose auto, flash or efficient")
        self.attention = attention

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is F.dropout:
            return _fused_dropout(*args, **kwargs)
        if func is F.multi_head_attention_forward:  # no mode sees what it calls
            raise NotImplementedError(
                "nn.MultiheadAttention chooses its kernels out of sight, and they would be the CPU's: trace a model that "
                "calls scaled_dot_product_attention"
            )
        if func is torch.Tensor.backward and not any(kwargs.values()):
            return self._backward(args[0])
        if getattr(func, "__name__", "") in FP32_UNDER_CUDA_AUTOCAST and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map_only(torch.Tensor, _to_fp32, (args, kwargs))
        return func(*args, **kwargs)

    def _backward(self, loss):
        """A mode is off inside its own handler, and checkpointing recomputes the forward pass inside backward()."""
        with self:
            _engine_run_backward(
                (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True
            )

    def _attention(
        self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
    ):
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        kernel = self.attention
        if kernel == "auto":
            half = query.dtype in (torch.float16, torch.bfloat16)
            head_size = query.size(-1)
            fits = half and attn_mask is None and head_size <= 256 and head_size == key.size(-1) == value.size(-1)
            kernel = "flash" if fits else "math" if enable_gqa else "efficient"
        if kernel == "math":  # torch 2.13: "GQA works only for Flash_attention and math kernel on CUDA tensor"
            return aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=True
            )[0]
        if kernel == "flash":
            if attn_mask is not None:
                raise ValueError("the flash kernel takes no attention mask: use attention='efficient'")
            return aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale
            )[0]
        if enable_gqa:  # only the flash kernel shares key and value heads
            groups = query.size(1) // key.size(1)
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
            attn_mask = attn_mask.to(query.dtype).expand(query.size(0), query.size(1), query.size(2), key.size(2))
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
        )[0]


def _fused_dropout(input, p=0.5, training=True, inplace=False):
    """CUDA's dropout keeps a one-byte mask; the CPU's keeps one as wide as the activation."""
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def _to_fp32(tensor):
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class Tracker(TorchDispatchMode):
    """Adds up the storages that are alive while it is active, by category, and the FLOPs. Works on real tensors too.

    - `parameters`: weights and buffers; `gradients`: what `.grad` holds; `optimizer`: its state
    - `activations`: what the forward pass (or its recomputation under checkpointing) allocated and still holds
    - `weight copies`: parameters in another dtype, which autocast makes and keeps for the backward pass
    - `temporaries`: everything else: the intermediate results of the backward pass and of the optimizer
    """

    CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "weight copies", "temporaries", "inputs")
    TIMELINE_EVERY = 20

    def __init__(self, model, optimizer, inputs=(), timeline=False):
        super().__init__()
        self.parts = []  # of the step, that have ended: peak, {category: bytes} then, serial number then
        self.live = {}  # storage -> [bytes, category, weak reference, serial number]
        self.now = Counter()
        self.total, self.peak, self.peak_by_category = 0, 0, Counter()
        self._born, self._born_at_peak = 0, 0
        self.flops = Counter()
        self.timeline = []
        self._keeps_timeline, self._operators = timeline, 0
        self._optimizer = optimizer
        self._claim("parameters", [*model.parameters(), *model.buffers()])
        self._claim("inputs", tree_leaves(inputs))
        self._claim("optimizer", _state(optimizer))
        self._hooks = [
            p.register_post_accumulate_grad_hook(lambda p: self._claim("gradients", [p.grad]))
            for p in model.parameters()
            if p.requires_grad
        ]
        self._hooks.append(optimizer.register_step_post_hook(lambda *_: self._claim("optimizer", _state(optimizer))))

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()
        return super().__exit__(*exception)

    @classmethod
    def _should_skip_dynamo(cls):
        """Nothing is compiled while a step is traced, and guarding every operator against that costs a tenth of the time."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is DEVICE and type(args[0]) is FakeTensor:  # more than half of all calls, and no operator
            self._tick()
            return args[0].fake_device
        # In the backward pass GpuOperators would be asked about each size that is looked up here.
        with torch._C.DisableTorchFunction():
            return self._run(func, args, kwargs or {})

    def _run(self, func, args, kwargs):
        mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)  # none where tensors are real
        if type(mode) is not _Fake or (out := mode.known(func, args, kwargs)) is UNKNOWN:
            out = func(*args, **kwargs)
        self._count_flops(func, args, kwargs, out)
        if func is aten._to_copy.default and self._category(args[0]) == "parameters":
            category = "weight copies"
        else:  # autograd switches gradients off in the backward pass, and checkpointing switches them on to recompute
            category = "activations" if torch.is_grad_enabled() else "temporaries"
        for tensor in [out] if isinstance(out, torch.Tensor) else tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, category)
        self._tick()
        return out

    def _tick(self):
        if self._keeps_timeline:
            if self._operators % self.TIMELINE_EVERY == 0:
                self.timeline.append(dict(self.now))
            self._operators += 1

    def snapshot(self):
        """{category: bytes} that are alive now."""
        return self.in_order(self.now)

    def in_order(self, sizes):
        return {category: sizes[category] for category in self.CATEGORIES if sizes[category]}

    def part(self):
        """Ends a part of the step: the peak so far is kept in `parts`, and the next part has its own."""
        self.parts.append((self.peak, self.peak_by_category, self._born_at_peak))
        self.peak, self.peak_by_category, self._born_at_peak = self.total, self.now.copy(), self._born

    def _category(self, tensor):
        entry = self.live.get(tensor.untyped_storage()._cdata)
        return entry and entry[1]

    def _see(self, tensor, category):
        if tensor.device.type == "meta":  # the attention kernels' random seed, which lives on the host
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.live:
            return
        size = storage.nbytes()
        self._born += 1
        self.live[key] = [size, category, weakref.ref(storage, lambda _: self._free(key)), self._born]
        self.now[category] += size
        self.total += size
        if self.total > self.peak:
            self.peak, self.peak_by_category, self._born_at_peak = self.total, self.now.copy(), self._born

    def _free(self, key):
        size, category, *_ = self.live.pop(key)
        self.now[category] -= size
        self.total -= size

    def _claim(self, category, tensors):
        """Files the tensors' storages under `category`, whatever they counted as before."""
        with torch._C.DisableTorchFunction():
            self._file(category, tensors)

    def _file(self, category, tensors):
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                continue
            self._see(tensor, category)
            entry = self.live[tensor.untyped_storage()._cdata]
            size, before, _, born = entry
            peaks = [*self.parts, (self.peak, self.peak_by_category, self._born_at_peak)]
            for counted in [self.now] + [by_category for _, by_category, born_at_peak in peaks if born <= born_at_peak]:
                counted[before] -= size
                counted[category] += size
            entry[1] = category

    def _count_flops(self, func, args, kwargs, out):
        kernel = func._overloadpacket
        formula = flop_registry.get(kernel)
        if formula is None:
            return
        if kernel in ATTENTION_KERNELS:  # shared key and value heads cost as much as heads of their own
            heads = 2 if kernel.__name__.endswith("backward") else 1
            query, shapes = args[heads - 1], [tensor.shape for tensor in args[: heads + 2]]
            shapes[heads:] = [(s[0], query.shape[1], *s[2:]) for s in shapes[heads:]]
            flops = formula(*shapes)
        else:
            flops = formula(*args, **kwargs, out_val=out)
        backward = torch._C._current_graph_task_id() != -1
        self.flops["backward" if backward else "forward"] += flops
        if backward and torch.is_grad_enabled():
            self.flops["recomputation"] += flops


def _state(optimizer):
    return [tensor for state in optimizer.state.values() for tensor in state.values()]


@contextlib.contextmanager
def fake():
    """Inside, every new tensor is fake: it has a size and no data. Models of any size are built in seconds.

    Python's garbage collector rests: looking through the objects of a model costs a fifth of the time, and when it comes
    by chance, so does the moment at which a tensor in a cycle ends.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        with _Fake():
            yield
    finally:
        if collected:
            gc.enable()


class _Fake(FakeTensorMode):
    """Without the guard against compilation around every operator, and with short ways to what it has computed before.

    PyTorch keeps what an operator returns by all that could ever matter about its inputs, and makes each output by a
    constructor that expects anything. Together these took half of the time of a trace. A dense tensor without data is known
    by what is listed in `_prep_args_for_hash`; a new one has the attributes of any other new one, and its own sizes.
    """

    _known = {}  # what PyTorch keeps of an operator's result, for all of these modes as its own cache: by a shorter key

    def __init__(self):
        super().__init__(allow_non_fake_inputs=True)
        self._attributes = {}  # of a new tensor, by device
        allowed = self._allow_unsafe_data_ptr_access
        self._on_access = (
            torch._C._set_warn_deprecated_on_mutable_data_ptr if allowed else torch._C._set_throw_on_mutable_data_ptr
        )

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            if func in _DISPATCH_META_HANDLERS or func in _DISPATCH_HANDLE_DIRECTLY or not self.cache_enabled:
                return self.dispatch(func, types, args, kwargs or {})
            return self._cached_dispatch_impl(func, types, args, kwargs or {})

    def known(self, func, args, kwargs):
        """What an operator returns, if it has run with inputs like these; UNKNOWN otherwise."""
        if self.cache_crosscheck_enabled or not self.cache_enabled:
            return UNKNOWN
        return self._look_up(func, args, kwargs)[0]

    def _look_up(self, func, args, kwargs):
        """(what an operator returns or UNKNOWN, its key or None where it is not kept)"""
        func = VIEW if func is UNSAFE_VIEW else func
        key = [func, torch.get_default_dtype(), torch._C._get_default_device(), torch.is_inference_mode_enabled()]
        try:
            self._prep_args_for_hash(key, args, NO_SYMBOLS, [])
            if kwargs:
                self._prep_args_for_hash(key, kwargs, NO_SYMBOLS, [])
        except _BypassDispatchCache:
            return UNKNOWN, None
        key = tuple(key)
        entry = self._known.get(key)
        if entry is None:
            return UNKNOWN, key
        FakeTensorMode.cache_hits += 1
        return self._output_from_cache_entry(NO_SYMBOLS, entry, None, func, args), key

    def _cached_dispatch_impl(self, func, types, args, kwargs):
        output, key = self._look_up(func, args, kwargs)
        if output is UNKNOWN:
            like = VIEW if func is UNSAFE_VIEW else func
            output = super()._cached_dispatch_impl(like, types, args, kwargs)
            if key is not None:
                entry = FakeTensorMode.cache.get(self._cache_key(NO_SYMBOLS, like, args, kwargs))
                if type(entry) is _DispatchCacheValidEntry:
                    self._known[key] = entry
        elif self.cache_crosscheck_enabled:
            with disable_fake_tensor_cache(self):
                self._crosscheck_cache_output(output, func, types, args, kwargs)
        return output

    def _get_output_tensor_from_cache_entry(self, state, entry, key, func, args):
        kept = entry.metadata
        if entry.inplace_idx is not None:
            return args[entry.inplace_idx]
        if kept is None or kept.is_conj or kept.is_neg:
            return super()._get_output_tensor_from_cache_entry(state, entry, key, func, args)
        is_view = isinstance(func, torch._ops.OpOverload) and func.is_view
        storage = args[entry.view_idx].untyped_storage() if is_view else None
        with torch._C._DisableTorchDispatch():
            sizes = kept.shape, kept.stride
            data = torch.empty_strided(*sizes, dtype=kept.dtype, device="meta", requires_grad=kept.requires_grad)
            if is_view:
                data.set_(storage, kept.storage_offset, *sizes)
        device = kept.device
        if device not in self._attributes:
            self._attributes[device] = vars(FakeTensor(self, data, device)).copy()
        made = torch.Tensor._make_subclass(
            FakeTensor, data, data.requires_grad, dispatch_device=True, device_for_backend_keys=device
        )
        self._on_access(made)
        vars(made).update(self._attributes[device])
        return made

    def _prep_args_for_hash(self, result, args, *others):
        if isinstance(args, dict):
            return super()._prep_args_for_hash(result, args, *others)
        result.append((type(args), len(args)))
        for arg in args:
            kind = type(arg)
            if kind is FakeTensor and arg.fake_mode is self and arg.constant is None and arg.layout is torch.strided:
                size = arg.shape, arg.stride(), arg.storage_offset(), arg.untyped_storage().nbytes()
                flags = arg.requires_grad, arg.is_conj(), arg.is_neg(), arg.is_inference()
                result.append((arg.dtype, arg.device, size, flags))
            elif kind in PLAIN:
                result.append((kind, arg))
            elif kind in (list, tuple):
                self._prep_args_for_hash(result, arg, *others)
            else:
                super()._prep_args_for_hash(result, [arg], *others)


def language_batch(model, batch_size, sequence_length):
    """Token ids (batch_size, sequence_length) and labels: the ids for a language model, one class a row otherwise."""
    ids = torch.zeros(batch_size, sequence_length, dtype=torch.long)
    predicts_tokens = type(model).__name__.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel"))
    return {"input_ids": ids, "labels": ids if predicts_tokens else torch.zeros(batch_size, dtype=torch.long)}


def with_layers(config, number):
    """The configuration of the same model with so many layers."""
    config = copy.deepcopy(config)
    config.num_hidden_layers = number
    return config


def by_layers(step):
    """Decorates a function that traces a step: its second argument is the configuration; it returns a `Trace` or a
    dictionary of numbers.

    With EVIDENCE_LAYERS in the environment, such as "2,4", what it returns for a deeper model is the line through its
    models of 2 and of 4 layers. The tests set it for notebooks: records are made without it, of whole models, and the two
    must agree. A timeline has no such line: where it is asked for, the model is traced whole.
    """

    @functools.wraps(step)
    def traced(first, config, *arguments, **options):
        layers = [int(number) for number in os.environ.get("EVIDENCE_LAYERS", "").split(",") if number]
        if not layers or config.num_hidden_layers <= layers[-1] or options.get("timeline"):
            return step(first, config, *arguments, **options)
        steps = [step(first, with_layers(config, number), *arguments, **options) for number in layers]
        if isinstance(steps[0], dict):
            return line(steps[0], steps[-1], layers, config.num_hidden_layers)
        return line_of(steps, layers, config.num_hidden_layers, Trace())

    return traced


def line(low, high, layers, depth):
    """The value at `depth` on the line through `low` at the first of `layers` and `high` at the last; of a dictionary, each."""
    if isinstance(high, dict):
        return {key: line(low.get(key, 0), high[key], layers, depth) for key in high}
    return round(low + (high - low) * (depth - layers[0]) / (layers[-1] - layers[0]))


def line_of(steps, layers, depth, result):
    """Fills `result` with what a model of `depth` layers gives, from traces of shallow ones: each layer adds the same.

    steps: one `Trace` for each of `layers`, from the shallowest to the deepest. Where a model's layers take turns (every
    second one checkpointed, a sliding window in some), `layers` and `depth` differ by whole turns.

    The peak moves with the depth: that of a shallow model comes with the loss, that of a deep one may come with the last
    gradients. So each part of the step has a line of its own (the forward pass, the backward pass up to its middle and from
    there, the optimizer's step), and the highest counts. The models between the first and
    the last must lie on it, or it raises ValueError.
    """
    first, *middle, last = steps

    def parts(depth):
        both = zip(first.parts, last.parts, strict=True)
        return [(line(a, b, layers, depth), line(low, high, layers, depth)) for (a, low), (b, high) in both]

    for step, number in zip(middle, layers[1:]):
        if abs(step.peak / max(peak for peak, _ in parts(number)) - 1) > 0.002:
            raise ValueError(f"the peaks of models of {layers} layers do not lie on one line: take deeper ones")
    result.parts = parts(depth)
    result.peak, result.peak_by_category = max(result.parts, key=lambda part: part[0])
    for name in ("parameters", "after_forward", "flops"):
        setattr(result, name, line(getattr(first, name), getattr(last, name), layers, depth))
    result.seconds = sum(step.seconds for step in steps)
    return result


@by_layers
def training_step(
    model_class,
    config,
    batch_size,
    sequence_length,
    *,
    dtype=torch.float32,
    autocast=None,
    activation_checkpointing=False,
    optimizer="adamw",
    accumulation=1,
    attention="auto",
    timeline=False,
):
    """Traces one training step: `accumulation` x (forward, backward), optimizer step. Returns a `Trace`.

    model_class: a transformers model class, or an Auto class; config: its configuration.
    batch_size: sequences per forward pass (per micro-batch); sequence_length: tokens per sequence.
    dtype: of the weights, and so of their gradients and of the optimizer's state.
    autocast: the 16-bit dtype of mixed precision, or None; the weights then stay in `dtype`.
    activation_checkpointing: True for every layer, or n for every n-th.
    optimizer: a name in `OPTIMIZERS`, or a function from parameters to an optimizer.
    attention: "auto", "flash" or "efficient" for PyTorch's fused kernels, "eager" for the one that writes all scores.
    timeline: whether to keep what is alive every 20 operators.

    Every sequence has its full length: no padding, no packing. The optimizer's state exists before the step, as it does from the second step of a real run on.
    A third micro-batch, and each later one, begins with the same tensors as the second and does the same: it is not run, its FLOPs are those of the second.
    """
    if isinstance(optimizer, str) and optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r}: choose one of {', '.join(OPTIMIZERS)}, or pass a function")
    started = time.perf_counter()
    with fake(), GpuOperators("auto" if attention == "eager" else attention):
        model = build_model(model_class, config, dtype, "eager" if attention == "eager" else UNMASKED_SDPA)
        model.train()
        if activation_checkpointing:
            checkpoint_layers(model, int(activation_checkpointing))
        make = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
        optimizer = make([p for p in model.parameters() if p.requires_grad])
        create_state(model, optimizer)
        batch = language_batch(model, batch_size, sequence_length)
        result = Trace(parameters=sum(p.numel() for p in model.parameters()))
        with Tracker(model, optimizer, batch, timeline) as tracker:
            end_part_in_mid_backward(model, tracker)
            for _ in range(min(accumulation, 2)):
                before = tracker.flops.copy()
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                    loss = model(**batch).loss
                result.after_forward = tracker.snapshot()
                tracker.part()
                (loss / accumulation).backward()
                del loss
                tracker.part()
            for kind, flops in (tracker.flops - before).items():  # of the second micro-batch, for those that are left
                tracker.flops[kind] += max(0, accumulation - 2) * flops
            optimizer.step()
            optimizer.zero_grad()
            tracker.part()
    result.take(tracker)
    result.seconds = time.perf_counter() - started
    return result


def layers_of(model):
    """The blocks of the model's longest list of modules: its layers."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])


def end_part_in_mid_backward(model, tracker):
    """Memory rises or falls steadily in each half of the backward pass, so it is highest at an end of one."""
    layers = layers_of(model)

    def watch(layer, arguments, out):
        out = tree_leaves(out)[0]
        if out.requires_grad:
            out.register_hook(lambda gradient: tracker.part())

    if len(layers):
        layers[max(len(layers) // 2 - 1, 0)].register_forward_hook(watch)


def build_model(model_class, config, dtype, attention):
    """A model of this transformers class, random, without a cache of keys and values; inside `fake()`, without data."""
    config = copy.deepcopy(config)
    config.use_cache = False  # of no use in training
    build = getattr(model_class, "from_config", None) or model_class._from_config
    return build(config, dtype=dtype, attn_implementation=attention)


def checkpoint_layers(model, every_n_layers):
    """Switches activation checkpointing on in every n-th layer."""
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(every_n_layers=every_n_layers)
    else:  # transformers up to 5.17
        model.gradient_checkpointing_enable()
        layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        for number, layer in enumerate(layers):
            layer.gradient_checkpointing = number % every_n_layers == 0


def create_state(model, optimizer):
    """Lets the optimizer make its state, as it exists from the second step on. The weights are not those from before."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
