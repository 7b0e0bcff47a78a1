"""Parquet and Arrow files, read by pyarrow."""

import sys

from inputs import EXIT_ENVIRONMENT, Refused, encoded, shown
from padding import with_runs
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
        leaf, depth = self._plain(field.type), 0
        while self._is_list(leaf):
            leaf, depth = self._plain(leaf.value_type), depth + 1
        self.may_fill_up = depth == len(declared.sample_dims) > 0
        self.fills_up = declared.fill is not None and self.may_fill_up
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
        if self.fills_up:
            return self._filled_up(array, first_row)
        rows, lengths, width = len(array), [], 1  # elements of a row at this depth
        array = self._without_nulls(array, lambda place: first_row + place // max(1, width))
        while self._is_list(array.type):
            lengths.append(self._length(array, first_row, width))
            width *= lengths[-1]
            array = self._without_nulls(array.flatten(), lambda place: first_row + place // max(1, width))
        self._check_shape(lengths)
        leaf = self._leaf_bytes(array)
        if len(leaf) != rows * self.declared.bytes:
            self._refuse("holds another number of elements than its rows say", "write the file again")
        return leaf

    def _filled_up(self, array, first_row):
        """The same of lists that may be shorter than the model's axes, each of its own length."""
        rows, runs, in_row = len(array), range(len(array)), 1  # runs of a row at this depth
        array = self._without_nulls(array, lambda place: first_row + place)
        for depth, dim in enumerate(self.declared.sample_dims):
            if depth > 0:
                runs = [run * dims_before + i for run, length in zip(runs, lengths) for i in range(length)]
            lengths = self._lengths(array)
            for run, length in zip(runs, lengths):
                if not 0 <= length <= dim:
                    self._refuse(f"has a list of {length} elements in row {first_row + run // in_row} (from 0)",
                                 f"cut such lists to {dim}")
            in_row, dims_before = in_row * dim, dim
            places = [run for run, length in zip(runs, lengths) for _ in range(length)] if array.flatten().null_count else []
            array = self._without_nulls(array.flatten(), lambda place: first_row + places[place] * dim // in_row)
        leaf = self._leaf_bytes(array)
        if min(lengths, default=0) < 0 or sum(lengths) * self.declared.type.size != len(leaf):
            self._refuse("holds another number of elements than its rows say", "write the file again")
        return with_runs(leaf, runs, lengths, rows, self.declared)

    def _without_nulls(self, array, row_of):
        if isinstance(array, self.arrow.ExtensionArray):
            array = array.storage
        if array.null_count > 0:
            row = row_of(self.arrow.compute.index(array.is_null(), True).as_py())
            self._refuse(f"has a null in row {row} (from 0)", "fill it, or leave such rows out")
        return array

    def _lengths(self, array):
        if self.arrow.types.is_fixed_size_list(array.type):
            return [array.type.list_size] * len(array)
        return self.arrow.compute.list_value_length(array).to_pylist()

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
                         f"{first_row + other // max(1, width)} (from 0)", self._how_to_fill_up())
        return ends["max"]

    def _check_shape(self, lengths):
        dims = [dim for dim in self.declared.sample_dims if dim != 1]
        flat = 1
        for length in lengths:
            flat *= length
        if flat != self.declared.elements or (len(lengths) > 1 and [n for n in lengths if n != 1] != dims):
            self._refuse(f"has rows of shape {lengths}", "write rows of that shape, or flat lists of as many elements, "
                         f"or {self._how_to_fill_up()}")

    def _how_to_fill_up(self):
        if self.may_fill_up:
            return f"fill shorter ones up: --pad {encoded(self.declared.name)}=NUMBER"
        return f"write lists of {len(self.declared.sample_dims)} axes, which --pad fills up"

    def _leaf_bytes(self, array):
        size = self.declared.type.size
        try:
            array = array.cast(self.arrow.uint8() if self.declared.type_name == "bool" else self.leaf)
        except self.arrow.ArrowInvalid as error:
            self._refuse(f"does not fit: {ascii(str(error))}", "write the column in that type")
        begin = array.offset * size
        return memoryview(array.buffers()[1])[begin:begin + len(array) * size] if len(array) else b""


def batches_of(arrow, kind, path, names, batch_rows):
    if kind == "parquet":
        yield from arrow.parquet.ParquetFile(path).iter_batches(batch_size=batch_rows, columns=names)
        return
    with arrow.memory_map(path) as file:
        reader = open_arrow(arrow, file)
        batches = reader if isinstance(reader, arrow.ipc.RecordBatchStreamReader) else (
            reader.get_batch(i) for i in range(reader.num_record_batches))
        for batch in batches:
            for first in range(0, batch.num_rows, batch_rows):
                yield batch.select(names).slice(first, batch_rows)


def open_arrow(arrow, file):
    """Of either format: with random access, which begins with this mark, or a stream, as Hugging Face datasets are."""
    has_random_access = file.read(6) == b"ARROW1"
    file.seek(0)
    return arrow.ipc.open_file(file) if has_random_access else arrow.ipc.open_stream(file)


def schema_of(arrow, kind, path):
    if kind == "parquet":
        file = arrow.parquet.ParquetFile(path)
        return file.schema_arrow, file.metadata.num_rows
    with arrow.memory_map(path) as file:
        return open_arrow(arrow, file).schema, 0


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
