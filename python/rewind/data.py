"""Batches of arrays."""
from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Iterator, Sequence


class DataLoader:
    """Batches of a data set: a tuple of arrays of one length, or any sequence of samples.

        for images, labels in rw.data.DataLoader((images, labels), batch_size=128, shuffle=True):

    Epoch e of a seed has the same order everywhere. `workers` threads make batches ahead; `collate` makes one of a list of
    samples. PyTorch's DataLoader works as it is, too: ops take its tensors.
    """

    def __init__(self, dataset: Sequence[Any], batch_size: int = 1, shuffle: bool = False, drop_last: bool = False, seed: int = 0,
                 workers: int = 0, collate: Callable[[list[Any]], Any] | None = None) -> None:
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.seed, self.workers, self.collate, self.epoch = seed, workers, collate, 0
        self._arrays = isinstance(dataset, tuple) and all(hasattr(a, "__getitem__") and hasattr(a, "shape") for a in dataset)
        if batch_size < 1:
            raise ValueError(f"[DataLoader] batch_size must be positive, got {batch_size}")
        if self._arrays and len({len(a) for a in dataset}) > 1:
            raise ValueError(f"[DataLoader] arrays must have one length, got {[len(a) for a in dataset]}")

    def _count(self) -> int:
        return len(self.dataset[0]) if self._arrays else len(self.dataset)

    def __len__(self) -> int:
        return self._count() // self.batch_size if self.drop_last else -(-self._count() // self.batch_size)

    def _batch(self, places: Any) -> Any:
        import numpy
        from rewind import tensor
        if self._arrays:
            return tuple(tensor(numpy.asarray(a[places])) for a in self.dataset)
        samples = [self.dataset[int(i)] for i in places]
        if self.collate:
            return self.collate(samples)
        if isinstance(samples[0], (tuple, list)):
            return tuple(tensor(numpy.stack([numpy.asarray(s[k]) for s in samples])) for k in range(len(samples[0])))
        return tensor(numpy.stack([numpy.asarray(s) for s in samples]))

    def __iter__(self) -> Iterator[Any]:
        import numpy
        order = numpy.arange(self._count())
        if self.shuffle:
            numpy.random.default_rng((self.seed, self.epoch)).shuffle(order)
        self.epoch += 1
        parts = [order[i * self.batch_size:(i + 1) * self.batch_size] for i in range(len(self))]
        return map(self._batch, parts) if not self.workers else self._ahead(parts)

    def _ahead(self, parts: list[Any]) -> Iterator[Any]:
        """Batches in order, which threads make while others are used."""
        made: list[queue.Queue[Any]] = [queue.Queue(1) for _ in parts]
        room, stop = threading.Semaphore(2 * self.workers), threading.Event()
        work = iter(range(len(parts)))
        lock = threading.Lock()

        def run() -> None:
            while True:
                room.acquire()
                with lock:
                    i = next(work, None)
                if i is None or stop.is_set():
                    return
                try:
                    made[i].put((self._batch(parts[i]), None))
                except BaseException as error:  # it is the consumer's
                    made[i].put((None, error))

        threads = [threading.Thread(target=run, daemon=True) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        try:
            for one in made:
                batch, error = one.get()
                room.release()
                if error:
                    raise error
                yield batch
        finally:
            stop.set()
            for _ in threads:
                room.release()
