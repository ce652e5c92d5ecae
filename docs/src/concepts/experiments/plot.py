"""Draws the figures of docs/src/concepts/coordination.md from the CSV files beside this program.

    python3 docs/src/concepts/experiments/plot.py

Needs nothing but Python. The CSV files come from
`cargo run --release -p thalweg-train --example coordination -- docs/src/concepts/experiments`.
"""

import csv
import pathlib

HERE = pathlib.Path(__file__).parent
COLORS = {"async": "#c44e52", "sync": "#4c72b0", "backup": "#55a868", "stale": "#8172b2"}
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 110, 34, 48


def rows(name):
    with open(HERE / name, newline="") as file:
        return list(csv.DictReader(file))


def ticks(most):
    """Round numbers from 0 to `most`, about five of them."""
    step = 10 ** len(str(int(most))) / 10
    for divisor in (1, 2, 4, 5, 10, 20, 50, 100):
        if most / (step / divisor) >= 4:
            step /= divisor
            break
    return [i * step for i in range(int(most / step) + 1)]


def text(x, y, content, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{content}</text>'


class Figure:
    """Axes from 0, with what is drawn on them."""

    def __init__(self, title, x_label, y_label, x_most, y_most):
        self.x_most, self.y_most = x_most, y_most
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            text(WIDTH / 2, 20, title, extra='font-size="14"'),
            text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label),
            text(0, 0, y_label, extra=f'transform="translate(16 {HEIGHT / 2}) rotate(-90)"'),
        ]

    def at(self, x, y):
        width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + width * x / self.x_most, TOP + height * (1 - y / self.y_most)

    def rule(self, x_ticks=True):
        for y in ticks(self.y_most):
            (x0, at), (x1, _) = self.at(0, y), self.at(self.x_most, y)
            self.parts.append(f'<path d="M{x0:.1f} {at:.1f}H{x1:.1f}" stroke="#ddd"/>')
            self.parts.append(text(x0 - 6, at + 4, f"{y:g}", "end"))
        for x in ticks(self.x_most) if x_ticks else []:
            at, y0 = self.at(x, 0)
            self.parts.append(text(at, y0 + 16, f"{x:g}"))

    def line(self, name, points, place):
        path = " ".join("{:.1f},{:.1f}".format(*self.at(x, y)) for x, y in points)
        color = COLORS[name]
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        y = TOP + 16 + 18 * place
        x = WIDTH - RIGHT + 12
        self.parts.append(f'<path d="M{x} {y - 4}h18" stroke="{color}" stroke-width="3"/>')
        self.parts.append(text(x + 24, y, name, "start"))

    def bar(self, left, width, height, color, opacity):
        (x0, y0), (x1, y1) = self.at(left, 0), self.at(left + width, height)
        self.parts.append(
            f'<rect x="{x0:.1f}" y="{y1:.1f}" width="{x1 - x0:.1f}" height="{y0 - y1:.1f}" '
            f'fill="{color}" fill-opacity="{opacity}"/>'
        )
        self.parts.append(text((x0 + x1) / 2, y1 - 4, f"{height:.1f}"))

    def write(self, name):
        (HERE / name).write_text("\n".join(self.parts + ["</svg>"]) + "\n")


def course(axis, label, name):
    """Loss against time, steps or gradients, with one slow worker."""
    slow = [row for row in rows("coordination.csv") if row["slowness"] != "1"]
    losses = [float(row["loss"]) for row in slow]
    most = max(float(row[axis]) for row in slow)
    figure = Figure(f"Loss against {label}, one of five workers slow", label, "loss", most, max(losses))
    figure.rule()
    for place, mode in enumerate(COLORS):
        points = [(float(r[axis]), float(r["loss"])) for r in slow if r["mode"] == mode]
        figure.line(mode, points, place)
    figure.write(name)


def rates():
    """Gradients used per second, without and with a slow worker."""
    table = rows("coordination-rates.csv")
    most = max(float(row["gradients_per_second"]) for row in table)
    figure = Figure(
        "Gradients used per second: all workers alike (pale), one of five slow",
        "", "gradients per second", 4, most * 1.1,
    )
    figure.rule(x_ticks=False)
    for i, mode in enumerate(COLORS):
        for row in (row for row in table if row["mode"] == mode):
            is_slow = row["slowness"] != "1"
            left = i + (0.5 if is_slow else 0.1)
            height = float(row["gradients_per_second"])
            figure.bar(left, 0.38, height, COLORS[mode], 1 if is_slow else 0.45)
        x, y = figure.at(i + 0.5, 0)
        figure.parts.append(text(x, y + 18, mode))
    figure.write("coordination-rates.svg")


if __name__ == "__main__":
    course("seconds", "seconds", "coordination-time.svg")
    course("updates", "steps", "coordination-steps.svg")
    course("used", "gradients", "coordination-gradients.svg")
    rates()
