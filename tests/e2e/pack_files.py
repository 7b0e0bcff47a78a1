"""Writes the .npy files of a folder as Parquet, Arrow and WebDataset files, and such files with faults.

    python3 pack_files.py DATA OUT

Standard library and pyarrow; no NumPy.
"""

import ast
import gzip
import io
import os
import sys
import tarfile

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

FILL = 2  # of samples that are shorter
TYPES = {"<f4": (4, pyarrow.float32()), "<i8": (8, pyarrow.int64())}


class Array:
    def __init__(self, path):
        with open(path, "rb") as file:
            content = file.read()
        end = 10 + int.from_bytes(content[8:10], "little")
        header = ast.literal_eval(content[10:end].decode().strip())
        self.descr, self.dims, self.data = header["descr"], header["shape"], content[end:]
        self.row_bytes = len(self.data) // self.dims[0]

    def column(self, fixed):
        size, kind = TYPES[self.descr]
        count = len(self.data) // size
        flat = pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(self.data)])
        if len(self.dims) == 1:
            return flat
        width = count // self.dims[0]
        if fixed:
            return pyarrow.FixedSizeListArray.from_arrays(flat, width)
        ends = pyarrow.array(range(0, count + 1, width), pyarrow.int32())
        return pyarrow.ListArray.from_arrays(ends, flat)

    def file(self, dims=None, data=None):
        dims, data = self.dims if dims is None else dims, self.data if data is None else data
        text = f"{{'descr': '{self.descr}', 'fortran_order': False, 'shape': {tuple(dims)}, }}".ljust(117) + "\n"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data

    def member(self, row, length=None):
        """One sample as a file of its own, with its first elements alone where a length is given."""
        data = self.data[row * self.row_bytes:(row + 1) * self.row_bytes]
        if length is None:
            return self.file(self.dims[1:], data)
        return self.file([length], data[:length * TYPES[self.descr][0]])


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def members_of(arrays, rows):
    for row in rows:
        for name, array in arrays.items():
            yield f"train/key{row:04d}.{name}.npy", array.member(row)
        yield f"train/key{row:04d}.json", b"{}"


def with_column(table, name, values):
    return table.set_column(table.schema.get_field_index(name), name, pyarrow.array(values))


def main(data, out):
    arrays = {name[:-4]: Array(os.path.join(data, name)) for name in sorted(os.listdir(data))}
    rows = next(iter(arrays.values())).dims[0]
    fixed = pyarrow.table({name: array.column(True) for name, array in arrays.items()})
    lists = pyarrow.table({name: array.column(False) for name, array in arrays.items()})
    os.makedirs(out)
    os.chdir(out)
    os.mkdir("folder")
    pyarrow.parquet.write_table(fixed.slice(0, 10), "folder/part-0.parquet", row_group_size=3)
    pyarrow.parquet.write_table(lists.slice(10), "folder/part-1.parquet", compression="zstd")
    with pyarrow.ipc.new_file("whole.arrow", lists.schema) as file:
        file.write_table(lists, max_chunksize=5)
    with pyarrow.ipc.new_stream("stream.arrow", lists.schema) as stream:
        stream.write_table(lists, max_chunksize=5)
    write_tar("shard-007.tar", members_of(arrays, range(7)))
    write_tar("shard-008.tar", members_of(arrays, range(7, rows)))
    for name in ("7", "8"):
        with open(f"shard-00{name}.tar", "rb") as whole, gzip.open(f"zip-00{name}.tar.gz", "wb") as packed:
            packed.write(whole.read())

    items = fixed.column("item").to_pylist()
    shorter = [item[:1 + i % len(item)] for i, item in enumerate(items)]
    pyarrow.parquet.write_table(with_column(fixed, "item", shorter), "shorter.parquet", row_group_size=3)
    pyarrow.parquet.write_table(with_column(fixed, "item", [item + [9] * (i == 3) for i, item in enumerate(shorter)]),
                                "longer.parquet")
    filled = {**arrays, "item": Array(os.path.join(data, "item.npy"))}
    filled["item"].data = b"".join(number.to_bytes(8, "little", signed=True) for item, short in zip(items, shorter)
                                   for number in short + [FILL] * (len(item) - len(short)))
    os.mkdir("filled")
    for name, array in filled.items():
        with open(f"filled/{name}.npy", "wb") as file:
            file.write(array.file())
    write_tar("shorter.tar", ((f"key{row:04d}.{name}.npy", array.member(row, len(shorter[row]) if name == "item" else None))
                              for row in range(rows) for name, array in arrays.items()))
    pyarrow.parquet.write_table(fixed.drop_columns(["click"]), "no-column.parquet")
    pyarrow.parquet.write_table(with_column(fixed, "click", [1.0] * rows), "double.parquet")
    pyarrow.parquet.write_table(with_column(fixed, "item", items[:5] + [None] + items[6:]), "null.parquet")
    pyarrow.parquet.write_table(with_column(fixed, "item", items[:5] + [[1]] + items[6:]), "ragged.parquet")
    pyarrow.parquet.write_table(with_column(fixed, "item", items[:5] + [[0, 0, 1 << 40, 0]] + items[6:]), "id.parquet")
    with open("folder/part-0.parquet", "rb") as whole, open("cut.parquet", "wb") as cut:
        cut.write(whole.read()[:3000])
    outside = [("../../outside\x1b[31m.item.npy", arrays["item"].member(0)), ("/etc/key.item.npy", arrays["item"].member(0))]
    write_tar("outside.tar", outside)
    write_tar("large.tar", [("key.item.npy", bytes(1 << 20))])
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 1 << 24
    with gzip.open("names.tar.gz", "wb", 1) as packed:
        packed.write(name.tobuf(tarfile.GNU_FORMAT) + bytes(name.size))
    with open("shard-007.tar", "rb") as whole, open("cut.tar", "wb") as cut:
        cut.write(whole.read()[:9000])
    with open("zip-007.tar.gz", "rb") as whole, open("cut.tar.gz", "wb") as cut:
        cut.write(whole.read()[:-300])
    with open("shard-007.tar", "rb") as whole, open("plain.tgz", "wb") as plain:
        plain.write(whole.read())


if __name__ == "__main__":
    main(*sys.argv[1:])
