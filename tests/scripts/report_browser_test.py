#!/usr/bin/env python3
"""The report in a real browser, at sizes from 4 to 1024 devices: what a screen reader is told, what the keyboard reaches, and whether
it fits a phone and a sheet of A4.

    report_browser_test.py GRAPHPIPE [--pictures FOLDER]    the pictures are to be looked at

Needs Chromium (chromium, chromium-browser, google-chrome or $GRAPHPIPE_BROWSER); without it the test is skipped. The browser is
driven through a pipe: it opens no port.
"""

import base64
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests/data/models"
CLIP, CLIP_LOSS = MODELS / "clip_like/model.onnx", "contrastive:similarity"
DLRM, DLRM_LOSS = MODELS / "dlrm/model.onnx", "bce:logit,click"
PHONE, DESK = (360, 780), (1280, 900)
A4_WIDTH = round((210 - 2 * 14) / 25.4 * 96)  # within the margins of the style, in pixels of CSS

# Name: model, loss and flags of the plan.
SIZES = {
    "1x4": (CLIP, CLIP_LOSS, ["--devices", "4", "--batch", "8", "--micro-batch", "2", "--stages", "4", "--planner", "graphpipe"]),
    "replicas": (DLRM, DLRM_LOSS, ["--devices", "32", "--batch", "256", "--planner", "data-parallel"]),
    "1024": (DLRM, DLRM_LOSS, ["--devices", "1024", "--batch", "4096", "--micro-batch", "4", "--planner", "data-parallel"]),
}
# Paths of modules as an attacker or a careless author would have them.
HOSTILE = ["</title><script>document.title = 'ran'</script>", "\u202egnirts lanoitceridib", "\"><img src=x onerror=\"document.title='ran'\">",
           "W" * 3000, "]]></style><style>main{display:none}", "a\nb\x1b[31m", "&lt;b&gt;\\u003c\\\" }; x -> y"]
ROLES_WITH_NAMES = {"image", "img", "graphics-document", "link", "region", "table", "heading", "figure", "navigation"}


