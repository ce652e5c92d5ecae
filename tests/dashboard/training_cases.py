"""The training's tab: what event files hold, and curves of a job that runs."""

from files import EventFile

POINTS = "Number(document.querySelector('#view-training [data-tag={tag}]')?.dataset.points ?? 0)"


def points(tag):
    return POINTS.replace("{tag}", f'"{tag}"')


def case_a_curve_grows(world):
    folder = world.folder()
    events = EventFile(folder)
    for step in range(50):
        events.scalar(step, "loss", 3 / (step + 1))
    with world.dashboard("--logdir", folder) as dashboard, world.open(dashboard, "training") as page:
        page.until(f"{points('loss')} === 50")
        before = page.picture("[data-tag=loss] canvas")
        for step in range(50, 120):
            events.scalar(step, "loss", 3 / (step + 1))
            events.scalar(step, "accuracy", 1 - 1 / (step + 1))
        page.until(f"{points('loss')} === 120", 15)
        page.until(f"{points('accuracy')} === 70", 15)
        assert page.picture("[data-tag=loss] canvas") != before
        # Only what is new was asked for.
        page.page.wait_for_timeout(2500)
        asked = [r.rsplit("after=", 1)[1] for r in page.requests if "/api/scalars" in r and "tag=loss" in r]
        assert asked[0] == "0" and {"50", "120"} <= set(asked) and asked.count("0") == 1, asked
    events.close()


def case_the_curve_of_a_running_job_grows(world):
    folder = world.folder()
    args = [
        "quickstart",
        "--output",
        folder,
        "--images",
        "2000",
        "--batch-size",
        "10",
        "--filters",
        "1",
        "--epochs",
        "100",
        "--test-images",
        "20",
        "--no-kill",
    ]
    with world.dashboard("--logdir", folder) as dashboard, world.open(dashboard, "training") as page:
        job = world.command(*args)
        try:
            card = "document.querySelector('#view-training [data-kind=scalar]')"
            first = page.until(f"Number({card}?.dataset.points ?? 0)", 60)
            page.until(f"Number({card}.dataset.points) > {first} + 3", 60)
        finally:
            job.terminate()
            job.communicate()


def case_smoothing_axis_and_scale_change_the_curve(world):
    folder = world.folder()
    events = EventFile(f"{folder}/train")
    others = EventFile(f"{folder}/eval")
    for step in range(200):
        events.scalar(step, "loss", 3 / (step + 1) + (0.3 if step % 2 else 0))
        others.scalar(step, "loss", 4 / (step + 1))
    events.close()
    others.close()
    canvas = "[data-tag=loss] canvas"
    with world.dashboard("--logdir", folder) as dashboard, world.open(dashboard, "training") as page:
        page.until(f"{points('loss')} === 400")
        pictures = [page.picture(canvas)]
        page.page.get_by_role("slider", name="Smoothing").fill("0.95")
        pictures.append(page.picture(canvas))
        page.page.get_by_text("logarithmic values").click()
        pictures.append(page.picture(canvas))
        page.page.get_by_role("radio", name="time").click()
        pictures.append(page.picture(canvas))
        page.page.locator("aside label", has_text="eval").click()
        page.until(f"{points('loss')} === 200")
        pictures.append(page.picture(canvas))
        assert len(set(pictures)) == len(pictures)
        box = page.page.locator(canvas).bounding_box()
        page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
        page.until("!document.querySelector('#tooltip').hidden")
        assert "train" in page.text("#tooltip")


def case_histograms_images_and_texts_are_shown(world):
    folder = world.folder()
    events = EventFile(folder)
    for step in range(10):
        limits = [i / 10 - 1 for i in range(21)]
        events.histogram(step, "weights", limits, [float((i * (step + 1)) % 7) for i in range(21)])
        events.image(step, "digits", 16, 16, lambda x, y, s=step: x * y + 20 * s)
    events.text(3, "notes", "learning rate 0.01 <b>not bold</b>")
    events.close()
    with world.dashboard("--logdir", folder) as dashboard, world.open(dashboard, "training") as page:
        page.until("document.querySelector('[data-tag=weights] h2 > small')?.textContent === '10 steps'")
        heat = page.picture("[data-tag=weights] canvas")
        page.page.get_by_role("radio", name="ridges").click()
        assert page.picture("[data-tag=weights] canvas") != heat
        page.until(
            "[...document.querySelectorAll('[data-tag=digits] img')].some((i) => i.complete && i.naturalWidth === 16)"
        )
        newest = page.value("document.querySelector('[data-tag=digits] img').src")
        page.page.get_by_label("Step of digits").fill("0")
        assert page.value("document.querySelector('[data-tag=digits] img').src") != newest
        # Markup in a text is text.
        assert "<b>not bold</b>" in page.text("[data-tag=notes] pre")
