"""Samples smaller than the model's, filled up at the end of each axis (--pad)."""

import struct

from inputs import EXIT_USAGE, Refused, decoded, shown

FORMATS = {"float32": "f", "float64": "d", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b",
           "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "bool": "?"}


def fill_up(words, inputs):
    """Gives inputs the element that the words NAME=NUMBER fill them up with."""
    by_name = {i.name: i for i in inputs}
    for word in words:
        name, _, number = word.rpartition("=")
        declared = by_name.get(decoded(name) if name.isascii() else name)
        if declared is None:
            raise Refused(f"--pad {word}", "the plan has no such input with samples",
                          "name one of " + ", ".join(shown(each) for each in by_name), EXIT_USAGE)
        try:
            value = float(number)
            if not declared.type_name.startswith("float"):
                value = int(number) if number.lstrip("+-").isdecimal() else int(value)
                if value != float(number) or (declared.type_name == "bool" and value not in (0, 1)):
                    raise ValueError
            declared.fill = struct.pack("<" + FORMATS[declared.type_name], value)
        except (ValueError, OverflowError, struct.error):
            raise Refused(f"--pad {word}", f"{declared.type_name} has no such number", "fill up with one that it has",
                          EXIT_USAGE) from None


def with_runs(data, runs, lengths, samples, declared):
    """Samples that are filled up, but for elements along the last axis: `lengths` of them in each of these `runs`."""
    padded = bytearray(declared.fill * (samples * declared.elements))
    size, begin = declared.type.size, 0
    step = declared.sample_dims[-1] * size
    for run, length in zip(runs, lengths):
        end = begin + length * size
        padded[run * step:run * step + end - begin] = data[begin:end]
        begin = end
    return padded
