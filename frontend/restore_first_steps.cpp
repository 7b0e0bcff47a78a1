#include "frontend/restore_first_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "frontend/body_reads.h"
#include "frontend/folding_note.h"
#include "frontend/lost_by_export.h"
#include "frontend/merged_readers.h"
#include "frontend/value_names.h"

namespace graphpipe::frontend {
namespace {

/// Calls that leave zeros zeros.
bool keeps_zeros(std::string_view call) {
  constexpr std::array<std::string_view, 12> kCalls = {"getitem",   "unsqueeze",  "squeeze", "select",
                                                       "slice",     "view",       "reshape", "expand",
                                                       "transpose", "zeros_like", "zeros",   "new_zeros"};
  return std::ranges::find(kCalls, call) != kCalls.end();
}

/// Calls that repeat a number, which may be zero.
bool fills(std::string_view call) { return call == "full" || call == "new_full"; }

struct LinearParameters {
  const Tensor *weight = nullptr, *bias = nullptr;
  bool is_filled = false;  // from a number that the file does not tell
};

class FirstSteps {
 public:
  FirstSteps(GraphBody& body, const ExportSignature& signature, const ElementsOf& elements_of, Restoration& restored)
      : body_(body),
        signature_(signature),
        elements_of_(elements_of),
        restored_(restored),
        readers_of_(body, signature),
        names_(value_names(body)),
        bound_(bound_names(body)) {}

  void run() {
    for (const Tensor& tensor : body_.initializers) restore(tensor);
    put_in_front(body_, restored_, std::move(nodes_), std::move(added_), gone_);
  }

 private:
  void restore(const Tensor& tensor) {
    const auto note = body_.folded_from.find(tensor.name);
    if (note == body_.folded_from.end() || call_of_value(tensor.name) != "linear" || bound_.contains(tensor.name) ||
        signature_.is_parameter.contains(tensor.name) || tensor.layout != Tensor::Layout::kDense)
      return;
    const std::optional<LinearParameters> parameters = parameters_of(note->second);
    if (!parameters || !is_bias_for_each(tensor, *parameters->bias)) return;
    if (parameters->is_filled && !tells_numbers(*parameters->weight)) return;
    const auto reading = readers_of_.readers_of(tensor.name, parameters->bias->name);
    if (!reading || !reading->merged.empty()) return;
    add_reshape(tensor, parameters->bias->name);
    restored_.names.push_back(parameters->bias->name);
    gone_.insert(tensor.name);
  }

  /// A matrix and a vector that the file has, where all else in the note is zeros.
  std::optional<LinearParameters> parameters_of(const std::string& note) const {
    LinearParameters found;
    bool has_zeros = false;
    for (const std::string& name : parse_names(note)) {
      if (!signature_.is_parameter.contains(name)) {
        found.is_filled = found.is_filled || fills(call_of_value(name));
        if (!is_anonymous(name) && !keeps_zeros(call_of_value(name)) && !fills(call_of_value(name)))
          return std::nullopt;
        has_zeros = has_zeros || call_of_value(name) == "zeros" || call_of_value(name) == "new_zeros";
        continue;
      }
      const auto tensor = std::ranges::find(body_.initializers, name, &Tensor::name);
      if (!signature_.lists_parameter(name) || tensor == body_.initializers.end()) return std::nullopt;
      const Tensor*& place = tensor->dims.size() == 2 ? found.weight : found.bias;
      if (place != nullptr || tensor->dims.size() > 2) return std::nullopt;
      place = &*tensor;
    }
    const bool fits = (has_zeros || found.is_filled) && found.weight != nullptr && found.bias != nullptr &&
                      found.bias->dims.size() == 1 && found.weight->dims[0] == found.bias->dims[0];
    return fits ? std::optional(found) : std::nullopt;
  }

  bool is_bias_for_each(const Tensor& tensor, const Tensor& bias) const {
    if (tensor.onnx_type != bias.onnx_type || tensor.dims.empty() || tensor.dims.back() != bias.dims[0]) return false;
    const std::optional<std::string> all = elements_of_(tensor), one = elements_of_(bias);
    if (!all || !one || one->empty() || all->size() % one->size() != 0) return false;
    for (size_t at = 0; at < all->size(); at += one->size())
      if (all->compare(at, one->size(), *one) != 0) return false;
    return true;
  }

  /// Whether a number other than zero, repeated, would give something else than the bias: a row has a sum.
  bool tells_numbers(const Tensor& weight) const {
    const std::optional<std::string> elements = weight.onnx_type == 1 ? elements_of_(weight) : std::nullopt;
    const auto width = static_cast<size_t>(weight.dims[1]);
    if (!elements || width == 0 || elements->size() % (width * sizeof(float)) != 0) return false;
    std::vector<float> row(width);
    for (size_t at = 0; at < elements->size(); at += width * sizeof(float)) {
      std::memcpy(row.data(), elements->data() + at, width * sizeof(float));
      if (std::abs(std::accumulate(row.begin(), row.end(), 0.0)) > 1e-3) return true;
    }
    return false;
  }

  /// All rows are equal, so that one stands for them: the batch is no size of it.
  void add_reshape(const Tensor& tensor, const std::string& bias) {
    std::vector<int64_t> dims(tensor.dims.size(), 1);
    dims.back() = tensor.dims.back();
    const Tensor& numbers = added_.emplace_back(int64_tensor(unused_name(names_, tensor.name + "/dims"), dims));
    nodes_.push_back({.name = tensor.name, .op = "Reshape", .inputs = {bias, numbers.name}, .outputs = {tensor.name}});
  }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ElementsOf& elements_of_;
  Restoration& restored_;
  const MergedReaders readers_of_;
  std::set<std::string> names_;  // of all values and tensors
  std::set<std::string> bound_;  // outputs, and what bodies of nodes read
  std::vector<Tensor> added_;
  std::vector<OnnxNode> nodes_;  // in front of the others: they read tensors alone
  std::set<std::string> gone_;
};

}  // namespace

void restore_first_steps(GraphBody& body, const ExportSignature& signature, const ElementsOf& elements_of,
                         Restoration& restored) {
  FirstSteps(body, signature, elements_of, restored).run();
}

}  // namespace graphpipe::frontend
