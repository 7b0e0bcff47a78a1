"""What a run's inputs must be, from the table of a compiled folder, and how files that do not fit are refused."""

import re
from collections import namedtuple

# Of the table: bytes, and the type's name in .npy files and in Arrow.
Type = namedtuple("Type", "size npy arrow")
TYPES = {
    "float32": Type(4, "<f4", "float"), "float64": Type(8, "<f8", "double"), "float16": Type(2, "<f2", "halffloat"),
    "int64": Type(8, "<i8", "int64"), "int32": Type(4, "<i4", "int32"),
    "int16": Type(2, "<i2", "int16"), "int8": Type(1, "|i1", "int8"), "uint8": Type(1, "|u1", "uint8"),
    "uint16": Type(2, "<u2", "uint16"), "uint32": Type(4, "<u4", "uint32"), "uint64": Type(8, "<u8", "uint64"),
    "bool": Type(1, "|b1", "bool"),
}
EXIT_USAGE, EXIT_REFUSED, EXIT_ENVIRONMENT = 2, 3, 5


class Refused(Exception):
    """What is wrong with a file, where, and what to do."""

    def __init__(self, origin, message, hint, code=EXIT_REFUSED):
        super().__init__(message)
        self.origin, self.message, self.hint, self.code = origin, message, hint, code


class NoPlace(Refused):
    """The folder to unpack into cannot be used; who asked for it knows what names another."""

    def __init__(self, origin, message, wanted):
        super().__init__(origin, message, f"name {wanted}", EXIT_ENVIRONMENT)


class AllRefused(Exception):
    """Several of them."""

    def __init__(self, problems):
        super().__init__(f"{len(problems)} problems")
        self.problems = problems


class Input:
    """A line of the table: an input or label that has samples."""

    def __init__(self, name, type_name, dims):
        self.name, self.type_name, self.type = name, type_name, TYPES[type_name]
        self.rows, self.dims = dims[0], tuple(dims[1:])  # rows of the file for each sample
        self.fill = None  # what smaller samples are filled up with, as an element
        self.stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        self.elements = dims[0]
        for dim in self.dims:
            self.elements *= dim

    @property
    def bytes(self):
        return self.elements * self.type.size

    def __str__(self):
        return f"{self.type_name}[{','.join(str(dim) for dim in self.sample_dims)}]"

    @property
    def sample_dims(self):
        return self.dims if self.rows == 1 else (self.rows,) + self.dims


def shown(text):
    """A name from a file between quotes; what a reader does not see of it, or what turns the direction of text, is escaped."""
    return repr(text if len(text) <= 200 else text[:200] + "...")


def decoded(word):
    raw = re.sub(rb"%([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), word.encode("ascii"))
    return raw.decode("utf-8", "surrogateescape")


def encoded(text):
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x25 else f"%{byte:02x}" for byte in raw)


def read_table(path):
    with open(path, encoding="ascii") as file:
        lines = file.read().splitlines()
    if not lines or lines[0] != "graphpipe-data 3":
        raise Refused(path, "it is no table of data of this version", "compile the folder again")
    inputs = []
    for words in (line.split(" ") for line in lines if line.startswith("input ")):
        name, dims = decoded(words[1]), [int(dim) for dim in words[5][1:-1].split(",") if dim]
        if words[2] not in TYPES:
            raise Refused(name, f"the input is {words[2]}, which neither kind of file holds", "feed it with --feed")
        if int(words[4]) < 0:
            raise Refused(name, "all samples share this input, and such files hold samples alone",
                          "write all data as .npy files, this one as NAME.npy")
        inputs.append(Input(name, words[2], dims))
    if not inputs:
        raise Refused(path, "the plan reads no samples", "leave --data out")
    return inputs
