"""The .npy files that are written, and the room for them."""

import os
import re
import shutil
import struct

from inputs import NoPlace, Refused

NPY_HEADER = 128
SPARE_BYTES = 64 << 20  # of the disk that is left free


class Part:
    """One .npy file: the samples of one source for one input. Its header is written last, when they are counted."""

    def __init__(self, path, declared):
        self.path, self.declared, self.samples = path, declared, 0
        self.file = open(path, "xb")
        self.file.write(bytes(NPY_HEADER))

    def write(self, data, samples):
        self.file.write(data)
        self.samples += samples

    def close(self):
        declared = self.declared
        shape = (self.samples * declared.rows,) + declared.dims
        text = f"{{'descr': '{declared.type.npy}', 'fortran_order': False, 'shape': {shape}, }}"
        if len(text) > NPY_HEADER - 11:
            raise Refused(self.path, f"its shape {shape} does not fit into the header", "use fewer axes")
        text = text.ljust(NPY_HEADER - 11) + "\n"
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", NPY_HEADER - 10) + text.encode("ascii"))
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        if self.samples == 0:
            os.unlink(self.path)


class Parts:
    """The parts of one source, input by input."""

    def __init__(self, folder, inputs, index, path):
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(path))[-200:]
        self.parts = {i.name: Part(os.path.join(folder, i.stem, f"{index:06d}.{name}.npy"), i) for i in inputs}

    def __enter__(self):
        return self.parts

    def __exit__(self, kind, value, trace):
        for part in self.parts.values():
            part.close()


def readable(count):
    """Bytes as the command prints them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def no_room(path, message, folder, free):
    return NoPlace(path, f"{message} {folder} has {readable(free)} left, and {readable(SPARE_BYTES)} stay free",
                   "a folder with more room")


def check_room(folder, needed, path):
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise no_room(path, f"unpacked it has {readable(needed)}, and", folder, free)


def check_spare(folder, path):
    free = shutil.disk_usage(folder).free
    if free < SPARE_BYTES:
        raise no_room(path, "what it holds fills the disk:", folder, free)