class Browser:
    """One page of a headless Chromium, by the DevTools protocol over file descriptors 3 and 4."""

    def __init__(self, program, profile):
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                 f"--user-data-dir={profile}", "about:blank"]
        command = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(["bash", "-c", command, "browser", *words], pass_fds=(to_browser, from_browser),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.answers, self.count, self.session = b"", 0, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Accessibility"):
            self.ask(f"{domain}.enable")

    def _next(self):
        while b"\0" not in self.answers:
            some = os.read(self.read_end, 1 << 20)
            if not some:
                raise RuntimeError("the browser has ended")
            self.answers += some
        one, self.answers = self.answers.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **parameters):
        self.count += 1
        request = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path, size):
        self.ask("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=size == PHONE)
        self.ask("Page.navigate", url=pathlib.Path(path).as_uri())
        while self.value("document.readyState") != "complete" or self.value("location.protocol") != "file:":
            pass

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key, code, text=""):
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "")

    def press_tab(self):
        self.press("Tab", 9)

    def press_enter(self):
        self.press("Enter", 13, "\r")

    def click(self, element):
        x, y = self.value(f"(() => {{ const e = {element}; e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
                          " return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def nodes(self):
        return [node for node in self.ask("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]

    def picture(self, path):
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 8000), "scale": 1}
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        self.process.wait(10)


def find_browser():
    for name in (os.environ.get("GRAPHPIPE_BROWSER", ""), "chromium", "chromium-browser", "google-chrome"):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = Browser(find_browser(), cls.folder.name + "/profile")
        cls.pages = {}
        plans = {}
        for name, (model, loss, flags) in SIZES.items():
            plans[name] = f"{cls.folder.name}/{name}.json"
            cls.graphpipe("plan", model, "--loss", loss, *flags, "--cluster", "default", "-o", plans[name], "-q")
            cls.pages[name] = f"{cls.folder.name}/{name}.html"
            cls.graphpipe("report", plans[name], "-o", cls.pages[name], "-q")
        cls.pages["compared"] = f"{cls.folder.name}/compared.html"
        cls.graphpipe("report", plans["1x4"], plans["replicas"], "-o", cls.pages["compared"], "-q")
        cls.pages["hostile"] = f"{cls.folder.name}/hostile.html"
        cls.graphpipe("report", cls.hostile_plan(), "-o", cls.pages["hostile"], "-q")

    @classmethod
    def hostile_plan(cls):
        """The plan of a model whose exported modules have such paths, one stage each."""
        model, plan = pathlib.Path(cls.folder.name) / "model.onnx", f"{cls.folder.name}/hostile.json"
        model.write_bytes(CLIP.read_bytes())
        words = ["plan", model, "--loss", CLIP_LOSS, "--cluster", "default", "--devices", str(len(HOSTILE)), "--stages", str(len(HOSTILE)),
                 "--batch", "8", "--micro-batch", "2", "--planner", "sequential", "-o", plan, "-q"]
        cls.graphpipe(*words)
        modules = [{"node": node, "path": path} for stage, path in zip(json.loads(pathlib.Path(plan).read_text())["stages"], HOSTILE)
                   for node in stage["labels"]]
        facts = {"schema": "graphpipe.module/1", "model": hashlib.sha256(model.read_bytes()).hexdigest(), "modules": modules}
        pathlib.Path(f"{model}.module.json").write_text(json.dumps(facts))
        cls.graphpipe(*words)
        return plan

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    @classmethod
    def graphpipe(cls, *words):
        done = subprocess.run([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stdout}")

    def each_page(self, size):
        for name, path in self.pages.items():
            self.browser.open(path, size)
            yield name

    def test_a_screen_reader_hears_a_name_of_everything(self):
        for name in self.each_page(DESK):
            nodes = self.browser.nodes()
            unnamed = [node["role"]["value"] for node in nodes
                       if node["role"]["value"].lower() in ROLES_WITH_NAMES and not node.get("name", {}).get("value")]
            self.assertEqual(unnamed, [], name)
            names = [node["name"]["value"] for node in nodes if node["role"]["value"] in ("region", "navigation")]
            self.assertEqual(len(names), len(set(names)), "two regions of one name")
            # The boxes of the graph of stages are links, and so reach the tree.
            if name == "1x4":
                links = [node["name"]["value"] for node in nodes if node["role"]["value"] == "link"]
                self.assertTrue(any(link.startswith("stage 0:") for link in links), links)

    def test_headings_go_down_one_level_at_a_time(self):
        for name in self.each_page(DESK):
            levels = self.browser.value("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
            self.assertEqual(levels[0], 1)
            self.assertEqual(levels.count(1), 1)
            self.assertTrue(all(after <= before + 1 for before, after in zip(levels, levels[1:])), (name, levels))

    def test_every_picture_has_its_numbers_as_text(self):
        for name in self.each_page(DESK):
            pictures = self.browser.value(
                "[...document.querySelectorAll('svg')].filter(s => !s.querySelector(':scope > title')).length")
            self.assertEqual(pictures, 0, name)
            self.assertGreater(self.browser.value("document.querySelectorAll('table caption').length"), 1, name)

    def test_the_keyboard_reaches_all_that_scrolls_or_opens_in_order(self):
        self.browser.open(self.pages["1x4"], DESK)
        # What a closed section holds is not in the way.
        stops = "[...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')].filter(e => e.checkVisibility())"
        expected = self.browser.value(f"{stops}.length")
        self.assertEqual(self.browser.value("document.querySelectorAll('[tabindex]:not([tabindex=\"0\"])').length"), 0)
        places = []
        for _ in range(expected):
            self.browser.press_tab()
            places.append(self.browser.value(f"{stops}.indexOf(document.activeElement)"))
            outline = self.browser.value("getComputedStyle(document.activeElement).outlineStyle")
            self.assertNotEqual(outline, "none", "where the focus is must be seen")
        self.assertEqual(places, list(range(expected)))

    def test_a_stage_opens_its_operators_by_click_and_by_key(self):
        is_open = "document.querySelector('#stage-{}').checkVisibility()"
        self.browser.open(self.pages["1x4"], DESK)
        self.assertFalse(self.browser.value(is_open.format(2)))
        self.browser.click("document.querySelectorAll('svg a')[2]")
        self.assertTrue(self.browser.value(is_open.format(2)))
        top = self.browser.value("document.querySelector('#stage-2').getBoundingClientRect().top")
        self.assertTrue(0 <= top < DESK[1])
        self.browser.value("document.querySelectorAll('svg a')[1].focus()")
        self.browser.press_enter()
        self.assertTrue(self.browser.value(is_open.format(1)))
        self.assertFalse(self.browser.value(is_open.format(0)))
        self.assertIn("node_", self.browser.value("document.querySelector('#stage-1').innerText"))

    def test_no_word_of_a_picture_is_cut_or_leaves_its_box(self):
        outside = """[...document.querySelectorAll('svg[viewBox] text')].filter(text => {
            const box = text.getBBox(), whole = text.ownerSVGElement.viewBox.baseVal;
            return box.x < 0 || box.x + box.width > whole.width || box.y + box.height > whole.height + 4; })"""
        beyond = """[...document.querySelectorAll('svg a')].flatMap(a => [...a.querySelectorAll('text')].filter(text => {
            const box = text.getBBox(), rect = a.querySelector('rect').getBBox();
            return box.x + box.width > rect.x + rect.width; }))"""
        into_bars = """[...document.querySelectorAll('.timeline text[x="4.00"]')].filter(text => text.getBBox().x + text.getBBox().width > 128)"""
        for name in self.each_page(DESK):
            for words in (outside, beyond, into_bars):
                self.assertEqual(self.browser.value(f"({words}).map(text => text.textContent)"), [], name)

    def test_names_of_a_model_do_nothing(self):
        self.browser.open(self.pages["hostile"], DESK)
        self.assertEqual(self.browser.value("document.scripts.length + document.images.length"), 0)
        self.assertTrue(self.browser.value("document.title").startswith("Pipeline plan "))
        self.assertEqual(self.browser.value("document.querySelectorAll('style').length"), 1)
        self.assertIn("<script>", self.browser.value("document.body.innerText"))
        self.assertNotIn("\u202e", self.browser.value("document.body.innerText"))
        self.assertLess(self.browser.value("document.documentElement.scrollHeight"), 6000)

    def test_it_fits_a_phone_and_a_sheet(self):
        for name in self.each_page(PHONE):
            self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), PHONE[0], name)
            self.keep(name + "-phone")
        self.browser.ask("Emulation.setEmulatedMedia", media="print")
        for name in self.each_page((A4_WIDTH, 1000)):
            self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), A4_WIDTH, name)
            if PICTURES:
                sheet = self.browser.ask("Page.printToPDF", preferCSSPageSize=True)["data"]
                pathlib.Path(f"{PICTURES}/{name}.pdf").write_bytes(base64.b64decode(sheet))
        self.browser.ask("Emulation.setEmulatedMedia", media="")

    def test_many_devices_that_do_the_same_are_one(self):
        self.browser.open(self.pages["1024"], DESK)
        self.assertIn("1024 devices", self.browser.value("document.body.innerText"))
        self.assertEqual(self.browser.value("[...document.querySelectorAll('.idle .name')].map(name => name.innerText)"),
                         ["devices 0 to 1023"])
        self.assertEqual(self.browser.value("document.querySelectorAll('.memory svg').length"), 1)

    def test_bars_differ_without_colours(self):
        self.browser.open(self.pages["1x4"], DESK)
        self.keep("1x4-desk")
        fills = self.browser.value("[...document.querySelectorAll('.idle pattern')].map(p => p.innerHTML.replace(/fill=\"[^\"]*\"/g, ''))")
        self.assertEqual(len(fills), 8)
        self.assertEqual(len(set(fills)), 8)

    def test_many_devices_are_few_bytes(self):
        self.assertLess(pathlib.Path(self.pages["1024"]).stat().st_size, 4 << 20)

    def keep(self, name):
        if PICTURES:
            self.browser.picture(f"{PICTURES}/{name}.png")


if __name__ == "__main__":
    if find_browser() is None:
        print("SKIP: no Chromium to look at the report with")
        sys.exit(0)
    PROGRAM = sys.argv[1]
    PICTURES = sys.argv[3] if sys.argv[2:3] == ["--pictures"] else ""
    unittest.main(argv=sys.argv[:1])
