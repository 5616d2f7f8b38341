"""Says whether JAX sees a TPU, whether Trainer believes in one, and which packages do not fit together."""
import importlib.metadata
import os


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# --8<-- [start:problems]
def problems(versions, platform, usable_gpu, use_torch_xla):
    """[(what is wrong, what to do)], from the versions of the packages and from what JAX found."""
    jax, torch_xla = versions["jax"], versions["torch_xla"]
    install = f'pip install "jax[tpu]=={jax}"'
    if jax is None:
        yield "jax is not installed", 'pip install "jax[tpu]"'
    elif jax != versions["jaxlib"]:
        yield f"jax {jax} with jaxlib {versions['jaxlib']}", install
    elif platform != "tpu" and versions["libtpu"] is None:
        yield f"JAX computes on: {platform}. There is no libtpu", f"on a TPU VM: {install}"
    elif platform != "tpu":
        what = f"JAX computes on: {platform}, although libtpu is there"
        yield what, "free the TPU: sudo lsof -w /dev/accel* /dev/vfio/*"
    if torch_xla and use_torch_xla and platform != "tpu":
        on = "a GPU" if usable_gpu else "no TPU"
        yield f"torch_xla is installed on a machine with {on}: Trainer takes its device", "export USE_TORCH_XLA=0"
    if torch_xla and torch_xla.split(".")[:2] != versions["torch"].split(".")[:2]:
        what = f"torch_xla {torch_xla} needs that version of torch, and this is torch {versions['torch']}"
        yield what, "pip uninstall torch_xla, or install both in one version"
# --8<-- [end:problems]


def main():
    packages = ("torch", "jax", "jaxlib", "libtpu", "torchax", "torch_xla", "torch_tpu")
    versions = {name: version(name) for name in packages}
    print({name: found for name, found in versions.items() if found})
    platform, gpu = None, False
    if versions["jax"]:
        import jax

        print(jax.devices())
        platform = jax.default_backend()
    if versions["torch"]:
        import torch

        gpu = torch.cuda.is_available()
    on = os.environ.get("USE_TORCH_XLA", "1").upper() in ("1", "ON", "YES", "TRUE")
    for what, fix in problems(versions, platform, gpu, on):
        print(f"{what}. Fix: {fix}")


if __name__ == "__main__":
    main()
