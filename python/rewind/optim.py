"""Optimizers, schedules, loss scales and averages."""
from rewind import _door
from rewind._door import *  # noqa: F403
from rewind._door import Optimizer

__all__ = [name for name, value in vars(_door).items() if isinstance(value, type) and issubclass(value, Optimizer)]
__all__ += ["Ema", "Lookahead", "LossScaler", "Plateau", "Schedule", "Swa", "grad_norm"]
