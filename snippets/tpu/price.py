"""What a training costs on a TPU, and below which price it is cheaper than on a GPU. Put in your own prices.

python price.py --hour PRICE --rate TOKENS_A_SECOND --gpu-hour PRICE --gpu-rate TOKENS_A_SECOND
"""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--hour", type=float, required=True, help="price of an hour of one chip, idle hours included")
parser.add_argument("--rate", type=float, required=True, help="tokens/s that one chip reaches in your training")
parser.add_argument("--gpu-hour", type=float, required=True, help="price of an hour of one GPU")
parser.add_argument("--gpu-rate", type=float, required=True, help="tokens/s that one GPU reaches in the same training")
given = parser.parse_args()


# --8<-- [start:price]
def of_a_billion(hour, rate):
    """The price of training on a billion tokens."""
    return hour * 1e9 / (rate * 3600)


def highest(gpu_hour, gpu_rate, rate):
    """Above this price of a chip-hour the GPU is cheaper."""
    return gpu_hour * rate / gpu_rate
# --8<-- [end:price]


tpu, gpu = of_a_billion(given.hour, given.rate), of_a_billion(given.gpu_hour, given.gpu_rate)
print(f"a billion tokens: TPU {tpu:.2f}, GPU {gpu:.2f}")
print(f"the TPU is cheaper below {highest(given.gpu_hour, given.gpu_rate, given.rate):.2f} for an hour of a chip")
