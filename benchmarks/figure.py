"""Curves over seeds as a picture: panels side by side, a legend below them."""
import statistics

COLOURS = ["#1b6ca8", "#d1495b", "#3a7d44", "#8d6a9f", "#c98a1b", "#4a4a4a", "#2aa198"]
WIDTH, HEIGHT, LEFT, TOP = 420, 260, 56, 34


class Panel:
    """`curves`: by label, points (x, values of all seeds). A curve is the mean in a band from least to largest; one
    of a single point is a dot for each seed beside a bar at their mean."""

    def __init__(self, title, curves):
        self.title, self.curves = title, curves
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
        return LEFT + across * WIDTH, TOP + (self.high - y) / (self.high - self.low) * HEIGHT

    def axes(self):
        yield f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">{self.title}</text>'
        for k in range(5):
            y = self.low + (self.high - self.low) * k / 4
            at = TOP + HEIGHT * (4 - k) / 4
            yield (f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{at}" y2="{at}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{y:.3g}</text>')
            if not self.dots:
                x = round(self.first + (self.last - self.first) * k / 4)
                yield (f'<text x="{self.place(x, self.low)[0]:.1f}" y="{TOP + HEIGHT + 16}" '
                       f'text-anchor="middle">{x:,}</text>')

    def marks(self):
        for points, colour in zip(self.curves.values(), COLOURS):
            if self.dots:
                x, seeds = points[0]
                (left, y), (right, _) = (self.place(x + side, statistics.fmean(seeds)) for side in (-0.25, 0.25))
                yield f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="3"/>'
                for value in seeds:
                    at = self.place(x, value)
                    yield f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="{colour}" fill-opacity="0.6"/>'
                continue

            def line(pick, order=1):
                return " ".join("{:.1f},{:.1f}".format(*self.place(x, pick(seeds))) for x, seeds in points[::order])
            yield f'<polygon points="{line(min)} {line(max, -1)}" fill="{colour}" fill-opacity="0.15"/>'
            yield f'<polyline points="{line(statistics.fmean)}" fill="none" stroke="{colour}" stroke-width="2"/>'


def svg(panels):
    """All panels have the same labels."""
    labels = list(panels[0].curves)
    width, height = len(panels) * (WIDTH + LEFT + 24), TOP + HEIGHT + 48 + 18 * len(labels)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for i, panel in enumerate(panels):
        parts += [f'<g transform="translate({i * (WIDTH + LEFT + 24)})">', *panel.axes(), *panel.marks(), "</g>"]
    for i, (label, colour) in enumerate(zip(labels, COLOURS)):
        y = TOP + HEIGHT + 40 + 18 * i
        parts.append(f'<rect x="{LEFT}" y="{y - 9}" width="18" height="4" fill="{colour}"/>'
                     f'<text x="{LEFT + 26}" y="{y}">{label}</text>')
    return "\n".join(parts) + "\n</svg>\n"
