#!/usr/bin/env python3
"""Predicts how data parallel training scales over networks that are not present: the messages that dist/ sends, by the
alpha-beta model of Thakur, Rabenseifner and Gropp (2005), around steps that are measured on this machine. It also compares
the model with measured ranks.

Usage: scaling.py BUILD [--model PRESET] [--output FILE]   (ninja -C BUILD benchmarks/bench; needs mpirun)"""

import argparse
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Link:
    """A rank's seconds per message, and per byte."""
    alpha: float
    beta: float

    @staticmethod
    def of(gbit, alpha=5e-6):
        return Link(alpha, 8 / (gbit * 1e9))


def all_to_all(ranks, size, link):
    """Exchanges `size` bytes that a rank has for all, itself included, in pairs: ranks - 1 messages, one after the other."""
    return (ranks - 1) * link.alpha + (ranks - 1) / ranks * size * link.beta


def all_gather_ring(ranks, size, link):
    """Sends `size` bytes of all ranks together to each by a ring, as MPI libraries do with long messages."""
    return (ranks - 1) * link.alpha + (ranks - 1) / ranks * size * link.beta


def all_gather_doubling(ranks, size, link):
    """The same by recursive doubling, a tree, with fewer messages of the same total size."""
    return math.ceil(math.log2(ranks)) * link.alpha + (ranks - 1) / ranks * size * link.beta


def all_reduce(ranks, size, link):
    """Rabenseifner's algorithm: recursive halving, then recursive doubling. The additions are left out."""
    return 2 * math.ceil(math.log2(ranks)) * link.alpha + 2 * (ranks - 1) / ranks * size * link.beta


@dataclass(frozen=True)
class Step:
    """A step of one rank with a micro-batch per update: seconds of the device, and the gradients' bytes."""
    seconds: float
    gradient_bytes: int
    bucket_bytes: int = 8 * MIB
    backward: float = 2 / 3   # share of the seconds; gradients become complete evenly over it
    host: float = 20e9        # bytes per second between device and host, through which all messages go

    @property
    def buckets(self):
        whole, rest = divmod(self.gradient_bytes, self.bucket_bytes)
        return [self.bucket_bytes] * whole + [rest] * (rest > 0)


def step_seconds(step, ranks, link, overlaps=True, gather=all_gather_ring):
    """Returns the seconds of an update as dist/ does it: buckets go to their owners one after the other, while backward runs or
    after it; then the owners' sums (with states in parts, parameters) come back to all, and nothing hides them. Copies between
    host and device are hidden behind messages, or messages behind copies."""
    if ranks == 1:
        return step.seconds
    free, done = 0.0, 0
    for size in step.buckets:
        done += size
        complete = step.seconds * (1 - step.backward * (1 - done / step.gradient_bytes)) if overlaps else step.seconds
        free = max(free, complete) + max(all_to_all(ranks, size, link), size / step.host)
    back = sum(max(gather(ranks, size, link), size / step.host) for size in step.buckets)
    return max(free, step.seconds) + back


def efficiency(step, ranks, link, **how):
    """Returns the share of the time of one rank that takes the same micro-batch alone."""
    return step.seconds / step_seconds(step, ranks, link, **how)


