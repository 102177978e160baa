"""Draws curves over seeds as a picture in light and dark, with panels side by side and a legend below them."""
import math
import statistics

COLOURS = ["#1b6ca8", "#d1495b", "#3a7d44", "#8d6a9f", "#c98a1b", "#4a4a4a", "#2aa198"]
WIDTH, HEIGHT, LEFT, TOP = 420, 260, 56, 34
STYLE = """<style>
:root { color-scheme: light dark } .page { fill: #fff } text { fill: #222 } .grid { stroke: #ddd }
@media (prefers-color-scheme: dark) {
  .page { fill: #1b1d21 } text { fill: #e6e6e6 } .grid { stroke: #3a3d42 } .mark { filter: brightness(1.5) } }
</style>"""


def ticks(low, high):
    """Returns three to six round numbers between two numbers."""
    step = 10 ** math.floor(math.log10((high - low) / 3))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


class Panel:
    """`curves` has, by label, points (x, values of all seeds). A curve is the mean in a band from the least to the largest, or
    in an `area` from zero; a curve of a single point is a dot for each seed beside a bar at their mean."""

    def __init__(self, title, curves, width=WIDTH, area=False):
        self.title, self.curves, self.width = title, curves, width
        self.floor = (lambda seeds: 0) if area else min
        values = [v for points in curves.values() for _, seeds in points for v in seeds]
        margin = 0.05 * (max(values) - min(values)) or 1
        self.low = max(min(values) - margin, min(0, min(values)))
        self.high = max(values) + margin
        xs = [x for points in curves.values() for x, _ in points]
        self.first, self.last = min(xs), max(xs)
        self.dots = all(len(points) == 1 for points in curves.values())
        if self.dots:
            self.first, self.last = self.first - 0.5, self.last + 0.5

    def place(self, x, y):
        across = (x - self.first) / ((self.last - self.first) or 1)
        return LEFT + across * self.width, TOP + (self.high - y) / (self.high - self.low) * HEIGHT

    def axes(self):
        yield f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">{self.title}</text>'
        for y in ticks(self.low, self.high):
            at = self.place(self.first, y)[1]
            yield (f'<line x1="{LEFT}" x2="{LEFT + self.width}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>'
                   f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:,.4g}</text>')
        for x in [] if self.dots else ticks(self.first, self.last):
            yield (f'<text x="{self.place(x, self.low)[0]:.1f}" y="{TOP + HEIGHT + 16}" '
                   f'text-anchor="middle">{x:,g}</text>')

    def marks(self):
        for points, colour in zip(self.curves.values(), COLOURS):
            if self.dots:
                x, seeds = points[0]
                (left, y), (right, _) = (self.place(x + side, statistics.fmean(seeds)) for side in (-0.25, 0.25))
                yield f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="3" class="mark"/>'
                for value in seeds:
                    at = self.place(x, value)
                    yield f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="{colour}" fill-opacity="0.6" class="mark"/>'
                continue

            def line(pick, order=1):
                return " ".join("{:.1f},{:.1f}".format(*self.place(x, pick(seeds))) for x, seeds in points[::order])
            yield f'<polygon points="{line(self.floor)} {line(max, -1)}" fill="{colour}" fill-opacity="0.15" class="mark"/>'
            yield f'<polyline points="{line(statistics.fmean)}" fill="none" stroke="{colour}" stroke-width="2" class="mark"/>'


def svg(panels):
    """Draws panels, which all have the same labels."""
    labels = list(panels[0].curves)
    widths = [panel.width + LEFT + 24 for panel in panels]
    width, height = sum(widths), TOP + HEIGHT + 36 + 18 * len(labels)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="12">', STYLE, '<rect width="100%" height="100%" class="page"/>']
    for i, panel in enumerate(panels):
        parts += [f'<g transform="translate({sum(widths[:i])})">', *panel.axes(), *panel.marks(), "</g>"]
    for i, (label, colour) in enumerate(zip(labels, COLOURS)):
        y = TOP + HEIGHT + 40 + 18 * i
        parts.append(f'<rect x="{LEFT}" y="{y - 9}" width="18" height="4" fill="{colour}" class="mark"/>'
                     f'<text x="{LEFT + 26}" y="{y}">{label}</text>')
    return "\n".join(parts) + "\n</svg>\n"
