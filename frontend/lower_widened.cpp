// Nodes on types that no operator computes in: unsigned integers of more than a byte, small floats and integers of less
// than a byte. Their operands are cast to a wider type, and results of the original type back.
//
// Sums and products modulo 2^64 have the same bits in int64 and uint64. If the order of two uint64 numbers matters,
// both are shifted by 2^63, which preserves their order in int64.

#include "frontend/lower_widened.h"

#include <algorithm>
#include <optional>
#include <set>

#include "frontend/lower_unsigned.h"

namespace graphpipe::frontend {
namespace {

using ir::DType;
using Names = std::set<std::string_view>;

/// The op casts, or only reads types and shapes.
bool casts_itself(std::string_view op) {
  static const Names kOps = {"Cast", "CastLike",         "BitCast",        "Identity",        "Shape",        "Size",
                             "If",   "DequantizeLinear", "QuantizeLinear", "ConstantOfShape", "QLinearMatMul"};
  return kOps.count(op) > 0;
}

/// The op only moves elements and does not depend on their type.
bool only_moves(std::string_view op) {
  static const Names kOps = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Slice"};
  return kOps.count(op) > 0;
}

bool compares(std::string_view op) {
  static const Names kOps = {"Max",  "Min",       "Less",      "LessOrEqual", "Greater", "GreaterOrEqual",
                             "TopK", "ReduceMax", "ReduceMin", "ArgMax",      "ArgMin"};
  return kOps.count(op) > 0;
}

/// The result is exact modulo 2^64, signed or unsigned.
bool is_modular(const OnnxNode& node) {
  static const Names kOps = {"Add",       "Sub",          "Mul",          "Sum",       "Equal",          "Where",
                             "ReduceSum", "CumSum",       "BitwiseAnd",   "BitwiseOr", "BitwiseXor",     "BitwiseNot",
                             "Gather",    "GatherND",     "Expand",       "Tile",      "GatherElements", "Split",
                             "Trilu",     "DepthToSpace", "SpaceToDepth", "Pad"};
  const Attribute *direction = node.find("direction"), *reduction = node.find("reduction");
  if (node.op == "ScatterElements" || node.op == "ScatterND")
    return reduction == nullptr || (reduction->s != "max" && reduction->s != "min");
  return kOps.count(node.op) > 0 || (node.op == "BitShift" && direction != nullptr && direction->s == "LEFT");
}

/// The input that determines the element type of the results by ONNX's rules, if it is that of an input.
size_t deciding_input(std::string_view op) { return op == "OneHot" ? 2 : op == "Where" ? 1 : 0; }

DType wider(DType dtype) {
  if (!wire::is_stored_only(dtype)) return DType::kInt64;
  const bool is_integer = wire::find_element_type(dtype)->packed > 1 && dtype != DType::kFloat4E2M1;
  return is_integer ? DType::kInt32 : DType::kFloat32;
}

class Widening {
 public:
  Widening(Lowering& lowering, const OnnxNode& node) : context_(lowering, node), widened_(node) {}

  /// The node with widened operands.
  Result<OnnxNode> operands();
  /// Casts the results that have the type of the operands back.
  Status results();

 private:
  Result<ir::ValueId> cast(ir::ValueId value, DType to, bool saturate = true);
  Result<ir::ValueId> moved_by_half(ir::ValueId value);
  /// Whether output i has the operands' element type by ONNX's rules.
  bool has_operand_type(size_t output) const;

