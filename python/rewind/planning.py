"""Memory in one number, forecasts, and the report of what was used."""
from __future__ import annotations

import os
from typing import Any, Callable

from rewind import _door
from rewind.autograd import Scope


class Report(dict[str, Any]):
    """Figures by name, which print as the table for people."""

    def __repr__(self) -> str:
        return str(self.get("text", super().__repr__()))

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"


class memory(Scope):
    """One number for the memory of a loop: with rw.memory("6GiB"): around model, optimizer and steps.

    Forward passes drop and recompute what does not fit, and optimizers keep their states in host memory where they must.
    Updates have the bits that they have without it. OutOfMemory says what an op would need where that is more.
    """

    def __init__(self, size: int | str) -> None:
        super().__init__(size)

    def _enter(self) -> _door._Scope:
        return _door._memory(str(self._arguments[0]))


class block_checkpoints(Scope):
    """While it is open, modules of this thread make checkpoint segments of their blocks by themselves."""

    def __init__(self, on: bool = True) -> None:
        super().__init__(on)

    def _enter(self) -> _door._Scope:
        return _door._block_checkpoints(*self._arguments)


class host_boundaries(block_checkpoints):
    """While it is open, what segments hold for their replay goes to host memory."""

    def _enter(self) -> _door._Scope:
        return _door._host_boundaries(*self._arguments)


def memory_report(device: _door.Device | None = None) -> Report:
    """Where memory went, and the peaks since reset_peak(), in bytes."""
    return Report(_door._memory_report(device))


def dry_run(program: Callable[[], Any], *, memory_limit: int | str = 0, pack: bool = True) -> Report:
    """Runs program() on a device that has no memory and computes nothing, and says what it would need, to the byte.

    The program makes its own model and takes its steps (two reach steady state); tensors from outside are refused.
    """
    limit = _door.parse_bytes(memory_limit) if isinstance(memory_limit, str) else memory_limit
    return Report(_door._dry_run(program, limit, pack))


def fit(step: Callable[[int], Any], size: int | str, *, most: int = 1 << 20) -> int:
    """The largest n for which step(n), which makes model, optimizer and two steps with batches of n, fits in `size`.

    It is at most `most`, and 0 where not even step(1) fits.
    """
    def needs(n: int) -> int | None:
        if n > most:
            return None
        try:
            return int(dry_run(lambda: step(n))["reserved"])
        except _door.OutOfMemory:
            return None
    limit = _door.parse_bytes(size) if isinstance(size, str) else size
    return _door._largest_within(needs, limit)


class Timeline:
    """A page with every tensor over time; a notebook shows it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def _repr_html_(self) -> str:
        import base64
        import pathlib
        page = base64.b64encode(pathlib.Path(self.path).read_bytes()).decode()
        return f'<iframe width="100%" height="600" src="data:text/html;base64,{page}"></iframe>'


def timeline(program: Callable[[], Any], path: str | os.PathLike[str] = "timeline.html") -> Timeline:
    """Runs program() and writes the memory of every tensor over time as a page for any browser."""
    _door._write_timeline(program, str(path))
    return Timeline(path)
