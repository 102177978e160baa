"""Modules, as torch.nn has them: those of the library, and your own in Python.

    class Net(rw.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = rw.nn.Linear(784, 100)
            self.out = rw.nn.Linear(100, 10)

        def forward(self, x):
            return self.out(rw.relu(self.hidden(x)))
"""
import functools

from rewind import _door
from rewind._door import CausalLM, Module, Tensor
from rewind.autograd import _Segment


class Parameter(Tensor):
    """A leaf that a module trains: a copy of the values, in memory that counts as parameters."""

    def __init__(self, data, dtype=None, requires_grad=True):
        super().__init__(_door._new_parameter(data, dtype, requires_grad))


# ---- Module: what Python adds to the module of C++ ---------------------------------------------------------------------

_set, _delete = Module.__setattr__, Module.__delattr__


def _drop(self, name):
    """Takes what an attribute was out of the module's lists."""
    old = self.__dict__.get(name)
    if isinstance(old, Module):
        self._drop_module(old)
    elif isinstance(old, Parameter):
        self._drop_parameter(name)
    elif isinstance(old, Tensor) and name in self.__dict__.get("_buffer_names", ()):
        self._drop_buffer(name)
        self._buffer_names.discard(name)


def _setattr(self, name, value):
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


def _replace_buffer(self, name, value):
    self._drop_buffer(name)
    self._register_buffer(name, value)
    _set(self, name, value)


def _delattr(self, name):
    _drop(self, name)
    _delete(self, name)


def _register_buffer(self, name, tensor):
    """Adds state that is saved with the module and not trained."""
    self.__dict__.setdefault("_buffer_names", set()).add(name)
    self._register_buffer(name, tensor)
    _set(self, name, tensor)


def _register_parameter(self, name, parameter):
    setattr(self, name, parameter)


def _add_module(self, name, module):
    setattr(self, name, module)


def _call(self, *args, **kwargs):
    if self._makes_segment():
        with _Segment(None):
            return self.forward(*args, **kwargs)
    return self.forward(*args, **kwargs)


def _apply(self, function):
    """Calls function(module) for every module below this one, and then for this one."""
    for child in self.children():
        child.apply(function)
    function(self)
    return self


def _modules(self):
    return [self] + [m for _, m in self.named_modules()]


def _get_submodule(self, name):
    return functools.reduce(getattr, name.split("."), self) if name else self


def _text(self):
    sizes = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.get("_made_with", {}).items())
    lines = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
    return f"{type(self).__name__}({sizes if not lines else ''}" + "".join("\n  " + line for line in lines) + ("\n)" if lines else ")")


def _base(cls):
    """The class of C++ that a module is one of."""
    return next(c for c in cls.__mro__ if c.__module__ == "rewind")


def _rebuild(cls, made_with, attributes, state, training):
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
    return module.train(training)


def _reduce(self, protocol=None):
    attributes = dict(self.__dict__)
    made_with = attributes.get("_made_with")
    if made_with is None and _base(type(self)) is not Module:
        raise TypeError(f"a {type(self).__name__} that a model of C++ made is pickled by the state_dict() of the model")
    state = {k: v.numpy() for k, v in self.state_dict().items()} if made_with is not None else None
    return _rebuild, (type(self), made_with or {}, attributes, state, self.training)


Module.__setattr__, Module.__delattr__, Module.__call__ = _setattr, _delattr, _call
Module.__repr__, Module.__reduce_ex__ = _text, _reduce
Module.register_buffer, Module.register_parameter, Module.add_module = _register_buffer, _register_parameter, _add_module
Module.register_module, Module.apply, Module.modules, Module.get_submodule = _add_module, _apply, _modules, _get_submodule
Module.children = lambda self: [m for _, m in self.named_children()]
Module.buffers = lambda self: [b for _, b in self.named_buffers()]


for _name, _value in list(vars(_door).items()):
    if isinstance(_value, type) and issubclass(_value, Module):
        globals()[_name] = _value
resnet_cifar, resnet_imagenet = _door.resnet_cifar, _door.resnet_imagenet


# ---- containers --------------------------------------------------------------------------------------------------------

class Lambda(Module):
    """A function as a module without parameters."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class ModuleList(Module):
    """Modules named "0", "1", ..., which the owner of the list calls in any order."""

    def __init__(self, modules=()):
        super().__init__()
        self._list = []
        self.extend(modules)

    def append(self, module):
        setattr(self, str(len(self._list)), module)
        self._list.append(module)
        return self

    def extend(self, modules):
        for module in modules:
            self.append(module)
        return self

    def __len__(self):
        return len(self._list)

    def __iter__(self):
        return iter(self._list)

    def __getitem__(self, i):
        return type(self)(self._list[i]) if isinstance(i, slice) else self._list[i]


class Sequential(ModuleList):
    """Modules, or functions of one tensor, one after another. `checkpoint_every(k)` makes each k of them a segment."""

    def __init__(self, *modules):
        self.__dict__["_every"] = 0
        super().__init__(modules[0] if len(modules) == 1 and isinstance(modules[0], (list, tuple)) else modules)

    def __getitem__(self, i):
        return Sequential(*self._list[i]) if isinstance(i, slice) else self._list[i]

    def append(self, module):
        return super().append(module if isinstance(module, Module) else Lambda(module))

    def checkpoint_every(self, k):
        self._every = k
        return self

    def forward(self, x):
        every = self._every if self.training else 0
        for first in range(0, len(self._list), every or len(self._list) or 1):
            if not every:
                return functools.reduce(lambda x, module: module(x), self._list, x)
            with _Segment(None):
                for module in self._list[first:first + every]:
                    x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules=()):
        super().__init__()
        self._dict = {}
        for name, module in dict(modules).items():
            self[name] = module

    def __setitem__(self, name, module):
        setattr(self, name, module)
        self._dict[name] = module

    def __getitem__(self, name):
        return self._dict[name]

    def __contains__(self, name):
        return name in self._dict

    def __len__(self):
        return len(self._dict)

    def __iter__(self):
        return iter(self._dict)

    def keys(self):
        return self._dict.keys()

    def values(self):
        return self._dict.values()

    def items(self):
        return self._dict.items()


class init:
    """Initial values, in place (torch.nn.init)."""

    zeros_ = staticmethod(lambda tensor: tensor.zero_())
    ones_ = staticmethod(lambda tensor: tensor.fill_(1))
    constant_ = staticmethod(lambda tensor, value: tensor.fill_(value))
    normal_ = staticmethod(lambda tensor, mean=0.0, std=1.0: tensor.normal_(mean, std))
    uniform_ = staticmethod(lambda tensor, a=0.0, b=1.0: tensor.uniform_(a, b))
    kaiming_uniform_, kaiming_normal_ = _door._kaiming_uniform_, _door._kaiming_normal_
    xavier_uniform_, xavier_normal_ = _door._xavier_uniform_, _door._xavier_normal_


functional = _door
