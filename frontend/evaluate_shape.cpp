#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "frontend/evaluate.h"
#include "frontend/selection.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using Inputs = std::span<const Known* const>;

const Known* input_or_null(Inputs inputs, size_t i) { return i < inputs.size() ? inputs[i] : nullptr; }

int64_t int_attribute(const OnnxNode& node, std::string_view name, int64_t fallback) {
  const Attribute* found = node.find(name);
  return found == nullptr ? fallback : found->i;
}

std::optional<size_t> axis_of(int64_t axis, size_t rank) {
  const auto size = static_cast<int64_t>(rank);
  if (axis < -size || axis >= size) return std::nullopt;
  return static_cast<size_t>(axis < 0 ? axis + size : axis);
}

std::optional<std::vector<int64_t>> list(Inputs inputs, size_t i) {
  const Known* input = input_or_null(inputs, i);
  return input == nullptr ? std::nullopt : whole_numbers(*input);
}

size_t product(const ir::Shape& shape, size_t first, size_t last) {
  size_t result = 1;
  for (size_t i = first; i < last; ++i) result *= static_cast<size_t>(shape[i].factor);
  return result;
}

std::optional<Known> reshape_to(Known known, ir::Shape shape) {
  if (!known.uniform && known_count(shape) != known_count(known.shape)) return std::nullopt;
  known.shape = std::move(shape);
  return known;
}

std::optional<Known> reshape(const OnnxNode& node, Inputs inputs) {
  const Known* target = input_or_null(inputs, 1);
  if (target == nullptr || !known_count(inputs[0]->shape)) return std::nullopt;
  std::optional<std::vector<int64_t>> sizes = whole_numbers(*target);
  if (!sizes || sizes->size() > kMaxRank) return std::nullopt;
  const bool allow_zero = int_attribute(node, "allowzero", 0) != 0;
  const auto total = static_cast<int64_t>(*known_count(inputs[0]->shape));
  int64_t rest = 1;
  for (size_t i = 0; i < sizes->size(); ++i) {
    int64_t& size = (*sizes)[i];
    if (size == 0 && !allow_zero && i < inputs[0]->shape.size()) size = inputs[0]->shape[i].factor;
    if (size < -1 || size > kMaxKnownElements) return std::nullopt;
    if (size >= 0 && __builtin_mul_overflow(rest, size, &rest)) return std::nullopt;
  }
  ir::Shape shape;
  for (int64_t size : *sizes) {
    if (size == -1 && (rest == 0 || total % rest != 0)) return std::nullopt;
    shape.push_back(Dim::fixed(size == -1 ? total / rest : size));
  }
  if (known_count(shape) != known_count(inputs[0]->shape)) return std::nullopt;
  return reshape_to(*inputs[0], std::move(shape));
}

std::optional<Known> squeeze(const OnnxNode&, Inputs inputs) {
  const ir::Shape& from = inputs[0]->shape;
  std::vector<bool> gone(from.size(), false);
  if (input_or_null(inputs, 1) == nullptr) {
    for (size_t i = 0; i < from.size(); ++i) gone[i] = from[i] == Dim::fixed(1);
  } else {
    const std::optional<std::vector<int64_t>> axes = list(inputs, 1);
    if (!axes) return std::nullopt;
    for (int64_t axis : *axes) {
      const std::optional<size_t> index = axis_of(axis, from.size());
      if (!index || from[*index] != Dim::fixed(1)) return std::nullopt;
      gone[*index] = true;
    }
  }
  ir::Shape shape;
  for (size_t i = 0; i < from.size(); ++i)
    if (!gone[i]) shape.push_back(from[i]);
  return reshape_to(*inputs[0], std::move(shape));
}

std::optional<Known> unsqueeze(const OnnxNode&, Inputs inputs) {
  const std::optional<std::vector<int64_t>> axes = list(inputs, 1);
  if (!axes || axes->size() > kMaxRank) return std::nullopt;
  const size_t rank = inputs[0]->shape.size() + axes->size();
  std::vector<bool> added(rank, false);
  for (int64_t axis : *axes) {
    const std::optional<size_t> index = axis_of(axis, rank);
    if (!index || added[*index]) return std::nullopt;
    added[*index] = true;
  }
  ir::Shape shape;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i) shape.push_back(added[i] ? Dim::fixed(1) : inputs[0]->shape[next++]);
  return reshape_to(*inputs[0], std::move(shape));
}

