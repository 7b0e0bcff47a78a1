#!/usr/bin/env python3
"""Compilers that link their C++ library statically are refused before programs are built: linker_test.py CMAKE COMPILER ID"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE, COMPILER, COMPILER_ID = sys.argv[1:4]


class SharedLibrary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def configure(self, compiler, *definitions):
        script = self.folder / "check.cmake"
        script.write_text(f'include("{ROOT}/runtime/linker.cmake")\ngraphpipe_expect_shared_cxx_library()\n')
        answer = subprocess.run([CMAKE, f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_COMPILER_ID={COMPILER_ID}",
                                 *definitions, "-P", script], capture_output=True, text=True)
        return answer.returncode, " ".join(answer.stderr.split())

    def wrapper(self, text):
        path = self.folder / "compiler"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def test_the_compiler_of_this_build_is_taken(self):
        self.assertEqual(self.configure(COMPILER), (0, ""))

    def test_settings_of_the_compiler_or_the_project_that_ask_for_it_are_refused(self):
        static = self.wrapper(f'exec {COMPILER} "$@" -static-libstdc++')
        asked = [self.configure(COMPILER, f"-D{name}=-static-libstdc++", "-DCMAKE_BUILD_TYPE=Release")
                 for name in ("CMAKE_EXE_LINKER_FLAGS", "CMAKE_CXX_COMPILER_ARG1", "CMAKE_CXX_FLAGS_RELEASE")]
        for code, text in (self.configure(static), *asked):
            self.assertEqual(code, 1)
            self.assertIn("links libstdc++ statically", text)
            self.assertIn("Take a compiler that links the shared one (CXX=g++)", text)

    def test_a_compiler_without_the_shared_library_is_refused(self):
        without = self.wrapper(f'[ "$*" != -print-file-name=libstdc++.so ] || {{ echo libstdc++.so; exit; }}\n'
                               f'exec {COMPILER} "$@"')
        code, text = self.configure(without)
        self.assertEqual(code, 1)
        self.assertIn(str(without), text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
