"""What Rewind is for: memory in one number, forecasts, and the report of what was used."""
from rewind import _door
from rewind.autograd import Scope


class Report(dict):
    """Figures by name, which print as the table for people."""

    def __repr__(self):
        return self.get("text", super().__repr__())

    def __str__(self):
        return repr(self)

    def _repr_html_(self):
        return f"<pre>{self}</pre>"


class memory(Scope):
    """One number for the memory of a loop: with rw.memory("6GiB"): around model, optimizer and steps.

    Forward passes drop and recompute what does not fit, and optimizers keep their states in host memory where they must.
    Updates have the bits that they have without it. OutOfMemory says what an op would need where that is more.
    """

    def __init__(self, size):
        super().__init__(size)

    def _enter(self):
        size, = self._arguments
        return _door._memory(str(size))


class block_checkpoints(Scope):
    """While it is open, modules of this thread make checkpoint segments of their blocks by themselves."""

    def __init__(self, on=True):
        super().__init__(on)

    def _enter(self):
        return _door._block_checkpoints(*self._arguments)


class host_boundaries(block_checkpoints):
    """While it is open, what segments hold for their replay goes to host memory."""

    def _enter(self):
        return _door._host_boundaries(*self._arguments)


def memory_report(device=None):
    """Where memory went, and the peaks since reset_peak(), in bytes."""
    return Report(_door._memory_report(device))


def dry_run(program, *, memory_limit=0, pack=True):
    """Runs program() on a device that has no memory and computes nothing, and says what it would need, to the byte.

    The program makes its own model and takes its steps (two reach steady state); tensors from outside are refused.
    """
    limit = _door.parse_bytes(memory_limit) if isinstance(memory_limit, str) else memory_limit
    return Report(_door._dry_run(program, limit, pack))


def largest_batch(step, size, *, most=1 << 20):
    """The largest n for which step(n), which makes model, optimizer and two steps with batches of n, fits in `size`."""
    size = _door.parse_bytes(size) if isinstance(size, str) else size

    def fits(n):
        try:
            return dry_run(lambda: step(n))["reserved"] <= size
        except _door.OutOfMemory:
            return False
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class Timeline:
    """A page with every tensor over time; a notebook shows it."""

    def __init__(self, path):
        self.path = path

    def _repr_html_(self):
        import base64
        import pathlib
        page = base64.b64encode(pathlib.Path(self.path).read_bytes()).decode()
        return f'<iframe width="100%" height="600" src="data:text/html;base64,{page}"></iframe>'


def timeline(program, path="timeline.html"):
    """Runs program() and writes the memory of every tensor over time as a page for any browser."""
    _door._write_timeline(program, str(path))
    return Timeline(path)
