"""One thread for what the tests of pages compute themselves; the programs that they start have what a reader's have.

Workers of pytest-xdist share the cores, and threads of a small product that wait for each other take many times as long.
"""

import torch

torch.set_num_threads(1)
