"""Gradients, the scopes around them, and ops written in Python."""
import functools

from rewind import _door
from rewind._door import grad

__all__ = ["Function", "FunctionContext", "autocast", "checkpoint", "enable_grad", "grad", "no_grad", "set_grad_enabled"]


class Scope:
    """A scope of the library as a context manager and a decorator; it may be entered again."""

    def __init__(self, *arguments):
        self._arguments, self._open = arguments, []

    def _enter(self):
        raise NotImplementedError

    def __enter__(self):
        self._open.append(self._enter())
        return self

    def __exit__(self, *error):
        self._open.pop().close()

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with type(self)(*self._arguments):
                return function(*args, **kwargs)
        return inside


class no_grad(Scope):
    """While it is open, ops of this thread are not recorded."""

    def __new__(cls, function=None):
        return cls()(function) if callable(function) else super().__new__(cls)

    def __init__(self, function=None):
        super().__init__()

    def _enter(self):
        return _door._grad_mode(False)


class enable_grad(no_grad):
    """The contrary, inside a no_grad()."""

    def _enter(self):
        return _door._grad_mode(True)


class set_grad_enabled(Scope):
    """no_grad() or enable_grad(), by a condition."""

    def __init__(self, mode):
        super().__init__(mode)

    def _enter(self):
        return _door._grad_mode(self._arguments[0])


class autocast(Scope):
    """While it is open, ops choose the dtypes of their inputs (docs/mixed-precision.md)."""

    def __init__(self, dtype="f16", enabled=True):
        super().__init__(dtype, enabled)

    def _enter(self):
        return _door._autocast(*self._arguments)


class _Segment(Scope):
    def _enter(self):
        return _door._checkpoint(*self._arguments)


def checkpoint(function=None, *args, policy=None, **kwargs):
    """A segment, whose values are dropped in forward and made again in backward, with the same bits.

        with rw.checkpoint(): y = block(x)
        y = rw.checkpoint(block, x)

        @rw.checkpoint
        def block(x): ...

    `policy` (save_matmuls(), save_ops(names)) says which values are kept.
    """
    if function is None:
        return _Segment(policy)
    if not args and not kwargs:
        return _Segment(policy)(function)
    with _Segment(policy):
        return function(*args, **kwargs)


class FunctionContext:
    """What forward leaves for backward."""

    def __init__(self):
        self._to_save, self.saved_tensors, self.needs_input_grad = (), (), ()

    def save_for_backward(self, *tensors):
        """Keeps tensors: arguments and results of forward, or others that it made."""
        self._to_save = tensors


class Function:
    """An op of your own, as torch.autograd.Function:

        class Square(rw.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, dy):
                x, = ctx.saved_tensors
                return 2 * x * dy

        y = Square.apply(x)

    It is a record like others: checkpoint segments drop its results and run forward again, so forward must give the same
    for the same arguments. A backward that uses ops of the library alone can be differentiated itself; one that does not
    says `once_differentiable = True` in its class.
    """

    once_differentiable = False

    @staticmethod
    def forward(ctx, *args):
        raise NotImplementedError

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError

    @classmethod
    def apply(cls, *args):
        return _door._apply_function(cls, FunctionContext(), args)
