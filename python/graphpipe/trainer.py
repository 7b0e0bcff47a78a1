"""Trains a compiled folder with the batches of a Python loader, such as torch.utils.data.DataLoader."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

from graphpipe_feed import FeedError, serve

from .command import Flag, answer_of, binary, end, environment, warn_of, words_of
from .program import PathLike, Program
from .results import Run, parsed


# A loader may take so long for a batch, the half of what ranks wait for each other.
LOADER_SECONDS = 300
MAX_SOCKET_PATH = 107  # bytes; Linux's limit
OF_FILES = ("data", "shuffle", "last_batch")
READ_ONCE = ("a run that starts again reads the loader from its beginning, and this one can be read only once: give a list, a "
             "DataLoader or another iterable, or leave restarts out")


@dataclass(frozen=True)
class Step:
    """One step as it happens. Steps count from 1."""

    step: int
    loss: float


class Trainer:
    """Trains `program`; `flags` are those of `graphpipe run` that say how: lr=1e-3, weight_decay=0.1, clip_norm=1.0,
    lr_schedule="cosine:1000", checkpoint="folder", checkpoint_every=100...

    `names` are those of a tuple's or list's items, for loaders that do not give dicts; of dicts they leave out what the
    program does not take."""

    def __init__(self, program: Union[Program, PathLike], *, names: Optional[Sequence[str]] = None, **flags: Flag) -> None:
        self.program = program if isinstance(program, Program) else Program(program)
        self.names = None if names is None else list(names)
        self.flags = flags

    def fit(self, loader: Iterable[Any], *, steps: Optional[int] = None, epochs: Optional[int] = None,
            save: Optional[PathLike] = None, on_step: Optional[Callable[[Step], None]] = None,
            pad: Optional[Mapping[str, float]] = None, **flags: Flag) -> Run:
        """Trains for so many steps, or so many times through the loader (once, where neither is given). Each item is one
        batch of the plan's size: a dict by the names of the model's inputs and labels, or a tuple (see `names`).

        A batch that does not fit raises FeedError; so does the last one of an epoch where it is smaller (DataLoader's
        drop_last). `on_step` is called from this thread as losses come, and takes the place of `log`;
        `save` is where the weights go.
        Arrays that are smaller than the plan's are filled up, at the end of each axis but the first, with the numbers of
        `pad`, by the names of the inputs: pad={"input_ids": 0, "attention_mask": 0, "labels": -100}.
        A batch may take five minutes, or half of `stall_timeout` where it is given. Where the loader fails, so does the run, and
        goes on from the last checkpoint of checkpoint_every.
        Every call trains from the plan's weights: weights=FILE starts from those that `save` wrote, and resume=FOLDER goes on from
        the last checkpoint, with the optimizer's state.
        An exception that `on_step` raises ends the run, and is raised here; a run with checkpoint= takes one first.
        A run that goes on from a checkpoint (resume=..., or after a device that died, with restarts=...) reads the loader from its
        beginning and skips the batches of the steps that are done."""
        if steps is None:
            batches_of = _length(loader)
            if batches_of == 0 or epochs == 0:
                raise ValueError("there is nothing to train on: " + ("the loader is empty" if batches_of == 0 else "0 epochs"))
            steps = batches_of * (1 if epochs is None else epochs)
        elif epochs is not None:
            raise ValueError("steps or epochs, not both")
        if steps < 1:
            raise ValueError(f"there is nothing to train on: {steps} steps")
        with tempfile.TemporaryDirectory(prefix="graphpipe-feed-") as folder:
            socket = os.path.join(folder, "feed")
            if len(os.fsencode(socket)) > MAX_SOCKET_PATH:
                raise ValueError(f"{socket}: the path of a socket has {MAX_SOCKET_PATH} bytes at most; set TMPDIR to a folder with "
                                 "a shorter path")
            feeder = _Feeder(socket, loader, self.names, steps, pad or {})
            given = {"stall_timeout": LOADER_SECONDS * 2, **self.flags, **flags, **({} if save is None else {"save": save})}
            of_files = [name for name in OF_FILES if given.get(name)]
            if of_files:
                raise ValueError(f"{of_files[0]} is for data in files, as program.run(data=...) takes them; fit trains on what the "
                                 "loader gives, in its order")
            if given.get("restarts") and isinstance(loader, Iterator):
                raise ValueError(READ_ONCE)
            log = os.path.join(folder, "log.jsonl") if on_step is not None else None
            if log is not None:
                if given.get("log") is not None:
                    raise ValueError("on_step or log, not both: on_step reads the log of the run")
                given["log"] = log
            words = [binary(), "run", os.fspath(self.program.folder), "--feed", feeder.socket, "--steps", str(steps),
                     *words_of(given), "--json", "--quiet"]
            return parsed(Run, self._follow(words, feeder, log, on_step))

    def _follow(self, words: list[str], feeder: "_Feeder", log: Optional[str],
                on_step: Optional[Callable[[Step], None]]) -> dict[str, Any]:
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            with feeder, subprocess.Popen(words, env=environment(), stdout=output, stderr=errors) as run:
                losses = _Losses(log)
                try:
                    while _still_runs(run):
                        _report(losses, on_step)
                    _report(losses, on_step)
                except BaseException:
                    end(run)
                    raise
                finally:
                    losses.close()
            if feeder.failure is not None:
                raise feeder.failure
            output.seek(0)
            errors.seek(0)
            told = errors.read()
            answer = answer_of("run", run.returncode, output.read(), told)
            warn_of(told, stacklevel=3)
            return answer


def _length(loader: Iterable[Any]) -> int:
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError("the loader has no length: say how many steps") from None


def _still_runs(run: "subprocess.Popen[Any]") -> bool:
    try:
        run.wait(0.1)
        return False
    except subprocess.TimeoutExpired:
        return True


class _Losses:
    """The steps that a log tells of as it grows, each once. A run that starts again puts another file in the log's place, with the
    steps up to its checkpoint, or begins the same file anew."""

    def __init__(self, path: Optional[str]) -> None:
        self._path, self._file, self._rest, self._told = path, None, b"", 0  # type: Optional[str], Any, bytes, int

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def new(self) -> Iterator[Step]:
        for line in self._lines():
            entry = json.loads(line)
            if "loss" in entry and entry.get("step", 0) > self._told:
                self._told = entry["step"]
                yield Step(entry["step"], entry["loss"])

    def _lines(self) -> Iterator[bytes]:
        if self._path is None or not os.path.exists(self._path):
            return
        if self._file is not None and self._begins_anew():
            self._file.close()
            self._file, self._rest = None, b""
        if self._file is None:
            self._file = open(self._path, "rb")
        self._rest += self._file.read()
        *whole, self._rest = self._rest.split(b"\n")
        yield from whole

    def _begins_anew(self) -> bool:
        now, read = os.stat(self._path or ""), os.fstat(self._file.fileno())
        return now.st_ino != read.st_ino or now.st_size < self._file.tell()


def _report(losses: _Losses, on_step: Optional[Callable[[Step], None]]) -> None:
    for step in losses.new():
        if on_step is not None:
            on_step(step)


class _Feeder:
    """Serves a loader at a socket, from a thread, to a run and to those that take its place where a device died."""

    def __init__(self, path: str, loader: Iterable[Any], names: Optional[list[str]], steps: int,
                 pad: Mapping[str, float]) -> None:
        self.socket = path
        self.failure: Optional[BaseException] = None
        self._ended = False
        self._loader, self._names, self._steps, self._pad = loader, names, steps, pad
        self._iterator: Optional[Iterator[Any]] = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "_Feeder":
        self._thread.start()
        while not os.path.exists(self.socket) and self._thread.is_alive():
            self._thread.join(0.002)
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended = True
        if self._thread.is_alive():
            self._wake()
        self._thread.join(5)

    def _wake(self) -> None:
        """Ends a feeder that waits for a run, by a connection that asks for nothing."""
        import socket

        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.settimeout(1)
                stranger.connect(self.socket)
        except OSError:
            pass  # it ended by itself

    def _serve(self) -> None:
        came = False

        def batches(first_step: int, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
            nonlocal came
            if came and isinstance(self._loader, Iterator):
                raise FeedError(READ_ONCE)
            came = True
            step = 0
            while step < self._steps:
                before = step
                # Kept until the run has ended: workers of a DataLoader that has failed may take seconds to go.
                self._iterator = iter(self._loader)
                for item in self._iterator:
                    step += 1
                    if step >= first_step:
                        yield _arrays(item, self._names, inputs)
                    if step == self._steps:  # what the loader has beyond is not asked for
                        return
                if step == before:
                    raise FeedError(f"the loader has no more batches after {step} of {self._steps} steps")

        try:
            serve(self.socket, batches, runs=None, pad=self._pad)
        except BaseException as error:  # it is raised in the caller's thread
            asked_for_nothing = isinstance(error, (FeedError, UnicodeDecodeError, IndexError)) and (self._ended or not came)
            if not asked_for_nothing:
                self.failure = error


def _arrays(item: Any, names: Optional[list[str]], inputs: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        items = [item] if not isinstance(item, (tuple, list)) else list(item)
        keys = names if names is not None else list(inputs)
        if len(items) != len(keys):
            raise FeedError(f"a batch has {len(items)} parts, expected {len(keys)}: {keys}")
        item = dict(zip(keys, items))
    beyond = [name for name in item if name not in inputs]
    if beyond and names is None:
        raise FeedError(f"a batch has {beyond} beyond what the program takes: Trainer(names={list(inputs)}) leaves such out")
    return {name: _array(name, value) for name, value in item.items() if name in inputs}


def _array(name: str, value: Any) -> Any:
    """Something with the buffer protocol."""
    if hasattr(value, "detach"):
        import torch

        value = value.detach().cpu().contiguous()
        return value.view(torch.int16).numpy() if value.dtype == torch.bfloat16 else value.numpy()
    if hasattr(value, "__array__"):
        import numpy

        return numpy.ascontiguousarray(value)
    try:
        memoryview(value)
    except TypeError:
        raise FeedError(f"the batch has a {type(value).__name__} for {name!r}; give a tensor or an array") from None
    return value
