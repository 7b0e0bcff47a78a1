// Rotary(x, cosine, sine): x * cosine + [-second, first] * sine with the halves of x's last axis, the rotary position
// embedding of queries and keys as one node; created by passes/fuse_layers. See runtime/kernels/rotary.h.

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/infer_helpers.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kRotary = "runtime/kernels/rotary.h";
/// The tables, which are not trained.
constexpr uint32_t kTables = 0b110;

// x, or its gradient, [.., D] with D even; cosine and sine of one shape, which broadcasts to that of x.
Inferred infer_rotary(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 3));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2}));
  const ir::Shape &x = node.input(0).type.shape, &table = node.input(1).type.shape;
  const bool has_halves = !x.empty() && x.back().is_fixed() && x.back().factor % 2 == 0;
  if (!has_halves || table.empty() || table.back() != x.back() || !broadcasts_to(table, x) ||
      node.input(2).type.shape != table)
    return bad_model(node, text("cannot turn ", shape_text(x), " by angles ", shape_text(table)));
  return one_output(node, node.input(0).type);
}

/// LibTorch's operators, for other types and ranks, make the turned halves and a product.
Work rotary_work(const NodeView& node, Samples samples) {
  const bool has_loop = node.input(0).type.dtype == ir::DType::kFloat32 && node.input(0).type.shape.size() == 4;
  return {.flops = 3 * elements(node.output(0), samples),
          .bytes = bytes_touched(node, samples),
          .scratch = has_loop ? 0 : 3 * bytes_of(node.output(0), samples)};
}

void emit_rotary(Emitter& emitter) { assign_pattern(emitter, "graphpipe::runtime::rotary($0, $1, $2)", kRotary); }
void emit_rotary_gradient(Emitter& emitter) {
  assign_pattern(emitter, "graphpipe::runtime::rotary_gradient($0, $1, $2)", kRotary);
}

Status rotary_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(
      0, builder.add_one(0, "RotaryGrad", {builder.output_gradient(0), builder.input(1), builder.input(2)}));
  return Ok{};
}

}  // namespace

std::span<const OpDef> rotary_ops() {
  static const std::vector<OpDef> rows = {
      {.name = "Rotary",
       .infer = infer_rotary,
       .work = rotary_work,
       .gradient = rotary_gradient,
       .emit = emit_rotary,
       .heads_lie_inside_up_to = 4,
       .constant_inputs = kTables,
       .examples = {{.inputs = {normal({kB, 2, 3, 6}), weight(normal({3, 6})), weight(normal({3, 6}))}},
                    {.inputs = {normal({kB, 2, 3, 4}), normal({kB, 1, 3, 4}), normal({kB, 1, 3, 4})}},
                    {.inputs = {normal({kB, 3, 4}), weight(normal({3, 4})), weight(normal({3, 4}))}}}},
      {.name = "RotaryGrad",
       .infer = infer_rotary,
       .work = rotary_work,
       .emit = emit_rotary_gradient,
       .heads_lie_inside_up_to = 4,
       .examples = {{.inputs = {normal({kB, 2, 3, 6}), weight(normal({3, 6})), weight(normal({3, 6}))}}}}};
  return rows;
}

}  // namespace graphpipe::ops
