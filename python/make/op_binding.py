"""The parts of a binding of an op or a constructor: how an argument of C++ is written in Python and passed on."""
import re
from pathlib import Path

# C++'s type of an argument -> the type that reads Python's object, and the expression that passes it on.
READERS = {
    "Tensor": ("door::Given", "std::move({0}.tensor)"),
    "const Tensor&": ("door::Given", "{0}.tensor"),
    "TensorList": ("rw::TensorList", "std::move({0})"),
    "const Axes&": ("door::AxesGiven", "{0}.axes"),
    "const Shape&": ("door::Sizes", "rw::Shape({0})"),
    "const std::vector<int64_t>&": ("door::Sizes", "{0}.values"),
    "std::vector<int64_t>": ("door::Sizes", "{0}.values"),
    "std::vector<double>": ("std::vector<double>", "std::move({0})"),
    "DType": ("door::DTypeGiven", "{0}.dtype"),
    "Generator&": ("rw::Generator*", "({0} ? *{0} : rw::default_generator())"),
    "Generator*": ("rw::Generator*", "{0}"),
    "GeneratorRef": ("rw::Generator*", "({0} ? rw::GeneratorRef(*{0}) : rw::GeneratorRef())"),
    "Activation": ("door::ActivationGiven", "{0}.function"),
    "std::string": ("std::string", "{0}"),
    "std::string_view": ("std::string_view", "{0}"),
}
PLAIN = ("int", "float", "double", "bool", "int64_t", "int32_t", "uint32_t")
KEYWORDS = {"in": "in_features", "lambda": "lambda_"}  # names that Python keeps for itself


def write_if_new(path, text):
    """Leaves a file that is right as it is, so that nothing is compiled again."""
    path = Path(path)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


class NoBinding(Exception):
    """Raised for a type that the door does not know how to pass."""


def python_name(name):
    return KEYWORDS.get(name, name)


def number(text):
    """`1e-5f` -> `1e-05`, as Python writes it."""
    value = float(text.removesuffix("f"))
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 and "." not in text and "e" not in text else repr(value)


class Argument:
    """One parameter in Python: its name, the lambda's parameter, what is passed on, and the default."""

    def __init__(self, of, enums):
        kind = of["type"]
        self.name, self.kind = python_name(of["name"]), kind
        self.default = of.get("default")
        optional = re.fullmatch(r"std::optional<(.*)>", kind)
        inner = optional[1] if optional else kind
        self.is_undefined = of.get("may_be_undefined", False)
        if kind == "Tensor" and (self.default == "{}" or self.is_undefined):
            self.reads, self.passes = "door::Maybe", "std::move({0}.tensor)"
        elif kind in READERS:
            self.reads, self.passes = READERS[kind]
        elif inner in PLAIN or inner in ("Size2d", "Size3d") or inner in enums:
            name = inner if inner in PLAIN else f"rw::{inner}"
            self.reads, self.passes = (f"std::optional<{name}>" if optional else name), "{0}"
        else:
            raise NoBinding(f"no object of Python is a {kind}")

    def parameter(self):
        return f"{self.reads} {self.name}"

    def passed(self):
        return self.passes.format(self.name)

    def shown(self):
        """The default as Python writes it; None if there is none."""
        d = self.default
        if d is None:
            return None
        if d == "{}" and "vector" in self.kind:
            return "()"
        if d in ("{}", "nullptr", "default_generator()"):
            return "None"
        if d in ("true", "false"):
            return d.capitalize()
        if self.kind == "Activation":
            return f"'{d}'"
        if "::" in d:
            scope, value = d.split("::")
            return f"rewind.{value}" if scope == "DType" else f"'{value}'"
        return number(d)

    def declared(self):
        """nanobind's words for the name and the default."""
        name = f'nb::arg("{self.name}")'
        d, shown = self.default, self.shown()
        if d is None:
            return name + ".none()" if self.is_undefined else name
        if shown == "()":
            return name + " = nb::tuple()"
        if shown == "None":
            return name + ".none() = nb::none()"
        if self.kind == "Activation":
            return f'{name} = "{d}"'
        if "::" in d:
            return f'{name}.sig("{shown}") = "{d.split("::")[1]}"'
        if self.kind in ("float", "double"):
            return f'{name}.sig("{shown}") = double({d})'
        return f"{name} = {d}"

    def hint(self):
        """The type for a stub."""
        hints = {"door::Given": "Tensor", "door::Maybe": "Tensor | None", "door::AxesGiven": "int | Sequence[int] | None",
                 "door::Sizes": "int | Sequence[int]", "rw::TensorList": "Sequence[Tensor]", "door::DTypeGiven": "DTypeLike",
                 "rw::Generator*": "Generator | None", "std::string": "str",
                 "std::string_view": "str", "std::vector<double>": "Sequence[float]", "rw::Size2d": "int | tuple[int, int]",
                 "rw::Size3d": "int | tuple[int, int, int]", "bool": "bool", "float": "float", "double": "float"}
        optional = re.fullmatch(r"std::optional<(.*)>", self.reads)
        inner = optional[1] if optional else self.reads
        text = hints.get(inner, "int" if inner in PLAIN else "str")
        return text + " | None" if optional else text


class Call:
    """The arguments of a function or a constructor, with the fields of structs of options as keywords behind the others."""

    def __init__(self, arguments, enums, skip=()):
        taken = {a["name"] for a in arguments}
        self.positional, self.keywords, self.passed = [], [], []
        for a in arguments:
            if a["name"] in skip:
                continue
            if "keywords" not in a:
                one = Argument(a, enums)
                self.positional.append(one)
                self.passed.append(one.passed())
                continue
            fields = [Argument(f, enums) for f in a["keywords"] if f["name"] not in taken]
            for one, f in zip(fields, (f for f in a["keywords"] if f["name"] not in taken)):
                one.field = f["name"]
            taken |= {f.name for f in fields}
            self.keywords += fields
            struct = re.sub(r"const |&", "", a["type"])
            self.passed.append(f"rw::{struct}{{{', '.join(f'.{f.field} = {f.passed()}' for f in fields)}}}")
        required = [a for a in self.positional if a.default is None]
        needed = [a for a in self.keywords if a.default is None]
        self.keywords = [a for a in self.keywords if a.default is not None]
        self.all = required + needed + [a for a in self.positional if a.default is not None] + self.keywords

    def parameters(self):
        return ", ".join(a.parameter() for a in self.all)

    def declared(self, keyword_only=False):
        words = [a.declared() for a in self.all if a not in self.keywords]
        if keyword_only and self.keywords:
            words.append("nb::kw_only()")
        return words + [a.declared() for a in self.keywords]

    def signature(self, keyword_only=False):
        parts = [f"{a.name}: {a.hint()}" + (f" = {a.shown()}" if a.shown() is not None else "") for a in self.all if a not in self.keywords]
        if keyword_only and self.keywords:
            parts.append("*")
        return parts + [f"{a.name}: {a.hint()} = {a.shown()}" for a in self.keywords]


def text(doc):
    """A string literal of C++."""
    escaped = doc.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def check_tables(found, *tables):
    """Refuses names in a table that the list does not have: what is bound by hand must be an op or a class that there is."""
    names = {one["name"] for kind in ("ops", "modules", "optimizers") for one in found[kind]}
    unknown = sorted({name for table in tables for name in table} - names)
    if unknown:
        raise SystemExit(f"the list has no {', '.join(unknown)}: take them out of the tables of python/make")
