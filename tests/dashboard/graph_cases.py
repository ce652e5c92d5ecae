"""The graph's tab, from a small graph to the largest."""

from browser import FRAMES_PER_SECOND_MIN
from files import graph_def, large_graph
from page_cases import GRAPH

CANVAS = ".graph-canvas canvas"
BOXES = "Number(document.querySelector('#view-graph')?.dataset.boxes ?? 0)"
SELECTED = "document.querySelector('#view-graph').dataset.selected"
NODES, EDGES = 40_000, 100_000


def deep():
    """More than is opened at the start."""
    return graph_def(
        [
            (
                f"tower/block_{i // 10}/op_{i}",
                "Relu" if i % 2 else "MatMul",
                [f"tower/block_{(i - 1) // 10}/op_{i - 1}"] if i else [],
                f"/job:worker/replica:0/task:{i % 3}/device:CPU:0",
            )
            for i in range(100)
        ]
    )


def case_a_scope_expands_and_collapses(world):
    with world.dashboard(world.file(deep())) as dashboard, world.open(dashboard, "graph") as page:
        page.until(f"{BOXES} > 0")
        page.page.get_by_role("button", name="Collapse all").click()
        page.until(f"{BOXES} === 1")
        # By a click on the drawing: the only box is in the middle.
        box = page.page.locator(CANVAS).bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 - 17)
        page.page.mouse.click(*middle)
        page.until(f"{BOXES} === 11")
        assert page.value(SELECTED) == "tower"
        # By Enter, which collapses it again.
        page.keys("Enter")
        page.until(f"{BOXES} === 1")
        # By a click in the tree.
        page.page.locator("[role=treeitem]", has_text="tower").first.click()
        page.until(f"{BOXES} === 11")
        page.page.locator("[role=treeitem]", has_text="block_3").first.click()
        page.until(f"{BOXES} === 21")
        page.page.get_by_role("button", name="Expand all").click()
        page.until(f"{BOXES} === 111")


def case_a_node_is_found_and_described(world):
    with world.dashboard(world.file(deep())) as dashboard, world.open(dashboard, "graph") as page:
        page.until(f"{BOXES} > 0")
        page.page.get_by_role("button", name="Collapse all").click()
        page.until(f"{BOXES} === 1")
        page.page.get_by_label("Find a node").fill("op_57")
        page.keys("Enter")
        page.until(f"{BOXES} === 21")
        assert page.value(SELECTED) == "tower/block_5/op_57"
        details = page.text(".details")
        for part in [
            "Relu",
            "/job:worker/replica:0/task:0/device:CPU:0",
            "Inputs (1)",
            "tower/block_5/op_56",
            "Outputs (1)",
            "tower/block_5/op_58",
        ]:
            assert part in details, (part, details)
        # The node is in the middle of the drawing: a click there selects it again.
        page.keys("Escape")
        page.until(f"{SELECTED} === ''")
        box = page.page.locator(CANVAS).bounding_box()
        page.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.until(f"{SELECTED} === 'tower/block_5/op_57'")
        # A neighbour in the list leads on.
        page.page.locator(".details button.link", has_text="op_58").click()
        page.until(f"{SELECTED} === 'tower/block_5/op_58'")
        page.page.get_by_label("Find a node").fill("nowhere")
        assert "nothing of that name" in page.text(".search-list")


def case_colours_say_device_op_and_time(world):
    with world.cluster(ps=1, worker=1) as cluster, world.dashboard(
        "--connect", cluster.addresses["ps/0"], world.file(GRAPH)
    ) as dashboard, world.open(dashboard, "graph") as page:
        page.until(f"{BOXES} > 0")
        pictures = [page.picture(CANVAS)]
        page.page.get_by_role("radio", name="op type").click()
        pictures.append(page.picture(CANVAS))
        assert "MatMul" in page.text(".graph-legend")
        page.page.get_by_role("radio", name="time").click()
        pictures.append(page.picture(CANVAS))
        assert len(set(pictures)) == 3


def case_the_largest_graph_pans_and_zooms(world):
    with world.dashboard(world.file(large_graph(NODES, EDGES))) as dashboard, world.open(
        dashboard, "graph"
    ) as page:
        page.until(f"{BOXES} > 0")
        # The page goes on while the layout is made.
        page.value(
            """(() => { window.longest = 0; let last = performance.now(); const tick = (now) => {
          window.longest = Math.max(window.longest, now - last); last = now; requestAnimationFrame(tick); }; requestAnimationFrame(tick); })()"""
        )
        page.page.get_by_role("button", name="Expand all").click()
        page.until(f"{BOXES} > {NODES}")
        longest = page.value("window.longest")
        assert longest < 1500, f"the page stood still for {longest:.0f} ms"
        summary = page.text(".graph .toolbar .muted")
        assert "40,000 nodes" in summary, summary
        check_frames(page, CANVAS)
        # The same from near, where boxes have names.
        page.page.get_by_label("Find a node").fill("op_20000")
        page.keys("Enter")
        page.until(f"{SELECTED}.endsWith('op_20000')")
        page.page.wait_for_timeout(500)
        check_frames(page, CANVAS)
        # The tree has a row for everything, but elements only for what is in sight.
        assert page.value("document.querySelector('.tree > div').offsetHeight") > 20 * NODES
        assert page.value("document.querySelectorAll('[role=treeitem]').length") < 100


def check_frames(page, canvas):
    for how in ["pan", "zoom"]:
        before = page.picture(canvas)
        # Other work on the machine may take a share of the first try.
        rates = []
        while len(rates) < 3 and max(rates, default=0) < FRAMES_PER_SECOND_MIN:
            rates.append(page.frames_per_second(canvas, how))
        print(f"       {how}: {', '.join(f'{r:.0f}' for r in rates)} frames a second", flush=True)
        assert max(rates) >= FRAMES_PER_SECOND_MIN, (how, rates)
        assert page.picture(canvas) != before, f"{how} moved nothing"
