"""Initial values, in place, as torch.nn.init."""
from rewind._door import Tensor
from rewind._door import _kaiming_normal_ as kaiming_normal_
from rewind._door import _kaiming_uniform_ as kaiming_uniform_
from rewind._door import _xavier_normal_ as xavier_normal_
from rewind._door import _xavier_uniform_ as xavier_uniform_

__all__ = ["constant_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_"]


def constant_(tensor: Tensor, value: float) -> Tensor:
    """Sets every element to one number."""
    tensor.fill_(value)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Sets every element to 0."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Sets every element to 1."""
    return constant_(tensor, 1)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal values."""
    tensor.normal_(mean, std)
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform values in [a, b)."""
    tensor.uniform_(a, b)
    return tensor
