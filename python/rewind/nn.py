"""Modules, as torch.nn has them: those of the library, and your own in Python.

    class Net(rw.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = rw.nn.Linear(784, 100)
            self.out = rw.nn.Linear(100, 10)

        def forward(self, x):
            return self.out(rw.relu(self.hidden(x)))
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Iterator

from rewind import _door
from rewind import init
from rewind._door import (AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AvgPool1d, AvgPool2d,
                          BatchNorm2d, BertAttention, BertForPreTraining, BertForSequenceClassification, BertLayer, BertModel,
                          CausalLM, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, Decoder, Dropout, ELU,
                          Embedding, Flatten, GELU, GELUTanh, GLU, GRU, GlobalAvgPool, GptLMHeadModel, GroupNorm, Hardsigmoid,
                          Hardswish, Hardtanh, Identity, InstanceNorm2d, LSTM, LayerNorm, LeakyReLU, Linear, LogMel,
                          LogSigmoid, LogSoftmax, MaxPool1d, MaxPool2d, Mish, MobileNetV2, Module, MultiheadAttention, PReLU,
                          PixelShuffle, PixelUnshuffle, RMSNorm, ReLU, ReLU6, ResNet, SELU, SiLU, Sigmoid, Softmax, Softplus,
                          Softsign, SpeechEncoder, SpeechRecognizer, SpeechStream, Tanh, Transformer, TransformerDecoder,
                          TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer, UNet, Upsample, ViT,
                          WeightNormConv2d, WeightNormLinear, resnet_cifar, resnet_imagenet)
from rewind._door import Tensor
from rewind.autograd import Segment

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d",
           "BatchNorm2d", "BertAttention", "BertForPreTraining", "BertForSequenceClassification", "BertLayer", "BertModel",
           "CausalLM", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "Decoder", "Dropout", "ELU",
           "Embedding", "Flatten", "GELU", "GELUTanh", "GLU", "GRU", "GlobalAvgPool", "GptLMHeadModel", "GroupNorm",
           "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "InstanceNorm2d", "LSTM", "Lambda", "LayerNorm", "LeakyReLU",
           "Linear", "LogMel", "LogSigmoid", "LogSoftmax", "MaxPool1d", "MaxPool2d", "Mish", "MobileNetV2", "Module",
           "ModuleDict", "ModuleList", "MultiheadAttention", "PReLU", "Parameter", "PixelShuffle", "PixelUnshuffle",
           "RMSNorm", "ReLU", "ReLU6", "ResNet", "SELU", "Sequential", "SiLU", "Sigmoid", "Softmax", "Softplus", "Softsign",
           "SpeechEncoder", "SpeechRecognizer", "SpeechStream", "Tanh", "Transformer", "TransformerDecoder",
           "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer", "UNet", "Upsample", "ViT",
           "WeightNormConv2d", "WeightNormLinear", "functional", "init", "resnet_cifar", "resnet_imagenet"]


class Parameter(Tensor):
    """A leaf that a module trains: a copy of the values, in memory that counts as parameters."""

    def __init__(self, data: Any, dtype: _door.dtype | str | None = None, requires_grad: bool = True) -> None:
        super().__init__(_door._new_parameter(data, dtype, requires_grad))


# ---- Module: what Python adds to the module of C++ ---------------------------------------------------------------------

_set, _delete = Module.__setattr__, Module.__delattr__


def _drop(self: Module, name: str) -> None:
    """Takes what an attribute was out of the module's lists."""
    old = self.__dict__.get(name)
    if isinstance(old, Module):
        self._drop_module(old)
    elif isinstance(old, Parameter):
        self._drop_parameter(name)
    elif isinstance(old, Tensor) and name in self.__dict__.get("_buffer_names", ()):
        self._drop_buffer(name)
        self._buffer_names.discard(name)


def _setattr(self: Module, name: str, value: Any) -> None:
    is_part = isinstance(value, (Parameter, Module))
    if name in self.__dict__:
        if isinstance(value, Tensor) and name in self.__dict__.get("_buffer_names", ()):
            return _replace_buffer(self, name, value)
        _drop(self, name)
    if is_part and "." in name:
        raise KeyError(f"names of parameters and modules have no dots, got '{name}'")
    if isinstance(value, Parameter):
        self._register_parameter(name, value)
    elif isinstance(value, Module):
        self._register_module(name, value)
    elif isinstance(value, Tensor) and name not in self.__dict__ and any(n == name for n, _ in self.named_parameters()):
        raise AttributeError(f"'{name}' is a parameter that the module made; change it with copy_")
    _set(self, name, value)


def _replace_buffer(self: Module, name: str, value: Tensor) -> None:
    self._drop_buffer(name)
    self._register_buffer(name, value)
    _set(self, name, value)


def _delattr(self: Module, name: str) -> None:
    _drop(self, name)
    _delete(self, name)


def _register_buffer(self: Module, name: str, tensor: Tensor) -> None:
    """Adds state that is saved with the module and not trained."""
    self.__dict__.setdefault("_buffer_names", set()).add(name)
    self._register_buffer(name, tensor)
    _set(self, name, tensor)