  NodeContext context_;
  OnnxNode widened_;
  /// The type of the input that determines the results' type; none if that input was not widened.
  std::optional<DType> from_;
  /// Whether operands of uint64 were shifted by 2^63.
  bool moved_ = false;
};

Result<ir::ValueId> Widening::cast(ir::ValueId value, DType to, bool saturate) {
  GP_TRY(const auto made,
         context_.emit("Cast", {value}, {{"to", std::string(ir::dtype_name(to))}, {"saturate", int64_t{saturate}}}));
  return made[0];
}

Result<ir::ValueId> Widening::moved_by_half(ir::ValueId value) {
  // -2^63 as a product of factors that a Full of integers accepts.
  GP_TRY(const ir::ValueId low, context_.scalar(0x1p32, DType::kInt64));
  GP_TRY(const ir::ValueId high, context_.scalar(-0x1p31, DType::kInt64));
  GP_TRY(const auto half, context_.emit("Mul", {low, high}, {}));
  GP_TRY(const auto made, context_.emit("Add", {value, half[0]}, {}));
  return made[0];
}

Result<OnnxNode> Widening::operands() {
  const std::string& op = widened_.op;
  for (size_t i = 0; i < widened_.inputs.size(); ++i) {
    if (!context_.has_input(i) || wire::is_computed_in(context_.type(i).dtype)) continue;
    const DType dtype = context_.type(i).dtype;
    if (dtype == DType::kUInt64 && !compares(op) && !is_modular(widened_) && op != "Pow")
      return context_.problem(Code::kUnsupportedType, "is not exact on uint64 in every case",
                              "cast its operands to int64 if they are below 2^63");
    // Pow with a float base is computed in floats.
    DType to = wider(dtype);
    if (op == "Pow" && ir::is_floating(context_.type(0).dtype)) to = context_.type(0).dtype;
    if (op == "Pow" && i == 0 && dtype == DType::kUInt64)
      return context_.problem(Code::kUnsupportedType, "is not exact on uint64 in every case",
                              "cast its operands to int64 if they are below 2^63");
    if (i == deciding_input(op)) from_ = dtype;
    GP_TRY(ir::ValueId value, context_.value(i));
    GP_TRY(value, cast(value, to));
    moved_ = dtype == DType::kUInt64 && compares(op);
    if (moved_) {
      GP_TRY(value, moved_by_half(value));
    }
    // Nothing but this node reads the name.
    const std::string name =
        context_.lowering().unused_name(text(widened_.outputs[0], " operand ", i, " in a wider type"));
    context_.lowering().bind_value(name, value);
    widened_.inputs[i] = name;
  }
  return widened_;
}

bool Widening::has_operand_type(size_t output) const {
  static const Names kOthers = {"ArgMax", "ArgMin", "NonZero", "EyeLike"};
  if (kOthers.count(widened_.op) > 0 || (widened_.op == "TopK" && output == 1)) return false;
  return true;
}

Status Widening::results() {
  if (!from_) return Ok{};
  for (size_t i = 0; i < widened_.outputs.size(); ++i) {
    if (!context_.has_output(i) || !has_operand_type(i)) continue;
    Binding* made = context_.lowering().find(widened_.outputs[i]);
    if (made == nullptr || made->poisoned || made->type.dtype != wider(*from_)) continue;
    GP_TRY(ir::ValueId value, context_.lowering().value_of(*made, widened_));
    if (moved_) {
      GP_TRY(value, moved_by_half(value));
    }
    // Infinities that were only moved stay.
    GP_TRY(value, cast(value, *from_, /*saturate=*/false));
    context_.bind(i, value);
  }
  return Ok{};
}

}  // namespace

bool needs_widening(Lowering& lowering, const OnnxNode& node) {
  if (casts_itself(node.op) || only_moves(node.op) || node.outputs.empty()) return false;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& name) {
    const Binding* input = name.empty() ? nullptr : lowering.find(name);
    return input != nullptr && !input->poisoned && !wire::is_computed_in(input->type.dtype);
  });
}

Status lower_widened(Lowering& lowering, const OnnxNode& node, Handler handler) {
  if (divides_unsigned(lowering, node)) return lower_unsigned(lowering, node);
  Widening widening(lowering, node);
  GP_TRY(const OnnxNode widened, widening.operands());
  NodeContext context(lowering, widened);
  GP_TRY_VOID(handler(context));
  return widening.results();
}

}  // namespace graphpipe::frontend
