"""Records of TensorBoard's own writer, which tests/runtime/record_file_test.cpp compares with ours byte for byte.

    pip install tensorboard && python tests/data/make_event_records.py > tests/data/event_records.txt
"""

import io

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def record(event):
    class Kept(io.BytesIO):
        def close(self):
            pass

    out = Kept()
    RecordWriter(out).write(event.SerializeToString())
    return out.getvalue().hex()


def scalars(wall_time, step, values):
    summary = summary_pb2.Summary(
        value=[summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in values])
    return event_pb2.Event(wall_time=wall_time, step=step, summary=summary)


START = event_pb2.SessionLog.SessionStatus.START
print("# Written by tests/data/make_event_records.py: one TFRecord per line.")
print(record(event_pb2.Event(wall_time=1.5, file_version="brain.Event:2")))
print(record(event_pb2.Event(wall_time=1700000000.25, step=300, session_log=event_pb2.SessionLog(status=START))))
print(record(scalars(2.5, 1, [("train/loss", 2.25)])))
print(record(scalars(1e9, 1 << 40, [("train/loss", -0.1), ("train/seconds", 1e-30)])))
