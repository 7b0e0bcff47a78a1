#include "frontend/folded_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "frontend/equal_parts.h"
#include "frontend/folding_note.h"
#include "frontend/lost_by_export.h"

namespace graphpipe::frontend {
namespace {

using Sizes = std::vector<int64_t>;

enum class FoldedCall : uint8_t {
  kNeutral,
  kTurn,
  kUnsqueeze,
  kSqueeze,
  kReshape,
  kNegate,
  kExponentiate,
  kAdd,
  kExpand,
  kSigmoid,
  kTanh
};

struct FoldedCallEntry {
  std::string_view name;
  FoldedCall call;
};

/// What torch.export names the results of calls that keep all elements of a parameter. A detached value is none: no
/// gradient passes it.
constexpr std::array<FoldedCallEntry, 21> kFoldedCalls = {{
    {"alias", FoldedCall::kNeutral},      {"clone", FoldedCall::kNeutral},
    {"contiguous", FoldedCall::kNeutral}, {"numpy_t", FoldedCall::kTurn},
    {"permute", FoldedCall::kTurn},       {"t", FoldedCall::kTurn},
    {"transpose", FoldedCall::kTurn},     {"unsqueeze", FoldedCall::kUnsqueeze},
    {"squeeze", FoldedCall::kSqueeze},    {"_unsafe_view", FoldedCall::kReshape},
    {"flatten", FoldedCall::kReshape},    {"reshape", FoldedCall::kReshape},
    {"unflatten", FoldedCall::kReshape},  {"unsafe_view", FoldedCall::kReshape},
    {"view", FoldedCall::kReshape},       {"add", FoldedCall::kAdd},
    {"expand", FoldedCall::kExpand},      {"neg", FoldedCall::kNegate},
    {"exp", FoldedCall::kExponentiate},   {"sigmoid", FoldedCall::kSigmoid},
    {"tanh", FoldedCall::kTanh},
}};

/// How often each call had a part.
struct FoldedCalls {
  std::array<int64_t, 11> counts = {};
  int64_t of(FoldedCall call) const { return counts[static_cast<size_t>(call)]; }
  bool add(std::string_view value) {
    const auto* entry = std::ranges::find(kFoldedCalls, call_of_value(value), &FoldedCallEntry::name);
    if (entry == kFoldedCalls.end()) return false;
    ++counts[static_cast<size_t>(entry->call)];
    return true;
  }
};

Sizes without_ones(Sizes dims) {
  std::erase(dims, 1);
  return dims;
}

/// Without `count` axes of size 1; nothing where it matters which of them go.
std::optional<Sizes> without_ones(const Sizes& dims, int64_t count) {
  const auto ones = std::ranges::count(dims, 1);
  if (ones < count) return std::nullopt;
  Sizes first, last;  // go
  int64_t place = 0;
  for (const int64_t dim : dims) {
    const int64_t at = dim == 1 ? place++ : -1;
    if (at < 0 || at >= count) first.push_back(dim);
    if (at < 0 || at < ones - count) last.push_back(dim);
  }
  return first == last ? std::optional(first) : std::nullopt;
}

/// What has been reshaped, or squeezed alone, may have had any shape. A weight of which an axis is taken away and put
/// back, as that of Mamba's convolution, has it where it was.
std::optional<Sizes> sizes_before(const Sizes& dims, const FoldedCalls& calls) {
  const int64_t squeezed = calls.of(FoldedCall::kSqueeze), unsqueezed = calls.of(FoldedCall::kUnsqueeze);
  if (calls.of(FoldedCall::kTurn) > 0) return Sizes{dims[1], dims[0]};
  if (calls.of(FoldedCall::kReshape) > 0) return std::nullopt;
  if (squeezed == 0) return without_ones(dims, unsqueezed);
  return squeezed == unsqueezed && std::ranges::count(dims, 1) >= squeezed ? std::optional(dims) : std::nullopt;
}

std::optional<FoldedTensor> understand(FoldedTensor folded, const FoldedCalls& calls, Sizes dims) {
  const int64_t exponentials = calls.of(FoldedCall::kExponentiate), negations = calls.of(FoldedCall::kNegate);
  const int64_t additions = calls.of(FoldedCall::kAdd);
  if (exponentials > 1 || negations > 1 || additions > 1 || (additions > 0 && exponentials + negations > 0))
    return std::nullopt;
  const int64_t sigmoids = calls.of(FoldedCall::kSigmoid), tangents = calls.of(FoldedCall::kTanh);
  if (sigmoids + tangents > 0) {
    if (sigmoids + tangents + exponentials + negations + additions > 1) return std::nullopt;
    folded.values = sigmoids > 0 ? FoldedValues::kSigmoid : FoldedValues::kTanh;
  }
  if (additions > 0) folded.values = FoldedValues::kShifted;
  if (exponentials > 0) folded.values = negations > 0 ? FoldedValues::kNegatedExponential : FoldedValues::kExponential;
  else if (negations > 0) folded.values = FoldedValues::kNegated;
  folded.has_new_shape =
      calls.of(FoldedCall::kReshape) + calls.of(FoldedCall::kSqueeze) + calls.of(FoldedCall::kUnsqueeze) > 0;
  folded.is_turned = calls.of(FoldedCall::kTurn) > 0;
  const bool is_known_turn = calls.of(FoldedCall::kTurn) == 1 && dims.size() == 2 && !folded.has_new_shape &&
                             folded.values == FoldedValues::kSame;
  if (folded.is_turned && !is_known_turn) return std::nullopt;  // which axes a permutation takes is not said
  if (folded.is_expanded) {
    const bool is_alone =
        calls.of(FoldedCall::kExpand) == 1 && folded.values == FoldedValues::kSame &&
        calls.of(FoldedCall::kTurn) + calls.of(FoldedCall::kReshape) + calls.of(FoldedCall::kSqueeze) == 0;
    if (!is_alone || dims.empty()) return std::nullopt;
    dims[0] = 1;
  }
  const std::optional<Sizes> before = sizes_before(dims, calls);
  folded.has_assumed_dims = !before;
  folded.dims = before ? *before : without_ones(dims);
  return folded;
}

/// Where the slope of the sigmoid, or of tanh, is steep enough for the parameter to lose no more than its last bits.
std::optional<double> before_curve(FoldedValues values, double element) {
  constexpr double kSlope = 0.04;
  if (values == FoldedValues::kSigmoid)
    return element * (1 - element) >= kSlope ? std::optional(std::log(element / (1 - element))) : std::nullopt;
  return 1 - element * element >= kSlope ? std::optional(std::atanh(element)) : std::nullopt;
}

/// exp(-x) is above zero and -exp(x) below; nothing for other elements, and for those that no addition gives.
template <typename T>
std::optional<T> element_before(const FoldedTensor& folded, T element) {
  const FoldedValues values = folded.values;
  if (values == FoldedValues::kSame) return element;
  if (values == FoldedValues::kNegated) return -element;
  if (values == FoldedValues::kSigmoid || values == FoldedValues::kTanh) {
    const std::optional<double> before = before_curve(values, static_cast<double>(element));
    return before ? std::optional(static_cast<T>(*before)) : std::nullopt;
  }
  if (values == FoldedValues::kShifted) {
    const auto added = static_cast<T>(folded.added);
    const T before = element - added;
    return before + added == element ? std::optional(before) : std::nullopt;
  }
  const bool is_outside = values == FoldedValues::kNegatedExponential && element < 0;
  const auto size = static_cast<double>(is_outside ? -element : element);
  const double logarithm = size > 0 ? std::log(size) : NAN;
  const bool is_inside = values == FoldedValues::kNegatedExponential && !is_outside;
  return std::isfinite(logarithm) ? std::optional(static_cast<T>(is_inside ? -logarithm : logarithm)) : std::nullopt;
}

template <typename T>
std::optional<std::string> all_before(const FoldedTensor& folded, std::string elements) {
  bool has_negative = false, has_positive = false;
  for (size_t at = 0; at < elements.size(); at += sizeof(T)) {
    T element;
    std::memcpy(&element, elements.data() + at, sizeof(T));
    (element < 0 ? has_negative : has_positive) = true;
    const std::optional<T> before = element_before(folded, element);
    if (!before) return std::nullopt;
    std::memcpy(elements.data() + at, &*before, sizeof(T));
  }
  const bool is_of_exponential =
      folded.values == FoldedValues::kExponential || folded.values == FoldedValues::kNegatedExponential;
  return is_of_exponential && has_negative && has_positive ? std::nullopt : std::optional(std::move(elements));
}

}  // namespace

std::optional<FoldedTensor> folded_tensor(const Tensor& tensor, const std::string& note,
                                          const ExportSignature& signature) {
  FoldedCalls calls;
  FoldedTensor folded;
  int64_t numbers = 0;  // sizes, axes and what lies between the operators of one call have no name of a call
  if (!calls.add(tensor.name)) return std::nullopt;
  for (std::string& name : parse_names(note)) {
    if (signature.is_parameter.contains(name)) {
      if (!signature.lists_parameter(name) || !folded.parameter.empty()) return std::nullopt;
      folded.parameter = std::move(name);
    } else if (is_anonymous(name)) {
      ++numbers;
    } else if (!calls.add(name)) {
      return std::nullopt;
    }
  }
  // What is expanded to explicit sizes that it has is the parameter itself; the optimiser notes no sizes then.
  folded.is_expanded = calls.of(FoldedCall::kExpand) > 0 && numbers > calls.of(FoldedCall::kUnsqueeze);
  return folded.parameter.empty() ? std::nullopt : understand(std::move(folded), calls, tensor.dims);
}

bool is_expanded_first(const Tensor& tensor, bool has_features, std::string_view elements) {
  const Sizes& dims = tensor.dims;
  const auto width = static_cast<size_t>(ir::bytes_per_element(*dtype_of_onnx(tensor.onnx_type)));
  if (dims.size() < 2 || !has_equal_parts(elements, dims, 0, width)) return false;
  const bool is_one_row =
      dims.back() > 1 && std::all_of(dims.begin() + 1, dims.end() - 1, [](int64_t dim) { return dim == 1; });
  if (is_uniform(elements, width)) return is_one_row && has_features;
  for (size_t axis = 1; axis < dims.size(); ++axis)
    if (dims[axis] > 1 && has_equal_parts(elements, dims, axis, width)) return false;
  return true;
}

std::optional<std::string> elements_before(const FoldedTensor& folded, int onnx_type, const std::string& elements) {
  const auto dtype = dtype_of_onnx(onnx_type);
  if (dtype == ir::DType::kFloat32) return all_before<float>(folded, elements);
  if (dtype == ir::DType::kFloat64) return all_before<double>(folded, elements);
  return std::nullopt;
}

}  // namespace graphpipe::frontend
