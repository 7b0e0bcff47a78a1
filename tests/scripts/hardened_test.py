"""Programs of a release build check what they can while they run: python3 tests/scripts/hardened_test.py PROGRAM..."""

import subprocess
import sys


def readelf(flag, program):
    return subprocess.run(["readelf", "-W", flag, program], check=True, capture_output=True, text=True).stdout


def lacking(program):
    """What the linker and the compiler were asked for and have not done."""
    segments, dynamic, symbols = readelf("-l", program), readelf("-d", program), readelf("--dyn-syms", program)
    segment = {line.split()[0]: line for line in segments.splitlines() if line.startswith("  GNU_")}
    checked = [word for word in symbols.split() if "_chk@" in word and not word.startswith("__stack_chk")]
    return [what for what, there in {
        "tables of functions that are read-only once it is loaded (RELRO)": "GNU_RELRO" in segment,
        "all functions bound when it is loaded (BIND_NOW)": " NOW" in dynamic,
        "a stack that is not executable": "GNU_STACK" in segment and "E" not in segment["GNU_STACK"].split()[6],
        "a guard on its stack (-fstack-protector-strong)": "__stack_chk_fail@" in symbols,
        "calls of libc that know the size of their buffers (_FORTIFY_SOURCE)": len(checked) > 0,
    }.items() if not there]


def main():
    failed = False
    for program in sys.argv[1:]:
        for what in lacking(program):
            print(f"{program} lacks {what}")
            failed = True
    sys.exit(1 if failed else 0)


main()
