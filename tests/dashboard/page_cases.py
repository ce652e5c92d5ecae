"""The frame of the page: tabs, theme, keyboard, and that nothing comes from elsewhere."""

import urllib.error
import urllib.request

from files import EventFile, graph_def

GRAPH = graph_def(
    [
        ("x", "Placeholder", [], ""),
        ("dense/w", "VariableV2", [], ""),
        ("dense/MatMul", "MatMul", ["x", "dense/w"], ""),
        ("dense/inner/Relu", "Relu", ["dense/MatMul"], ""),
        ("loss", "Softmax", ["dense/inner/Relu"], ""),
    ]
)


def some_events(world):
    folder = world.folder()
    events = EventFile(folder)
    for step in range(20):
        events.scalar(step, "loss", 2.0 / (step + 1))
    events.close()
    return folder


def case_every_tab_that_has_something_opens(world):
    graph, logdir = world.file(GRAPH), some_events(world)
    with world.cluster(ps=1, worker=1) as cluster, world.dashboard(
        "--connect", cluster.addresses["worker/0"], "--logdir", logdir, graph
    ) as dashboard, world.open(dashboard) as page:
        page.until("document.querySelectorAll('.tasks tbody tr').length === 2")
        assert page.value("location.hash") == "#cluster"
        for tab in ["graph", "training", "cluster"]:
            page.page.locator(f"#tab-{tab}").click()
            page.until(f"document.querySelector('#view-{tab}')?.isConnected")
            assert page.value(f"document.querySelector('#tab-{tab}').getAttribute('aria-selected')") == "true"
        assert page.value("document.title").endswith("Thalweg")


def case_tabs_without_data_say_why(world):
    with world.dashboard(world.file(GRAPH)) as dashboard, world.open(dashboard) as page:
        page.until("document.querySelector('#view-graph')?.isConnected")
        for tab, flag in [("cluster", "--connect"), ("training", "--logdir"), ("simulation", "--simulate")]:
            link = f"document.querySelector('#tab-{tab}')"
            assert page.value(f"{link}.getAttribute('aria-disabled')") == "true"
            assert flag in page.value(f"{link}.title")
            page.keys("12345"["cluster graph timeline training simulation".split().index(tab)])
        assert page.value("location.hash") == "#graph"


def case_nothing_comes_from_elsewhere(world):
    """Every page checks that itself; here also that the policy forbids it."""
    with world.dashboard(world.file(GRAPH), "--logdir", some_events(world)) as dashboard:
        with urllib.request.urlopen(dashboard.url) as response:
            policy = response.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "http" not in policy and "unsafe" not in policy, policy
        with world.open(dashboard, "graph") as page:
            page.until("document.querySelector('#view-graph')?.dataset.boxes > 0")
            page.page.locator("#tab-training").click()
            page.until("document.querySelector('#view-training [data-tag=loss]')?.dataset.points === '20'")
            files = {r.split("?")[0].rsplit("/", 1)[1] for r in page.requests}
            assert {"app.js", "style.css", "graph_worker.js", "scalars"} <= files, files


def case_light_and_dark(world):
    background = "getComputedStyle(document.body).backgroundColor"
    with world.dashboard(world.file(GRAPH)) as dashboard:
        shades = {}
        for theme in ["light", "dark"]:
            with world.open(dashboard, theme=theme) as page:
                page.until("document.querySelector('#view-graph')?.dataset.boxes > 0")
                shades[theme] = (page.value(background), page.picture(".graph-canvas canvas"))
                page.page.locator("#theme-button").click()
                assert page.value(background) != shades[theme][0]
                assert page.picture(".graph-canvas canvas") != shades[theme][1]
                page.page.reload()
                page.until("document.querySelector('#view-graph')?.dataset.boxes > 0")
                assert page.value(background) != shades[theme][0], "the choice was forgotten"
        assert shades["light"][0] != shades["dark"][0]


def case_with_the_keyboard_alone(world):
    canvas = ".graph-canvas canvas"
    with world.dashboard(world.file(GRAPH), "--logdir", some_events(world)) as dashboard, world.open(
        dashboard, "training"
    ) as page:
        page.until("document.querySelector('#view-training [data-tag=loss]')?.isConnected")
        page.keys("2")
        page.until("document.querySelector('#view-graph')?.dataset.boxes > 0")
        # Search, then the details of what was found.
        page.keys("/")
        assert page.focused() == "Find a node"
        page.page.keyboard.type("relu")
        page.keys("Enter")
        page.until("document.querySelector('#view-graph').dataset.selected === 'dense/inner/Relu'")
        assert "dense/MatMul" in page.text(".details")
        # Zoom and pan change the picture, 0 shows everything again.
        before = page.picture(canvas)
        page.keys("-", "-")
        small = page.picture(canvas)
        page.keys("ArrowLeft", "ArrowUp")
        assert len({before, small, page.picture(canvas)}) == 3
        # The tree: collapse the scope around, expand it again.
        page.keys("Escape")
        page.until("document.querySelector('#view-graph').dataset.selected === ''")
        page.value("document.querySelector('.tree').focus()")
        page.keys("Home")
        page.until("document.querySelector('#view-graph').dataset.selected === 'dense'")
        rows = "document.querySelectorAll('[role=treeitem]').length"
        opened = page.value(rows)
        page.keys("ArrowLeft")
        page.until(f"{rows} < {opened}")
        page.keys("Enter")
        page.until(f"{rows} === {opened}")
        assert page.value("document.querySelector('.tree').getAttribute('aria-activedescendant')")
        # The list of keys opens and closes.
        page.keys("?")
        page.until("document.querySelector('#help').open")
        page.keys("Escape")
        page.until("!document.querySelector('#help').open")
        # What has the focus shows it.
        page.value("document.activeElement.blur()")
        page.keys("Tab", "Tab")
        assert page.value("getComputedStyle(document.activeElement).outlineStyle") != "none"


def case_a_token_opens_the_page(world):
    with world.dashboard(world.file(GRAPH), "--token", "a-secret-word") as dashboard:
        assert dashboard.url.endswith("/?token=a-secret-word"), dashboard.url
        bare = dashboard.url.split("?")[0]
        for path in ["", "app.js", "api/state"]:
            try:
                urllib.request.urlopen(bare + path)
                raise AssertionError(f"/{path} was served without the token")
            except urllib.error.HTTPError as error:
                assert error.code in (401, 403), error.code
        with world.open(dashboard) as page:
            page.until("document.querySelector('#view-graph')?.dataset.boxes > 0")
            assert "a-secret-word" not in page.value("location.href"), "the token stays in the address"


def case_a_narrow_window_has_no_sideways_scrolling(world):
    with world.dashboard(world.file(GRAPH), "--logdir", some_events(world)) as dashboard, world.open(
        dashboard, width=1000, height=700
    ) as page:
        for key, tab in [("2", "graph"), ("4", "training")]:
            page.keys(key)
            page.until(f"document.querySelector('#view-{tab}')?.isConnected")
            assert page.value(
                "document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth"
            )
