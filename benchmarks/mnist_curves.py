#!/usr/bin/env python3
"""Training loss and test accuracy by epoch, as a Markdown table and as a picture, from reports of `mnist`.

    build/apps/mnist --data DIR --images 0 --epochs 20 --runs accumulate --report accumulate.json   # and so on
    benchmarks/mnist_curves.py --svg benchmarks/results/mnist.svg accumulate.json batch.json single.json
"""
import argparse
import json
import pathlib

COLOURS = ["#1b6ca8", "#d1495b", "#3a7d44", "#8d6a9f"]
WIDTH, HEIGHT, LEFT, TOP = 420, 260, 56, 34
TITLES = {"single": "Adam, batch {batch}", "accumulate": "Accumulate(Adam, {micro_batches}), batch {batch}",
          "batch": "Adam, batch {batch}"}


def curves(paths):
    for path in paths:
        for run in json.loads(pathlib.Path(path).read_text())["runs"]:
            if run["history"]:
                yield TITLES[run["name"]].format(**run), run["history"]


def table(runs):
    rows = ["| epoch | " + " | ".join(title for title, _ in runs) + " |", "|---:|" + "---:|" * len(runs)]
    for epoch in range(max(len(history) for _, history in runs)):
        cells = [f"{h[epoch]['train_loss']:.4f}, {100 * h[epoch]['test_accuracy']:.2f} %" if epoch < len(h) else ""
                 for _, h in runs]
        rows.append(f"| {epoch + 1} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def panel(runs, x0, title, value, low, high):
    epochs = max(len(history) for _, history in runs)

    def place(epoch, y):
        across = (epoch - 1) / max(1, epochs - 1)
        return f"{x0 + LEFT + across * WIDTH:.1f},{TOP + (high - min(high, y)) / (high - low) * HEIGHT:.1f}"

    parts = [f'<text x="{x0 + LEFT}" y="{TOP - 12}" font-weight="bold">{title}</text>']
    for k in range(5):
        y = low + (high - low) * k / 4
        at = TOP + HEIGHT * (4 - k) / 4
        parts.append(f'<line x1="{x0 + LEFT}" x2="{x0 + LEFT + WIDTH}" y1="{at}" y2="{at}" stroke="#ddd"/>'
                     f'<text x="{x0 + LEFT - 6}" y="{at + 4}" text-anchor="end">{y:.3g}</text>')
    for epoch in range(1, epochs + 1):
        parts.append(f'<text x="{place(epoch, low).split(",")[0]}" y="{TOP + HEIGHT + 16}" '
                     f'text-anchor="middle">{epoch}</text>')
    for (_, history), colour in zip(runs, COLOURS):
        points = " ".join(place(i + 1, value(e)) for i, e in enumerate(history))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="2.5" fill="{colour}"/>'
                  for p in points.split()]
    return parts


def picture(runs):
    losses = [e["train_loss"] for _, history in runs for e in history]
    parts = panel(runs, 0, "training loss", lambda e: e["train_loss"], 0, min(0.6, max(losses)))
    parts += panel(runs, WIDTH + LEFT + 24, "test accuracy, %", lambda e: 100 * e["test_accuracy"], 92, 100)
    for i, (title, _) in enumerate(runs):
        y = TOP + HEIGHT + 40 + 18 * i
        parts.append(f'<rect x="{LEFT}" y="{y - 9}" width="18" height="4" fill="{COLOURS[i]}"/>'
                     f'<text x="{LEFT + 26}" y="{y}">{title}</text>')
    width, height = 2 * (WIDTH + LEFT + 24), TOP + HEIGHT + 48 + 18 * len(runs)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
            + "".join(parts) + "</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", help="of mnist --report")
    parser.add_argument("--svg", help="file for the picture")
    options = parser.parse_args()
    runs = list(curves(options.reports))
    if options.svg:
        pathlib.Path(options.svg).write_text(picture(runs))
    print(table(runs))


if __name__ == "__main__":
    main()
