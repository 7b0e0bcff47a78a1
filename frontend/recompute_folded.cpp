#include "frontend/recompute_folded.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "frontend/body_reads.h"
#include "frontend/folding_note.h"
#include "frontend/gradient_ends.h"
#include "frontend/lost_by_export.h"
#include "frontend/merged_readers.h"
#include "frontend/value_names.h"
#include "wire/element_bytes.h"

namespace graphpipe::frontend {
namespace {

using Extents = std::vector<int64_t>;

constexpr int kFloat32 = 1;

/// Calls that leave the elements in their order.
constexpr std::array<std::string_view, 6> kReshapes = {"_unsafe_view", "flatten",   "reshape",
                                                       "squeeze",      "unsqueeze", "view"};

std::vector<float> floats_of(const std::string& elements) {
  std::vector<float> values(elements.size() / sizeof(float));
  std::memcpy(values.data(), elements.data(), values.size() * sizeof(float));
  return values;
}

/// The sums along one axis of the squares of what has these dims.
std::vector<double> sums_of_squares(const std::vector<float>& values, const Extents& dims, size_t axis) {
  size_t inner = 1;
  for (size_t i = axis + 1; i < dims.size(); ++i) inner *= static_cast<size_t>(dims[i]);
  const auto count = static_cast<size_t>(dims[axis]);
  std::vector<double> sums(values.size() / count);
  for (size_t at = 0; at < values.size(); ++at)
    sums[at / (count * inner) * inner + at % inner] += static_cast<double>(values[at]) * values[at];
  return sums;
}

/// One less the sigmoid of each.
std::vector<double> remaining_shares(const std::vector<float>& values) {
  std::vector<double> shares;
  shares.reserve(values.size());
  for (const float value : values) shares.push_back(1 / (1 + std::exp(static_cast<double>(value))));
  return shares;
}

bool are_close(const std::vector<double>& expected, const std::vector<float>& found) {
  constexpr double kRounding = 1e-5;
  return std::ranges::equal(expected, found,
                            [](double one, float other) { return std::abs(one - other) <= kRounding * std::abs(one); });
}

/// What a call did of the parameter.
struct Computation {
  enum class Kind : uint8_t { kSumOfSquares, kDifferenceFromOne, kRemainingShare } kind;
  size_t axis = 0;  // along which squares are added up
};

class Recomputer {
 public:
  Recomputer(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
             const ElementsOf& elements_of, Restoration& restored)
      : body_(body),
        signature_(signature),
        rules_(rules),
        elements_of_(elements_of),
        restored_(restored),
        readers_of_(body, signature),
        names_(value_names(body)),
        bound_(bound_names(body)) {}

  void run() {
    for (const Tensor& tensor : body_.initializers) recompute(tensor);
    put_in_front(body_, restored_, std::move(nodes_), std::move(added_), gone_);
  }

 private:
  void recompute(const Tensor& tensor) {
    const auto note = body_.folded_from.find(tensor.name);
    if (note == body_.folded_from.end() || tensor.onnx_type != kFloat32 || bound_.contains(tensor.name)) return;
    const std::vector<std::string> from = parse_names(note->second);
    const Tensor* parameter = parameter_of(from);
    if (parameter == nullptr || !is_read_alone(tensor, parameter->name)) return;
    const std::optional<Computation> computation = computation_of(tensor, from, *parameter);
    if (!computation) return;
    const char* call = nullptr;  // one that a line without gradients may hold
    if (computation->kind == Computation::Kind::kSumOfSquares) {
      add_sum(tensor, *parameter, computation->axis);
      call = "sum(";
    } else if (computation->kind == Computation::Kind::kRemainingShare) {
      const std::string share = unused(tensor.name + "/share");
      add_node("Sigmoid", {in_shape_of(tensor, *parameter)}, share);
      add_difference(tensor, share);
      call = "sigmoid(";
    } else {
      add_difference(tensor, in_shape_of(tensor, *parameter));
    }
    gone_.insert(tensor.name);
    restored_.recomputed.push_back(tensor.name);
    if (call != nullptr && may_have_no_gradient(body_, tensor.name, call))
      restored_.recomputed_elsewhere.push_back(tensor.name);
  }

  /// The one parameter of the note, where the file has its elements as they are.
  const Tensor* parameter_of(const std::vector<std::string>& from) const {
    std::string name;
    for (const std::string& each : from) {
      if (!signature_.is_parameter.contains(each)) continue;
      if (!name.empty() || !signature_.lists_parameter(each)) return nullptr;
      name = each;
    }
    const auto found = std::ranges::find(body_.initializers, name, &Tensor::name);
    const bool is_plain = found != body_.initializers.end() && found->onnx_type == kFloat32 &&
                          found->layout == Tensor::Layout::kDense && !rules_.tied(name).value_or(false);
    return is_plain ? &*found : nullptr;
  }

  bool is_read_alone(const Tensor& tensor, const std::string& parameter) const {
    const std::optional<TensorReading> reading = readers_of_.readers_of(tensor.name, parameter);
    return reading && reading->merged.empty() && std::ranges::none_of(body_.nodes, [&](const OnnxNode& node) {
             return node.code.find("detach") != node.code.npos &&
                    std::ranges::find(node.inputs, tensor.name) != node.inputs.end();
           });
  }

