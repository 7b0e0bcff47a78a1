#pragma once
// Models of older opsets, where ONNX's converter computes something else or refuses what can be told: each operator is
// put right in the file's own terms, before the converter runs or behind it.

#include <cstdint>
#include <functional>

#include "support/result.h"

namespace graphpipe_onnx {
class GraphProto;
class ModelProto;
class NodeProto;
}  // namespace graphpipe_onnx

namespace graphpipe::frontend {

/// Below 13, Softmax, LogSoftmax and Hardmax compute over all axes from `axis` on: the converter forgets that of
/// Hardmax, and fails where a body of another operator reads the result. Below 14, a BatchNormalization may have
/// outputs 4 and 5, which nothing reads. Below 7, the slopes of a PRelu are those of axis 1. Needs: inferred shapes.
void prepare_conversion(graphpipe_onnx::ModelProto& model, int64_t opset);

/// Of a model that had this opset. Up to 10, Resize and Upsample scale places as they are, where the converter leaves
/// the new defaults; the nearest neighbour is then the lower one, and the upper one where a tensor gets smaller (ONNX's
/// test resize_downsample_nearest of opset 10). Below 14, more than one output meant that a BatchNormalization trains.
/// Errors: kUnsupportedOp for a nearest neighbour along axes of which one gets larger and one smaller.
Status finish_conversion(graphpipe_onnx::ModelProto& model, int64_t opset);

/// The nodes of the graph and of the bodies in it, those of a body before the node that has it.
void for_each_node(graphpipe_onnx::GraphProto& graph, const std::function<void(graphpipe_onnx::NodeProto&)>& visit);

}  // namespace graphpipe::frontend
