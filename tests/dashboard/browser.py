"""A browser without a window, and what a person does in a page of it."""

import os
import shutil
import subprocess
import time

NAMES = ["chromium", "chromium-browser", "google-chrome"]
INSTALL = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
INSTALL_SECONDS_MAX = 300
WAIT_SECONDS_MAX = 30
FRAMES_PER_SECOND_MIN = 30


def find():
    """The path of a browser, installed if need be; or None and why there is none."""
    program = installed()
    if program is None and os.geteuid() == 0 and shutil.which("apt-get"):
        try:
            subprocess.run(
                INSTALL,
                check=True,
                timeout=INSTALL_SECONDS_MAX,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )
        except (subprocess.SubprocessError, OSError) as error:
            return None, f"Chromium is not there and could not be installed: {error}"
        program = installed()
    return program, "Chromium is not there (apt-get install chromium)"


def installed():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """Chromium; every page has a context of its own, so cookies and stored choices are not shared."""

    def __init__(self, program):
        from playwright.sync_api import sync_playwright

        self.playwright = sync_playwright().start()
        self.chromium = self.playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.chromium.close()
        self.playwright.stop()

    def open(self, url, tab="", **options):
        return Page(self.chromium, url, tab, **options)


class Page:
    """A page of a dashboard. Leaving the block checks that it logged no error and stayed with its server."""

    def __init__(self, chromium, url, tab, theme="light", width=1440, height=900, expected_errors=()):
        self.url, self.expected_errors = url, expected_errors
        self.problems, self.requests = [], []
        self.context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_SECONDS_MAX * 1000)
        self.page.on("console", self._logged)
        self.page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url + (f"#{tab}" if tab else ""))

    def _logged(self, message):
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} {message.location}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.context.close()
        if kind is None:
            self.check()

    def check(self):
        """No error was logged, and nothing was asked of another address."""
        problems = [p for p in self.problems if not any(e in p for e in self.expected_errors)]
        assert not problems, problems
        origin = self.url.split("?")[0].rstrip("/")
        outside = [r for r in self.requests if not r.startswith((origin + "/", "data:", "blob:"))]
        assert self.requests and not outside, outside

    def until(self, expression, seconds=WAIT_SECONDS_MAX):
        """Waits until a JavaScript expression is true. The page's policy forbids Playwright's own way."""
        end = time.monotonic() + seconds
        while not (value := self.page.evaluate(f"() => {expression}")):
            assert time.monotonic() < end, f"it never came to hold: {expression}"
            self.page.wait_for_timeout(50)
        return value

    def value(self, expression):
        return self.page.evaluate(f"() => {expression}")

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def keys(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def picture(self, selector):
        """What a canvas shows, to compare with another time."""
        self.page.wait_for_timeout(300)
        return self.value(f"document.querySelector({selector!r}).toDataURL()")

    def focused(self):
        return self.value(
            "document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.id ?? ''"
        )

    def frames_per_second(self, selector, how, milliseconds=3000):
        """Drags (`pan`) or turns the wheel (`zoom`) over a canvas in every frame; frames a second."""
        return self.page.evaluate(MOVE, [selector, how, milliseconds])


MOVE = """async ([selector, how, milliseconds]) => {
  const canvas = document.querySelector(selector);
  const box = canvas.getBoundingClientRect();
  const send = (Kind, type, x, y, more) => canvas.dispatchEvent(new Kind(type, {
    bubbles: true, cancelable: true, clientX: box.x + x, clientY: box.y + y, button: 0, pointerId: 1, ...more}));
  const [x, y] = [box.width / 2, box.height / 2];
  const frame = () => new Promise(requestAnimationFrame);
  if (how === 'pan') send(PointerEvent, 'pointerdown', x, y);
  await frame();
  const begin = performance.now();
  let frames = 0;
  while (performance.now() - begin < milliseconds) {
    if (how === 'pan') send(PointerEvent, 'pointermove', x + 150 * Math.sin(frames / 12), y + 80 * Math.sin(frames / 9));
    else send(WheelEvent, 'wheel', x, y, {deltaY: -40 * Math.sin(frames / 20)});
    frames += 1;
    await frame();
  }
  const seconds = (performance.now() - begin) / 1000;
  if (how === 'pan') send(PointerEvent, 'pointerup', x, y);
  return frames / seconds;
}"""
