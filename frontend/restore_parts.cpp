#include "frontend/restore_parts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "frontend/body_reads.h"
#include "frontend/folding_note.h"
#include "frontend/looked_up_rows.h"
#include "frontend/lost_by_export.h"
#include "frontend/merged_readers.h"
#include "frontend/value_names.h"
#include "wire/element_bytes.h"

namespace graphpipe::frontend {
namespace {

/// What torch.export names the results of calls that take elements as they are, each at most once. "getitem" is none of
/// them: it is the name of one of several results, those of max, of min and of a norm as well as those of unbind.
constexpr std::array<std::string_view, 15> kCuts = {"alias",   "clone",     "contiguous", "flatten",   "narrow",
                                                    "permute", "reshape",   "select",     "slice",     "squeeze",
                                                    "t",       "transpose", "unflatten",  "unsqueeze", "view"};

class PartRestorer {
 public:
  PartRestorer(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
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
    for (size_t i = 0; i < body_.initializers.size(); ++i) {
      const auto note = body_.folded_from.find(body_.initializers[i].name);
      if (note == body_.folded_from.end()) continue;
      const std::vector<std::string> names = parse_names(note->second);
      const bool is_cut = is_cut_out(body_.initializers[i], names);
      for (const std::string& name : names) {
        if (!signature_.lists_parameter(name)) continue;
        if (is_cut) cut_[name].push_back(i);
        else otherwise_computed_.insert(name);
      }
    }
    for (const auto& [parameter, tensors] : cut_)
      if (!otherwise_computed_.contains(parameter) && are_parts(parameter, tensors)) name_parts(parameter, tensors);
    for (OnnxNode& node : body_.nodes)
      for (std::string& input : node.inputs)
        if (const auto name = renamed_.find(input); name != renamed_.end()) input = name->second;
  }

 private:
  bool are_parts(const std::string& parameter, const std::vector<size_t>& tensors) const {
    if (names_.contains(parameter) || readers_of_.is_called(parameter) || rules_.tied(parameter).value_or(false))
      return false;
    std::string elements;
    size_t width = 0;
    for (const size_t i : tensors) {
      const Tensor& tensor = body_.initializers[i];
      const auto dtype = dtype_of_onnx(tensor.onnx_type);
      if (!dtype || !ir::is_floating(*dtype)) return false;
      const auto bytes = static_cast<size_t>(ir::bytes_per_element(*dtype));
      const std::optional<TensorReading> reading = readers_of_.readers_of(tensor.name, parameter);
      const std::optional<std::string> of_tensor = elements_of_(tensor);
      if (!reading || !reading->merged.empty() || !of_tensor || (width != 0 && bytes != width)) return false;
      width = bytes;
      elements += *of_tensor;
      if (width < 4 || elements.size() / width > kMaxElementsInRows) return false;
    }
    return are_distinct(elements, width);
  }

  /// Whether the optimiser's note on it has calls of these alone, one parameter and no buffer.
  bool is_cut_out(const Tensor& tensor, const std::vector<std::string>& names) const {
    const auto is_cut = [](const std::string& value) {
      return std::ranges::find(kCuts, call_of_value(value)) != kCuts.end();
    };
    if (bound_.contains(tensor.name) || tensor.layout != Tensor::Layout::kDense || !is_cut(tensor.name)) return false;
    int64_t tensors = 0;
    for (const std::string& name : names) {
      if (signature_.is_parameter.contains(name)) ++tensors;
      else if (!is_anonymous(name) && !is_cut(name)) return false;
    }
    return tensors == 1;
  }

  void name_parts(const std::string& parameter, const std::vector<size_t>& tensors) {
    for (const size_t i : tensors) {
      Tensor& tensor = body_.initializers[i];
      const std::string value = tensor.name;
      std::string name = unused_name(names_, text(value, kPartSuffix));
      restored_.sources.emplace(name, tensor);
      tensor.name = std::move(name);
      body_.folded_from[tensor.name] = body_.folded_from.at(value);
      renamed_.emplace(value, tensor.name);
      restored_.look_ups.push_back({.name = tensor.name, .table = parameter, .is_repeated = false});
    }
  }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  const ElementsOf& elements_of_;
  Restoration& restored_;
  const MergedReaders readers_of_;
  std::set<std::string> names_, bound_;  // of all values and tensors; outputs, and what bodies of nodes read
  std::map<std::string, std::string> renamed_;
  std::map<std::string, std::vector<size_t>> cut_;  // by parameter: the tensors that were cut out of it alone
  std::set<std::string> otherwise_computed_;        // parameters of which others were computed as well
};

}  // namespace

void restore_parts(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                   const ElementsOf& elements_of, Restoration& restored) {
  PartRestorer(body, signature, rules, elements_of, restored).run();
}

}  // namespace graphpipe::frontend
