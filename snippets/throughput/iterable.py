"""A stream of one's own, divided among the workers of the data loader: each row comes once, whatever their number."""
import itertools

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


# --8<-- [start:stream]
class Stream(IterableDataset):
    def __init__(self, rows):
        self.rows = rows  # an iterable that can begin again: lines of a file, a generator made anew

    def __iter__(self):
        worker = get_worker_info()  # None in the main process
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        yield from itertools.islice(self.rows, first, None, step)
# --8<-- [end:stream]


class Whole(Stream):
    """The same without a look at the worker."""

    def __iter__(self):
        yield from self.rows


if __name__ == "__main__":  # workers on Windows and macOS import this file
    for stream in (Whole(range(100)), Stream(range(100))):
        for workers in (0, 2):
            seen = [row.item() for batch in DataLoader(stream, batch_size=10, num_workers=workers) for row in batch]
            print(f"{type(stream).__name__}, {workers} workers: {len(seen)} rows, {len(set(seen))} different ones")
