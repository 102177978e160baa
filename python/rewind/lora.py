"""Low-rank adapters (docs/adapters.md)."""
from typing import Sequence

from rewind import _door
from rewind._door import Module


def add(model: Module, rank: int = 16, alpha: float = 32.0, dropout: float = 0.0, rank_stabilized: bool = False, dora: bool = False,
        target_modules: Sequence[str] = ()) -> list[str]:
    """Freezes the model and gives linear layers adapters, which alone are trained. Returns the names of the layers."""
    return _door._add_lora(model, rank, alpha, dropout, rank_stabilized, dora, list(target_modules))


def merge(model: Module) -> None:
    """Adds the adapters into the weights, and removes them."""
    _door._merge_lora(model)


def remove(model: Module) -> None:
    """Removes the adapters; the model computes what it did before they were added."""
    _door._remove_lora(model)
