"""Tar files in the form of WebDataset, read by Python's own tarfile."""

import ast
import math
import os
import sys
import tarfile
import zlib

from inputs import Refused, shown
from parts import check_room, check_spare

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # where it lies in the source tree and installed

from graphpipe_feed import in_corner  # noqa: E402

MAX_NPY_HEADER = 4096
CHECKED_BYTES = 16 << 20  # that are written between two looks at the disk: gzip hides how much will come
# What tarfile and gzip raise over damaged files.
DAMAGED = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error)


# Headers whose whole content tarfile takes into memory: long names, and the records of pax.
HEADERS_IN_MEMORY = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
                     tarfile.SOLARIS_XHDTYPE)
MAX_HEADER_IN_MEMORY = 1 << 16


class BoundedInfo(tarfile.TarInfo):
    """Refuses headers of a size that only an attack has: gzip makes gigabytes of a few megabytes."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        info = super().frombuf(buf, encoding, errors)
        if info.type in HEADERS_IN_MEMORY and info.size > MAX_HEADER_IN_MEMORY:
            raise tarfile.ReadError(f"a header declares {info.size} bytes for a name or its records")
        return info


def open_tar(path):
    return tarfile.open(path, "r:gz" if path.endswith("gz") else "r:", tarinfo=BoundedInfo)


def npy_elements(data, declared):
    """The elements of a member, or what is wrong with it."""
    if len(data) < 10 or data[:6] != b"\x93NUMPY" or data[6] not in (1, 2, 3):
        return None, "is no .npy file"
    begin = 10 if data[6] == 1 else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    try:
        if end > min(len(data), MAX_NPY_HEADER):
            raise ValueError
        header = ast.literal_eval(data[begin:end].decode("latin-1").strip())
        descr, order, shape = header["descr"], header["fortran_order"], tuple(header["shape"])
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        return None, "has no header of .npy files"
    if not all(type(dim) is int for dim in shape):
        return None, "has no header of .npy files"
    expected = declared.sample_dims
    if order is not False:
        return None, "is in Fortran order"
    is_whole = shape in (expected, (declared.rows,) + declared.dims)
    is_smaller = len(shape) == len(expected) and all(0 <= dim <= most for dim, most in zip(shape, expected))
    if descr != declared.type.npy or not (is_whole or (is_smaller and declared.fill is not None)):
        hint = "; --pad fills up smaller ones" if descr == declared.type.npy and is_smaller else ""
        return None, f"holds {ascii(descr)}{list(shape)}, and a sample is {declared}{hint}"
    if len(data) - end != math.prod(shape) * declared.type.size:
        return None, "has another size than its header says"
    return (data[end:] if is_whole else in_corner(data[end:], shape, expected, declared.fill)), ""


def check_end(tar):
    """tarfile takes a damaged or cut header for the end: behind the last member there are zeros, and nothing else."""
    tar.fileobj.seek(tar.offset)
    zeros = 0
    while block := tar.fileobj.read(1 << 20):
        if block.strip(b"\0"):
            raise tarfile.ReadError("the header that follows is damaged, or another archive follows")
        zeros += len(block)
    if zeros < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it is cut off: its end mark is missing")


class TarFiles:
    """WebDataset: the members KEY.INPUT.npy with one KEY, one after the other, are a sample."""

    def __init__(self, inputs):
        self.by_ending = {f"{i.stem}.npy": i for i in inputs}
        self.sample_bytes = sum(i.bytes for i in inputs)

    def check(self, path):
        try:
            with open_tar(path) as tar:
                tar.next()
        except DAMAGED as error:
            raise Refused(path, f"it is no tar file, or not compressed as its name says: {ascii(str(error))}",
                          "name uncompressed files .tar, those of gzip .tar.gz or .tgz; unpack others first") from error

    def unpack(self, path, parts, folder):
        check_room(folder, os.path.getsize(path), path)
        key, sample, count, written = None, {}, 0, 0
        try:
            with open_tar(path) as tar:
                for member in tar:
                    tar.members = []  # their list would grow with the file
                    place, _, base = member.name.rpartition("/")
                    stem, _, ending = base.partition(".")
                    if not member.isreg() or ending not in self.by_ending:
                        continue
                    if key is not None and (place, stem) != key:
                        count += self.finish(path, key, sample, parts)
                        sample, written = {}, written + self.sample_bytes
                    if written > CHECKED_BYTES:
                        check_spare(folder, path)
                        written = 0
                    key = (place, stem)
                    self.add(path, tar, member, ending, sample)
                check_end(tar)
            if key is not None:
                count += self.finish(path, key, sample, parts)
        except DAMAGED as error:
            raise Refused(path, f"it cannot be read after sample {count}: {ascii(str(error))}",
                          "check the file and the room in the cache") from error
        if count == 0:
            raise Refused(path, "no member is named KEY." + " or KEY.".join(sorted(self.by_ending)),
                          "name the members after the model's inputs and labels")

    def add(self, path, tar, member, ending, sample):
        declared = self.by_ending[ending]
        hint = "write the sample again"
        if ending in sample:
            raise Refused(path, f"member {shown(member.name)} is there twice", hint)
        least = declared.bytes if declared.fill is None else 0
        if not least <= member.size <= declared.bytes + MAX_NPY_HEADER:
            raise Refused(path, f"member {shown(member.name)} has {member.size} bytes, and a sample is {declared}", hint)
        sample[ending], wrong = npy_elements(tar.extractfile(member).read(), declared)
        if wrong:
            raise Refused(path, f"member {shown(member.name)} {wrong}", hint)

    def finish(self, path, key, sample, parts):
        name = "/".join(word for word in key if word)
        for ending in self.by_ending:
            if ending not in sample:
                raise Refused(path, f"sample {shown(name)} has no {shown(ending)} beside its other members",
                              f"write it as KEY.{ending}, right before or behind the others of its KEY")
        for ending, declared in self.by_ending.items():
            parts[declared.name].write(sample[ending], 1)
        return 1
