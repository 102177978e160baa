"""Low-rank adapters (docs/adapters.md)."""
from __future__ import annotations

import os
from typing import Sequence

from rewind import _door
from rewind._door import Module


def add(model: Module, rank: int = 16, alpha: float = 32.0, dropout: float = 0.0, rank_stabilized: bool = False, dora: bool = False,
        target_modules: Sequence[str] = ()) -> list[str]:
    """Freezes the model and gives linear layers adapters, which alone are trained. Returns the names of the layers."""
    return _door._add_lora(model, rank, alpha, dropout, rank_stabilized, dora, list(target_modules))


def save(path: str | os.PathLike[str], model: Module, base_model: str = "") -> None:
    """Writes the adapters as a folder that PEFT reads, or as a .gguf file for llama.cpp. base_model says where the model is."""
    _door._save_adapter(model, path, base_model)


def load(folder: str | os.PathLike[str], model: Module) -> list[str]:
    """Gives the model the adapters of such a folder. Returns the names of the layers."""
    return _door._load_adapter(folder, model)


def merge(model: Module) -> None:
    """Adds the adapters into the weights, and removes them."""
    _door._merge_lora(model)


def remove(model: Module) -> None:
    """Removes the adapters; the model computes what it did before they were added."""
    _door._remove_lora(model)
