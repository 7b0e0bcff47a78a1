"""Feeds batches to a `graphpipe run --feed SOCKET`, through shared memory (docs/data-protocol.md).

    from graphpipe_feed import serve

    def batches(first_step, inputs):          # steps count from 1
        for images, labels in loader:          # any iterable, such as a DataLoader
            yield {"image": images.numpy(), "label": labels.numpy()}

    serve("/tmp/feed", batches)

Arrays are whatever has the buffer protocol: NumPy arrays, `tensor.numpy()`, memoryviews. The standard library is enough.
`inputs` maps the names of the run's inputs to what they must be: `Input(type, shape)`, samples first. A run that goes on
from a checkpoint asks for its first step in `first_step`. Arrays are copied into the shared memory, and a batch is made
only when a slot is free: a slow run holds the feeder back.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import socket
import struct
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Union

HEADER = "graphpipe-feed 1"
ALIGNMENT = 64
MAX_MESSAGE = 1 << 16


class Input(NamedTuple):
    type: str
    shape: tuple[int, ...]


# What `serve` asks for its batches: the first step, and what the inputs must be.
Batches = Callable[[int, "dict[str, Input]"], Iterable[Mapping[str, Any]]]

# Element type: bytes, and the formats of a buffer that hold it.
TYPES = {
    "float32": (4, "f"), "float64": (8, "d"), "float16": (2, "e"), "bfloat16": (2, "eHh"), "int64": (8, "lq"),
    "int32": (4, "il"), "int16": (2, "h"), "int8": (1, "b"), "uint8": (1, "B"), "uint16": (2, "H"), "uint32": (4, "IL"),
    "uint64": (8, "LQ"), "bool": (1, "?"),
}


class FeedError(Exception):
    """The run asks for something that this feeder does not understand, or a batch does not fit the run."""


class Hello:
    """What a rank asks for."""

    def __init__(self, message: bytes) -> None:
        lines = message.decode("ascii").split("\n")
        if lines[0] != HEADER or lines[-1] != "":
            raise FeedError(f"the run speaks another protocol: {lines[0]!r}")
        numbers: dict[str, int] = {}
        self.inputs: dict[str, Input] = {}
        for line in lines[1:-1]:
            words = line.split(" ")
            if words[0] == "input":
                shape = tuple(int(dim) for dim in words[3][1:-1].split(",") if dim)
                self.inputs[_decoded(words[1])] = Input(words[2], shape)
            else:
                numbers[words[0]] = int(words[1])
        self.ranks, self.rank, self.step = numbers["ranks"], numbers["rank"], numbers["step"]
        self.batch = numbers["batch"]


def _decoded(word: str) -> str:
    out, i = bytearray(), 0
    while i < len(word):
        if word[i] == "%":
            out.append(int(word[i + 1:i + 3], 16))
            i += 3
        else:
            out.append(ord(word[i]))
            i += 1
    return out.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> str:
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x25 else f"%{byte:02x}" for byte in text.encode())


def _size_of(declared: Input) -> int:
    size = TYPES[declared.type][0]
    for dim in declared.shape:
        size *= dim
    return size


def _layout(inputs: Mapping[str, Input]) -> tuple[dict[str, int], int]:
    """Where each input begins in a slot, and the bytes of a slot."""
    offsets: dict[str, int] = {}
    end = 0
    for name, declared in inputs.items():
        offsets[name] = end
        end += -(-_size_of(declared) // ALIGNMENT) * ALIGNMENT
    return offsets, end


def _shape_of(view: memoryview) -> tuple[int, ...]:
    return view.shape or ()


def _type_of(view: memoryview) -> str:
    """As the run names types; a buffer of another kind as its format."""
    kind = (view.format or "B").lstrip("@=<")
    return next((name for name, (size, kinds) in TYPES.items() if view.itemsize == size and kind in kinds), repr(view.format))


def _element(name: str, declared: str, number: float) -> bytes:
    """The number as an element of this type. Its size is that of the type: a buffer's format "l" has 8 bytes here and 4 in
    struct's standard sizes."""
    size, formats = TYPES[declared]
    try:
        if declared == "bfloat16":  # the upper half of a float32
            return struct.pack("<f", number)[2:]
        if declared.startswith("float"):
            return struct.pack("<" + formats[0], number)
        if int(number) != number:
            raise FeedError(f"{declared} {name!r} cannot be filled up with {number}")
        return int(number).to_bytes(size, "little", signed=declared.startswith("int"))
    except (OverflowError, TypeError, ValueError, struct.error) as error:
        raise FeedError(f"{declared} {name!r} cannot be filled up with {number!r}: {error}") from None