/// Copies along one axis: out[..., k, ...] = inputs[0][..., picks[k], ...].
std::optional<Known> pick(const Known& from, size_t axis, const std::vector<size_t>& picks, ir::Shape shape) {
  const std::optional<size_t> count = known_count(shape);
  if (!count || !known_count(from.shape)) return std::nullopt;
  Known result{.dtype = from.dtype, .shape = std::move(shape), .uniform = from.uniform, .elements = {}};
  if (from.uniform) {
    result.elements = from.elements;
    return result;
  }
  const size_t outer = product(from.shape, 0, axis), inner = product(from.shape, axis + 1, from.shape.size());
  const auto size = static_cast<size_t>(from.shape[axis].factor);
  for (size_t o = 0; o < outer; ++o)
    for (size_t p : picks)
      for (size_t i = 0; i < inner; ++i) result.elements.push_back(from.elements[(o * size + p) * inner + i]);
  return result;
}

std::optional<Known> gather(const OnnxNode& node, Inputs inputs) {
  const std::optional<size_t> axis = axis_of(int_attribute(node, "axis", 0), inputs[0]->shape.size());
  const std::optional<std::vector<int64_t>> indices = list(inputs, 1);
  if (!axis || !indices || !inputs[0]->shape[*axis].is_fixed()) return std::nullopt;
  std::vector<size_t> picks;
  for (int64_t index : *indices) {
    const std::optional<size_t> row = axis_of(index, static_cast<size_t>(inputs[0]->shape[*axis].factor));
    if (!row) return std::nullopt;
    picks.push_back(*row);
  }
  ir::Shape shape = inputs[0]->shape;
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(*axis));
  shape.insert(shape.begin() + static_cast<ptrdiff_t>(*axis), inputs[1]->shape.begin(), inputs[1]->shape.end());
  return pick(*inputs[0], *axis, picks, std::move(shape));
}

/// Whether the slice, of equal elements, exists with a single sample too.
bool takes_from_first_sample(const Known& from, size_t axis, int64_t start, int64_t end, int64_t step) {
  const Dim dim = from.shape[axis];
  return from.uniform && dim.power > 0 && !counts_places(dim) && step == 1 && 0 <= start && start < end &&
         end <= dim.factor;
}

