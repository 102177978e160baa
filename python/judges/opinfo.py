"""Holds Rewind's ops against PyTorch's on the samples of PyTorch's own tests (OpInfo): values, gradients, and gradients
of gradients for ops whose row in the list of ops says that they have them.

    python3 opinfo.py [--only PATTERN] [--write FILE.md]

An entry holds if every sample that is not skipped does, and there is one. Needs PyTorch and expecttest.
"""
import fnmatch
import sys
import warnings

import numpy as np
import torch
import opinfo_networks  # noqa: F401  it fills ENTRIES
from judging import Unsupported, options_of, reason
from opinfo_entries import ENTRIES
from torch.testing._internal.common_methods_invocations import op_db

import rewind as rw

BAR = 180  # so many entries must hold
# These are refused by an error, where PyTorch does something.
REFUSED = {
    "axis must be in [0, 0)": "an axis of a tensor that has none",
    "eps must be finite and not negative": "a negative eps",
    "create_graph: the gradient of": "gradients of gradients of an op whose order is 1",
}


def to_rewind(value, leaves):
    """The same argument with Rewind's tensors; tensors that need gradients go into `leaves`, with PyTorch's."""
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise Unsupported("complex numbers")
        array = value.detach().numpy(force=True)
        array = array.astype(np.uint8) if array.dtype == bool else array
        x = rw.tensor(np.array(array, order="C"))
        if value.requires_grad:
            x.requires_grad = True
            leaves.append((value, x))
        return x
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(to_rewind(v, leaves) for v in value)
    if isinstance(value, dict):
        return {k: to_rewind(v, leaves) for k, v in value.items()}
    return value


def flat(results):
    results = results if isinstance(results, (list, tuple)) else [results]
    return [r for r in results if isinstance(r, (torch.Tensor, rw.Tensor))]


def differ(ours, theirs, what, tolerance):
    ours, theirs = np.asarray(ours.numpy()), theirs.detach().numpy(force=True)
    if ours.shape != theirs.shape:
        return f"{what} has the shape {ours.shape}, not {theirs.shape}"
    kind = np.int64 if theirs.dtype.kind in "biu" else np.float64
    with np.errstate(invalid="ignore"):
        good = np.allclose(ours.astype(kind), theirs.astype(kind), rtol=tolerance, atol=tolerance, equal_nan=True)
    return "" if good else f"{what} has other values"


def weights(of):
    return np.linspace(-0.9, 1.1, max(1, int(np.prod(of.shape))), dtype=np.float32)[:int(np.prod(of.shape))].reshape(of.shape)


def weighted(results, kind):
    """One number of the floats among the results, whose gradient reaches every element."""
    total = None
    for r in results:
        if kind is torch:
            if not (r.is_floating_point() and r.requires_grad):
                continue
            term = (r * torch.from_numpy(weights(r))).sum()
        else:
            if r.dtype in (rw.i32, rw.u8) or not r.requires_grad:
                continue
            term = rw.sum(r * rw.tensor(weights(r)))
        total = term if total is None else total + term
    return total


def check_gradients(leaves, ours, theirs, second):
    a, b = weighted(ours, rw), weighted(theirs, torch)
    if b is None or not leaves:
        return ""
    if a is None:
        return "no gradient"
    xs, ts = [x for _, x in leaves], [t for t, _ in leaves]
    da = rw.grad(a, xs, create_graph=second, allow_unused=True)
    db = torch.autograd.grad(b, ts, create_graph=second, allow_unused=True)
    pairs = [(g, h) for g, h in zip(da, db) if g is not None and h is not None]
    for g, h in pairs:
        if why := differ(g.detach(), h, "a gradient", 2e-4):
            return why
    if not second:
        return ""
    a, b = weighted([g for g, _ in pairs], rw), weighted([h for _, h in pairs], torch)
    if a is None or b is None:
        return ""
    da, db = rw.grad(a, xs, allow_unused=True), torch.autograd.grad(b, ts, allow_unused=True)
    for g, h in zip(da, db):
        if g is not None and h is not None and (why := differ(g, h, "a gradient of gradients", 2e-3)):
            return why
    return ""


def check_sample(function, info, sample):
    leaves = []
    given = to_rewind(sample.input, leaves), to_rewind(sample.args, leaves), to_rewind(sample.kwargs, leaves)
    theirs = flat(info.op(sample.input, *sample.args, **sample.kwargs))
    if any(t.is_complex() or t.dtype == torch.float64 for t in theirs):
        raise Unsupported("results in f64 or complex numbers")
    ours = flat(function(given[0], *given[1], **given[2]))
    if len(ours) < len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    for y, t in zip(ours, theirs):
        if why := differ(y.detach(), t, "a result", 1e-4):
            return why
    return check_gradients(leaves, ours, theirs, info.supports_gradgrad) if info.supports_autograd else ""


def check(info, function):
    """(samples that hold, {reason: samples skipped}, {reason: samples that do not hold})"""
    held, skipped, missed = 0, {}, {}
    dtype = torch.float32 if torch.float32 in info.dtypes else torch.int64
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and dtype == torch.float32))
    for sample in samples:
        try:
            why = check_sample(function, info, sample)
        except Unsupported as error:
            skipped[str(error)] = skipped.get(str(error), 0) + 1
            continue
        except Exception as error:  # the table shows it
            why = reason(error)
            refused = next((r for text, r in REFUSED.items() if text in why), None)
            if refused:
                skipped[refused] = skipped.get(refused, 0) + 1
                continue
        if why:
            missed[why] = missed.get(why, 0) + 1
        else:
            held += 1
    return held, skipped, missed


def write(path, rows, held):
    with open(path, "w") as file:
        file.write(f"# PyTorch's OpInfo from Python\n\n{held} of {len(rows)} entries hold: values, gradients, and gradients of gradients "
                   f"(PyTorch {torch.__version__}, Rewind {rw.__version__}, device {rw.default_device().name}). Made by "
                   "`python3 python/judges/opinfo.py --write`.\n\n| entry | samples | skipped, and why | not held, and why |\n|---|---|---|---|\n")
        for name, (good, skipped, missed) in rows.items():
            words = ["; ".join(f"{n} {w.replace('|', '/')}" for w, n in d.items()) for d in (skipped, missed)]
            file.write(f"| {name} | {good} | {words[0]} | {words[1]} |\n")


def main():
    warnings.simplefilter("ignore")
    options = options_of(__doc__)
    torch.manual_seed(1)
    rows, held = {}, 0
    infos = {i.name + ("/" + i.variant_test_name if i.variant_test_name else ""): i for i in op_db}
    for name in sorted(n for n in ENTRIES if fnmatch.fnmatch(n, options.only)):
        if name not in infos:
            continue
        rows[name] = check(infos[name], ENTRIES[name])
        good, skipped, missed = rows[name]
        held += bool(good and not missed)
        if missed or not good:
            print(f"{name}: {good} hold; skipped {skipped}; missed {missed}", flush=True)
    print(f"{held} of {len(rows)} entries hold")
    if options.write:
        write(options.write, rows, held)
    return 0 if options.only != "*" or held >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
