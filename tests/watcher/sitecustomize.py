"""Watches a program of a page while it trains, and writes what it saw to $WATCH_TO, a line of JSON for each event.

Python imports a module of this name by itself where its folder is on PYTHONPATH: the program stays as its reader has it, and its
results do too. tests/programs.py sets both variables for the programs of tests/watched.py; the events:

step     of an optimizer, the outermost one: its name, its rates, the norm of the gradients, and the last clipping before it
batch    once, at the first step whose loss the model returns: does the gradient have the length of the slope of the mean loss of
         all samples of the step, on all ranks; and is that loss lower after the step?
greedy   of a `generate` without sampling: the share of its tokens that one plain forward pass over the result chooses too
end      graphs: forward passes of a whole model that built one, and how many nobody went backward through.
         layers: calls in forward passes, and again in the backward pass
"""

import atexit
import contextlib
import functools
import importlib.abc
import importlib.util
import json
import os
import sys
from types import SimpleNamespace

MOST = 200  # events of a kind: a long search says nothing more
SHARE = 0.005  # of the loss: how far the slope is followed in each direction


class AfterImport(importlib.abc.MetaPathFinder):
    """Begins to watch a module when it has been imported, whoever imports it."""

    def __init__(self, watchers):
        self.watchers, self.asking = watchers, False

    def find_spec(self, name, path=None, target=None):
        if name not in self.watchers or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        if spec and spec.loader:
            load = spec.loader.exec_module

            def and_watch(module):
                load(module)
                self.watchers[name](module)

            spec.loader.exec_module = and_watch
        return spec


def say(kind, **what):
    said[kind] = said.get(kind, 0) + 1
    if said[kind] <= MOST:
        program = os.path.basename(sys.argv[0]) if sys.argv else ""
        place = f"{os.environ['WATCH_TO']}/{os.environ.get('RANK', '0')}-{os.getpid()}.jsonl"
        with open(place, "a") as file:
            file.write(json.dumps({"event": kind, "program": program, **what}) + "\n")


said = {}