std::optional<Known> slice(const OnnxNode&, Inputs inputs) {
  const auto starts = list(inputs, 1), ends = list(inputs, 2);
  if (!starts || !ends || starts->size() != ends->size()) return std::nullopt;
  std::vector<int64_t> axes(starts->size()), steps(starts->size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (input_or_null(inputs, 3) != nullptr) axes = list(inputs, 3).value_or(std::vector<int64_t>{});
  if (input_or_null(inputs, 4) != nullptr) steps = list(inputs, 4).value_or(std::vector<int64_t>{});
  if (axes.size() != starts->size() || steps.size() != starts->size()) return std::nullopt;
  Known result = *inputs[0];
  for (size_t i = 0; i < axes.size(); ++i) {
    const std::optional<size_t> axis = axis_of(axes[i], result.shape.size());
    if (axis && takes_from_first_sample(result, *axis, (*starts)[i], (*ends)[i], steps[i])) {
      result.shape[*axis] = Dim::fixed((*ends)[i] - (*starts)[i]);
      continue;
    }
    if (!axis || !result.shape[*axis].is_fixed() || steps[i] == 0 || steps[i] == INT64_MIN) return std::nullopt;
    const int64_t size = result.shape[*axis].factor, step = steps[i];
    const auto clamp = [&](int64_t at) {
      if (at < 0) at = at < -size ? -1 : at + size;
      return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
    };
    std::vector<size_t> picks;
    const int64_t begin = clamp((*starts)[i]), end = clamp((*ends)[i]);
    if (size > kMaxKnownElements) {  // uniform: its elements are not listed
      const int64_t span = step > 0 ? end - begin : begin - end;
      if (!result.uniform || span <= 0) return std::nullopt;
      result.shape[*axis] = Dim::fixed(1 + (span - 1) / std::abs(step));
      continue;
    }
    for (int64_t at = begin; step > 0 ? at < end : at > end; at += step) {
      if (at >= 0 && at < size) picks.push_back(static_cast<size_t>(at));
      if (step > size || step < -size) break;
    }
    ir::Shape shape = result.shape;
    shape[*axis] = Dim::fixed(static_cast<int64_t>(picks.size()));
    std::optional<Known> part = pick(result, *axis, picks, std::move(shape));
    if (!part) return std::nullopt;
    result = std::move(*part);
  }
  return result;
}

std::optional<Known> concat(const OnnxNode& node, Inputs inputs) {
  const std::optional<size_t> axis = axis_of(int_attribute(node, "axis", 0), inputs[0]->shape.size());
  if (!axis || !have_one_type(inputs)) return std::nullopt;
  ir::Shape shape = inputs[0]->shape;
  shape[*axis] = Dim::fixed(0);
  for (const Known* input : inputs) {
    if (!known_count(input->shape) || input->shape.size() != shape.size()) return std::nullopt;
    for (size_t i = 0; i < shape.size(); ++i)
      if (i != *axis && input->shape[i] != shape[i]) return std::nullopt;
    shape[*axis].factor += input->shape[*axis].factor;
  }
  if (!known_count(shape)) return std::nullopt;
  Known result{.dtype = inputs[0]->dtype, .shape = shape, .uniform = false, .elements = {}};
  for (size_t o = 0; o < product(shape, 0, *axis); ++o)
    for (const Known* input : inputs) {
      const size_t block = product(input->shape, *axis, shape.size());
      for (size_t i = 0; i < block; ++i) result.elements.push_back(input->element(o * block + i));
    }
  result.uniform = result.elements.size() == 1;
  return result;
}

std::optional<Known> expand(const OnnxNode&, Inputs inputs) {
  const Known* target = input_or_null(inputs, 1);
  if (target == nullptr) return std::nullopt;
  const std::optional<ir::Shape> dims = as_dims(*target);
  if (!dims || dims->size() > kMaxRank) return std::nullopt;
  for (Dim dim : *dims)
    if (dim.factor < 0) return std::nullopt;
  const std::optional<ir::Shape> shape = broadcast(inputs[0]->shape, *dims);
  if (!shape || !ir::element_count(*shape)) return std::nullopt;
  if (*shape != inputs[0]->shape && !inputs[0]->uniform) return std::nullopt;
  return reshape_to(*inputs[0], *shape);
}

std::optional<Known> constant_of_shape(const OnnxNode& node, Inputs inputs) {
  const std::optional<ir::Shape> dims = as_dims(*inputs[0]);
  if (!dims || dims->size() > kMaxRank || !ir::element_count(*dims)) return std::nullopt;
  for (Dim dim : *dims)
    if (dim.factor < 0) return std::nullopt;
  Known result{.dtype = ir::DType::kFloat32, .shape = *dims, .uniform = true, .elements = {Number::of_real(0)}};
  const Attribute* value = node.find("value");
  if (value == nullptr) return result;
  if (value->tensor.empty() || value->tensor[0].data.slot >= 0) return std::nullopt;
  const std::optional<ir::DType> dtype = dtype_of_onnx(value->tensor[0].onnx_type);
  const std::optional<Known> one =
      dtype ? decode_known(*dtype, {Dim::fixed(1)}, value->tensor[0].data.bytes) : std::nullopt;
  if (!one) return std::nullopt;
  result.dtype = *dtype;
  result.elements = one->elements;
  return result;
}

std::optional<Known> range(const OnnxNode&, Inputs inputs) {
  if (inputs.size() != 3) return std::nullopt;
  if (!have_one_type(inputs)) return std::nullopt;
  for (const Known* input : inputs)
    if (input->elements.empty()) return std::nullopt;
  const Number &start = inputs[0]->element(0), &limit = inputs[1]->element(0), &step = inputs[2]->element(0);
  if (!start.is_fixed() || !limit.is_fixed() || !step.is_fixed() || step.factor() == 0) return std::nullopt;
  const double count = std::max(0.0, std::ceil((limit.factor() - start.factor()) / step.factor()));
  if (!(count <= static_cast<double>(kMaxKnownElements))) return std::nullopt;
  Known result{.dtype = inputs[0]->dtype, .shape = {Dim::fixed(static_cast<int64_t>(count))}, .elements = {}};
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    int64_t whole = 0;
    if (!start.floating &&
        (__builtin_mul_overflow(i, step.whole, &whole) || __builtin_add_overflow(start.whole, whole, &whole)))
      return std::nullopt;
    const std::optional<Number> element =
        stored(result.dtype, start.floating ? Number::of_real(start.real + static_cast<double>(i) * step.real)
                                            : Number::of_whole(whole));
    if (!element) return std::nullopt;
    result.elements.push_back(*element);
  }
  return result;
}

