"""Gradients: hooks, functions written in Python, segments, threads, errors."""
import gc
import threading
import unittest

import numpy as np

import rewind as rw


class Snake(rw.autograd.Function):
    """x + sin(x)^2, which keeps sin(x), no argument and no result."""
    runs = 0

    @staticmethod
    def forward(ctx, x, scale):
        Snake.runs += 1
        s = rw.sin(x)
        ctx.save_for_backward(x, s)
        ctx.scale = scale
        return (x + s * s) * scale

    @staticmethod
    def backward(ctx, dy):
        x, s = ctx.saved_tensors
        return dy * ctx.scale * (1 + 2 * s * rw.cos(x)), None


class Square(rw.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * ctx.saved_tensors[0] * dy


def leaf(*shape):
    rw.manual_seed(3)
    return rw.randn(shape).requires_grad_()


class Gradients(unittest.TestCase):
    def test_of_gradients(self):
        x = leaf(4)
        dx, = rw.grad((x * x * x).sum(), x, create_graph=True)
        ddx, = rw.grad(dx.sum(), x)
        np.testing.assert_allclose(ddx.numpy(), 6 * x.numpy(), rtol=1e-6)

    def test_no_grad_as_scope_and_decorator(self):
        x = leaf(2)
        with rw.no_grad():
            self.assertFalse((x * 2).requires_grad)
            with rw.enable_grad():
                self.assertTrue((x * 2).requires_grad)

        @rw.no_grad
        def plain(x):
            return x * 2

        @rw.no_grad()
        def called(x):
            return x * 2
        self.assertFalse(plain(x).requires_grad or called(x).requires_grad)
        self.assertTrue(rw.is_grad_enabled())

    def test_hooks(self):
        x, seen = leaf(3), []
        handle = x.register_hook(lambda g: g * 10)
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
        x.sum().backward()
        self.assertEqual(seen, [[10.0] * 3])
        handle.remove()
        x.grad = None
        x.sum().backward()
        self.assertEqual(x.grad.tolist(), [1.0] * 3)

    def test_errors_of_hooks_arrive(self):
        x = leaf(3)
        x.register_hook(lambda g: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            x.sum().backward()

    def test_parameters_change_under_no_grad(self):
        x = leaf(3)
        before = x.numpy().copy()
        x.sum().backward()
        with rw.no_grad():
            x -= 0.5 * x.grad
        np.testing.assert_allclose(x.numpy(), before - 0.5)
        with self.assertRaises(rw.AutogradError):
            x -= 1


class Functions(unittest.TestCase):
    def test_gradient_in_segments_has_the_same_bits(self):
        x, found = leaf(5), []
        for segment in (False, True):
            x.grad = None
            Snake.runs = 0
            if segment:
                with rw.checkpoint():
                    y = Snake.apply(Snake.apply(x, 2.0), 3.0)
            else:
                y = Snake.apply(Snake.apply(x, 2.0), 3.0)
            y.sum().backward()
            found.append((x.grad.numpy().tobytes(), Snake.runs))
        self.assertEqual(found[0][0], found[1][0])
        self.assertEqual([runs for _, runs in found], [2, 4])

    def test_second_derivatives(self):
        x = leaf(3)
        dx, = rw.grad(Square.apply(Square.apply(x)).sum(), x, create_graph=True)
        np.testing.assert_allclose(rw.grad(dx.sum(), x)[0].numpy(), 12 * x.numpy() ** 2, rtol=1e-5)

    def test_what_only_backward_has_cannot_be_differentiated(self):
        x = leaf(3)
        with self.assertRaisesRegex(rw.AutogradError, "Snake"):
            rw.grad(Snake.apply(x, 1.0).sum(), x, create_graph=True)

    def test_wrong_gradients_are_refused(self):
        class Wrong(rw.autograd.Function):
            forward = staticmethod(lambda ctx, x: x * 1)
            backward = staticmethod(lambda ctx, dy: dy.sum())
        x = leaf(3)
        with self.assertRaises(rw.ShapeError):
            Wrong.apply(x).sum().backward()

    def test_planned_and_budgeted_passes_replay_it(self):
        def step():
            x = rw.zeros((64, 64)).requires_grad_()
            y = x
            for _ in range(6):
                y = Square.apply(y)
            y.sum().backward()
            rw.default_device().end_step()
        self.assertGreater(rw.dry_run(lambda: [step() for _ in range(2)])["peak"], 64 * 64 * 4)


class Threads(unittest.TestCase):
    def test_each_has_its_own_tape(self):
        results = {}

        def work(n):
            x = rw.full((16,), float(n)).requires_grad_()
            for _ in range(20):
                x.grad = None
                Square.apply(x * x).sum().backward()
            results[n] = x.grad.tolist()[0]
        threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(results, {n: 4.0 * n**3 for n in (1, 2, 3)})

    def test_garbage_in_any_order(self):
        x = leaf(8)
        kept = [Square.apply(x) for _ in range(10)]
        cycle = {"y": kept[3]}
        cycle["self"] = cycle
        del cycle, kept[::2]
        gc.collect()
        del x
        kept.clear()
        gc.collect()
        self.assertLess(rw.memory_report()["live"], 1 << 20)


class Errors(unittest.TestCase):
    def test_kinds(self):
        for call, kind in ((lambda: rw.zeros((2,)).reshape(3), ValueError), (lambda: rw.zeros((2,)) @ rw.zeros((3,)), ValueError),
                           (lambda: rw.relu(3), TypeError), (lambda: rw.load_safetensors("/nowhere"), OSError),
                           (lambda: rw.zeros((1 << 60,)), MemoryError), (lambda: rw.ones(3).backward(), RuntimeError),
                           (lambda: rw.softmax(rw.arange(3)), TypeError)):
            with self.assertRaises(kind):
                call()


if __name__ == "__main__":
    unittest.main()
