"""The cache of unpacked data: folders named by what they were unpacked from, each whole or not there.

A folder that is used has a new time and, while a run reads it, a shared lock that `graphpipe` holds. Those that were not
used for the longest time make room for others.
"""

import contextlib
import fcntl
import os
import re
import shutil
import sys
import time

from inputs import EXIT_ENVIRONMENT, Refused

LIMIT_VARIABLE = "GRAPHPIPE_DATA_CACHE_GIB"
SHARE_OF_DISK = 4  # the limit, where none is given: one part of so many
RECENT_SECONDS = 60  # between the end of this program and the lock of its run


@contextlib.contextmanager
def held_alone(path):
    """Whether nobody else holds the folder, which others then cannot take."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except OSError:
        free = False
    try:
        yield free
    finally:
        os.close(lock)


def sweep(cache):
    """Removes what an earlier run was killed over: nobody holds its lock."""
    for entry in os.scandir(cache):
        if not entry.name.startswith((".unpacking-", ".removing-")):
            continue
        with held_alone(entry.path) as free:
            if free:
                shutil.rmtree(entry.path, ignore_errors=True)


def size_of(folder):
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def limit_of(cache):
    """Bytes that the cache may have."""
    given = os.environ.get(LIMIT_VARIABLE, "")
    if not given:
        return shutil.disk_usage(cache).total // SHARE_OF_DISK
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", given):
        raise Refused(LIMIT_VARIABLE, "it is no number of GiB", "give one as 200 or 0.5", EXIT_ENVIRONMENT)
    return int(float(given) * (1 << 30))


def remove(folder):
    """False where a run reads it, or has taken it since it was found unused."""
    with held_alone(folder) as free:
        # Out of sight first: it is whole or not there.
        away = os.path.join(os.path.dirname(folder), ".removing-" + os.path.basename(folder))
        try:
            if not free or os.stat(folder).st_mtime > time.time() - RECENT_SECONDS:
                return False
            os.rename(folder, away)
        except OSError:
            return False
        shutil.rmtree(away, ignore_errors=True)
        return True


def make_room(cache, coming, keep=""):
    """Removes the folders that were not used for the longest time until `coming` more bytes are within the limit, as far
    as no run reads them; never `keep`."""
    limit, folders = limit_of(cache), []
    for entry in os.scandir(cache):
        if re.fullmatch(r"[0-9a-f]{64}", entry.name) and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):  # another run has removed it
                folders.append((entry.stat(follow_symlinks=False).st_mtime, entry.path, size_of(entry.path)))
    total, removed, freed = coming + sum(size for _, _, size in folders), 0, 0
    for used, path, size in sorted(folders):
        if total <= limit or used > time.time() - RECENT_SECONDS:
            break
        if path != keep and remove(path):
            total, removed, freed = total - size, removed + 1, freed + size
    if removed:
        print(f"removed {removed} unused from the cache of unpacked data ({freed / (1 << 20):.1f} MiB): {LIMIT_VARIABLE} "
              f"allows {limit / (1 << 30):.3g}", file=sys.stderr)


def note_use(folder):
    """Whether it is there; from now on it counts as just used."""
    with contextlib.suppress(OSError):
        os.utime(folder)
    return os.path.isdir(folder)