std::optional<Known> transpose(const OnnxNode& node, Inputs inputs) {
  const Known& from = *inputs[0];
  const size_t rank = from.shape.size();
  std::vector<int64_t> order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  if (const Attribute* perm = node.find("perm")) order = perm->ints;
  if (order.size() != rank) return std::nullopt;
  Known result = from;
  std::vector<size_t> strides(rank);
  for (size_t i = 0; i < rank; ++i) {
    const bool is_named_again = std::find(order.begin(), order.begin() + static_cast<ptrdiff_t>(i), order[i]) !=
                                order.begin() + static_cast<ptrdiff_t>(i);
    if (order[i] < 0 || order[i] >= static_cast<int64_t>(rank) || is_named_again) return std::nullopt;
    result.shape[i] = from.shape[static_cast<size_t>(order[i])];
  }
  if (from.uniform) return result;
  for (size_t i = 0; i < rank; ++i) strides[i] = product(from.shape, static_cast<size_t>(order[i]) + 1, rank);
  for (size_t k = 0; k < from.elements.size(); ++k) {
    size_t rest = k, at = 0;
    for (size_t i = rank; i-- > 0;) {
      const auto size = static_cast<size_t>(result.shape[i].factor);
      at += rest % size * strides[i];
      rest /= size;
    }
    if (at >= from.elements.size()) return std::nullopt;
    result.elements[k] = from.elements[at];
  }
  return result;
}

/// Zeroes one triangle of a matrix: causal masks.
std::optional<Known> trilu(const OnnxNode& node, Inputs inputs) {
  Known result = *inputs[0];
  const std::optional<size_t> count = known_count(result.shape);
  if (!count || result.shape.size() < 2) return std::nullopt;
  int64_t diagonal = 0;
  if (input_or_null(inputs, 1) != nullptr) {
    const std::optional<std::vector<int64_t>> given = list(inputs, 1);
    if (!given || given->size() != 1) return std::nullopt;
    diagonal = std::clamp<int64_t>((*given)[0], -kMaxKnownElements, kMaxKnownElements);
  }
  const bool upper = int_attribute(node, "upper", 1) != 0;
  const auto columns = static_cast<size_t>(result.shape.back().factor);
  const auto rows = static_cast<size_t>(result.shape[result.shape.size() - 2].factor);
  std::vector<Number> elements;
  for (size_t k = 0; k < *count; ++k) {
    const auto row = static_cast<int64_t>(k / columns % rows), column = static_cast<int64_t>(k % columns);
    const bool kept = upper ? column >= row + diagonal : column <= row + diagonal;
    const Number zero = ir::is_floating(result.dtype) ? Number::of_real(0) : Number::of_whole(0);
    elements.push_back(kept ? result.element(k) : zero);
  }
  result.elements = std::move(elements);
  result.uniform = *count == 1;
  return result;
}

/// The coordinates of nonzero elements: exporters write arange this way, from ones.
std::optional<Known> non_zero(const OnnxNode&, Inputs inputs) {
  const Known& from = *inputs[0];
  const std::optional<size_t> count = known_count(from.shape);
  if (!count || from.shape.empty()) return std::nullopt;
  std::vector<size_t> places;
  for (size_t k = 0; k < *count; ++k)
    if (from.element(k).factor() != 0) places.push_back(k);
  Known result{
      .dtype = ir::DType::kInt64,
      .shape = {Dim::fixed(static_cast<int64_t>(from.shape.size())), Dim::fixed(static_cast<int64_t>(places.size()))}};
  if (!known_count(result.shape)) return std::nullopt;
  for (size_t axis = 0; axis < from.shape.size(); ++axis) {
    const size_t inner = product(from.shape, axis + 1, from.shape.size());
    for (const size_t k : places)
      result.elements.push_back(Number::of_whole(static_cast<int64_t>(k / inner) % from.shape[axis].factor));
  }
  result.uniform = result.elements.size() == 1;
  return result;
}

