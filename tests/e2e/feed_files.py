"""A feeder for tests: batches of the .npy files of a folder, as `graphpipe run --data` takes them.

    feed_files.py SOCKET FOLDER [good | ends | wrong-shape | wrong-id | garbage | small | unsealed] [AFTER] [NAME OF THE DATA]
"""

import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import graphpipe_feed  # noqa: E402


def read_npy(path):
    with open(path, "rb") as file:
        content = file.read()
    length = int.from_bytes(content[8:10], "little")
    header = eval(content[10:10 + length].decode())  # a literal of a file of our own
    kind = {"<f4": "f", "<i8": "q", "<i4": "i", "|b1": "?"}[header["descr"]]
    return memoryview(content[10 + length:]).cast(kind, header["shape"])


def rows_of(array, first, count):
    """`count` rows from `first` on, beginning again at the end."""
    flat = array.cast("B")
    row = flat.nbytes // array.shape[0]
    rows = b"".join(bytes(flat[(i % array.shape[0]) * row:(i % array.shape[0] + 1) * row])
                    for i in range(first, first + count))
    return memoryview(rows).cast(array.format, (count,) + array.shape[1:])


def batches_of(folder, how, limit):
    def batches(first_step, inputs):
        arrays = {name: read_npy(os.path.join(folder, name + ".npy")) for name in inputs}
        step = first_step
        while True:
            if how == "ends" and step > limit:
                os._exit(9)
            if how == "good" and limit and step > limit:
                return
            batch = {}
            for name, declared in inputs.items():
                count = declared.shape[0]
                batch[name] = rows_of(arrays[name], (step - 1) * count, count)
                if how == "wrong-shape" and step == 2:
                    batch[name] = rows_of(arrays[name], 0, count - 1)
                if how == "wrong-id" and step == 2 and declared.type == "int64":
                    wrong = bytearray(batch[name].cast("B"))
                    wrong[0:8] = (1 << 40).to_bytes(8, "little")
                    batch[name] = memoryview(wrong).cast("q", declared.shape)
            yield batch
            step += 1
    return batches


def answer_badly(path, how):
    """Accepts ranks, and offers them what no run must take."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(16)
        connections = []
        while True:
            connection = listener.accept()[0]
            connections.append(connection)
            connection.recv(1 << 16)
            memory = os.memfd_create("bad", os.MFD_ALLOW_SEALING)
            os.ftruncate(memory, 64 if how == "small" else 1 << 20)
            if how == "small":
                import fcntl
                fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            offer = b"\xff\x00garbage" if how == "garbage" else b"graphpipe-feed 1\nslots 2\nslot-bytes 65536\n"
            socket.send_fds(connection, [offer], [memory])


if __name__ == "__main__":
    socket_path, folder = sys.argv[1:3]
    how = sys.argv[3] if len(sys.argv) > 3 else "good"
    limit = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    if how in ("garbage", "small", "unsealed"):
        answer_badly(socket_path, how)
    graphpipe_feed.serve(socket_path, batches_of(folder, how, limit), data=sys.argv[5] if len(sys.argv) > 5 else "")