def watch(torch):
    now = SimpleNamespace(models=0, steps=0, backward=0, probing=False)  # how deep we are in each
    now.made = now.used = now.layers = now.again = 0  # counts
    now.layer, now.firsts = None, set()  # the layer that has just begun; the first parts of all layers
    now.clip = now.asked = now.after = (
        None  # the last clipping; how a forward pass began; what a step is to be compared with
    )
    now.part = None  # is the loss that the model returns a part of that of the whole step?
    now.window = []  # the forward passes since the last step; None when one has been compared

    def number(tensor):
        tensor = tensor.sum()
        return float(tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor)

    # Backward passes and clipping

    def count_backward(function):
        @functools.wraps(function)
        def counted(*args, **kwargs):
            now.backward += 1
            try:
                return function(*args, **kwargs)
            finally:
                now.backward -= 1

        return counted

    torch.autograd.backward = count_backward(torch.autograd.backward)
    clip = torch.nn.utils.clip_grad_norm_

    @functools.wraps(clip)
    def clip_and_note(parameters, max_norm, *args, **kwargs):
        norm = clip(parameters, max_norm, *args, **kwargs)
        now.clip = {"most": float(max_norm), "norm": number(norm)}
        return norm

    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = clip_and_note

    # Forward passes of a whole model, and of its layers

    def is_layer(module):
        return any(kind.__name__ == "GradientCheckpointingLayer" for kind in type(module).__mro__)

    def tensors(output):
        several = isinstance(output, (list, tuple))
        found = output.values() if isinstance(output, dict) else output if several else [output]
        return [each for each in found if isinstance(each, torch.Tensor) and each.grad_fn is not None]

    def before(module, args):
        if now.probing:
            return
        if now.backward:
            now.again += id(module) in now.firsts
        elif now.layer is not None:
            now.firsts.add(id(module))  # checkpointing computes it again, whatever else it leaves out
            now.layers += 1
        now.layer = module if not now.backward and torch.is_grad_enabled() and is_layer(module) else None
        if not now.backward:
            now.models += 1

    def after(module, args, kwargs, output):
        if now.probing or now.backward:
            return
        now.models -= 1
        if now.models or not any(True for _ in module.parameters()):
            return
        if graph := tensors(output):
            now.made += 1
            gone = []

            def note(_):
                if not gone:
                    gone.append(True)
                    now.used += 1

            for each in graph:
                each.register_hook(note)
        with_loss = isinstance(output, dict) and output.get("loss") is not None
        if now.window is not None and torch.is_grad_enabled() and with_loss:
            now.window.append((module, args, kwargs, now.asked))

    def random_state(module, args):  # at the start of a whole model: dropout draws the same again
        if not now.models and not now.probing and not now.backward and now.window is not None:
            kind = torch.accelerator.current_accelerator(check_available=True)
            kind = kind.type if kind else "cpu"
            cast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
            now.asked = (torch.get_rng_state(), kind, cast)

    if os.environ.get("WATCH_MODELS") == "1":  # not where the model is compiled: its graphs would hold these hooks
        hooks = torch.nn.modules.module
        hooks.register_module_forward_pre_hook(random_state)
        hooks.register_module_forward_pre_hook(before)
        hooks.register_module_forward_hook(after, with_kwargs=True, always_call=False)

    # Steps of an optimizer

    def scatter(module):
        """FSDP keeps the gathered root after a forward pass without a backward pass."""
        for each in module.modules():
            if hasattr(each, "reshard"):
                each.reshard()

    def loss_of(module, args, kwargs, how):
        state, kind, cast = how
        torch.set_rng_state(state)
        scatter(module)
        with torch.autocast(kind, cast) if cast else contextlib.nullcontext():
            loss = module(*args, **kwargs)["loss"].detach().double().cpu()
        scatter(module)
        return loss

    def is_part(module, args, kwargs, how):
        """Is the loss divided by the tokens of the whole step? Then it halves where there are twice as many."""
        if (tokens := kwargs.get("num_items_in_batch")) is None:
            return False
        twice = loss_of(module, args, kwargs | {"num_items_in_batch": 2 * tokens}, how)
        return bool(twice < 0.75 * loss_of(module, args, kwargs, how))

    def mean_loss(window):
        """Of all samples of the step on all ranks."""
        if now.part is None:
            now.part = is_part(*window[0])
        total = sum(loss_of(*each) for each in window) / (1 if now.part else len(window))
        dist = torch.distributed
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(total)
            total /= 1 if now.part else dist.get_world_size()
        return total.item()

    @contextlib.contextmanager
    def aside():
        state, now.probing = torch.get_rng_state(), True
        try:
            with torch.no_grad():
                yield
        finally:
            torch.set_rng_state(state)
            now.probing = False

    def step_begins(optimizer, args, kwargs):
        now.steps += 1
        if now.steps > 1:  # one that another one calls
            return
        now.outer = id(optimizer)
        trained = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        norm = sum(number(each.grad.detach().double() ** 2) for each in trained) ** 0.5
        rates = sorted({float(group["lr"]) for group in optimizer.param_groups if "lr" in group})
        say("step", optimizer=type(optimizer).__name__, rates=rates, norm=norm, clip=now.clip)
        window, factor = now.window, 1.0
        if now.clip and now.clip["norm"]:
            factor = min(1.0, now.clip["most"] / (now.clip["norm"] + 1e-6))
        now.clip = None
        now.after = None
        if not window or now.backward or not norm:
            return
        now.window = None  # once
        try:
            with aside():
                found = probe(trained, window, norm)
        except Exception as error:  # a model that cannot be asked again, such as one of DeepSpeed
            say("batch", error=repr(error)[:300])
            return
        now.after = {"samples": len(window), "before": found[0], "gradient": norm / factor, "slope": found[1]}, window

    def probe(trained, window, norm):
        """The loss, and its slope along the gradient."""
        begin, kept, losses = mean_loss(window), [each.data for each in trained], []
        whole = [each.detach().clone() for each in trained]
        reach = SHARE * begin / norm
        try:
            for side in (1, -1):
                for each, data, start in zip(trained, kept, whole):
                    wide = torch.float32 if data.dtype in (torch.bfloat16, torch.float16) else data.dtype
                    moved = start.to(wide) + each.grad.detach().to(wide) * (side * reach / norm)
                    if data.dtype == wide:
                        each.data.copy_(moved)  # in place: FSDP gathers from this memory
                    else:
                        each.data = moved  # 16 bits would round the way off
                losses.append(mean_loss(window))
        finally:
            for each, data, start in zip(trained, kept, whole):
                each.data = data
                each.data.copy_(start)
        return begin, (losses[0] - losses[1]) / (2 * reach)

    def step_ends(optimizer, args, kwargs):
        now.steps -= 1
        if now.steps or not now.after:
            return
        (found, window), now.after = now.after, None
        with aside():
            say("batch", **found, after=mean_loss(window))

    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(step_begins)
    register_optimizer_step_post_hook(step_ends)

    # The end

    def end():
        say("end", graphs=now.made, unused=now.made - now.used, layers=now.layers, again=now.again)

    atexit.register(end)


