"""A worker of the data loader dies. The error of the main process does not say why.

    python dead_worker.py killed
    python dead_worker.py raises
"""
import os
import signal
import sys

import torch


class Rows(torch.utils.data.Dataset):
    def __init__(self, mistake):
        self.mistake = mistake

    def __len__(self):
        return 4

    def __getitem__(self, row):
        if self.mistake == "killed":
            os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does when the host is out of memory
        if self.mistake == "raises":
            return {}["text"]
        return row


# --8<-- [start:test]
def read_all(dataset):
    """Every row in the main process: the error has its own line, and a debugger works."""
    for _ in torch.utils.data.DataLoader(dataset, num_workers=0):
        pass
# --8<-- [end:test]


if __name__ == "__main__":
    mistake = sys.argv[1]
    try:
        list(torch.utils.data.DataLoader(Rows(mistake), num_workers=1))
        print("every row came")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    if mistake == "raises":
        try:
            read_all(Rows(mistake))
        except KeyError as error:
            print(f"in the main process: KeyError: {error}")
