"""The loss is finite, and a gradient is NaN: anomaly detection names the forward operator."""
import torch

values = torch.zeros(3, requires_grad=True)


# --8<-- [start:wrong]
def length(values):
    return values.square().sum().sqrt()  # at zero, the gradient of the root is infinite; times zero, that is NaN
# --8<-- [end:wrong]


# --8<-- [start:right]
def safe_length(values, smallest=1e-12):
    return (values.square().sum() + smallest).sqrt()
# --8<-- [end:right]


# --8<-- [start:test]
def gradient(function):
    values.grad = None
    with torch.autograd.set_detect_anomaly(True, check_nan=True):  # for a few steps: it keeps the stack of each operator
        function(values).backward()
    return values.grad
# --8<-- [end:test]


if __name__ == "__main__":
    try:
        gradient(length)
    except RuntimeError as error:
        print(f"RuntimeError: {error}")
    print(f"with the smallest number added: {gradient(safe_length).tolist()}")