def in_corner(data: Union[bytes, memoryview], found: tuple[int, ...], shape: tuple[int, ...], element: bytes) -> bytearray:
    """The bytes of an array of shape `found` at the beginning of each axis of one of this shape, the rest filled with the
    element."""
    count = 1
    for dim in shape:
        count *= dim
    padded = bytearray(element * count)
    row = found[-1] * len(element)
    for i, index in enumerate(itertools.product(*map(range, found[:-1]))):
        place = 0
        for at, dim in zip((*index, 0), shape):
            place = place * dim + at
        padded[place * len(element):place * len(element) + row] = data[i * row:(i + 1) * row]
    return padded


def _bytes_of(name: str, array: Any, declared: Input, fill: Optional[float] = None) -> memoryview:
    view = memoryview(array)
    found = _shape_of(view)
    size, formats = TYPES[declared.type]
    kind = view.format.lstrip("@=<")
    smaller = len(found) == len(declared.shape) and found != declared.shape and all(
        0 < dim <= most for dim, most in zip(found, declared.shape))
    fits = view.itemsize == size and kind in formats
    if fill is not None and smaller and found[0] == declared.shape[0] and fits and view.c_contiguous:
        return memoryview(in_corner(view.cast("B"), found, declared.shape, _element(name, declared.type, fill)))
    if found != declared.shape or not fits:
        other = fits and 0 < len(found) and found[1:] == declared.shape[1:] and found[0] != declared.shape[0]
        hint = f": every batch has the plan's {declared.shape[0]} samples (DataLoader(batch_size={declared.shape[0]}, drop_last=True))" \
            if other else "" if fits else f": make it {declared.type} first (NumPy's astype, a tensor's to)"
        raise FeedError(f"the batch has {_type_of(view)}{list(found)} for {name!r}; the run takes "
                        f"{declared.type}{list(declared.shape)}{hint}")
    if not view.c_contiguous:
        raise FeedError(f"the array for {name!r} is not contiguous in C order")
    return view.cast("B") if size > 1 or view.ndim != 1 or kind != "B" else view


