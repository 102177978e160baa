"""Tensors beside NumPy: indexing, operators, dtypes, exchange."""
import copy
import itertools
import pickle
import unittest

import numpy as np

import rewind as rw

I = np.array([0, 2, 1])  # noqa: E741
A = np.random.default_rng(1).random((4, 5, 6), dtype=np.float32)
KEYS = [0, -1, slice(1, 3), (slice(None), 2), (..., 1), None, (1, ..., None), slice(None, None, -1), slice(3, None, -2),
        (slice(None), slice(4, 0, -2)), [0, 2], [0, -1], (I, I), (slice(None), I), (I, slice(None), I), (0, slice(None), I),
        (slice(None), I, I), A > 0.5, (slice(None), A[0] > 0.5), A[:, 0, 0] > 0.3, (A[:, 0, 0] > 0.3, 0), np.int64(2), (I[:, None], I),
        (..., I), (None, I, None), True, False, (slice(None), None, I), [], (1, 2, 3), (0, 0), slice(10, 20), (slice(-2, None), ..., slice(0, 1)),
        (I, 0), (0, I, I), np.zeros((2, 0), dtype=np.int64)]


class Indexing(unittest.TestCase):
    def test_reads_as_numpy_does(self):
        t = rw.tensor(A)
        for key in KEYS:
            with self.subTest(key=key):
                np.testing.assert_array_equal(np.asarray(t[key]), A[key])

    def test_writes_as_numpy_does(self):
        for key in KEYS:
            for value in (2.0, A[key] * 3):
                with self.subTest(key=key):
                    expected, t = A.copy(), rw.tensor(A)
                    expected[key] = value
                    t[key] = value
                    np.testing.assert_array_equal(np.asarray(t), expected)

    def test_index_of_tensors(self):
        t, i = rw.tensor(A), rw.tensor(I)
        np.testing.assert_array_equal(np.asarray(t[i, -i - 1]), A[I, -I - 1])
        np.testing.assert_array_equal(np.asarray(t[t > 0.5]), A[A > 0.5])

    def test_views_write_through(self):
        t = rw.tensor(A)
        t[1][2] = 7
        self.assertEqual(t[1, 2, 3].item(), 7)

    def test_refuses(self):
        t = rw.tensor(A)
        for key in (4, (0, 0, 0, 0), "a", [9], (..., ...), np.ones(3, bool), 1.5):
            with self.subTest(key=key), self.assertRaises(IndexError):
                t[key]
        with self.assertRaises(ValueError):
            t[0] = np.zeros(7)

    def test_gradients_pass(self):
        x = rw.tensor(A, requires_grad=True)
        y = x * 1
        y[:, I] = y[:, :3] * 2
        y[0, 0, 0] = 5
        y.sum().backward()
        expected = np.ones_like(A)
        expected[:, :3] = 2
        expected[0, 0, 0] = 0
        np.testing.assert_array_equal(np.asarray(x.grad), expected)


class Operators(unittest.TestCase):
    def test_beside_numpy(self):
        values = [rw.tensor([[7, -3, 2]]), rw.tensor([[1.5], [-2.0]]), 3, -2.5]
        operators = ["+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!="]
        for a, b in itertools.product(values, values):
            if not isinstance(a, rw.Tensor) and not isinstance(b, rw.Tensor):
                continue
            plain = [np.asarray(v) if isinstance(v, rw.Tensor) else v for v in (a, b)]
            for operator in operators:
                with self.subTest(a=a, b=b, operator=operator):
                    got = np.asarray(eval(f"a {operator} b"))
                    expected = eval(f"plain[0] {operator} plain[1]", {"plain": plain})
                    np.testing.assert_allclose(got, expected, rtol=1e-6)
                    self.assertEqual(got.dtype.kind == "f", expected.dtype.kind == "f")

    def test_in_place(self):
        x = rw.tensor([1.0, 2.0])
        same = x
        x += 1
        x *= rw.tensor([2.0, 3.0])
        self.assertIs(x, same)
        self.assertEqual(x.tolist(), [4.0, 9.0])

    def test_masks(self):
        a, b = rw.tensor([True, True, False, False]), rw.tensor([True, False, True, False])
        self.assertEqual((a & b).tolist(), [1, 0, 0, 0])
        self.assertEqual((a | b).tolist(), [1, 1, 1, 0])
        self.assertEqual((a ^ ~b).tolist(), [1, 0, 0, 1])
        with self.assertRaises(TypeError):
            rw.tensor([1, 2]) & rw.tensor([1, 2])

    def test_numbers_and_truth(self):
        self.assertEqual(float(rw.tensor(2.5)), 2.5)
        self.assertEqual(int(rw.tensor([7])), 7)
        self.assertEqual([10, 20, 30][rw.tensor(1)], 20)
        self.assertTrue(rw.tensor([3]))
        with self.assertRaises(ValueError):
            bool(rw.tensor([1, 2]))
        self.assertIsInstance(rw.tensor([5]).item(), int)

    def test_methods_and_functions_agree(self):
        x = rw.tensor(A)
        self.assertEqual(x.sum().item(), rw.sum(x).item())
        self.assertEqual(x.view(4, -1).shape, (4, 30))
        self.assertEqual(x.permute(2, 0, 1).shape, rw.permute(x, (2, 0, 1)).shape)
        self.assertEqual(x[:, :1].expand(-1, 3, -1).shape, (4, 3, 6))
        self.assertEqual(rw.pow(x, 2).sum().item(), rw.square(x).sum().item())


class Exchange(unittest.TestCase):
    def test_dtypes(self):
        for given, kept in ((np.float64, rw.f32), (np.float32, rw.f32), (np.float16, rw.f16), (np.int64, rw.i32), (np.int8, rw.i32),
                            (np.uint8, rw.u8), (np.bool_, rw.u8)):
            with self.subTest(given=given):
                values = np.array([[0, 1], [1, 0]]).astype(given).T
                t = rw.tensor(values)
                self.assertEqual(t.dtype, kept)
                np.testing.assert_array_equal(t.numpy(), values)
        with self.assertRaises(ValueError):
            rw.tensor(np.array([2**40]))
        with self.assertRaises(TypeError):
            rw.tensor(np.array([1j]))
        self.assertEqual(rw.tensor([1, 2], dtype="float16").dtype, rw.float16)

    def test_dlpack_both_ways(self):
        t = rw.tensor(A)
        np.testing.assert_array_equal(np.from_dlpack(t), A)
        np.testing.assert_array_equal(rw.from_dlpack(np.ascontiguousarray(A)).numpy(), A)
        self.assertEqual(rw.zeros((0, 3)).numpy().shape, (0, 3))

    def test_pickle_and_copies(self):
        t = rw.tensor(A[0, 0], dtype="bf16", requires_grad=True)
        for other in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
            self.assertEqual((other.dtype, other.requires_grad, other.tolist()), (t.dtype, True, t.tolist()))

    def test_text(self):
        self.assertEqual(repr(rw.tensor([1.0, 2.5])), "tensor([1.0000, 2.5000], f32 (2))")


if __name__ == "__main__":
    unittest.main()
