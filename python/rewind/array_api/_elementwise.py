# mypy: ignore-errors  (most functions are made in loops over names)
"""Functions of elements, and the operators that are made of them."""
import builtins
import math

import rewind as rw
from rewind.array_api._array import Array, _binary, _floats, _named, _need, _numeric, _tensors, _unary, bool
from rewind.array_api._making import astype


def _same(x):
    return x


for _name in "exp expm1 log log1p sin cos tan tanh sqrt".split():
    globals()[_name] = _unary(_name, getattr(rw, _name), _floats)
sinh = _unary("sinh", lambda x: (rw.expm1(x) - rw.expm1(-x)) * 0.5, _floats)
cosh = _unary("cosh", lambda x: (rw.exp(x) + rw.exp(-x)) * 0.5, _floats)
asinh = _unary("asinh", lambda x: rw.sign(x) * rw.log(rw.abs(x) + rw.sqrt(x * x + 1.0)), _floats)
acosh = _unary("acosh", lambda x: rw.log(x + rw.sqrt(x * x - 1.0)), _floats)
atanh = _unary("atanh", lambda x: (rw.log1p(x) - rw.log1p(-x)) * 0.5, _floats)
log2 = _unary("log2", lambda x: rw.log(x) * (1 / math.log(2)), _floats)
log10 = _unary("log10", lambda x: rw.log(x) * (1 / math.log(10)), _floats)
reciprocal = _unary("reciprocal", rw.reciprocal, _floats)
abs, sign, square = (_unary(n, getattr(rw, n), _numeric) for n in ("abs", "sign", "square"))
negative, positive = _unary("negative", rw.neg, _numeric), _unary("positive", _same, _numeric)
conj = real = positive
for _name in ("ceil", "floor", "round", "trunc"):
    globals()[_name] = _unary(_name, lambda x, f=getattr(rw, _name): f(x) if x.dtype == rw.f32 else x, _numeric)
for _name in ("isnan", "isinf", "isfinite"):
    globals()[_name] = _unary(_name, lambda x, f=getattr(rw, _name): f(rw.cast(x, rw.f32)), _numeric, bool)
signbit = _unary("signbit", lambda x: rw.logical_or(x < 0.0, rw.logical_and(x == 0.0, rw.reciprocal(x) < 0.0)), _floats, bool)
logical_not = _unary("logical_not", rw.logical_not, (bool,))
for _name, _f in {"add": rw.add, "subtract": rw.sub, "multiply": rw.mul, "remainder": rw.remainder, "maximum": rw.maximum,
                  "minimum": rw.minimum, "pow": rw.pow}.items():
    globals()[_name] = _binary(_name, _f, _numeric)
divide, logaddexp = _binary("divide", rw.div, _floats), _binary("logaddexp", rw.logaddexp, _floats)
floor_divide = _binary("floor_divide", lambda a, b: rw.floor(a / b) if a.dtype == rw.f32 else _floor_divide(a, b), _numeric)
hypot = _binary("hypot", lambda a, b: _hypot(a, b), _floats)
copysign = _binary("copysign", lambda a, b: rw.where(_is_negative(b), -rw.abs(a), rw.abs(a)), _floats)
for _name, _f in {"equal": rw.equal, "not_equal": rw.not_equal}.items():
    globals()[_name] = _binary(_name, _f, (bool, *_numeric), bool)
for _name in ("less", "less_equal", "greater", "greater_equal"):
    globals()[_name] = _binary(_name, getattr(rw, _name), _numeric, bool)
for _name in ("logical_and", "logical_or", "logical_xor"):
    globals()[_name] = _binary(_name, getattr(rw, _name), (bool,))


def _is_negative(x):
    return rw.logical_or(x < 0.0, rw.logical_and(x == 0.0, rw.reciprocal(x) < 0.0))


def _floor_divide(a, b):
    return rw.div(a - rw.remainder(a, b), b) if a.dtype == rw.i32 else rw.cast(_floor_divide(rw.cast(a, rw.i32), rw.cast(b, rw.i32)), a.dtype)


def _hypot(a, b):
    a, b = rw.abs(a), rw.abs(b)
    large, small = rw.maximum(a, b), rw.minimum(a, b)
    ratio = rw.where(large == 0.0, rw.zeros_like(small), small / large)
    y = large * rw.sqrt(ratio * ratio + 1.0)
    return rw.where(rw.logical_or(rw.isinf(a), rw.isinf(b)), rw.zeros_like(y) + math.inf, y)


def _operator(name, function):
    def forward(self, other, /):
        return function(self, other) if isinstance(other, (Array, builtins.bool, int, float)) else NotImplemented

    def backward(self, other, /):
        return function(other, self) if isinstance(other, (Array, builtins.bool, int, float)) else NotImplemented

    def inplace(self, other, /):
        y = forward(self, other)
        if y is NotImplemented or y.dtype is not self.dtype or y.shape != self.shape:
            raise TypeError(f"__i{name}__ keeps dtype and shape")
        self.tensor = y.tensor
        return self
    for prefix, f in (("", forward), ("r", backward), ("i", inplace)):
        setattr(Array, f"__{prefix}{name}__", _named(f, f"__{prefix}{name}__"))


def bitwise_and(x1, x2, /):
    """Of truth values; Rewind has no bits of whole numbers."""
    return logical_and(x1, x2)  # noqa: F821


def bitwise_or(x1, x2, /):
    return logical_or(x1, x2)  # noqa: F821


def bitwise_xor(x1, x2, /):
    return logical_xor(x1, x2)  # noqa: F821


def bitwise_invert(x, /):
    return logical_not(x)


def matmul(x1, x2, /):
    kind, (a, b) = _tensors(x1, x2)
    _need("matmul", kind, _numeric)
    return Array(rw.cast(rw.matmul(rw.cast(a, rw.f32), rw.cast(b, rw.f32)), kind.stored), kind)


for _name, _f in {"add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide,  # noqa: F821
                  "mod": remainder, "pow": pow, "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor,  # noqa: F821
                  "matmul": matmul}.items():
    _operator(_name, _f)


def _comparison(name, function):
    def method(self, other, /):
        return function(self, other) if isinstance(other, (Array, builtins.bool, int, float)) else NotImplemented
    setattr(Array, name, _named(method, name))


for _name, _f in {"lt": less, "le": less_equal, "gt": greater, "ge": greater_equal, "eq": equal, "ne": not_equal}.items():  # noqa: F821
    _comparison(f"__{_name}__", _f)
Array.__neg__, Array.__abs__, Array.__invert__ = (lambda self, /: negative(self)), (
    lambda self, /: abs(self)), (lambda self, /: bitwise_invert(self))


def clip(x, /, min=None, max=None):
    for bound, f in ((min, maximum), (max, minimum)):  # noqa: F821
        if bound is not None:
            x = astype(f(x, bound), x.dtype)
    return x
