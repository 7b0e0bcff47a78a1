#include "ops/infer_helpers.h"

#include <algorithm>
#include <cmath>

namespace graphpipe::ops {
namespace {

// Real models go up to [B, B]; the rest leaves room for flattened forms.
constexpr int kMaxPower = 4;
constexpr int64_t kMaxElements = int64_t{1} << 48;

std::string input_text(size_t i) { return text("input ", i); }

/// The dim of the result, if the two are compatible.
std::optional<ir::Dim> broadcast_dim(ir::Dim a, ir::Dim b) {
  if (a == b) return a;
  if (a == ir::Dim::fixed(1)) return b;
  if (b == ir::Dim::fixed(1)) return a;
  return std::nullopt;
}

}  // namespace

Diagnostic problem_at(const NodeView& node, Code code, std::string_view what, std::string hint) {
  Diagnostic problem{.code = code, .message = text(node.node().op, " ", what), .hint = std::move(hint)};
  if (!node.node().origins.empty()) problem.origin = node.node().origins.front();
  return problem;
}

Diagnostic bad_model(const NodeView& node, std::string_view what) {
  return problem_at(node, Code::kBadModel, what, "check the model with the ONNX checker and export it again");
}

Status expect_inputs(const NodeView& node, size_t low, size_t high) {
  const size_t count = node.input_count();
  if (count < low || count > high) {
    const std::string wanted = low == high ? text(low) : text(low, " to ", high);
    return bad_model(node, text("takes ", wanted, " inputs, this one has ", count));
  }
  for (size_t i = 0; i < low; ++i) {
    if (!node.has_input(i)) return bad_model(node, text("needs ", input_text(i), ", which is absent"));
  }
  return Ok{};
}

Status expect_floating(const NodeView& node, std::initializer_list<size_t> inputs) {
  for (size_t i : inputs) {
    if (!node.has_input(i) || ir::is_floating(node.input(i).type.dtype)) continue;
    return problem_at(node, Code::kUnsupportedType,
                      text("needs a floating type, ", input_text(i), " is ", ir::dtype_name(node.input(i).type.dtype)),
                      "cast the input to float in the model");
  }
  return Ok{};
}

Status expect_index(const NodeView& node, std::initializer_list<size_t> inputs) {
  for (size_t i : inputs) {
    if (!node.has_input(i)) continue;
    const ir::DType dtype = node.input(i).type.dtype;
    if (dtype == ir::DType::kInt64 || dtype == ir::DType::kInt32) continue;
    return bad_model(node, text("needs int64 or int32 indices, ", input_text(i), " is ", ir::dtype_name(dtype)));
  }
  return Ok{};
}

Status expect_same_dtype(const NodeView& node, std::initializer_list<size_t> inputs) {
  std::optional<ir::DType> first;
  for (size_t i : inputs) {
    if (!node.has_input(i)) continue;
    const ir::DType dtype = node.input(i).type.dtype;
    if (!first) first = dtype;
    if (*first == dtype) continue;
    return bad_model(node,
                     text("needs one element type, found ", ir::dtype_name(*first), " and ", ir::dtype_name(dtype)));
  }
  return Ok{};
}

Status expect_same_type(const NodeView& node, size_t i, size_t j) {
  const ir::TensorType &a = node.input(i).type, &b = node.input(j).type;
  if (a == b) return Ok{};
  return bad_model(node, text("needs equal types, found ", ir::dtype_name(a.dtype), shape_text(a.shape), " and ",
                              ir::dtype_name(b.dtype), shape_text(b.shape)));
}

Result<int> normalized_axis(const NodeView& node, int64_t axis, size_t rank) {
  const auto signed_rank = static_cast<int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) {
    return bad_model(node, text("has axis ", axis, ", but the tensor has rank ", rank));
  }
  return static_cast<int>(axis < 0 ? axis + signed_rank : axis);
}

