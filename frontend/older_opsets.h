#pragma once
// Corrections for models of older opsets, for which ONNX's converter computes something else or rejects what could be
// converted: each operator is rewritten within the file's opset, before or after the converter runs.

#include <cstdint>
#include <functional>

#include "support/result.h"

namespace graphpipe_onnx {
class GraphProto;
class ModelProto;
class NodeProto;
}  // namespace graphpipe_onnx

namespace graphpipe::frontend {

/// Below 13, Softmax, LogSoftmax and Hardmax compute over all axes from `axis` on: the converter ignores that for
/// Hardmax, and fails if a body of another operator reads the result. Below 14, a BatchNormalization may have outputs 4
/// and 5, which nothing reads. Below 7, the slopes of a PRelu are along axis 1. Needs: inferred shapes.
void prepare_conversion(graphpipe_onnx::ModelProto& model, int64_t opset);

/// For a model that had this opset. Up to 10, Resize and Upsample scale positions directly, where the converter leaves
/// the new defaults; the nearest neighbour is then the lower one, and the upper one when downsampling (ONNX's test
/// resize_downsample_nearest of opset 10). Below 14, a BatchNormalization with more than one output was in training
/// mode. Errors: kUnsupportedOp for nearest neighbours if one axis gets larger and another smaller.
Status finish_conversion(graphpipe_onnx::ModelProto& model, int64_t opset);

/// Visits the nodes of the graph and of the bodies in it, those of a body before the node that has it.
void for_each_node(graphpipe_onnx::GraphProto& graph, const std::function<void(graphpipe_onnx::NodeProto&)>& visit);

}  // namespace graphpipe::frontend