def fit_link(points):
    """Fits a link to (messages, bytes, seconds) by least squares of relative errors, with no negative values."""
    rows = [(messages / seconds, size / seconds) for messages, size, seconds in points]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a1, b1 = (sum(r[i] for r in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    alpha, beta = ((a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant) if determinant else (-1, -1)
    if alpha < 0:
        return Link(0, b1 / bb)
    return Link(a1 / aa, 0) if beta < 0 else Link(alpha, beta)


# ---- measured ------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Point:
    """A row of `bench data_parallel`: bytes and seconds per step and rank."""
    ranks: int
    bucket_bytes: int
    buckets: int
    seconds: float
    sent_bytes: float
    message_seconds: float
    waited_seconds: float
    update_seconds: float

    @staticmethod
    def parse(row, bucket_bytes):
        """model, ranks, in parts, transport, buckets, step, gradients, parameters, messages, waited, hidden, of parameters,
        update, peak"""
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        milliseconds = lambda i: float(cells[i]) / 1e3
        return Point(int(cells[1]), bucket_bytes, int(cells[4]), milliseconds(5), float(cells[6]) * MIB,
                     milliseconds(8), milliseconds(9), milliseconds(12))


def measure(build, model, ranks, bucket, batch, steps):
    launch = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    environment = dict(os.environ, LP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    result = subprocess.run(launch + [str(build / "benchmarks" / "bench"), "data_parallel", "--model", model, "--bucket", str(bucket),
                                      "--batch", str(batch), "--steps", str(steps)],
                            capture_output=True, text=True, env=environment)
    if result.returncode:
        sys.exit(f"data_parallel with {ranks} ranks: {result.stderr}")
    return Point.parse(next(line for line in result.stdout.splitlines() if line.startswith("|")), bucket << 10)


def measured_section(build, model, out):
    """Compares the model with the ranks of this machine: the link of two ranks, and its prediction for four."""
    cores, batch, steps = os.cpu_count(), 2, 3
    alone = measure(build, model, 1, 8192, batch, steps)
    points = {(ranks, bucket): measure(build, model, ranks, bucket, batch, steps)
              for ranks in (2, 4) for bucket in (1024, 8192)}
    link = fit_link([(p.buckets * (p.ranks - 1), p.sent_bytes, p.message_seconds)
                     for p in points.values() if p.ranks == 2])
    out.append(f"BERT-{model}, {batch} x 64 tokens on each rank, one thread of the driver each; {cores} cores, so 4 ranks have "
               f"half of a core, and other work had a part of them all the while. One rank alone takes "
               f"{1e3 * alone.seconds:.0f} ms. Of the messages of 2 ranks: alpha {1e6 * link.alpha:.0f} us, "
               f"{1e-9 / link.beta if link.beta else math.inf:.2f} GB/s, which is why the model has the messages of 2 ranks right. "
               f"With these, and {cores} cores shared by the ranks, it gives:\n")
    out.append("| ranks | bucket | messages, ms: measured | model | step, ms: measured | model |\n|---|---|---|---|---|---|")
    for (ranks, bucket), p in points.items():
        share = max(1.0, ranks / cores)
        gradients = round(p.sent_bytes * ranks / (ranks - 1))
        step = Step(alone.seconds * share, gradients, p.bucket_bytes, host=math.inf)
        sent = p.buckets * (ranks - 1) * link.alpha + p.sent_bytes * link.beta
        out.append(f"| {ranks} | {bucket / 1024:g} MiB | {1e3 * p.message_seconds:.0f} | {1e3 * sent:.0f} | {1e3 * p.seconds:.0f} | "
                   f"{1e3 * step_seconds(step, ranks, link):.0f} |")


def model_section(build, out):
    """Predicts networks that are not present."""
    name, texts = "small", 4
    alone = measure(build, name, 1, 8192, texts, 1)
    size = round(2 * measure(build, name, 2, 8192, 1, 1).sent_bytes)  # of two ranks each sends half
    out.append(f"BERT-{name} ({size / 4e6:.0f} million parameters, {size / 1e6:.0f} MB of gradients), {texts} x 64 "
               f"tokens on each rank: {alone.seconds:.1f} s on one core here. Devices that are so many times as fast as that core "
               "are assumed. Efficiency is that time over the time of a step with messages; 5 us per message, 20 GB/s between "
               "device and host.\n")
    ranks_of = (8, 16, 64, 256, 1024)
    out.append("| device | network | | " + " | ".join(f"{ranks} ranks" for ranks in ranks_of) + " |\n|---|---|---|" + "---|" * len(ranks_of))
    for speed in (100, 1000):
        step = Step(alone.seconds / speed, size)
        for gbit in (10, 100, 400):
            for label, how in (("after backward", {"overlaps": False}), ("with overlap", {}),
                               ("with overlap, tree", {"gather": all_gather_doubling})):
                cells = " | ".join(f"{100 * efficiency(step, ranks, Link.of(gbit), **how):.0f} %" for ranks in ranks_of)
                out.append(f"| {speed} x: {1e3 * step.seconds:.0f} ms | {gbit} Gbit/s | {label} | {cells} |")
    link = Link.of(100)
    out.append("\nFor comparison, the bytes of one all-reduce by Rabenseifner's algorithm are those of both parts together: "
               f"{1e3 * all_reduce(64, size, link):.0f} ms for 64 ranks at 100 Gbit/s in one piece, and "
               f"{1e3 * sum(all_to_all(64, b, link) + all_gather_ring(64, b, link) for b in step.buckets):.0f} ms as it is done here, "
               "bucket by bucket, in an order of additions that does not depend on the ranks.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--model", default="mini", help="of the measured ranks: a preset of BERT")
    parser.add_argument("--output", type=Path, help="instead of standard output")
    options = parser.parse_args()
    if shutil.which("mpirun") is None:
        sys.exit("there is no mpirun (apt install openmpi-bin)")
    out = ["# Scaling, by a model\n",
           "`benchmarks/scaling.py`: the messages of `dist/` by the alpha-beta model of Thakur, Rabenseifner and Gropp (2005). "
           "Nothing of the networks below was there; the first table says how far the model is right where it can be checked. "
           "Left out: additions on the owners, other traffic, ranks that are slower than others.\n",
           "## Beside measured ranks\n"]
    measured_section(options.build, options.model, out)
    out.append("\n## Networks\n")
    model_section(options.build, out)
    text = "\n".join(out) + "\n"
    if options.output:
        options.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
