// Bitwise operators on integers: masks and hashes. They have no derivatives.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

bool is_whole(const NodeView& node, size_t i) {
  const ir::DType dtype = node.input(i).type.dtype;
  return !ir::is_floating(dtype) && dtype != ir::DType::kBool;
}

Inferred infer_bitwise_not(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  if (!is_whole(node, 0)) return bad_model(node, "is defined on whole numbers only");
  return one_output(node, node.input(0).type);
}

Inferred infer_pair(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 2, 2));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1}));
  if (!is_whole(node, 0)) return bad_model(node, "is defined on whole numbers only");
  GP_TRY(ir::Shape shape, broadcast_shapes(node, node.input(0).type.shape, node.input(1).type.shape));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

/// ONNX only shifts unsigned numbers.
Inferred infer_shift(const NodeView& node) {
  const std::string direction = node.attributes().get_string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") return bad_model(node, "has a direction other than LEFT and RIGHT");
  return infer_pair(node);
}

void emit_and(Emitter& emitter) { assign_call(emitter, "at::bitwise_and", "ATen/ops/bitwise_and.h"); }
void emit_or(Emitter& emitter) { assign_call(emitter, "at::bitwise_or", "ATen/ops/bitwise_or.h"); }
void emit_xor(Emitter& emitter) { assign_call(emitter, "at::bitwise_xor", "ATen/ops/bitwise_xor.h"); }
void emit_bitwise_not(Emitter& emitter) { assign_call(emitter, "at::bitwise_not", "ATen/ops/bitwise_not.h"); }
void emit_shift(Emitter& emitter) {
  if (emitter.node().attributes().get_string("direction", "") == "LEFT") {
    return assign_call(emitter, "at::bitwise_left_shift", "ATen/ops/bitwise_left_shift.h");
  }
  assign_call(emitter, "at::bitwise_right_shift", "ATen/ops/bitwise_right_shift.h");
}

OpDef row(std::string_view name, Inferred (*infer)(const NodeView&), void (*emit)(Emitter&),
          std::vector<Example> examples) {
  return {.name = name,
          .infer = infer,
          .work = one_flop_per_element,
          .emit = emit,
          .dependence = Dependence::kElement,
          .examples = std::move(examples)};
}

}  // namespace

std::span<const OpDef> bitwise_ops() {
  const std::vector<Example> pairs = {{.inputs = {integers({kB, 4}, -9, 10), integers({kB, 4}, -9, 10)}},
                                      {.inputs = {integers({kB, 2, 3}, 0, 64), weight(integers({3}, 0, 64))}}};
  const auto bytes = [](const ExampleShape& dims, int64_t high) { return integers(dims, 0, high, ir::DType::kUInt8); };
  static const std::vector<OpDef> rows = {
      row("BitwiseAnd", infer_pair, emit_and, pairs),
      row("BitwiseOr", infer_pair, emit_or, pairs),
      row("BitwiseXor", infer_pair, emit_xor, pairs),
      row("BitwiseNot", infer_bitwise_not, emit_bitwise_not, {{.inputs = {integers({kB, 4}, -9, 10)}}}),
      row("BitShift", infer_shift, emit_shift,
          {{.inputs = {bytes({kB, 4}, 16), bytes({kB, 4}, 4)}, .attributes = {{"direction", std::string("LEFT")}}},
           {.inputs = {bytes({kB, 4}, 200), bytes({kB, 4}, 4)}, .attributes = {{"direction", std::string("RIGHT")}}}}),
  };
  return rows;
}

}  // namespace graphpipe::ops