def _register_parameter(self: Module, name: str, parameter: Parameter) -> None:
    setattr(self, name, parameter)


def _add_module(self: Module, name: str, module: Module) -> None:
    setattr(self, name, module)


def _call(self: Module, *args: Any, **kwargs: Any) -> Any:
    if self._makes_segment():
        with Segment(None):
            return self.forward(*args, **kwargs)
    return self.forward(*args, **kwargs)


def _apply(self: Module, function: Callable[[Module], Any]) -> Module:
    """Calls function(module) for every module below this one, and then for this one."""
    for child in self.children():
        child.apply(function)
    function(self)
    return self


def _modules(self: Module) -> list[Module]:
    return [self] + [m for _, m in self.named_modules()]


def _get_submodule(self: Module, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), self) if name else self


def _text(self: Module) -> str:
    sizes = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.get("_made_with", {}).items())
    lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
    return f"{type(self).__name__}({sizes if not lines else ''}" + "".join("\n  " + line for line in lines) + ("\n)" if lines else ")")


def _base(cls: type) -> Any:
    """The class of C++ that a module is one of."""
    return next(c for c in cls.__mro__ if c.__module__ == "rewind")


def _rebuild(cls: Any, made_with: dict[str, Any], attributes: dict[str, Any], state: dict[str, Any] | None, training: bool) -> Module:
    """Makes a pickled module again."""
    module = cls.__new__(cls)
    _base(cls).__init__(module, **made_with)
    for name, value in attributes.items():
        if name in attributes.get("_buffer_names", ()):
            module.register_buffer(name, value)
        elif name not in ("_buffer_names", "_made_with"):
            setattr(module, name, value)
    if state is not None:
        module.load_state_dict(state, strict=False)
    module.train(training)
    return module  # type: ignore[no-any-return]


def _reduce(self: Module, protocol: int = 2) -> tuple[Any, ...]:
    attributes = dict(self.__dict__)
    made_with = attributes.get("_made_with")
    if made_with is None and _base(type(self)) is not Module:
        raise TypeError(f"a {type(self).__name__} that a model of C++ made is pickled by the state_dict() of the model")
    state = {k: v.numpy() for k, v in self.state_dict().items()} if made_with is not None else None
    return _rebuild, (type(self), made_with or {}, attributes, state, self.training)


for _name, _function in {
        "__setattr__": _setattr, "__delattr__": _delattr, "__call__": _call, "__repr__": _text, "__reduce_ex__": _reduce,
        "register_buffer": _register_buffer, "register_parameter": _register_parameter, "register_module": _add_module,
        "add_module": _add_module, "apply": _apply, "modules": _modules, "get_submodule": _get_submodule,
        "children": lambda self: [m for _, m in self.named_children()], "buffers": lambda self: [b for _, b in self.named_buffers()],
}.items():
    setattr(Module, _name, _function)


# ---- containers --------------------------------------------------------------------------------------------------------

class Lambda(Module):
    """A function as a module without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class ModuleList(Module):
    """Modules named "0", "1", ..., which the owner of the list calls in any order."""

    def __init__(self, modules: Iterable[Any] = ()) -> None:
        super().__init__()
        self._list: list[Any] = []
        self.extend(modules)

    def append(self, module: Any) -> ModuleList:
        setattr(self, str(len(self._list)), module)
        self._list.append(module)
        return self

    def extend(self, modules: Iterable[Any]) -> ModuleList:
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list)

    def __getitem__(self, i: int | slice) -> Any:
        return type(self)(self._list[i]) if isinstance(i, slice) else self._list[i]


class Sequential(ModuleList):
    """Modules, or functions of one tensor, one after another. `checkpoint_every(k)` makes each k of them a segment."""

    def __init__(self, *modules: Any) -> None:
        self.__dict__["_every"] = 0
        super().__init__(modules[0] if len(modules) == 1 and isinstance(modules[0], (list, tuple)) else modules)

    def __getitem__(self, i: int | slice) -> Any:
        return Sequential(*self._list[i]) if isinstance(i, slice) else self._list[i]

    def append(self, module: Any) -> ModuleList:
        return super().append(module if isinstance(module, Module) else Lambda(module))

    def checkpoint_every(self, k: int) -> Sequential:
        self._every = k
        return self

    def forward(self, x: Any) -> Any:
        every = self._every if self.training else 0
        for first in range(0, len(self._list), every or len(self._list) or 1):
            if not every:
                return functools.reduce(lambda x, module: module(x), self._list, x)
            with Segment(None):
                for module in self._list[first:first + every]:
                    x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Any = ()) -> None:
        super().__init__()
        self._dict: dict[str, Any] = {}
        for name, module in dict(modules).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        setattr(self, name, module)
        self._dict[name] = module

    def __getitem__(self, name: str) -> Any:
        return self._dict[name]

    def __contains__(self, name: str) -> bool:
        return name in self._dict

    def __len__(self) -> int:
        return len(self._dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self._dict)

    def keys(self) -> Iterable[str]:
        return self._dict.keys()

    def values(self) -> Iterable[Any]:
        return self._dict.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._dict.items()


functional = _door  # torch.nn.functional's names, as far as the list of ops has them
