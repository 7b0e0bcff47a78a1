#pragma once
// Models around one node of any operator, mostly wrong: too few operands, absurd attributes, other types.

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include "tests/support/dice.h"

namespace graphpipe::tests {

/// Where the node stands.
enum class NodePlace { kTopLevel, kFunction, kIfBody };

/// Values that arithmetic on sizes and axes goes wrong with.
int64_t absurd_integer(Dice& dice);

/// An attribute of this name and type. Half of them are plausible.
graphpipe_onnx::AttributeProto random_attribute(const std::string& name,
                                                graphpipe_onnx::AttributeProto::AttributeType type, Dice& dice);

/// A model of the schema's opset (at least 7) with one node of its operator, `inputs` operands of any kind, and the
/// required attributes, mostly. The node reads inputs and constants of the model.
graphpipe_onnx::ModelProto one_operator_model(const graphpipe_onnx::OpSchema& schema, int inputs, NodePlace place,
                                              Dice& dice);

}  // namespace graphpipe::tests
