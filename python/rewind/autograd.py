"""Gradients, the scopes around them, and ops written in Python."""
from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar, cast

from rewind import _door
from rewind._door import SavePolicy, Tensor, grad

__all__ = ["Function", "FunctionContext", "autocast", "checkpoint", "enable_grad", "grad", "no_grad", "set_grad_enabled"]

F = TypeVar("F", bound=Callable[..., Any])


class Scope:
    """A scope of the library as a context manager and a decorator; it may be entered again."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._open: list[_door._Scope] = []

    def _enter(self) -> _door._Scope:
        raise NotImplementedError

    def __enter__(self) -> Scope:
        self._open.append(self._enter())
        return self

    def __exit__(self, *error: object) -> None:
        self._open.pop().close()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with type(self)(*self._arguments):
                return function(*args, **kwargs)
        return cast(F, inside)


class no_grad(Scope):
    """While it is open, ops of this thread are not recorded: `with rw.no_grad():` or `@rw.no_grad()`."""

    def __new__(cls, function: Any = None) -> Any:
        return cls()(function) if callable(function) else super().__new__(cls)

    def __init__(self) -> None:
        super().__init__()

    def _enter(self) -> _door._Scope:
        return _door._grad_mode(False)


class enable_grad(no_grad):
    """The contrary, inside a no_grad()."""

    def _enter(self) -> _door._Scope:
        return _door._grad_mode(True)


class set_grad_enabled(Scope):
    """no_grad() or enable_grad(), by a condition."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)

    def _enter(self) -> _door._Scope:
        return _door._grad_mode(self._arguments[0])


class autocast(Scope):
    """While it is open, ops choose the dtypes of their inputs (docs/mixed-precision.md)."""

    def __init__(self, dtype: _door.dtype | str = "f16", enabled: bool = True) -> None:
        super().__init__(dtype, enabled)

    def _enter(self) -> _door._Scope:
        return _door._autocast(*self._arguments)


class Segment(Scope):
    """A checkpoint segment with a policy; checkpoint() makes one."""

    def _enter(self) -> _door._Scope:
        return _door._checkpoint(*self._arguments)


def checkpoint(function: Callable[..., Any] | None = None, *args: Any, policy: SavePolicy | None = None, **kwargs: Any) -> Any:
    """A segment, whose values are dropped in forward and made again in backward, with the same bits.

        with rw.checkpoint(): y = block(x)
        y = rw.checkpoint(block, x)

        @rw.checkpoint
        def block(x): ...

    `policy` (save_matmuls(), save_ops(names)) says which values are kept.
    """
    if function is None:
        return Segment(policy)
    if not args and not kwargs:
        return Segment(policy)(function)
    with Segment(policy):
        return function(*args, **kwargs)


class FunctionContext:
    """The things that forward leaves for backward. Other attributes may be set freely."""

    saved_tensors: tuple[Tensor, ...]  # in backward
    needs_input_grad: tuple[bool, ...]

    def __init__(self) -> None:
        self._to_save: tuple[Tensor, ...] = ()
        self.saved_tensors, self.needs_input_grad = (), ()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"forward has left no '{name}' for backward")

    def save_for_backward(self, *tensors: Tensor) -> None:
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
    for the same arguments. A backward that uses ops of the library alone can be differentiated itself, unless forward kept
    what is neither an argument nor a result; one that does not says `once_differentiable = True` in its class.
    """

    once_differentiable = False
    forward: Callable[..., Any]
    backward: Callable[..., Any]

    @classmethod
    def apply(cls, *args: Any) -> Any:
        return _door._apply_function(cls, FunctionContext(), args)
