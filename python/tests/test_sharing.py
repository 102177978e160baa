"""Values in memory that others have, too: NumPy, PyTorch and JAX beside a device that works on memory of the host."""
import gc
import importlib.util
import subprocess
import sys
import unittest
import weakref

import numpy as np

import rewind as rw


def setUpModule():
    global before
    before = rw.default_device()
    rw.set_default_device("cpu")


def tearDownModule():
    rw.set_default_device(before)


def ramp(*shape):
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


class Numpy(unittest.TestCase):
    def test_arrays_that_come_in(self):
        for make in (rw.from_numpy, rw.from_dlpack):
            for dtype in (np.float32, np.float16, np.int32, np.uint8):
                with self.subTest(make=make, dtype=dtype):
                    a = ramp(2, 3).astype(dtype)
                    t = make(a)
                    a[0, 0] = 9
                    self.assertEqual(t[0, 0].item(), 9)
                    t[1, 2] = 7
                    self.assertEqual(a[1, 2], 7)
                    self.assertTrue(np.shares_memory(t.numpy(), a))

    def test_it_lives_as_long_as_the_tensor(self):
        a = ramp(4)
        gone = weakref.ref(a)
        t = rw.from_numpy(a)[1:]
        del a
        gc.collect()
        self.assertIsNotNone(gone())
        self.assertEqual(t.tolist(), [2, 3, 4])
        del t
        gc.collect()
        self.assertIsNone(gone())

    def test_results_that_go_out(self):
        x = rw.tensor(ramp(3, 4))
        y = x * 2
        view, part = y.numpy(), np.asarray(y.T[1])
        self.assertTrue(view.flags.writeable and np.shares_memory(view, part))
        view[2, 1] = -1
        self.assertEqual(y[2, 1].item(), -1)
        self.assertEqual(part.tolist(), [4, 12, -1])
        del x, y
        rw.zeros((3, 4)), rw.default_device().trim()
        self.assertEqual(part.tolist(), [4, 12, -1])

    def test_copies_are_made_where_they_must(self):
        read_only = ramp(4)
        read_only.flags.writeable = False
        odd = np.frombuffer(bytearray(ramp(5).tobytes()), np.float32)[1:]
        for a in (ramp(2, 3).T, ramp(4).astype(np.float64), ramp(4).astype(np.int64), ramp(4) > 2, read_only, odd, ramp(0)):
            t = rw.from_numpy(a)
            np.testing.assert_array_equal(t.numpy(), a)
            self.assertFalse(np.shares_memory(t.numpy(), a))
        a = ramp(4)
        for t in (rw.tensor(a), rw.asarray(a)):
            self.assertFalse(np.shares_memory(t.numpy(), a))
        self.assertFalse(rw.ones((1,)).expand(3).numpy().strides == (0,))

    def test_words_of_the_protocols(self):
        t = rw.tensor(ramp(4))
        shared = np.from_dlpack(t)
        shared[0] = 5
        self.assertEqual(t[0].item(), 5)
        self.assertFalse(np.shares_memory(np.from_dlpack(t, copy=True), shared))
        self.assertFalse(np.shares_memory(np.array(t), shared))
        self.assertTrue(np.shares_memory(np.asarray(t, copy=False), shared))
        half = rw.ones((3,), dtype="bf16")
        self.assertEqual(half.numpy().dtype, np.float32)
        with self.assertRaises(ValueError):
            np.asarray(half, copy=False)

    def test_an_op_does_not_write_into_it(self):
        a = ramp(4) - 2
        self.assertEqual(rw.relu(rw.from_numpy(a)).tolist(), [0, 0, 1, 2])
        self.assertEqual(a.tolist(), [-1, 0, 1, 2])

    def test_steps_within_one_number_leave_it_where_it_is(self):
        def step(kept):
            x = rw.tensor(ramp(64, 64)).requires_grad_()
            y = x
            for _ in range(8):
                y = rw.tanh(y * 0.5)
                kept.append(y.numpy())
            y.sum().backward()
            return x.grad.numpy().copy()
        plain, pinned = [], []
        gradient = step(plain)
        with rw.memory("1MiB"):
            for _ in range(2):
                pinned.clear()
                np.testing.assert_array_equal(step(pinned), gradient)
        for a, b in zip(plain, pinned):
            np.testing.assert_array_equal(a, b)


JAX = """
import jax.numpy as jnp
import numpy as np
import rewind as rw

rw.set_default_device("cpu")
ours = rw.tensor(np.arange(96, dtype=np.float32).reshape(32, 3))
seen = jnp.from_dlpack(ours)
assert seen.unsafe_buffer_pointer() == ours.numpy().ctypes.data
assert float(seen[31, 2]) == 95
theirs = jnp.ones((2, 3))
assert rw.from_dlpack(theirs).numpy().ctypes.data == theirs.unsafe_buffer_pointer()
assert rw.relu(jnp.asarray([-1.0, 2.0])).tolist() == [0, 2]
"""


class Others(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch")
    def test_torch(self):
        import torch
        ours, theirs = rw.tensor(ramp(2, 3)), torch.ones(2, 3)
        seen = torch.from_dlpack(ours)
        seen[0, 1] = 8
        self.assertEqual(ours[0, 1].item(), 8)
        back = rw.from_dlpack(theirs)
        back[1, 0] = 6
        self.assertEqual(theirs[1, 0].item(), 6)
        np.testing.assert_array_equal(rw.tensor(theirs.requires_grad_()).numpy(), theirs.detach().numpy())
        self.assertEqual(rw.from_dlpack(torch.ones(2, dtype=torch.bfloat16)).dtype, rw.bf16)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "JAX")
    def test_jax(self):  # in a process of its own, since its threads bear no fork
        run = subprocess.run([sys.executable, "-c", JAX], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
