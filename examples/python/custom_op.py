"""An op of your own in Python: forward and gradient, dropped and replayed like those of the library.

    python custom_op.py
"""
import numpy as np

import rewind as rw


class Snake(rw.autograd.Function):
    """x + sin(x)^2 (Ziyin et al. 2020). Of library ops it would keep sin(x) beside x for the gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x + rw.square(rw.sin(x))

    @staticmethod
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        return dy * (1 + rw.sin(2 * x))


rw.manual_seed(1)
x = rw.randn((1000,)).requires_grad_()
Snake.apply(x).sum().backward()
gradient = x.grad.numpy()

h = 1e-2
with rw.no_grad():
    slope = ((Snake.apply(x + h) - Snake.apply(x - h)) / (2 * h)).numpy()
print(f"gradient and finite differences differ by at most {np.abs(gradient - slope).max():.1e}")

found = []
for segments in (False, True):
    x.grad = None
    y = x
    for _ in range(4):
        y = rw.checkpoint(lambda y: Snake.apply(Snake.apply(y)), y) if segments else Snake.apply(Snake.apply(y))
    y.sum().backward()
    found.append(x.grad.numpy().tobytes())
assert found[0] == found[1]
print("in segments, which are replayed, the gradients have the same bits")

dx, = rw.grad(Snake.apply(x).sum(), x, create_graph=True)
ddx, = rw.grad(dx.sum(), x)
print(f"and they can be differentiated: {np.abs(ddx.numpy() - 2 * np.cos(2 * x.numpy())).max():.1e}")
