"""The judges share these: tables of functions by names, layouts of images, and the options of their programs."""
import argparse

import rewind as rw


class Unsupported(Exception):
    """Rewind has nothing for this case or sample; the text says why."""


def registry(table):
    """A decorator that puts a function into the table under one or more names."""
    def under(*names):
        def keep(function):
            table.update(dict.fromkeys(names, function))
            return function
        return keep
    return under


def channels_last(x):
    return rw.permute(x, [0, *range(2, len(x.shape)), 1])


def channels_first(x):
    return rw.permute(x, [0, len(x.shape) - 1, *range(1, len(x.shape) - 1)])


def options_of(doc, *more):
    """The options that all judges have, and `more`: pairs of a name and its default."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name, default in more:
        parser.add_argument(name, default=default)
    parser.add_argument("--only", default="*", help="a pattern of names")
    parser.add_argument("--write", metavar="FILE.md", help="write the table to this file")
    return parser.parse_args()


def reason(error):
    """One line for the table of what does not hold."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
