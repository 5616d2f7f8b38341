"""The same Llama and the same steps without PyTorch: Flax NNX. Weights come from the transformers model."""
import os

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {os.environ.get('XLA_FLAGS', '')}"  # of a CPU only

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from task import CONFIG, RATE, batches, llama

HEADS, WIDTH = CONFIG.num_attention_heads, CONFIG.hidden_size // CONFIG.num_attention_heads
NEW = nnx.Rngs(0)


# --8<-- [start:layers]
def linear(inputs, outputs):
    return nnx.Linear(inputs, outputs, use_bias=False, rngs=NEW)


def rotated(x):  # rotary positions, halves side by side as in transformers
    speed = CONFIG.rope_parameters["rope_theta"] ** (-jnp.arange(0, WIDTH, 2) / WIDTH)
    angle = jnp.arange(x.shape[1])[:, None] * jnp.concatenate([speed, speed])
    turned = jnp.concatenate([-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]], axis=-1)
    return x * jnp.cos(angle)[:, None] + turned * jnp.sin(angle)[:, None]


class Attention(nnx.Module):
    def __init__(self):
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (linear(HEADS * WIDTH, HEADS * WIDTH) for _ in range(4))

    def __call__(self, x):
        q, k, v = (f(x).reshape(*x.shape[:2], HEADS, WIDTH) for f in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(jax.nn.dot_product_attention(rotated(q), rotated(k), v, is_causal=True).reshape(x.shape))


class MLP(nnx.Module):
    def __init__(self):
        self.gate_proj, self.up_proj = (linear(CONFIG.hidden_size, CONFIG.intermediate_size) for _ in range(2))
        self.down_proj = linear(CONFIG.intermediate_size, CONFIG.hidden_size)

    def __call__(self, x):
        return self.down_proj(jax.nn.silu(self.gate_proj(x)) * self.up_proj(x))


def norm():
    return nnx.RMSNorm(CONFIG.hidden_size, epsilon=CONFIG.rms_norm_eps, rngs=NEW)


class Layer(nnx.Module):
    def __init__(self):
        self.self_attn, self.mlp = Attention(), MLP()
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()

    def __call__(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nnx.Module):
    def __init__(self):
        self.embed_tokens = nnx.Embed(CONFIG.vocab_size, CONFIG.hidden_size, rngs=NEW)
        self.layers = nnx.List([Layer() for _ in range(CONFIG.num_hidden_layers)])
        self.norm, self.lm_head = norm(), linear(CONFIG.hidden_size, CONFIG.vocab_size)

    def __call__(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))
# --8<-- [end:layers]


def take_weights(model, source):
    """PyTorch stores a linear layer as (out, in), Flax as (in, out)."""
    for name, tensor in source.named_parameters():
        module = model
        for part in name.removeprefix("model.").split(".")[:-1]:
            module = module[int(part)] if part.isdigit() else getattr(module, part)
        if isinstance(module, nnx.Linear):
            module.kernel[...] = tensor.detach().numpy().T
        else:
            (module.embedding if isinstance(module, nnx.Embed) else module.scale)[...] = tensor.detach().numpy()


# --8<-- [start:train]
mesh = jax.make_mesh((len(jax.devices()),), ("data",), axis_types=(AxisType.Auto,))
model = Llama()
take_weights(model, llama())
for variable in jax.tree.leaves(nnx.state(model), is_leaf=lambda leaf: isinstance(leaf, nnx.Variable)):
    spec = PartitionSpec("data", None) if variable[...].ndim == 2 else PartitionSpec()
    variable[...] = jax.device_put(variable[...], NamedSharding(mesh, spec))  # FSDP
optimizer = nnx.Optimizer(model, optax.adamw(RATE, eps=1e-8, weight_decay=0.01), wrt=nnx.Param)


@nnx.jit(donate_argnums=(0, 1))  # the old weights and state make room for the new
def step(model, optimizer, ids):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(ids)[:, :-1], ids[:, 1:]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


rows = NamedSharding(mesh, PartitionSpec("data", None))
for ids in batches():
    print(f"loss {step(model, optimizer, jax.device_put(ids, rows)):.6f}")
# --8<-- [end:train]
