"""Parquet and Arrow files, read by pyarrow."""

import sys

from inputs import EXIT_ENVIRONMENT, Refused, shown
from parts import check_room

BATCH_BYTES = 8 << 20
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def load_pyarrow(path):
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise Refused(path, f"Parquet and Arrow files are read by pyarrow, which {sys.executable} has not: {error}",
                      "install it (pip install pyarrow), or name another Python in GRAPHPIPE_PYTHON",
                      EXIT_ENVIRONMENT) from error
    return pyarrow


class Column:
    """How a column becomes the rows of an input; refuses one that cannot."""

    def __init__(self, arrow, path, declared, field):
        self.arrow, self.path, self.declared, self.name = arrow, path, declared, field.name
        leaf = self._plain(field.type)
        while self._is_list(leaf):
            leaf = self._plain(leaf.value_type)
        wanted = declared.type.arrow
        if str(leaf) != wanted and not (str(leaf) in INTEGERS and wanted in INTEGERS):
            self._refuse(f"holds {shown(str(field.type))}", "write the column in that type")
        self.leaf = arrow.type_for_alias(wanted)

    def _plain(self, kind):
        if isinstance(kind, self.arrow.BaseExtensionType):
            kind = kind.storage_type
        return kind

    def _is_list(self, kind):
        types = self.arrow.types
        return types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)

    def _refuse(self, what, hint):
        raise Refused(self.path, f"column {shown(self.name)} {what}; the input is {self.declared}", hint)

    def data(self, array, first_row):
        """The bytes of an array's rows."""
        if len(array) == 0:
            return b""
        rows, lengths, width = len(array), [], 1  # elements of a row at this depth
        while True:
            if isinstance(array, self.arrow.ExtensionArray):
                array = array.storage
            if array.null_count > 0:
                row = first_row + self.arrow.compute.index(array.is_null(), True).as_py() // max(1, width)
                self._refuse(f"has a null in row {row} (from 0)", "fill it, or leave such rows out")
            if not self._is_list(array.type):
                break
            lengths.append(self._length(array, first_row, width))
            width *= lengths[-1]
            array = array.flatten()
        self._check_shape(lengths)
        return self._leaf_bytes(array, rows)

    def _length(self, array, first_row, width):
        """That of every list, which is the same."""
        if self.arrow.types.is_fixed_size_list(array.type):
            return array.type.list_size
        lengths = self.arrow.compute.list_value_length(array)
        ends = self.arrow.compute.min_max(lengths).as_py()
        if ends["min"] != ends["max"]:
            first = lengths[0].as_py()
            other = next(i for i, length in enumerate(lengths.to_pylist()) if length != first)
            self._refuse(f"has lists of {first} elements in row {first_row}, and of {lengths[other].as_py()} in row "
                         f"{first_row + other // max(1, width)} (from 0)", "pad them to one length")
        return ends["max"]

    def _check_shape(self, lengths):
        dims = [dim for dim in self.declared.sample_dims if dim != 1]
        flat = 1
        for length in lengths:
            flat *= length
        if flat != self.declared.elements or (len(lengths) > 1 and [n for n in lengths if n != 1] != dims):
            self._refuse(f"has rows of shape {lengths}", "write rows of that shape, or flat lists of as many elements")

    def _leaf_bytes(self, array, rows):
        size = self.declared.type.size
        try:
            array = array.cast(self.arrow.uint8() if self.declared.type_name == "bool" else self.leaf)
        except self.arrow.ArrowInvalid as error:
            self._refuse(f"does not fit: {ascii(str(error))}", "write the column in that type")
        if len(array) != rows * self.declared.elements:
            self._refuse("holds another number of elements than its rows say", "write the file again")
        begin = array.offset * size
        return memoryview(array.buffers()[1])[begin:begin + len(array) * size] if len(array) else b""


def batches_of(arrow, kind, path, names, batch_rows):
    if kind == "parquet":
        yield from arrow.parquet.ParquetFile(path).iter_batches(batch_size=batch_rows, columns=names)
        return
    with arrow.memory_map(path) as file:
        reader = arrow.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i).select(names)


def schema_of(arrow, kind, path):
    if kind == "parquet":
        file = arrow.parquet.ParquetFile(path)
        return file.schema_arrow, file.metadata.num_rows
    with arrow.memory_map(path) as file:
        return arrow.ipc.open_file(file).schema, 0


def column_of(arrow, path, declared, schema):
    for name in dict.fromkeys((declared.name, declared.stem)):
        found = schema.get_all_field_indices(name)
        if len(found) == 1:
            return Column(arrow, path, declared, schema.field(found[0]))
        if found:
            raise Refused(path, f"it has {len(found)} columns {shown(name)}", "rename all but one")
    columns = ", ".join(shown(name) for name in schema.names[:20]) + (", ..." if len(schema.names) > 20 else "")
    raise Refused(path, f"it has no column {shown(declared.name)}, only {columns}",
                  "name the columns after the model's inputs and labels")


class TableFiles:
    """Parquet and Arrow files: row i of every column belongs to sample i."""

    def __init__(self, kind, inputs, paths):
        self.kind, self.inputs = kind, inputs
        self.arrow = load_pyarrow(paths[0])

    def columns(self, path):
        try:
            schema, rows = schema_of(self.arrow, self.kind, path)
        except (self.arrow.ArrowException, OSError) as error:
            raise Refused(path, f"pyarrow cannot read it: {ascii(str(error))}", "check the file") from error
        return {i.name: column_of(self.arrow, path, i, schema) for i in self.inputs}, rows

    def check(self, path):
        self.columns(path)

    def unpack(self, path, parts, folder):
        columns, rows = self.columns(path)
        sample_bytes = sum(i.bytes for i in self.inputs)
        check_room(folder, rows * sample_bytes, path)
        names = list(dict.fromkeys(column.name for column in columns.values()))
        first = 0
        try:
            for batch in batches_of(self.arrow, self.kind, path, names, max(1, BATCH_BYTES // max(1, sample_bytes))):
                check_room(folder, batch.num_rows * sample_bytes, path)
                for name, column in columns.items():
                    parts[name].write(column.data(batch.column(column.name), first), batch.num_rows)
                first += batch.num_rows
        except (self.arrow.ArrowException, OSError) as error:
            raise Refused(path, f"pyarrow cannot read it after row {first}: {ascii(str(error))}",
                          "check the file and the room in the cache") from error