  std::optional<Computation> computation_of(const Tensor& tensor, const std::vector<std::string>& from,
                                            const Tensor& parameter) const {
    std::vector<std::string_view> calls;
    for (const std::string& name : from)
      if (name != parameter.name && !is_anonymous(name) && !name.starts_with("scalar_tensor"))
        calls.push_back(call_of_value(name));
    const std::string_view last = call_of_value(tensor.name);
    const bool adds_squares = last == "sum" && calls.size() == 1 && (calls[0] == "pow" || calls[0] == "mul");
    const bool is_difference_of_any = last == "sub" || last == "rsub";
    const auto reshapes = [](std::string_view call) { return std::ranges::find(kReshapes, call) != kReshapes.end(); };
    if (is_difference_of_any) std::erase_if(calls, reshapes);
    const bool subtracts = is_difference_of_any && calls.empty();
    const bool subtracts_share = is_difference_of_any && calls.size() == 1 && calls[0] == "sigmoid";
    if (!adds_squares && !subtracts && !subtracts_share) return std::nullopt;
    const std::optional<std::string> before = elements_of_(parameter), after = elements_of_(tensor);
    if (!before || !after) return std::nullopt;
    const std::vector<float> values = floats_of(*before), found = floats_of(*after);
    if (adds_squares) return sum_of_squares(tensor, found, parameter, values);
    if (subtracts_share)
      return are_close(remaining_shares(values), found) ? std::optional(Computation{Computation::Kind::kRemainingShare})
                                                        : std::nullopt;
    return is_difference(values, found) ? std::optional(Computation{Computation::Kind::kDifferenceFromOne})
                                        : std::nullopt;
  }

  /// Nothing where several axes fit, and where all elements are numbers that another power leaves as they are.
  static std::optional<Computation> sum_of_squares(const Tensor& tensor, const std::vector<float>& sums,
                                                   const Tensor& parameter, const std::vector<float>& values) {
    if (std::ranges::all_of(values, [](float value) { return value == 0 || std::abs(value) == 1; }))
      return std::nullopt;
    std::optional<Computation> found;
    for (size_t axis = 0; axis < parameter.dims.size(); ++axis) {
      if (!has_dims_of_sum(tensor.dims, parameter.dims, axis)) continue;
      if (!are_close(sums_of_squares(values, parameter.dims, axis), sums)) continue;
      if (found) return std::nullopt;
      found = Computation{Computation::Kind::kSumOfSquares, axis};
    }
    return found;
  }

  static bool has_dims_of_sum(const Extents& sum, Extents dims, size_t axis) {
    if (dims[axis] < 1) return false;
    dims[axis] = 1;
    if (sum == dims) return true;
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
    return sum == dims;
  }

  /// Of a half everywhere the difference is the parameter itself.
  static bool is_difference(const std::vector<float>& values, const std::vector<float>& found) {
    return values != found &&
           std::ranges::equal(values, found, [](float value, float other) { return 1.0F - value == other; });
  }

  void add_sum(const Tensor& tensor, const Tensor& parameter, size_t axis) {
    const std::string squares = unused(tensor.name + "/squares");
    add_node("Mul", {parameter.name, parameter.name}, squares);
    const std::string axes = add_numbers(tensor.name + "/axes", {static_cast<int64_t>(axis)});
    OnnxNode& sum = add_node("ReduceSum", {squares, axes}, tensor.name);
    Attribute& keepdims = sum.attributes.emplace_back();
    keepdims.name = "keepdims", keepdims.kind = Attribute::Kind::kInt;
    keepdims.i = tensor.dims.size() == parameter.dims.size() ? 1 : 0;
  }

  /// The value that has the parameter's elements in the tensor's shape.
  std::string in_shape_of(const Tensor& tensor, const Tensor& parameter) {
    if (tensor.dims == parameter.dims) return parameter.name;
    const std::string shape = add_numbers(tensor.name + "/shape", tensor.dims);
    return add_node("Reshape", {parameter.name, shape}, unused(tensor.name + "/view")).outputs[0];
  }

  /// The name of a constant of these numbers.
  std::string add_numbers(std::string name, const std::vector<int64_t>& numbers) {
    return added_.emplace_back(int64_tensor(unused(std::move(name)), numbers)).name;
  }

  void add_difference(const Tensor& tensor, const std::string& of) {
    Tensor one;
    one.name = unused(tensor.name + "/one");
    one.onnx_type = kFloat32;
    one.data.bytes = wire::element_bytes(ir::DType::kFloat32, 1);
    add_node("Sub", {one.name, of}, tensor.name);
    added_.push_back(std::move(one));
  }

  OnnxNode& add_node(const char* op, std::vector<std::string> inputs, const std::string& result) {
    OnnxNode& node = nodes_.emplace_back();
    node.op = op;
    node.name = result;
    node.inputs = std::move(inputs);
    node.outputs = {result};
    return node;
  }

  std::string unused(std::string name) { return unused_name(names_, std::move(name)); }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  const ElementsOf& elements_of_;
  Restoration& restored_;
  const MergedReaders readers_of_;
  std::set<std::string> names_, bound_;  // of all values and tensors; outputs, and what bodies of nodes read
  std::vector<Tensor> added_;
  std::vector<OnnxNode> nodes_;
  std::set<std::string> gone_;
};

}  // namespace

void recompute_folded(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                      const ElementsOf& elements_of, Restoration& restored) {
  Recomputer(body, signature, rules, elements_of, restored).run();
}

}  // namespace graphpipe::frontend
