"""The cluster's tab: tasks that live, work and die."""

import json
import pathlib
import time

GRAPHS = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "graphs"
SECONDS_TO_SHOW_MAX = 2
SECONDS_TO_NOTICE_MAX = 30


def case_a_task_dies(world):
    name = "/job:worker/replica:0/task:1"
    row = f"document.querySelector('tr[data-task=\"{name}\"]')"
    with world.cluster(ps=1, worker=2) as cluster, world.dashboard(
        "--connect", cluster.addresses["ps/0"]
    ) as dashboard, world.open(dashboard, "cluster") as page:
        page.until("document.querySelectorAll('.tasks .state.alive').length === 3")
        assert "3 of 3 alive" in page.text(".figures")
        told = []

        def look(response):
            if response.url.endswith("/api/cluster") and not told:
                try:
                    states = {t["task"]: t["state"] for t in response.json()["tasks"]}
                except Exception:  # The page may be gone by then.
                    return
                if states.get(name) == "dead":
                    told.append(time.monotonic())

        page.page.on("response", look)
        killed = cluster.kill("worker/1")
        page.until(f"{row}.classList.contains('dead')", SECONDS_TO_NOTICE_MAX)
        shown = time.monotonic()
        page.until(
            "document.querySelector('.events .warning')?.textContent.includes('worker/1')", SECONDS_TO_SHOW_MAX
        )
        assert told and shown - told[0] < SECONDS_TO_SHOW_MAX, (killed, told, shown)
        assert "dead" in page.value(f"{row}.innerText")
        assert "2 of 3 alive" in page.text(".figures") and "1 dead" in page.text(".figures")
        # And lives again.
        cluster.tasks.pop("worker/1").stop()
        cluster.start("worker/1")
        page.until(f"{row}.className === ''", SECONDS_TO_NOTICE_MAX)


def case_steps_and_bytes_are_counted_while_a_client_runs(world):
    graph, meta = str(GRAPHS / "mlp.pb"), json.loads((GRAPHS / "mlp.json").read_text())
    with world.cluster(worker=1) as cluster, world.dashboard(
        "--connect", cluster.addresses["worker/0"]
    ) as dashboard, world.open(dashboard, "cluster") as page:
        page.until("document.querySelectorAll('.tasks .state.alive').length === 1")
        client = world.command(
            "run", graph, *meta["args"], "--server", cluster.addresses["worker/0"], "--repeat", "20000"
        )
        try:
            page.until(
                "Number(document.querySelectorAll('.figure')[1].querySelector('b').textContent.replace(/,/g, '')) > 1"
            )
            page.until(
                "document.querySelector('canvas.spark').toDataURL() !== document.createElement('canvas').toDataURL()"
            )
        finally:
            client.kill()
            client.communicate()


def case_a_dashboard_that_ends_is_noticed(world):
    lost = ["Failed to load resource", "net::ERR", "Failed to fetch", "does not answer"]
    with world.cluster(worker=1) as cluster:
        dashboard = world.dashboard("--connect", cluster.addresses["worker/0"])
        try:
            with world.open(dashboard, "cluster", expected_errors=lost) as page:
                page.until("document.querySelectorAll('.tasks .state.alive').length === 1")
                dashboard.stop()
                page.until("document.querySelector('#connection').classList.contains('lost')")
                assert "does not answer" in page.text("#connection")
        finally:
            if dashboard.process.poll() is None:
                dashboard.kill()
