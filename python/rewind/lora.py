"""Low-rank adapters (docs/adapters.md)."""
from rewind import _door


def add(model, rank=16, alpha=32.0, dropout=0.0, rank_stabilized=False, dora=False, target_modules=()):
    """Freezes the model and gives linear layers adapters, which alone are trained. Returns the names of the layers."""
    return _door._add_lora(model, rank, alpha, dropout, rank_stabilized, dora, list(target_modules))


merge, remove = _door._merge_lora, _door._remove_lora
