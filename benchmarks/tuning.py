#!/usr/bin/env python3
"""Measures what `./rewind tune` gains: cases of build/benchmarks/speed with and without its choices, in turns.

Two servers run side by side, one of them with REWIND_WITHOUT=tuning, and only one measures at a time. Prints the median
of the rounds' ratios and how far they lie apart. Usage: tuning.py BUILD [--only TEXT] [--dtype T] [--rounds N]"""

import argparse
import os
import statistics
import subprocess


class Server:
    def __init__(self, options, **environment):
        command = [options.build + "/benchmarks/speed", "--serve", "--dtype", options.dtype, "--round",
                   str(options.round)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})

    def seconds(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        return None if answer.startswith("skip") or not answer else float(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--only", default="step/", help="only cases whose names contain this")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round", type=float, default=0.2, help="seconds measured at a time")
    options = parser.parse_args()
    listed = subprocess.run([options.build + "/benchmarks/speed", "--list", "--only", options.only],
                            capture_output=True, text=True, check=True).stdout
    tuned, plain = Server(options), Server(options, REWIND_WITHOUT="tuning")
    print(f"{'case':<44} {'ms before':>10} {'ms tuned':>10} {'ratio':>6}  spread", flush=True)
    for case in [line.split()[0] for line in listed.splitlines()]:
        rounds = []
        for i in range(options.rounds):
            order = (plain, tuned) if i % 2 else (tuned, plain)
            found = {server: server.seconds(case) for server in order}
            rounds.append((found[plain], found[tuned]))
        if any(None in pair for pair in rounds):
            print(f"{case:<44} skipped", flush=True)
            continue
        ratios = sorted(a / b for a, b in rounds)
        before, after = (statistics.median(column) * 1e3 for column in zip(*rounds))
        print(f"{case:<44} {before:>10.3f} {after:>10.3f} {statistics.median(ratios):>6.2f}  "
              f"{ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)


main()