class _Session:
    """One run: a connection for each of its ranks, and the memory that they share."""

    def __init__(self, listener: socket.socket, slots: int, data: str, pad: Mapping[str, float]) -> None:
        self.pad, self.slots = pad, slots
        self.connections: list[socket.socket] = []
        try:
            self._meet(listener)
            self._share_memory(data)
        except BaseException:
            self.close()
            raise

    def _meet(self, listener: socket.socket) -> None:
        """Accepts all ranks of a run, in their order."""
        ranks: dict[int, socket.socket] = {}
        hello = None
        while hello is None or len(ranks) < hello.ranks:
            connection = listener.accept()[0]
            self.connections.append(connection)
            other = Hello(connection.recv(MAX_MESSAGE))
            hello = hello or other
            if (other.step, other.batch, other.inputs, other.ranks) != (hello.step, hello.batch, hello.inputs, hello.ranks):
                raise FeedError("the ranks of the run ask for different batches")
            ranks[other.rank] = connection
        self.hello = hello
        self.connections = [ranks[rank] for rank in sorted(ranks)]
        self.offsets, self.slot_bytes = _layout(hello.inputs)
        self.next_done = [hello.step] * len(self.connections)

    def _share_memory(self, data: str) -> None:
        memory = os.memfd_create("graphpipe-feed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, self.slots * self.slot_bytes)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.memory = mmap.mmap(memory, self.slots * self.slot_bytes)
        offer = f"{HEADER}\nslots {self.slots}\nslot-bytes {self.slot_bytes}\n".encode()
        offer += f"data {_encoded(data)}\n".encode() if data else b""
        for connection in self.connections:
            socket.send_fds(connection, [offer], [memory])
        os.close(memory)

    def _wait_for_slot(self, step: int) -> bool:
        """Until all ranks are done with the batch that lies in the slot of this step."""
        for i, connection in enumerate(self.connections):
            while self.next_done[i] <= step - self.slots:
                try:
                    message = connection.recv(MAX_MESSAGE)
                except ConnectionResetError:
                    message = b""
                if not message:
                    return False
                if message != f"done {self.next_done[i]}\n".encode():
                    raise FeedError(f"rank {i} sends {message!r}, expected that it is done with step {self.next_done[i]}")
                self.next_done[i] += 1
        return True

    def send(self, step: int, batch: Mapping[str, Any]) -> bool:
        """False where the run has ended."""
        if unknown := set(self.pad) - set(self.hello.inputs):
            raise FeedError(f"pad names {sorted(unknown)}, which the run does not take: it takes {sorted(self.hello.inputs)}")
        if set(batch) != set(self.hello.inputs):
            raise FeedError(f"the batch has {sorted(batch)}; the run takes {sorted(self.hello.inputs)}")
        if not self._wait_for_slot(step):
            return False
        slot = step % self.slots
        for name, array in batch.items():
            data = _bytes_of(name, array, self.hello.inputs[name], self.pad.get(name))
            begin = slot * self.slot_bytes + self.offsets[name]
            self.memory[begin:begin + data.nbytes] = data
        return self._tell(f"batch {step} {slot}\n")

    def _tell(self, message: str) -> bool:
        try:
            for connection in self.connections:
                connection.send(message.encode())
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def finish(self) -> None:
        """Says that there are no more batches, and waits until the run has left."""
        self._tell("end\n")
        for connection in self.connections:
            try:
                while connection.recv(MAX_MESSAGE):
                    pass
            except ConnectionResetError:
                pass

    def close(self) -> None:
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)  # a process that was forked meanwhile has it open, too
            except OSError:
                pass  # the run has left
            connection.close()


def serve(path: Union[str, "os.PathLike[str]"], batches: Batches, slots: int = 4, runs: Optional[int] = 1, data: str = "",
          pad: Optional[Mapping[str, float]] = None) -> None:
    """Waits for a run at the socket `path` and feeds it what `batches(first_step, inputs)` yields, to its end or the
    run's; `runs` times, one after the other (None: for ever). `data` is a name for what is fed, such as a digest of its files: a run that goes on from
    a checkpoint refuses data of another name. `pad` maps names of inputs to numbers that fill up arrays which are
    smaller than what the run takes, at the end of each axis but the first: {"tokens": 0, "label": -100}. Raises
    FeedError where a batch does not fit."""
    if os.path.exists(path):
        raise FeedError(f"{path} exists already")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        mask = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(mask)
        try:
            listener.listen(1024)
            while runs is None or runs > 0:
                _serve_one(listener, batches, slots, data, pad or {})
                runs = None if runs is None else runs - 1
        finally:
            os.unlink(path)


def _serve_one(listener: socket.socket, batches: Batches, slots: int, data: str, pad: Mapping[str, float]) -> None:
    session = _Session(listener, slots, data, pad)
    try:
        step = session.hello.step
        for batch in batches(step, dict(session.hello.inputs)):
            if not session.send(step, batch):
                return
            step += 1
        session.finish()
    finally:
        session.close()
