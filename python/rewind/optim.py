"""Optimizers, schedules, loss scales and averages."""
from rewind._door import (Accumulate, Adafactor, Adagrad, Adam, Adam8bit, AdamA, AdamW, AdamW8bit, Ema, FusedBackward, Lamb, Lion,
                          Lookahead, LossScaler, Muon, Optimizer, Plateau, RMSprop, SGD, Schedule, Swa, grad_norm)

__all__ = ["Accumulate", "Adafactor", "Adagrad", "Adam", "Adam8bit", "AdamA", "AdamW", "AdamW8bit", "Ema", "FusedBackward", "Lamb",
           "Lion", "Lookahead", "LossScaler", "Muon", "Optimizer", "Plateau", "RMSprop", "SGD", "Schedule", "Swa", "grad_norm"]
