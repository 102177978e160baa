"""The package as a whole: the list of ops, names, examples, threads and processes around it."""
import ast
import importlib.util
import json
import os
import shutil
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


@unittest.skipUnless((Path(_door.__file__).parent / "_door.pyi").exists(), "the stubs")
class Types(unittest.TestCase):
    def judged_by(self, module, *options):
        if not importlib.util.find_spec(module):
            self.skipTest(module)
        packages = Path(rw.__file__).parent.parent
        # mypy finds what is installed by itself, and refuses that folder in its path.
        path = {} if packages.name == "site-packages" else {"MYPYPATH": str(packages)}
        for program, is_right in ((PROGRAM, True), (PROGRAM + "rw.softmax(3)\n", False)):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "program.py"
                file.write_text("# pyright: strict\n" + program)
                run = subprocess.run([sys.executable, "-m", module, *options, file], capture_output=True, text=True, cwd=folder,
                                     env={**os.environ, **path})
            self.assertEqual(run.returncode == 0, is_right, run.stdout + run.stderr)

    def test_mypy_takes_a_strict_program(self):
        self.judged_by("mypy", "--strict", "--cache-dir", os.devnull)

    def test_pyright_takes_a_strict_program(self):
        self.judged_by("pyright", "--pythonpath", sys.executable)


ROOM = """
__attribute__((tls_model("initial-exec"))) __thread char room[1024];
char* address(void) { return room; }
"""


class Opening(unittest.TestCase):
    @unittest.skipUnless(shutil.which("cc") and shutil.which("readelf"), "a compiler")
    def test_late_after_libraries_that_took_the_static_room_of_threads(self):
        flags = subprocess.run(["readelf", "-d", _door.__file__], capture_output=True, text=True, check=True).stdout
        if "librewind" in flags:
            self.skipTest("the library of a build tree is for programs, which open it first")
        self.assertNotIn("STATIC_TLS", flags)
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "room.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input=ROOM, text=True, check=True)
            program = f"import ctypes; ctypes.CDLL({str(library)!r}); import rewind as rw; print(rw.ones(2).sum().item())"
            run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(run.stdout, "2.0\n", run.stderr)


class Examples(unittest.TestCase):
    def test_run(self):
        for example in sorted((ROOT / "examples/python").glob("*.py")):
            with self.subTest(example.name):
                self.assertLessEqual(len(example.read_text().splitlines()), 60)
                run = subprocess.run([sys.executable, example], capture_output=True, text=True, env={**os.environ, "REWIND_DEVICE": ""})
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertGreater(len(run.stdout.splitlines()), 2)

    def test_the_notebook(self):
        cells = json.loads((ROOT / "examples/python/does_not_fit.ipynb").read_text())["cells"]
        self.assertTrue(all(not cell.get("outputs") for cell in cells))
        before, here, names, shown = rw.default_device(), os.getcwd(), {}, []
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for cell in cells:
                    if cell["cell_type"] != "code":
                        continue
                    *lines, last = ast.parse("".join(cell["source"])).body
                    exec(compile(ast.Module(lines, []), "notebook", "exec"), names)
                    if isinstance(last, ast.Expr):
                        shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
                    else:
                        exec(compile(ast.Module([last], []), "notebook", "exec"), names)
                page = names["timeline"]._repr_html_()
            finally:
                os.chdir(here)
                rw.set_default_device(before)
        self.assertIn("the memory limit is 52.00 MiB", names["refusal"])
        for how, peak in names["peaks"].items():
            self.assertLess(peak, 52 << 20, how)
        self.assertGreater(names["forecast"]["peak"], 52 << 20)
        self.assertIn("activations", names["forecast"]._repr_html_())
        self.assertTrue(page.startswith("<iframe"))
        self.assertGreater(shown[-1], 1024)


if __name__ == "__main__":
    unittest.main()