def watch_generation(module):
    import torch

    generate = module.GenerationMixin.generate
    if seed := os.environ.get("WATCH_SEED"):
        torch.manual_seed(int(seed))

    @functools.wraps(generate)
    def and_compare(self, *args, **kwargs):
        output = generate(self, *args, **kwargs)
        ids = args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))
        whole = output if isinstance(output, torch.Tensor) else getattr(output, "sequences", None)
        settings = kwargs.get("generation_config") or self.generation_config
        sampled = kwargs.get("do_sample", settings.do_sample) or (kwargs.get("num_beams", settings.num_beams) or 1) > 1
        if ids is not None and whole is not None and not sampled and "pixel_values" not in kwargs:
            try:
                say("greedy", **compared(self, ids, whole, kwargs.get("attention_mask"), settings))
            except Exception as error:  # a model that takes other inputs
                say("greedy", error=repr(error)[:300])
        return output

    @torch.no_grad()
    def compared(model, ids, whole, mask, settings):
        """How many of the new tokens are the first choice of a forward pass over the whole text, without any cache."""
        given, state = ids.shape[1], torch.get_rng_state()
        mask = torch.ones_like(ids) if mask is None else mask
        mask = torch.cat([mask, mask.new_ones(len(whole), whole.shape[1] - given)], dim=1)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        found = model.forward(  # not called: a program may count the calls
            input_ids=whole, attention_mask=mask, position_ids=positions, use_cache=False
        ).logits
        step = torch.finfo(found.dtype).eps * found.abs().amax().float()  # two numbers of that dtype lie no closer
        logits = found.float()
        logits, new = logits[:, given - 1 : -1], whole[:, given:]
        ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
        counts = torch.ones_like(new, dtype=torch.bool)
        for end in ends:
            if end is not None:  # what stands behind it is padding
                counts &= (new == end).cumsum(-1) - (new == end).long() == 0
        chosen = logits.gather(-1, new[..., None])[..., 0]
        near = chosen >= logits.amax(-1) - torch.maximum(0.01 * logits.std(), step)  # a tie, but for rounding
        torch.set_rng_state(state)
        return {"tokens": int(counts.sum()), "agree": int((near & counts).sum())}

    module.GenerationMixin.generate = and_compare


if "WATCH_TO" in os.environ:
    watchers = {"torch": watch, "transformers.generation.utils": watch_generation}
    for name in watchers.keys() & sys.modules.keys():  # in a fork of what warm.py has imported
        watchers[name](sys.modules[name])
    sys.meta_path.insert(0, AfterImport(watchers))
