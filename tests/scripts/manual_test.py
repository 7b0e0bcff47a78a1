#!/usr/bin/env python3
"""Completion of shells, man pages and the reference, all made from the table of verbs: manual_test.py GRAPHPIPE.

Bash completes for real; zsh and fish read their scripts where they are installed; groff lints every page."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPHPIPE = pathlib.Path(sys.argv.pop()) if len(sys.argv) > 1 else ROOT / "build/release/bin/graphpipe"


def ask(*words) -> str:
    return subprocess.run([GRAPHPIPE, *words], check=True, capture_output=True, text=True).stdout


def verbs() -> list[str]:
    return re.findall(r"^  ([a-z]+) +", ask("--help"), re.MULTILINE)


def bash_completes(*words) -> list[str]:
    """What Tab offers at the last of the words, which are those of a command line as bash splits it."""
    script = ask("completion", "bash") + '\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _graphpipe; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script, "bash", "graphpipe", *words], check=True, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout.split()


class Bash(unittest.TestCase):
    def test_verbs(self):
        self.assertEqual(set(bash_completes("")), set(verbs()) | {"--help", "--version"})
        self.assertEqual(bash_completes("insp"), ["inspect"])

    def test_every_long_flag_of_every_verb(self):
        for verb in verbs():
            offered = set(bash_completes(verb, "--"))
            self.assertEqual(offered, set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", flags_of(verb))), verb)

    def test_words_of_a_flag_and_nothing_for_numbers(self):
        self.assertIn("gpipe", bash_completes("plan", "m.onnx", "--policy", "gp"))
        self.assertEqual(bash_completes("plan", "--dropout", "="), ["on", "off"])
        self.assertEqual(bash_completes("plan", "--dropout", "=", "of"), ["off"])
        self.assertEqual(bash_completes("plan", "--batch", ""), [])
        self.assertEqual(bash_completes("run", "--log", ""), [])  # it shows FILE.jsonl|FILE.csv, which are no words
        self.assertEqual(bash_completes("plan", "mod"), [])  # bash completes files by itself
        self.assertEqual(set(bash_completes("completion", "")), {"bash", "zsh", "fish"})


def flags_of(verb: str) -> str:
    """The column of flags in the help."""
    lines = [line for line in ask(verb, "--help").splitlines() if re.match(r" {2,8}-", line)]
    return "\n".join(re.split(r"\s{2,}", line.strip())[0].replace(",--", " --") for line in lines)


class OtherShells(unittest.TestCase):
    def test_zsh_reads_its_script(self):
        script = ask("completion", "zsh")
        self.assertTrue(script.startswith("#compdef graphpipe\n"))
        for verb in verbs():
            self.assertIn(f"    {verb}) _arguments", script)
        if shutil.which("zsh"):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "_graphpipe"
                file.write_text(script)
                subprocess.run(["zsh", "-n", file], check=True)

    def test_fish_completes(self):
        script = ask("completion", "fish")
        for verb in verbs():
            self.assertIn(f"-a {verb} -d", script)
        if shutil.which("fish"):
            asked = script + "\ncomplete -C 'graphpipe plan --dropout '"
            done = subprocess.run(["fish", "--no-config", "-c", asked], check=True, capture_output=True, text=True)
            self.assertEqual({line.split("\t")[0] for line in done.stdout.splitlines()}, {"on", "off"})


class Pages(unittest.TestCase):
    def test_man_pages_are_clean_and_name_every_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            ask("manual", "-o", folder)
            pages = sorted(pathlib.Path(folder).iterdir())
            self.assertEqual({page.name for page in pages}, {"graphpipe.1"} | {f"graphpipe-{verb}.1" for verb in verbs()})
            for page in pages:
                self.lint(page)
            for verb in verbs():
                page = (pathlib.Path(folder) / f"graphpipe-{verb}.1").read_text().replace("\\-", "-")
                self.assertEqual(page, ask("manual", verb).replace("\\-", "-"))
                for flag in bash_completes(verb, "--"):
                    self.assertRegex(page, re.escape(flag) + r"(?![\w-])", verb)

    def lint(self, page):
        if not shutil.which("groff"):
            return
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", page], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "", page.name)

    def test_the_reference_is_current(self):
        page = (ROOT / "docs/reference.md").read_text()
        self.assertEqual(page, ask("manual", "--format", "markdown"),
                         "run: build/release/bin/graphpipe manual --format markdown > docs/reference.md")

    def test_every_page_is_in_the_menu_of_the_site(self):
        in_menu = set(re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
        self.assertEqual(in_menu, {page.name for page in (ROOT / "docs").glob("*.md")})

    def test_the_image_is_made_by_the_steps_of_the_readme(self):
        start = re.search(r"^## Start\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL).group(1)
        image = (ROOT / "Dockerfile").read_text()
        steps = re.findall(r"^RUN (.*)$", image, re.MULTILINE)
        self.assertTrue(steps)
        for step in steps:
            self.assertRegex(start, r"(?m)^" + re.escape(step) + r"(\s|$)")
            self.assertTrue((ROOT / step.split()[0]).exists())
        # The Debian that the README names; the command is where the build puts it.
        self.assertIn("Debian " + re.search(r"^FROM debian:(\d+)$", image, re.MULTILINE).group(1), start)
        self.assertIn("build/release/bin", image)

    def test_flags_that_do_nothing_are_refused(self):
        for words in (["plan", "--format", "markdown"], ["plan", "-o", "never"], ["--format", "markdown", "-o", "never"], ["plann"]):
            self.assertEqual(subprocess.run([GRAPHPIPE, "manual", *words], capture_output=True, check=False).returncode, 2, words)


if __name__ == "__main__":
    unittest.main()