Result<int> axis_attribute(const NodeView& node, std::string_view name, int64_t fallback, size_t rank) {
  return normalized_axis(node, node.attributes().get_int(name, fallback), rank);
}

Result<std::vector<int>> normalized_axes(const NodeView& node, const std::vector<int64_t>& axes, size_t rank) {
  std::vector<int> result;
  for (int64_t axis : axes) {
    GP_TRY(const int normal, normalized_axis(node, axis, rank));
    if (std::ranges::find(result, normal) != result.end()) {
      return bad_model(node, text("names axis ", normal, " twice"));
    }
    result.push_back(normal);
  }
  std::ranges::sort(result);
  return result;
}

std::optional<ir::Dim> multiply(ir::Dim a, ir::Dim b) {
  ir::Dim product{0, a.power + b.power};
  if (a.factor < 0 || b.factor < 0 || __builtin_mul_overflow(a.factor, b.factor, &product.factor)) return std::nullopt;
  if (product.factor >= kMaxElements) return std::nullopt;
  return product;
}

std::optional<ir::Dim> divide(ir::Dim a, ir::Dim b) {
  if (b.factor <= 0 || a.power < b.power || a.factor % b.factor != 0) return std::nullopt;
  return ir::Dim{a.factor / b.factor, a.power - b.power};
}

ir::Dim product_of(const ir::Shape& shape, size_t first, size_t last) {
  ir::Dim result;
  for (size_t i = first; i < last; ++i) {
    result.factor *= shape[i].factor;
    result.power += shape[i].power;
  }
  return result;
}

std::string dim_text(ir::Dim dim) {
  if (dim.power == 0) return text(dim.factor);
  std::string result = dim.factor == 1 ? "B" : text(dim.factor, "*B");
  if (dim.power != 1) result += text("^", dim.power);
  return result;
}

std::string shape_text(const ir::Shape& shape) {
  std::string result = "[";
  for (const ir::Dim& dim : shape) result += (result.size() > 1 ? ", " : "") + dim_text(dim);
  return result + "]";
}

Result<ir::Shape> broadcast_shapes(const NodeView& node, const ir::Shape& a, const ir::Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  ir::Shape result(rank);
  for (size_t back = 1; back <= rank; ++back) {
    const ir::Dim x = back <= a.size() ? a[a.size() - back] : ir::Dim::fixed(1);
    const ir::Dim y = back <= b.size() ? b[b.size() - back] : ir::Dim::fixed(1);
    const std::optional<ir::Dim> joined = broadcast_dim(x, y);
    if (!joined) {
      const std::string found = text("cannot broadcast ", shape_text(a), " and ", shape_text(b));
      if (x.power == y.power) return bad_model(node, found);
      return problem_at(node, Code::kBatchNotFound, found,
                        "a constant seems to bake the batch size in: export with a named batch axis");
    }
    result[rank - back] = *joined;
  }
  return result;
}

ir::Value make_value(const NodeView& node, ir::TensorType type, Mixing mixing) {
  bool any_batched = false, any_mixed = false;
  for (size_t i = 0; i < node.input_count(); ++i) {
    if (!node.has_input(i)) continue;
    any_mixed |= node.input(i).batch == ir::BatchKind::kMixed;
    any_batched |= node.input(i).batch != ir::BatchKind::kNone;
  }
  int power = 0, axis = -1;
  for (size_t i = 0; i < type.shape.size(); ++i) {
    power += type.shape[i].power;
    if (type.shape[i].power != 0) axis = static_cast<int>(i);
  }
  ir::Value value{.type = std::move(type)};
  if (power == 0 && !any_batched) return value;
  if (power == 1 && !any_mixed && mixing == Mixing::kNone) {
    value.batch = ir::BatchKind::kAxis;
    value.batch_axis = axis;
  } else {
    value.batch = ir::BatchKind::kMixed;
  }
  return value;
}

