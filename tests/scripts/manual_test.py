#!/usr/bin/env python3
"""Completion of shells, man pages and the reference, all made from the table of verbs: manual_test.py GRAPHPIPE.

Shells complete for real, zsh and fish where they are installed; groff lints every page."""

import os
import pathlib
import pty
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


def zsh_completes(line: str) -> str:
    """The line after Tab, in a zsh on a terminal of its own; its compinit finds the script by its name."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "_graphpipe").write_text(ask("completion", "zsh"))
        (pathlib.Path(folder) / ".zshrc").write_text(
            f"fpath=({folder} $fpath)\nautoload -Uz compinit && compinit -u -d {folder}/dump\n"
            "show() { print -r -- \"<$BUFFER>\"; exit }\nzle -N show\nbindkey '^X' show\nPS1='ready>'\n")
        process, terminal = pty.fork()
        if process == 0:
            os.execvpe("zsh", ["zsh", "-d", "-i"], {"PATH": os.environ["PATH"], "ZDOTDIR": folder, "HOME": folder, "TERM": "dumb"})
        shown = b""
        while b"ready>" not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, line.encode() + b"\t\x18")
        try:
            while some := os.read(terminal, 4096):
                shown += some
        except OSError:  # how Linux says that the other end is closed
            pass
        os.waitpid(process, 0)
        os.close(terminal)
        return re.search(r"<(.*)>", shown.decode()).group(1)


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

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_zsh_completes(self):
        for line, completed in (("graphpipe insp", "graphpipe inspect "), ("graphpipe plan --dropo", "graphpipe plan --dropout="),
                                ("graphpipe plan m.onnx --dropout of", "graphpipe plan m.onnx --dropout off "),
                                ("graphpipe plan m.onnx --planner data-p", "graphpipe plan m.onnx --planner data-parallel "),
                                ("graphpipe completion fi", "graphpipe completion fish ")):
            self.assertEqual(zsh_completes(line), completed)

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

    def test_the_changelog_begins_with_this_version(self):
        version = re.fullmatch(r"graphpipe (\d+\.\d+\.\d+)\n", ask("--version")).group(1)
        first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).group(1)
        self.assertRegex(first, re.escape(version) + r" \((unreleased|\d{4}-\d\d-\d\d)\)$")

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
