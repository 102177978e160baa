"""Rewind: training on any vendor's GPU through Vulkan, with a replayable tape.

    import rewind as rw
"""
import builtins
import copyreg
from typing import Any

from rewind import _door
from rewind._door import *  # noqa: F403
from rewind._door import Tensor as Tensor, __version__ as __version__, dtype as dtype

f32, f16, bf16, i32, u8 = dtype.f32, dtype.f16, dtype.bf16, dtype.i32, dtype.u8
float32, float16, bfloat16, int32, uint8 = f32, f16, bf16, i32, u8
half, bool = f16, u8  # masks are u8

from rewind import autograd as autograd, data as data, lora as lora, nn as nn, optim as optim  # noqa: E402
from rewind.autograd import autocast as autocast, checkpoint as checkpoint, enable_grad as enable_grad  # noqa: E402
from rewind.autograd import no_grad as no_grad, set_grad_enabled as set_grad_enabled  # noqa: E402
from rewind.nn import Parameter as Parameter  # noqa: E402
from rewind.planning import block_checkpoints as block_checkpoints, dry_run as dry_run, fit as fit  # noqa: E402
from rewind.planning import host_boundaries as host_boundaries, memory as memory  # noqa: E402
from rewind.planning import memory_report as memory_report, timeline as timeline  # noqa: E402

newaxis = None
copyreg.pickle(type(_door.relu), lambda function: function.__name__)  # functions of C++ are known by name


def _rebuild(cls: type[Tensor], values: Any, dtype: str, requires_grad: builtins.bool) -> Tensor:
    """Makes a pickled tensor again."""
    return cls(_door.tensor(values, dtype=dtype), requires_grad=requires_grad)
