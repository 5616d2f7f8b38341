"""What cannot be compiled: a branch, or a shape, that depends on values. And what can."""
import jax
import jax.numpy as jnp


# --8<-- [start:branch]
@jax.jit
def skips_bad_steps(loss, gradient):
    if jnp.isfinite(loss):  # Python asks for a value, and while JAX traces there is none
        return gradient
    return jnp.zeros_like(gradient)


@jax.jit
def skips_bad_steps_compiled(loss, gradient):
    return jnp.where(jnp.isfinite(loss), gradient, 0)  # both sides are computed, one is chosen
# --8<-- [end:branch]


# --8<-- [start:shape]
@jax.jit
def mean_loss(losses, labels):
    return losses[labels != -100].mean()  # how many are left decides the shape


@jax.jit
def mean_loss_compiled(losses, labels):
    counts = labels != -100
    return jnp.where(counts, losses, 0).sum() / counts.sum()
# --8<-- [end:shape]


if __name__ == "__main__":
    losses, labels = jnp.arange(4.0), jnp.array([1, -100, 3, -100])
    for wrong, right, arguments in (
        (skips_bad_steps, skips_bad_steps_compiled, (jnp.inf, losses)),
        (mean_loss, mean_loss_compiled, (losses, labels)),
    ):
        try:
            wrong(*arguments)
        except Exception as error:
            print(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        print(right(*arguments).tolist())