/// The maximum or minimum of elements that are all equal, along any axes.
std::optional<Known> reduce_uniform(const OnnxNode& node, Inputs inputs) {
  const Known* axes = input_or_null(inputs, 1);
  const std::optional<std::vector<int64_t>> chosen = axes != nullptr ? whole_numbers(*axes) : std::nullopt;
  const auto rank = static_cast<int64_t>(inputs[0]->shape.size());
  if (!chosen || chosen->empty() || int_attribute(node, "keepdims", 1) == 0) return std::nullopt;
  Known result = *inputs[0];
  for (const int64_t axis : *chosen) {
    if (axis < -rank || axis >= rank) return std::nullopt;
    ir::Dim& dim = result.shape[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
    if (dim == Dim::fixed(0)) return std::nullopt;
    dim = Dim::fixed(1);
  }
  return result;
}

/// Reductions over all elements of a list: products and sums of dims.
std::optional<Known> reduce_all(const OnnxNode& node, Inputs inputs) {
  const std::optional<size_t> count = known_count(inputs[0]->shape);
  if (inputs[0]->uniform && inputs[0]->shape.size() > 1 && (node.op == "ReduceMax" || node.op == "ReduceMin"))
    return reduce_uniform(node, inputs);
  if (!count || *count == 0 || inputs[0]->shape.size() > 1) return std::nullopt;
  const Known* const axes = input_or_null(inputs, 1);
  const bool has_no_axes = axes == nullptr || known_count(axes->shape) == std::optional<size_t>(0);
  if (has_no_axes && int_attribute(node, "noop_with_empty_axes", 0) != 0) return std::nullopt;
  std::optional<Number> total = inputs[0]->element(0);
  for (size_t i = 1; i < *count && total; ++i) {
    const Number& next = inputs[0]->element(i);
    if (node.op == "ReduceProd") total = multiply(*total, next);
    if (node.op == "ReduceSum") total = add(*total, next);
    if (node.op == "ReduceMax" || node.op == "ReduceMin") {
      const std::optional<bool> is_less = node.op == "ReduceMax" ? less(*total, next) : less(next, *total);
      if (!is_less) return std::nullopt;
      if (*is_less) total = next;
    }
  }
  if (total) total = stored(inputs[0]->dtype, *total);
  if (!total) return std::nullopt;
  Known result = Known::scalar(inputs[0]->dtype, *total);
  if (int_attribute(node, "keepdims", 1) != 0) result.shape.assign(inputs[0]->shape.size(), Dim::fixed(1));
  return result;
}

/// TorchScript counts the repeats of repeat_interleave this way.
std::optional<Known> one_hot(const OnnxNode& node, Inputs inputs) {
  const std::optional<std::vector<int64_t>> places = list(inputs, 0), depths = list(inputs, 1);
  const Known* const values = input_or_null(inputs, 2);
  if (!places || !depths || depths->size() != 1 || values == nullptr || known_count(values->shape) != size_t{2})
    return std::nullopt;
  const int64_t depth = depths->front();
  const bool is_last = int_attribute(node, "axis", -1) == -1;
  if (depth < 1 || depth > kMaxKnownElements || !is_last) return std::nullopt;
  Known result{.dtype = values->dtype, .shape = inputs[0]->shape, .uniform = false, .elements = {}};
  result.shape.push_back(Dim::fixed(depth));
  if (!known_count(result.shape)) return std::nullopt;
  for (const int64_t place : *places)
    for (int64_t k = 0; k < depth; ++k)
      result.elements.push_back(values->element(k == (place < 0 ? place + depth : place) ? 1 : 0));
  return result;
}

}  // namespace

std::optional<Known> evaluate_movement(const OnnxNode& node, Inputs inputs) {
  using Rule = std::optional<Known> (*)(const OnnxNode&, Inputs);
  static const std::map<std::string_view, Rule> kRules = {
      {"Reshape", reshape},      {"Squeeze", squeeze},      {"Unsqueeze", unsqueeze},
      {"Gather", gather},        {"Slice", slice},          {"Concat", concat},
      {"Expand", expand},        {"Range", range},          {"ConstantOfShape", constant_of_shape},
      {"Trilu", trilu},          {"Transpose", transpose},  {"ReduceProd", reduce_all},
      {"ReduceSum", reduce_all}, {"ReduceMax", reduce_all}, {"ReduceMin", reduce_all},
      {"NonZero", non_zero},     {"OneHot", one_hot},
  };
  const auto found = kRules.find(node.op);
  if (found == kRules.end() || inputs.empty() || inputs[0] == nullptr) return std::nullopt;
  const bool needs_all = node.op == "Concat" || node.op == "Range";
  if (needs_all && std::any_of(inputs.begin(), inputs.end(), [](const Known* input) { return input == nullptr; }))
    return std::nullopt;
  return found->second(node, inputs);
}

}  // namespace graphpipe::frontend
