"""The timeline's tab: steps from event files, and steps traced in a cluster that runs."""

import json
import pathlib

from files import EventFile, step_of
from graph_cases import check_frames

CANVAS = ".timeline-box canvas"
SELECTED = "document.querySelector('.timeline-box canvas').dataset.selected"
SPANS = 100_000
GRAPHS = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "graphs"


def recorded(world, *metadata):
    folder = world.folder()
    events = EventFile(folder)
    for i, one in enumerate(metadata):
        events.run_metadata(10 * (i + 1), f"step_{i}", one)
    events.close()
    return folder


def case_a_recorded_step_is_shown(world):
    logdir = recorded(world, step_of(3, 30), step_of(2, 60))
    with world.dashboard("--logdir", logdir) as dashboard, world.open(dashboard, "timeline") as page:
        page.until("document.querySelectorAll('.cards tbody tr').length > 5")
        assert page.value("document.querySelector('[aria-label=Step]').options.length") == 2
        for title in ["Where the time goes", "Critical path", "Who waits for whom", "Links", "Devices"]:
            assert page.page.locator(f"section[aria-label='{title}']").count() == 1, title
        # A click on the first row selects a span and shows what it is.
        blank = page.picture(CANVAS)
        page.page.get_by_label("Find a span").fill("op_20")
        page.keys("Enter")
        page.until(f"{SELECTED}.endsWith('op_20')")
        assert "Ready after" in page.text("#view-timeline .details") and "MatMul" in page.text(
            "#view-timeline .details"
        )
        assert page.picture(CANVAS) != blank
        page.page.locator("section[aria-label='Critical path'] tbody tr").nth(2).click()
        page.until(f"!{SELECTED}.endsWith('op_20')")
        # The other step.
        page.page.locator("[aria-label=Step]").select_option(index=1)
        page.until("document.querySelectorAll('section[aria-label=Devices] tbody tr').length === 3")


def case_a_span_is_selected_by_pointer_and_keys(world):
    with world.dashboard("--logdir", recorded(world, step_of(1, 40))) as dashboard, world.open(
        dashboard, "timeline"
    ) as page:
        page.until("document.querySelectorAll('.cards tbody tr').length > 2")
        box = page.page.locator(CANVAS).bounding_box()
        page.page.mouse.click(box["x"] + 172, box["y"] + 64 + 20 + 7)
        first = page.until(SELECTED)
        page.page.mouse.move(box["x"] + 172, box["y"] + 64 + 20 + 8)
        page.until("!document.querySelector('#tooltip').hidden")
        assert first in page.text("#tooltip")
        page.value("document.activeElement.blur()")
        page.keys("n")
        second = page.until(f"{SELECTED} !== {json.dumps(first)} && {SELECTED}")
        page.keys("p")
        page.until(f"{SELECTED} === {json.dumps(first)}")
        page.keys("c")
        page.until(SELECTED)
        assert second
        whole = page.picture(CANVAS)
        page.keys("+", "+")
        near = page.picture(CANVAS)
        page.keys("ArrowRight")
        assert len({whole, near, page.picture(CANVAS)}) == 3
        page.keys("0", "Escape")
        page.until(f"{SELECTED} === ''")


def case_a_step_is_downloaded_for_perfetto(world):
    with world.dashboard("--logdir", recorded(world, step_of(2, 20))) as dashboard, world.open(
        dashboard, "timeline"
    ) as page:
        page.until("document.querySelector('a.button')?.hidden === false")
        with page.page.expect_download() as download:
            page.page.locator("a.button", has_text="Perfetto").click()
        with open(download.value.path()) as f:
            trace = json.load(f)
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        assert sum(e.get("ph") == "X" for e in events) >= 40, events[:3]


def case_a_hundred_thousand_spans_pan_and_zoom(world):
    with world.dashboard(
        "--logdir", recorded(world, step_of(8, SPANS * 10 // 12 // 8))
    ) as dashboard, world.open(dashboard, "timeline") as page:
        page.until("document.querySelectorAll('section[aria-label=Devices] tbody tr').length === 8", 60)
        check_frames(page, CANVAS)
        page.keys(*"+" * 8)
        check_frames(page, CANVAS)


def case_the_next_step_of_a_cluster_is_traced(world):
    graph, meta = str(GRAPHS / "mlp.pb"), json.loads((GRAPHS / "mlp.json").read_text())
    with world.cluster(ps=1, worker=1) as cluster, world.dashboard(
        "--connect", cluster.addresses["worker/0"]
    ) as dashboard:
        trace_one(
            world,
            dashboard,
            ["run", graph, *meta["args"], "--server", cluster.addresses["worker/0"], "--repeat", "20000"],
        )


def trace_one(world, dashboard, client):
    with world.open(dashboard, "timeline") as page:
        page.until("document.querySelector('#view-timeline')?.isConnected")
        running = world.command(*client)
        try:
            page.page.get_by_role("button", name="Trace the next step").click()
            page.until("document.querySelectorAll('section[aria-label=Devices] tbody tr').length > 0", 40)
            assert page.value("document.querySelector('[aria-label=Step]').options.length") == 1
            assert (
                page.value("document.querySelectorAll('section[aria-label=\"Critical path\"] tbody tr').length")
                > 0
            )
        finally:
            running.kill()
            running.communicate()
