#include "frontend/lower_unsigned.h"

namespace graphpipe::frontend {
namespace {

using ir::DType;
using ir::ValueId;

/// Works on the bits of uint64 numbers held in int64. After adding 2^63 the order of the two types is the same, and
/// half of a number is below 2^63.
class UnsignedArithmetic {
 public:
  explicit UnsignedArithmetic(NodeContext& context) : context_(context) {}

  Status begin() {
    GP_TRY(zero_, context_.scalar(0, DType::kInt64));
    GP_TRY(one_, context_.scalar(1, DType::kInt64));
    // -2^63 as a product of factors that a Full of integers accepts.
    GP_TRY(const ValueId low, context_.scalar(0x1p32, DType::kInt64));
    GP_TRY(const ValueId high, context_.scalar(-0x1p31, DType::kInt64));
    GP_TRY(smallest_, make("Mul", {low, high}));
    GP_TRY(largest_, make("BitwiseNot", {smallest_}));
    return Ok{};
  }

  Result<ValueId> shifted_right(ValueId number, ValueId bits) {
    GP_TRY(const ValueId half, halved(number));
    GP_TRY(const ValueId others, make("Sub", {bits, one_}));
    GP_TRY(const ValueId shifted, shift(half, others, "RIGHT"));
    GP_TRY(const ValueId none, make("Equal", {bits, zero_}));
    return make("Where", {none, number, shifted});
  }

  Result<ValueId> quotient(ValueId number, ValueId divisor) {
    // A divisor of at least 2^63, negative here, fits exactly once into any number that is not smaller.
    GP_TRY(const ValueId is_large, make("Less", {divisor, zero_}));
    GP_TRY(const ValueId small, make("Where", {is_large, one_, divisor}));
    GP_TRY(const ValueId once, one_unless_below(number, divisor));
    GP_TRY(ValueId result, halved(number));
    GP_TRY(result, make("Div", {result, small}));
    GP_TRY(result, shift(result, one_, "LEFT"));
    GP_TRY(const ValueId rest, remainder(number, result, small));
    GP_TRY(const ValueId missing, one_unless_below(rest, small));
    GP_TRY(result, make("Add", {result, missing}));
    return make("Where", {is_large, once, result});
  }

  Result<ValueId> remainder(ValueId number, ValueId quotient, ValueId divisor) {
    GP_TRY(const ValueId product, make("Mul", {quotient, divisor}));
    return make("Sub", {number, product});
  }

 private:
  Result<ValueId> make(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes = {}) {
    GP_TRY(const std::vector<ValueId> made, context_.emit(op, std::move(inputs), std::move(attributes)));
    return made[0];
  }
  Result<ValueId> shift(ValueId number, ValueId bits, const char* direction) {
    return make("BitShift", {number, bits}, {{"direction", std::string(direction)}});
  }
  Result<ValueId> halved(ValueId number) {
    GP_TRY(const ValueId half, shift(number, one_, "RIGHT"));
    return make("BitwiseAnd", {half, largest_});
  }
  Result<ValueId> one_unless_below(ValueId a, ValueId b) {
    GP_TRY(const ValueId moved_a, make("Add", {a, smallest_}));
    GP_TRY(const ValueId moved_b, make("Add", {b, smallest_}));
    GP_TRY(const ValueId below, make("Less", {moved_a, moved_b}));
    return make("Where", {below, zero_, one_});
  }

  NodeContext& context_;
  ValueId zero_, one_, smallest_, largest_;
};

}  // namespace

bool divides_unsigned(Lowering& lowering, const OnnxNode& node) {
  const Attribute* direction = node.find("direction");
  const bool fits = node.op == "Div" || node.op == "Mod" ||
                    (node.op == "BitShift" && direction != nullptr && direction->s == "RIGHT");
  if (!fits || node.inputs.size() != 2) return false;
  const Binding* first = lowering.find(node.inputs[0]);
  return first != nullptr && first->type.dtype == DType::kUInt64;
}

Status lower_unsigned(Lowering& lowering, const OnnxNode& node) {
  NodeContext context(lowering, node);
  ValueId operands[2];
  for (size_t i = 0; i < 2; ++i) {
    GP_TRY(const ValueId value, context.value(i));
    GP_TRY(const auto cast, context.emit("Cast", {value}, {{"to", std::string("i64")}}));
    operands[i] = cast[0];
  }
  UnsignedArithmetic arithmetic(context);
  GP_TRY_VOID(arithmetic.begin());
  ValueId result;
  if (node.op == "BitShift") {
    GP_TRY(result, arithmetic.shifted_right(operands[0], operands[1]));
  } else {
    GP_TRY(result, arithmetic.quotient(operands[0], operands[1]));
    if (node.op == "Mod") {
      GP_TRY(result, arithmetic.remainder(operands[0], result, operands[1]));
    }
  }
  return context.emit_outputs("Cast", {result}, {{"to", std::string(ir::dtype_name(DType::kUInt64))}});
}

}  // namespace graphpipe::frontend
