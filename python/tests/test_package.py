"""The package as a whole: the list of ops, names, examples, threads and processes around it."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import rewind as rw
from rewind import _door

ROOT = Path(__file__).resolve().parent.parent.parent


class Names(unittest.TestCase):
    def test_modules_and_optimizers_are_where_people_look(self):
        for name, value in vars(_door).items():
            if isinstance(value, type) and issubclass(value, _door.Module):
                self.assertIs(getattr(rw.nn, name), value)
            if isinstance(value, type) and issubclass(value, _door.Optimizer):
                self.assertIs(getattr(rw.optim, name), value)

    def test_every_op_says_what_it_takes(self):
        functions = [f for f in vars(_door).values() if type(f).__name__ == "nb_func"]
        self.assertGreater(len(functions), 190)
        self.assertIn("without overflow", rw.softmax.__doc__)
        self.assertIn("axis: int = -1", rw.softmax.__doc__)
        for f in functions:
            self.assertNotIn("rw::", f.__doc__, f)

    def test_words_of_pytorch(self):
        x = rw.randn((2, 3))
        self.assertEqual(rw.cat([x, x], axis=0).shape, (4, 3))
        self.assertEqual(rw.eq(x, x).sum().item(), 6)
        self.assertEqual(x.amax(1).shape, (2,))
        self.assertEqual(rw.interpolate(rw.zeros((1, 2, 2, 1)), scale_factor=[2.0], mode="bilinear").shape, (1, 4, 4, 1))
        with self.assertRaises(TypeError):
            rw.mse_loss(x, x, reduction="average")


PROGRAM = """
import rewind as rw
from rewind import nn

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.scale = nn.Parameter(rw.ones(3))

    def forward(self, x: rw.Tensor) -> rw.Tensor:
        with rw.checkpoint():
            x = rw.relu(self.hidden(x))
        return x[:, :3] * self.scale + 1

net = Net()
optimizer = rw.optim.AdamW(net.parameters(), lr=1e-3)
y: rw.Tensor = net(rw.randn((2, 4)))
optimizer.backward(rw.mse_loss(y, rw.zeros_like(y), reduction="sum"))
value: float = y.sum().item()
values, indices = rw.sort(y, axis=1)
with rw.no_grad():
    z = 2 * rw.softmax(y.reshape(3, 2), axis=-1).detach()
print(value, rw.memory_report()["peak"], y.dtype == rw.f32)
"""


@unittest.skipUnless(importlib.util.find_spec("mypy") and (Path(_door.__file__).parent / "_door.pyi").exists(), "mypy and the stubs")
class Types(unittest.TestCase):
    def test_a_strict_program(self):
        for program, is_right in ((PROGRAM, True), (PROGRAM + "rw.softmax(3)\n", False)):
            with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
                file.write(program)
                file.flush()
                run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, file.name], capture_output=True,
                                     text=True, env={**os.environ, "MYPYPATH": str(Path(rw.__file__).parent.parent)})
            self.assertEqual(run.returncode == 0, is_right, run.stdout)


class Examples(unittest.TestCase):
    def test_run(self):
        for example in sorted((ROOT / "examples/python").glob("*.py")):
            with self.subTest(example.name):
                self.assertLessEqual(len(example.read_text().splitlines()), 60)
                run = subprocess.run([sys.executable, example], capture_output=True, text=True, env={**os.environ, "REWIND_DEVICE": ""})
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertGreater(len(run.stdout.splitlines()), 2)


if __name__ == "__main__":
    unittest.main()
