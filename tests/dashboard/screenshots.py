"""Takes the pictures of the README and the book: the dashboard of a training, and of a simulation.

    python tests/dashboard/screenshots.py --thalweg target/release/thalweg docs/src/how-to/pictures

Writes `dashboard-cluster.png` and so on into the folder, each below 200 KB.
"""

import argparse
import os
import pathlib
import collections
import shutil
import struct
import sys
import tempfile
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import browser  # noqa: E402
from files import png_chunk  # noqa: E402
from support import World  # noqa: E402

BYTES_MAX = 200_000
TRAIN_SECONDS = 20
SIZE = {"width": 1280, "height": 800}


def shoot(page, folder, name):
    path = folder / f"dashboard-{name}.png"
    page.page.mouse.move(0, 0)
    page.page.wait_for_timeout(500)
    page.page.screenshot(path=path)
    if os.path.getsize(path) >= BYTES_MAX:
        path.write_bytes(with_palette(path.read_bytes()))
    size = os.path.getsize(path)
    assert size < BYTES_MAX, f"{path} has {size} bytes"
    print(f"{path}: {size} bytes")


def of_a_training(world, folder):
    """The cluster, graph and curves of the quickstart, and a step of it."""
    job = world.command(
        "quickstart",
        "--dashboard",
        "--output",
        world.folder(),
        "--images",
        "6000",
        "--epochs",
        "1000",
        "--filters",
        "4",
        "--batch-size",
        "50",
        "--no-kill",
    )
    try:
        url = next(line.split()[-1] for line in job.stdout if "dashboard at " in line)
        time.sleep(TRAIN_SECONDS)
        with world.browser.open(url, "cluster", **SIZE) as page:
            page.until("document.querySelectorAll('.tasks tbody tr').length > 1")
            page.page.wait_for_timeout(TRAIN_SECONDS * 1000)
            shoot(page, folder, "cluster")
            page.keys("2")
            page.until("document.querySelector('#view-graph')?.dataset.boxes > 0")
            page.page.get_by_label("Find a node").fill("dense")
            page.keys("Enter")
            shoot(page, folder, "graph")
            page.keys("4")
            page.until("document.querySelectorAll('#view-training [data-kind=scalar]').length > 1")
            page.page.wait_for_timeout(2500)
            shoot(page, folder, "training")
            page.keys("3")
            page.page.get_by_role("button", name="Trace the next step").click()
            show_step(page, folder)
    finally:
        job.terminate()
        job.communicate()


def show_step(page, folder):
    page.until(
        "document.querySelectorAll('#view-timeline section[aria-label=Devices] tbody tr').length > 0", 40
    )
    page.keys("c", "c", "c")
    page.keys("0")
    shoot(page, folder, "timeline")


def of_a_simulation(world, folder):
    from simulation_cases import RUNS, simulated

    with simulated(world) as dashboard, world.open(dashboard, "simulation", **SIZE) as page:
        page.until(f"{RUNS} === 1")
        page.page.get_by_role("slider", name="all links").focus()
        page.keys(*["ArrowLeft"] * 4)
        page.until(f"{RUNS} > 1")
        shoot(page, folder, "simulation")


def with_palette(png):
    """The picture in its 256 most frequent colours, each of 5 bits a channel."""
    width, height, channels, rows = pixels(png)
    coarse = bytes(round((b >> 3) * 255 / 31) for b in range(256))
    colors = []
    for row in rows:
        row = row.translate(coarse)
        colors.append(list(zip(row[0::channels], row[1::channels], row[2::channels])))
    palette = [c for c, _ in collections.Counter(c for row in colors for c in row).most_common(256)]
    index = {c: i for i, c in enumerate(palette)}

    def nearest(color):
        if color not in index:
            index[color] = min(
                range(len(palette)), key=lambda i: sum((a - b) ** 2 for a, b in zip(color, palette[i]))
            )
        return index[color]

    data = b"".join(b"\0" + bytes(map(nearest, row)) for row in colors)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = [
        (b"IHDR", header),
        (b"PLTE", bytes(x for c in palette for x in c)),
        (b"IDAT", zlib.compress(data, 9)),
        (b"IEND", b""),
    ]
    return png[:8] + b"".join(png_chunk(kind, content) for kind, content in chunks)


def pixels(png):
    """Width, height, channels and rows of a picture of 8 bits a channel."""
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        content = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", content[:10])
            channels = {2: 3, 6: 4}[color]
            assert depth == 8, depth
        data += content if kind == b"IDAT" else b""
        at += length + 12
    raw, step, rows = zlib.decompress(data), width * channels, []
    above = bytes(step)
    for y in range(height):
        how, row = raw[y * (step + 1)], bytearray(raw[y * (step + 1) + 1 : (y + 1) * (step + 1)])
        for i in range(step if how else 0):
            left, up, corner = (
                (row[i - channels], above[i], above[i - channels]) if i >= channels else (0, above[i], 0)
            )
            guess = [0, left, up, (left + up) // 2, paeth(left, up, corner)][how]
            row[i] = (row[i] + guess) & 255
        above = bytes(row)
        rows.append(above)
    return width, height, channels, rows


def paeth(left, up, corner):
    guess = left + up - corner
    return min((left, up, corner), key=lambda x: abs(guess - x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--thalweg", required=True, help="the thalweg command")
    parser.add_argument("folder", type=pathlib.Path, help="where the pictures go")
    args = parser.parse_args()
    program, why = browser.find()
    if program is None:
        sys.exit(why)
    args.folder.mkdir(parents=True, exist_ok=True)
    root = tempfile.mkdtemp(prefix="thalweg-screenshots-")
    try:
        with browser.Browser(program) as running:
            world = World(args.thalweg, running, root)
            of_a_training(world, args.folder)
            of_a_simulation(world, args.folder)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
