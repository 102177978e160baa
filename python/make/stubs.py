#!/usr/bin/env python3
"""Writes the types of the built extension for mypy and pyright, of the signatures that it has.

    stubs.py FOLDER OUT.pyi    the folder has the extension
"""
import enum
import importlib.util
import keyword
import re
import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ops/list"))
from op_list import split  # noqa: E402

HEAD = """# Made by python/make/stubs.py of the signatures of the extension.
import builtins
import collections.abc
import enum
import os
import pathlib
import typing
from typing import Any, overload

"""
MODULE = """    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def register_buffer(self, name: str, tensor: Tensor) -> None: ...
    def register_parameter(self, name: str, parameter: Any) -> None: ...
    def register_module(self, name: str, module: Module) -> None: ...
    def add_module(self, name: str, module: Module) -> None: ...
    def apply(self, function: collections.abc.Callable[[Module], Any]) -> Module: ...
    def modules(self) -> list[Module]: ...
    def children(self) -> list[Module]: ...
    def buffers(self) -> list[Tensor]: ...
    def get_submodule(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...""".split("\n")  # what rewind/nn.py adds


def load(folder):
    file = Path(folder) / ("_door" + sysconfig.get_config_var("EXT_SUFFIX"))
    spec = importlib.util.spec_from_file_location("rewind._door", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def value(default):
    return repr(default) if isinstance(default, (int, float, str, bool, type(None))) and not isinstance(default, enum.Enum) else "..."


def signature(text, defaults):
    """nanobind's signature as Python writes it."""
    text = re.sub(r"\\=(\d+)", lambda m: str(defaults[int(m[1])]), text)
    text = re.sub(r"\\(\d+)", lambda m: value(defaults[int(m[1])]), text)
    text = re.sub(r"ndarray\[[^\]]*\]", "Any", text)
    text = re.sub(r"(?:const )?(?:std|rw)::[\w:<>, *&]+", "Any", text)
    text = re.sub(r"= rewind\.\w+", "= ...", text)
    text = re.sub(r"\b(?:nanobind\.)?\bhandle\b", "Any", text)
    text = text.replace("rewind._door.", "").replace("rewind.", "")
    text = re.sub(r"(?<=[(,] )\*(args|kwargs|sizes)(?=[,)])|(?<=\()\*(args|kwargs|sizes)(?=[,)])", lambda m: m[0] + ": Any", text)
    text = re.sub(r"\*\*(\w+)(?=[,)])", r"**\1: Any", text)
    return re.sub(r"\bobject\b", "Any", re.sub(r"\bdict\b(?!\[)", "dict[str, Any]", re.sub(r"\b(list|tuple)\b(?!\[)", r"\1[Any, ...]", text))) \
        .replace("list[Any, ...]", "list[Any]")


def ordered(text):
    """Parameters with defaults before one without: these can be given by name only, as nanobind sees to."""
    head, rest = text.split("(", 1)
    inside, tail = rest.rsplit(")", 1)
    parts = split(inside)
    stars = [i for i, part in enumerate(parts) if part.startswith("*")] or [len(parts)]
    before = parts[:stars[0]]
    plain = [part for part in before if " = " not in part]
    return f"{head}({', '.join(plain + [p for p in before if ' = ' in p] + parts[stars[0]:])}){tail}" if "/" not in before else text


def in_class(text):
    """Types by names that no method hides: Tensor has methods float() and int()."""
    text = re.sub(r"(?<![\w.])(int|float|bool|str|list|tuple|dict|complex)\b(?!\w*\()(?!:)", r"builtins.\1", text)
    return re.sub(r"(?<=: )dtype\b|(?<=-> )dtype\b|(?<=\| )dtype\b", "_DType", text)


def in_class_lines(lines):
    return [in_class(line) for line in lines]


def function(name, f, indent, decorator=""):
    if keyword.iskeyword(name):
        return []
    lines = []
    signatures = f.__nb_signature__
    for text, doc, defaults in signatures:
        if len(signatures) > 1:
            lines.append(f"{indent}@overload")
        if decorator:
            lines.append(f"{indent}@{decorator}")
        text = ordered(re.sub(r"^def \w*", f"def {name}", signature(text, defaults)))
        if (name, indent) == ("forward", "    ") and "x: Tensor) -> Tensor" in text:
            text = "def forward(self, *args: Any, **kwargs: Any) -> Any"  # those of derived classes take more
        if indent:
            head, tail = text.split("(", 1)
            text = "def __hash__(self) -> builtins.int" if name == "__hash__" else head + "(" + in_class(tail)
        ignore = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        lines.append(f"{indent}{text}:" + (" ..." if not doc else "") + ignore)
        if doc:
            lines.append(f'{indent}    """{doc.split(chr(10))[0]}"""')
    return lines


def members(cls):
    lines = []
    for name, one in vars(cls).items():
        if name in ("__new__", "__doc__", "__module__", "__weakref__", "__dict__") or name.startswith("_made"):
            continue
        kind = type(one).__name__
        if isinstance(one, property):
            getter = one.fget.__nb_signature__[0][0]
            result = signature(getter, ()).split("->")[1].strip()
            lines += ["    @property", f"    def {name}(self) -> {in_class(result).replace('dtype', '_DType')}: ..."]
            if one.fset:
                lines += [f"    @{name}.setter", f"    def {name}(self, value: Any) -> None: ..."]
        elif kind == "nb_func":
            lines += function(name, one, "    ", "staticmethod")
        elif kind == "nb_method":
            lines += function(name, one, "    ")
        elif isinstance(one, type):
            lines += ["    " + line for line in of_class(name, one)]
    return lines


def of_class(name, cls):
    if issubclass(cls, enum.Enum):
        extra = [f"    @property\n    def {p}(self) -> {t}: ..." for p, t in (("is_float", "bool"), ("is_floating_point", "bool"), ("itemsize", "int"))]
        return [f"class {name}(enum.Enum):"] + [f"    {v.name} = {v.value}" for v in cls] + extra
    if issubclass(cls, BaseException):
        return [f"class {name}({', '.join(b.__name__ for b in cls.__bases__)}): ..."]
    if issubclass(cls, tuple):
        return [f"class {name}(typing.NamedTuple):"] + [f"    {f}: {'int' if f == 'rows' else 'Tensor'}" for f in cls._fields]
    base = cls.__bases__[0]
    body = members(cls) + (in_class_lines(MODULE) if name == "Module" else [])
    return [f"class {name}({base.__name__}):" if base is not object else f"class {name}:"] + (body or ["    ..."])


def main():
    door = load(sys.argv[1])
    lines = []
    for name, one in vars(door).items():
        if name.startswith("__"):
            continue
        kind = type(one).__name__
        if name == "ValueError" or isinstance(one, type):
            lines += of_class(name, one)
        elif kind == "nb_func":
            lines += function(name, one, "")
        elif isinstance(one, enum.Enum):
            lines.append(f"{name}: dtype")
    text = "\n".join(lines) + "\n"
    text = text.replace("collections.abc.Iterator:", "collections.abc.Iterator[Any]:").replace("Iterable)", "Iterable[Any])") \
        .replace("Iterable,", "Iterable[Any],").replace("Iterable =", "Iterable[Any] =") \
        .replace("os.PathLike", "os.PathLike[str]")
    text += "_DType = dtype\n__version__: str\n"
    text = text.replace("class ValueError(Error, ValueError)", "class ValueError(Error, builtins.ValueError)")
    text = text.replace("class ShapeError(Error, ValueError)", "class ShapeError(Error, builtins.ValueError)")
    Path(sys.argv[2]).write_text(HEAD + text)


if __name__ == "__main__":
    main()