Inferred checked(const NodeView& node, std::vector<ir::Value> outputs) {
  for (const ir::Value& value : outputs) {
    const ir::Shape& shape = value.type.shape;
    if (shape.size() > kMaxRank) {
      return problem_at(node, Code::kLimitExceeded, text("gives rank ", shape.size(), ", the limit is ", kMaxRank),
                        "reshape to fewer dimensions");
    }
    const auto impossible = [](ir::Dim dim) { return dim.factor < 0 || dim.power < 0 || dim.power > kMaxPower; };
    // A zero dim must not hide an overflow of the others: products over some of the dims are computed later.
    ir::Shape counted = shape;
    for (ir::Dim& dim : counted) dim.factor = std::max<int64_t>(dim.factor, 1);
    if (std::ranges::any_of(shape, impossible) || !ir::element_count(counted)) {
      return problem_at(node, Code::kLimitExceeded, text("gives the impossible shape ", shape_text(shape)),
                        "sizes must not be negative and a tensor has fewer than 2^48 elements");
    }
  }
  return outputs;
}

Inferred one_output(const NodeView& node, ir::TensorType type, Mixing mixing) {
  return checked(node, {make_value(node, std::move(type), mixing)});
}

bool is_batch_axis(const NodeView& node, size_t i, int axis) {
  const ir::Value& value = node.input(i);
  return value.type.shape[static_cast<size_t>(axis)].power != 0;
}

Inferred same_as_first_input(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, node.input_count()));
  return one_output(node, node.input(0).type);
}

Inferred same_as_first_float_input(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, node.input_count()));
  GP_TRY_VOID(expect_floating(node, {0}));
  return one_output(node, node.input(0).type);
}

double elements(const ir::Value& value, Samples samples) {
  double count = 1;
  for (const ir::Dim& dim : value.type.shape) {
    count *= static_cast<double>(dim.factor) * std::pow(static_cast<double>(samples.count), dim.power);
  }
  return count;
}

bool broadcasts_to(const ir::Shape& from, const ir::Shape& to) {
  if (from.size() > to.size()) return false;
  for (size_t back = 1; back <= from.size(); ++back) {
    const ir::Dim dim = from[from.size() - back];
    if (dim != to[to.size() - back] && dim != ir::Dim::fixed(1)) return false;
  }
  return true;
}

double bytes_of(const ir::Value& value, Samples samples) {
  return elements(value, samples) * static_cast<double>(ir::bytes_per_element(value.type.dtype));
}

double bytes_touched(const NodeView& node, Samples samples) {
  double bytes = 0;
  for (size_t i = 0; i < node.input_count(); ++i) {
    if (node.has_input(i)) bytes += bytes_of(node.input(i), samples);
  }
  for (size_t i = 0; i < node.output_count(); ++i) bytes += bytes_of(node.output(i), samples);
  return bytes;
}

Work per_output_element(const NodeView& node, Samples samples, double flops) {
  return {.flops = flops * elements(node.output(0), samples), .bytes = bytes_touched(node, samples)};
}

Work per_input_element(const NodeView& node, Samples samples, double flops) {
  return {.flops = flops * elements(node.input(0), samples), .bytes = bytes_touched(node, samples)};
}

Work function_of_output(const NodeView& node, Samples samples, double flops) {
  Work work = per_output_element(node, samples, flops);
  work.kernel = Kernel::kFunction;
  return work;
}

Work function_of_input(const NodeView& node, Samples samples, double flops) {
  Work work = per_input_element(node, samples, flops);
  work.kernel = Kernel::kFunction;
  return work;
}

Work one_flop_per_element(const NodeView& node, Samples samples) { return per_output_element(node, samples, 1); }

Work copy_work(const NodeView& node, Samples samples) { return {.flops = 0, .bytes = bytes_touched(node, samples)}; }

Work no_work(const NodeView&, Samples) { return {}; }

bool always(const NodeView&) { return true; }

}  // namespace graphpipe::ops
