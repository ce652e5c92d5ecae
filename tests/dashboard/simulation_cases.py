"""The simulation's tab: what one changes shows at once."""

import json
import pathlib

GRAPHS = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "graphs"
STEP = "Number(document.querySelector('#view-simulation')?.dataset.step ?? 0)"
RUNS = "Number(document.querySelector('#view-simulation')?.dataset.runs ?? 0)"
CANVAS = "#view-simulation .timeline-box canvas"
DEVICES = """
[[device]]
name = "/job:worker/task:0"
flops = 5e10
memory_bandwidth = "20 GB/s"
memory = "8 GB"

[[device]]
name = "/job:ps/task:0"
flops = 5e10
memory_bandwidth = "20 GB/s"
memory = "8 GB"

[link]
latency = "50 us"
bandwidth = "100 MB/s"
"""


def simulated(world):
    meta = json.loads((GRAPHS / "mlp.json").read_text())
    fetches = [a for a in meta["args"] if a.startswith("--fetch")]
    return world.dashboard("--simulate", world.file(DEVICES.encode()), str(GRAPHS / "mlp.pb"), *fetches)


def case_a_slider_changes_the_timeline(world):
    with simulated(world) as dashboard, world.open(dashboard, "simulation") as page:
        page.until(f"{RUNS} === 1")
        step, picture = page.value(STEP), page.picture(CANVAS)
        sent = []
        page.page.on("request", lambda r: sent.append(r.post_data) if r.method == "POST" else None)
        devices = page.page.locator("aside h3", has_text="Speed of devices").locator(
            "xpath=following-sibling::label//input"
        )
        # Two steps down of a slider in powers of two halve a speed each four.
        for i in range(devices.count()):
            devices.nth(i).focus()
            page.keys(*["ArrowLeft"] * 4)
        page.until(f"{STEP} > {step}")
        assert page.picture(CANVAS) != picture
        assert "% against" in page.text("#view-simulation .figures")
        # Quick changes are asked for together, and only what differs is sent.
        assert len(sent) < 4 * devices.count(), sent
        last = json.loads(sent[-1])
        assert set(last) == {"device_speed"} and set(last["device_speed"].values()) == {0.5}, last
        page.page.get_by_role("button", name="Reset").click()
        page.until(f"Math.abs({STEP} - {step}) < 1e-9")


def case_placement_and_what_if_are_listed(world):
    with simulated(world) as dashboard, world.open(dashboard, "simulation") as page:
        page.until(f"{RUNS} === 1")
        for title in ["What if", "Placement", "Critical path"]:
            rows = page.value(
                f"document.querySelectorAll('#view-simulation section[aria-label=\"{title}\"] tbody tr').length"
            )
            assert rows > 0, title
        runs = page.value(RUNS)
        algorithms = page.value(
            "[...document.querySelector('[aria-label=Placement]').options].map((o) => o.value)"
        )
        assert len(algorithms) > 1, algorithms
        page.page.locator("select[aria-label=Placement]").select_option(algorithms[-1])
        page.until(f"{RUNS} > {runs}")
