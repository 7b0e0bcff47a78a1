"""Unpacks Parquet, Arrow and WebDataset files into a folder of .npy parts that `--data` takes (docs/training.md, Data).

    python3 graphpipe_data --table build/first/data.txt -o unpacked 'clicks-*.parquet'

`graphpipe run --data` starts it by itself, with --cache in place of -o. What the inputs must be says the table of a
compiled folder. Parquet and Arrow files are read by pyarrow, tar files by Python's own tarfile. Memory stays within a
few batches of rows; a folder is whole or not there.
"""

import argparse
import fcntl
import glob
import hashlib
import os
import re
import shutil
import signal
import stat
import sys
import tempfile

from cache import make_room, note_use, sweep
from inputs import EXIT_ENVIRONMENT, AllRefused, NoPlace, Refused, encoded, read_table, shown
from padding import fill_up
from parts import Parts
from tables import TableFiles
from webdataset import TarFiles

FORMAT = 2  # of what is unpacked; another one is another folder of the cache
KINDS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".tar": "tar", ".tar.gz": "tar", ".tgz": "tar"}
MAX_FILES = 65536
MAX_PROBLEMS = 20


def expanded(pattern):
    """'part-{000..009}.tar' as its names, and those that '*' and '?' find."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}", pattern)
    if not found:
        return sorted(glob.glob(pattern)) if re.search(r"[*?]", pattern) else [pattern]
    first, last = int(found[1]), int(found[2])
    if not 0 <= last - first < MAX_FILES:
        raise Refused(pattern, f"the range {found[0]} has no names, or more than {MAX_FILES}", "give a range as {000..009}")
    names = []
    for number in range(first, last + 1):
        names += expanded(pattern[:found.start()] + str(number).zfill(len(found[1])) + pattern[found.end():])
    return names


def kind_of(path):
    """Of a file by its ending; None where it is another file."""
    return next((kind for ending, kind in KINDS.items() if path.endswith(ending)), None)


def find_sources(name):
    """The files that --data names, in order, and their kind."""
    if os.path.isdir(name):
        paths = sorted(entry.path for entry in os.scandir(name) if kind_of(entry.name))
    else:
        paths = [name] if os.path.exists(name) else expanded(name)
    if not paths:
        raise Refused(name, "no file has such a name", "check --data; quote patterns so that the shell leaves them")
    if len(paths) > MAX_FILES:
        raise Refused(name, f"these are {len(paths)} files, more than {MAX_FILES}", "join some of them")
    kinds = {kind_of(path) for path in paths}
    if len(kinds) > 1 or None in kinds:
        raise Refused(name, "the files are not all of one kind", "take .parquet, .arrow, .feather or .tar (.tar.gz, .tgz) files alone")
    for path in paths:
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise Refused(path, "it is no regular file", "check --data")
        except OSError as error:
            raise Refused(path, f"it cannot be read: {error.strerror}", "check --data") from error
    return paths, kinds.pop()


def key_of(inputs, paths):
    """Names what would be unpacked: the same files for the same inputs."""
    lines = [f"format {FORMAT}"]
    lines += [f"input {encoded(i.name)} {i.type_name} {i.rows} {i.dims} {i.fill.hex() if i.fill else '-'}" for i in inputs]
    for path in paths:
        info = os.stat(path)
        lines.append(f"file {encoded(os.path.abspath(path))} {info.st_size} {info.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def unpack_into(folder, inputs, paths, kind):
    reader = TarFiles(inputs) if kind == "tar" else TableFiles(kind, inputs, paths)
    problems = []
    for path in paths:
        try:
            reader.check(path)
        except Refused as problem:
            problems.append(problem)
        if len(problems) == MAX_PROBLEMS:
            break
    if problems:
        raise AllRefused(problems)
    for declared in inputs:
        os.mkdir(os.path.join(folder, declared.stem))
    for index, path in enumerate(paths):
        with Parts(folder, inputs, index, path) as parts:
            reader.unpack(path, parts, folder)
    if not os.listdir(os.path.join(folder, inputs[0].stem)):
        raise Refused(paths[0], "the files hold no samples", "check --data")


def not_usable(folder, error, used="written"):
    return NoPlace(folder, f"it cannot be {used}: {error.strerror}", "another folder")


def made_within(parent):
    """A new folder in one that may not be there yet."""
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        sweep(parent)
        return tempfile.mkdtemp(prefix=".unpacking-", dir=parent)
    except OSError as error:
        raise not_usable(parent, error) from error


def unpack_as(target, inputs, paths, kind):
    work = made_within(os.path.dirname(target))
    lock = os.open(work, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        unpack_into(work, inputs, paths, kind)
        os.rename(work, target)
    except OSError as error:
        if not os.path.isdir(target):  # else another run was faster
            raise not_usable(target, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


def unpack(arguments):
    inputs = read_table(arguments.table)
    fill_up(arguments.pad, inputs)
    paths, kind = find_sources(arguments.files)
    if arguments.output:
        target = os.path.abspath(arguments.output)
        if os.path.exists(target):
            raise Refused(target, "it exists already", "name a new folder")
    else:
        target = os.path.join(os.path.abspath(arguments.cache), key_of(inputs, paths))
    # What was used a moment ago is not removed.
    if not (arguments.cache and note_use(target)):
        size = sum(os.path.getsize(path) for path in paths)
        if not arguments.quiet:
            files = "1 file" if len(paths) == 1 else f"{len(paths)} files"
            print(f"unpacking {files} ({size / (1 << 20):.1f} MiB) into {target}", file=sys.stderr)
        if arguments.cache and os.path.isdir(arguments.cache):
            try:
                make_room(os.path.dirname(target), size)
            except OSError as error:
                raise not_usable(os.path.dirname(target), error, "read") from error
        unpack_as(target, inputs, paths, kind)
    if arguments.cache:
        note_use(target)
        make_room(os.path.dirname(target), 0, keep=target)
    return target


def main():
    parser = argparse.ArgumentParser(prog="graphpipe_data", description=__doc__.split("\n")[0])
    parser.add_argument("files", help="a file, a pattern as 'part-{000..009}.tar' or '*.parquet', or a folder of such files")
    parser.add_argument("--table", required=True, help="data.txt of a compiled folder")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("-o", "--output", help="new folder to write")
    place.add_argument("--cache", help="folder of unpacked files: these are looked up there first")
    parser.add_argument("--pad", action="append", default=[], metavar="NAME=NUMBER",
                        help="fill samples of this input that are smaller than the model's up with the number")
    parser.add_argument("--quiet", action="store_true", help="say nothing while all is well")
    parser.add_argument("--lines", action="store_true", help="write the answer as graphpipe reads it")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(EXIT_ENVIRONMENT))
    try:
        folder = unpack(arguments)
    except (Refused, AllRefused) as error:
        refused = error.problems if isinstance(error, AllRefused) else [error]
        for one in refused:
            if isinstance(one, NoPlace):
                one.hint += " with --output" if arguments.output else " in GRAPHPIPE_DATA_CACHE"
            if arguments.lines:
                print("problem", encoded(one.origin), encoded(one.message), encoded(one.hint))
            else:
                print(f"{shown(one.origin)}: {one.message}; {one.hint}", file=sys.stderr)
        sys.exit(refused[0].code)
    print("folder " + encoded(folder) if arguments.lines else folder)


if __name__ == "__main__":
    main()
