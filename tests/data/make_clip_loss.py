#!/usr/bin/env python3
"""Writes tests/data/exports/clip_loss/model.onnx: clip_like with the loss inside, as transformers' CLIP has it.

    python tests/data/make_clip_loss.py

With return_loss=True a CLIP of transformers returns the mean of two cross entropies, of the similarities and of their
transpose, each with the labels arange(batch); torch's dynamo exporter writes each as SoftmaxCrossEntropyLoss with a
[batch, batch] input. The nodes below are those. The value is that of --loss contrastive:similarity, so PyTorch's
recorded results for clip_like are the reference. Made with onnx 1.23.2, whose checker accepts the result.
"""

import pathlib

import onnx
from onnx import TensorProto, helper

DATA = pathlib.Path(__file__).resolve().parent
INT64 = TensorProto.INT64


def cross_entropy(name: str, logits: str) -> list:
    """The mean cross entropy of the rows, the label of row i being i."""
    return [
        helper.make_node("Shape", [logits], [f"{name}_size"], f"node_Shape_{name}", start=0, end=1),
        helper.make_node("Squeeze", [f"{name}_size"], [f"{name}_length"], f"node_Squeeze_{name}"),
        helper.make_node("Range", ["loss_zero", f"{name}_length", "loss_one"], [f"{name}_arange"], f"node_arange_{name}"),
        helper.make_node("SoftmaxCrossEntropyLoss", [logits, f"{name}_arange"], [f"{name}_loss", f"{name}_log_prob"],
                         f"node_cross_entropy_{name}", ignore_index=-100, reduction="mean"),
    ]


def main() -> None:
    model = onnx.load(DATA / "models/clip_like/model.onnx")
    graph = model.graph
    graph.initializer.extend([helper.make_tensor("loss_zero", INT64, [], [0]), helper.make_tensor("loss_one", INT64, [], [1]),
                              helper.make_tensor("loss_two", TensorProto.FLOAT, [], [2.0])])
    graph.node.extend(cross_entropy("caption", "similarity"))
    graph.node.append(helper.make_node("Transpose", ["similarity"], ["similarity_t"], "node_t_loss", perm=[1, 0]))
    graph.node.extend(cross_entropy("image", "similarity_t"))
    graph.node.append(helper.make_node("Add", ["caption_loss", "image_loss"], ["both_losses"], "node_add_loss"))
    graph.node.append(helper.make_node("Div", ["both_losses", "loss_two"], ["loss"], "node_div_loss"))
    graph.output.insert(0, helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    onnx.checker.check_model(model, full_check=True)
    folder = DATA / "exports/clip_loss"
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx")


if __name__ == "__main__":
    main()
