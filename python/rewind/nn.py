"""Modules."""
from rewind._door import Tensor


class Parameter(Tensor):
    """A leaf that a module trains."""
