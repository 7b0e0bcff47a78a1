#!/usr/bin/env python3
"""scripts/image reads Dockerfile as Docker does, and refuses what it cannot do. The image itself is made by hand: it takes minutes."""

import importlib.machinery
import importlib.util
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_script():
    loader = importlib.machinery.SourceFileLoader("image", str(ROOT / "scripts/image"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("image", loader))
    loader.exec_module(module)
    return module


image = load_script()


class Steps(unittest.TestCase):
    def test_those_of_the_dockerfile_are_all_read(self):
        text = (ROOT / "Dockerfile").read_text()
        steps = image.read_dockerfile(text)
        said = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.assertEqual([f"{word} {argument}" for word, argument in steps], said)
        image.ignored_names((ROOT / ".dockerignore").read_text())

    def test_what_it_cannot_do_is_refused(self):
        for text in ("FROM debian:12\nUSER me", "RUN true", "", "FROM debian:12\nRUN a && \\\n  b", "FROM debian:12\nRUN <<END"):
            with self.assertRaises(image.Unreadable, msg=text):
                image.read_dockerfile(text)
        for name in ("*.o", "a/b", "!a"):
            with self.assertRaises(image.Unreadable):
                image.ignored_names(name)
        for word, argument in (("FROM", "fedora:40"), ("COPY", "a b")):
            with self.assertRaises(image.Unreadable):
                image.Chroot(pathlib.Path("nowhere")).do(word, argument)

    def test_each_step_sees_what_those_before_it_have_set(self):
        with tempfile.TemporaryDirectory() as folder:
            made = image.Chroot(pathlib.Path(folder))
            calls = []
            made.call = lambda words, stdout=None: calls.append((words, made.workdir, made.env["PATH"]))
            for word, argument in image.read_dockerfile(
                    'FROM debian:12\nWORKDIR /here\nRUN one two\nENV PATH="/here/bin:$PATH"\nWORKDIR below\nENTRYPOINT ["it", "x"]')[1:]:
                made.do(word, argument)
            made.use(["--help"])
            self.assertTrue((pathlib.Path(folder) / "here/below").is_dir())
        bare = image.BARE["PATH"]
        self.assertEqual(calls, [(["/bin/sh", "-c", "one two"], "/here", bare), (["it", "x", "--help"], "/here/below", f"/here/bin:{bare}")])


if __name__ == "__main__":
    unittest.main()
