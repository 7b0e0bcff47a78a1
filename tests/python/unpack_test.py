"""What fills samples up that are smaller than the model's, and files that lie about their sizes (python/graphpipe_data)."""

import array
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pyarrow
import pyarrow.compute

PROGRAM = Path(__file__).resolve().parents[2] / "python/graphpipe_data"
sys.path.insert(0, str(PROGRAM))
from inputs import Input, Refused, shown  # noqa: E402
from padding import fill_up  # noqa: E402
from parts import readable  # noqa: E402
from tables import Column  # noqa: E402
from webdataset import in_corner, npy_elements  # noqa: E402


def declared(dims, fill="9", type_name="int64"):
    found = Input("x", type_name, [1, *dims])
    if fill is not None:
        fill_up([f"x={fill}"], [found])
    return found


def numbers(data):
    return list(array.array("q", bytes(data)))


def npy(shape, count):
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(8 * count)


class FillUp(unittest.TestCase):
    def test_a_sample_lies_in_the_corner(self):
        data = array.array("q", [1, 2, 3, 4]).tobytes()
        self.assertEqual(numbers(in_corner(data, (2, 2), (3, 4), declared((3, 4)).fill)), [1, 2, 9, 9, 3, 4, 9, 9, 9, 9, 9, 9])

    def test_numbers_that_the_type_lacks_are_refused(self):
        for type_name, number in (("bool", "7"), ("int8", "300"), ("uint8", "-1"), ("int64", "0.5"), ("int64", "nan"),
                                  ("float32", "much"), ("float16", "1e6")):
            with self.subTest(type_name=type_name, number=number), self.assertRaises(Refused):
                declared((2,), number, type_name)
        self.assertEqual(declared((2,), "2.0").fill, (2).to_bytes(8, "little"))
        for name in ("y=1", "größe=1", "=1"):
            with self.subTest(name=name), self.assertRaises(Refused):
                fill_up([name], [declared((2,))])


class Names(unittest.TestCase):
    def test_names_of_any_language_are_shown_and_what_nobody_sees_is_escaped(self):
        for name in ("größe", "模型", "нет"):
            self.assertEqual(shown(name), f"'{name}'")
        for hidden in ("\x1b", "\x9b", "\u200b", "\u202e", "\u2066", "\ufeff", "\udcff"):
            with self.subTest(hidden=ascii(hidden)):
                self.assertTrue(shown(f"größe{hidden}").isprintable())


class Tables(unittest.TestCase):
    def rows(self, values, dims, first=0, count=None):
        kind = pyarrow.list_(pyarrow.int64()) if len(dims) == 1 else pyarrow.list_(pyarrow.list_(pyarrow.int64()))
        column = Column(pyarrow, "file", declared(dims), pyarrow.field("x", kind))
        return numbers(column.data(pyarrow.array(values, kind).slice(first, count), first))

    def test_lists_of_their_own_lengths_also_of_a_slice(self):
        self.assertEqual(self.rows([[1], [], [2, 3]], (2,)), [1, 9, 9, 9, 2, 3])
        self.assertEqual(self.rows([[1], [], [2, 3]], (2,), 1), [9, 9, 2, 3])
        self.assertEqual(self.rows([[1], [4], [2, 3]], (2,), 1, 1), [4, 9])

    def test_nested_lists(self):
        values = [[[1], [2, 3]], [], [[4, 5]]]
        self.assertEqual(self.rows(values, (2, 2)), [1, 9, 2, 3, 9, 9, 9, 9, 4, 5, 9, 9])
        self.assertEqual(self.rows(values, (2, 2), 2), [4, 5, 9, 9])

    def test_what_does_not_fit_is_refused_with_its_row(self):
        for values, dims, said in (([[1], [1, 2, 3]], (2,), "3 elements in row 1"), ([[1], None], (2,), "null in row 1"),
                                   ([[1], [2], [3, None]], (2,), "null in row 2"),
                                   ([[[1]], [[1], [2], [3]]], (2, 2), "3 elements in row 1"),
                                   ([[[1]], [[2], [3, None]]], (2, 2), "null in row 1")):
            with self.subTest(values=values), self.assertRaisesRegex(Refused, said):
                self.rows(values, dims)


class Headers(unittest.TestCase):
    def test_shapes_that_are_none_are_refused(self):
        for shape in (("a", 2), (None, 1), ((1,), 2), (1.5, 2), (1, 0.5), (True, 2), (-1, 2)):
            for fill in ("9", None):
                with self.subTest(shape=shape, fill=fill):
                    self.assertIsNone(npy_elements(npy(shape, 2), declared((2, 2), fill))[0])

    def test_a_smaller_sample_is_filled_up_and_one_that_lies_is_not(self):
        self.assertEqual(numbers(npy_elements(npy((1, 2), 2), declared((2, 2)))[0]), [0, 0, 9, 9])
        self.assertIsNone(npy_elements(npy((1, 2), 2), declared((2, 2), None))[0])
        self.assertIsNone(npy_elements(npy((2, 1), 1), declared((2, 2)))[0])
        self.assertIsNone(npy_elements(npy((2, 3), 6), declared((2, 2)))[0])


class Cache(unittest.TestCase):
    def unpack(self, place, cache, before=(), kind="--cache"):
        """What the program says of a folder that it cannot use."""
        table, packed = Path(place) / "data.txt", Path(place) / "x.tar"
        table.write_text("graphpipe-data 3\nbatch 1\ninput x int64 0 1 [1]\n")
        packed.touch()
        end = subprocess.run([sys.executable, *before, PROGRAM, "--table", table, kind, cache, packed],
                             capture_output=True, text=True, check=False)
        self.assertEqual(end.returncode, 5, end.stderr)
        self.assertEqual("name another folder in GRAPHPIPE_DATA_CACHE" in end.stderr, kind == "--cache")
        self.assertNotIn("Traceback", end.stderr)
        return end.stderr

    def test_folders_that_cannot_be_written_are_named_without_a_traceback(self):
        with tempfile.TemporaryDirectory() as place:
            taken = Path(place) / "taken"
            taken.touch()
            (Path(place) / "full").symlink_to("nowhere")
            for cache in (taken, taken / "below", Path(place) / "full"):
                with self.subTest(cache=cache.name):
                    self.assertIn(f"{str(cache)!r}: it cannot be written: ", self.unpack(place, cache))

    def test_who_names_the_folder_is_told_to_name_another_and_of_no_cache(self):
        with tempfile.TemporaryDirectory() as place:
            taken = Path(place) / "taken"
            taken.touch()
            self.assertIn("name another folder with --output", self.unpack(place, taken / "new", kind="--output"))

    def test_so_is_one_that_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as place:  # which permissions would not keep from root
            self.assertIn(f"{place!r}: it cannot be read: Permission denied", self.unpack(place, place, before=(
                "-c", "import errno, os, runpy, sys; del sys.argv[0]\n"
                "def denied(path): raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)\n"
                "os.scandir = denied; runpy.run_path(sys.argv[0], run_name='__main__')")))

    def test_sizes_are_readable(self):
        self.assertEqual([readable(count) for count in (0, 999, 1010, 1 << 20, 3 << 29)],
                         ["0 B", "999 B", "0.986 KiB", "1 MiB", "1.5 GiB"])


if __name__ == "__main__":
    unittest.main()
