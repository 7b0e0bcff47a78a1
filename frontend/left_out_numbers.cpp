#include "frontend/left_out_numbers.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "frontend/code_line.h"
#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/merged_readers.h"
#include "frontend/parameter_names.h"
#include "support/text.h"

namespace graphpipe::frontend {
namespace {

/// Results of calls that the optimiser leaves out where an operand is 1 or 0.
bool is_of_left_out_kind(std::string_view value) {
  constexpr std::array<std::string_view, 4> kKinds = {"add", "div", "mul", "sub"};
  return std::ranges::find(kKinds, call_of_value(value)) != kKinds.end();
}

/// Whether the module `outer` is `inner`, or one that holds it; "" holds all.
bool holds(std::string_view outer, std::string_view inner) {
  return outer.empty() || (inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '.'));
}

/// The innermost module that holds both.
std::string_view common_module(std::string_view one, std::string_view other) {
  while (!holds(one, other)) one = split_name(one).first;
  return one;
}

std::string_view owner_of(std::string_view parameter) { return split_name(parameter).first; }

/// "norm.weight", and "norm.bias" beside one: read by a layer, or left over with it, and no number of its own.
bool is_of_layer(const std::string& parameter, const ExportSignature& signature) {
  const auto [owner, component] = split_name(parameter);
  const std::string module(owner);
  return component == "weight" ||
         (component == "bias" && signature.lists_parameter(module.empty() ? "weight" : module + ".weight"));
}

/// Whether the module has a buffer without a value in the file: that may have been the number as well.
bool has_lost_buffer(std::string_view module, const ExportSignature& signature,
                     const std::function<bool(const std::string&)>& is_made) {
  return std::ranges::any_of(signature.is_parameter, [&](const auto& listed) {
    const auto& [name, is_parameter] = listed;
    return !is_parameter && owner_of(name) == module && !name.ends_with("num_batches_tracked") && !is_made(name);
  });
}

/// Whether the node takes what code keeps above zero by a number which the optimiser takes for 0, as 1e-8.
bool is_guarded(const OnnxNode& node) {
  constexpr std::array<std::string_view, 5> kOps = {"Div", "Log", "Reciprocal", "ReduceL2", "Sqrt"};
  return std::ranges::find(kOps, node.op) != kOps.end();
}

/// Whether the value is 0 plus the first summand: Python's sum() adds up from 0, with a parameter in it or without.
bool begins_sum(const std::string& value, const OnnxNode& node, const ExportedCall& call) {
  return call_of_value(value) == "add" && call.target.starts_with("aten.add.") && call.argument(0) == "%" + value &&
         calls_function(line_of(node.code), "sum");
}

/// What stands in the place of a value that nothing makes.
struct Replaced {
  std::string value, by;
  std::string_view reader;        // the module that reads it
  std::string_view callers = {};  // lines of the modules around that
};

class Finder {
 public:
  Finder(const GraphBody& body, const ExportSignature& signature,
         const std::function<bool(const std::string&)>& is_made)
      : body_(body), signature_(signature), is_made_(is_made) {
    for (const ValueInfo& input : body.inputs) makers_[input.name] = {.result = input.name};
    for (const OnnxNode& node : body.nodes) {
      std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
      if (call)
        for (const std::string& value : call->values) taken_.insert(value.substr(1));
      for (const std::string& output : node.outputs)
        makers_[output] = {.result = call ? call->result : output, .module = node.module};
    }
    taken_.insert(signature.outputs.begin(), signature.outputs.end());
  }

  std::vector<Replaced> run() const {
    std::vector<Replaced> found;
    for (const OnnxNode& node : body_.nodes)
      if (const std::optional<ExportedCall> call = parse_exported_call(node.exported_from)) read(node, *call, found);
    if (signature_.outputs.size() != body_.outputs.size()) return found;
    for (size_t i = 0; i < body_.outputs.size(); ++i)
      if (is_left_out(signature_.outputs[i]))
        add({.value = signature_.outputs[i], .by = body_.outputs[i].name, .reader = {}}, found);
    return found;
  }

  /// The module whose code makes the value; the outermost for inputs.
  std::string_view module_of_value(const std::string& value) const { return makers_.at(value).module; }

 private:
  struct Maker {
    std::string result;  // of its call
    std::string_view module = {};
  };

  bool is_left_out(const std::string& value) const {
    return is_of_left_out_kind(value) && signature_.tensor_of("%" + value).empty() && !is_made_(value);
  }

  void read(const OnnxNode& node, const ExportedCall& call, std::vector<Replaced>& found) const {
    std::map<std::string, size_t> taken;  // how often
    std::string left_out;
    for (const std::string& value : call.values) {
      ++taken[value.substr(1)];
      const bool may_be_guard = is_guarded(node) && call_of_value(value.substr(1)) == "add";
      const bool has_reason = may_be_guard || begins_sum(value.substr(1), node, call);
      if (left_out.empty() && !has_reason && is_left_out(value.substr(1))) left_out = value.substr(1);
    }
    if (left_out.empty()) return;
    for (const std::string& input : node.inputs) {
      const auto maker = makers_.find(input);
      if (maker == makers_.end() || maker->second.result == call.result) continue;
      size_t& left = taken[maker->second.result];
      if (left == 0) add({.value = left_out, .by = input, .reader = node.module, .callers = node.callers}, found);
      else --left;
    }
  }

  /// Of two equal calls the optimiser keeps one as well: its result, of the same kind, is then taken by its own name.
  void add(const Replaced& replaced, std::vector<Replaced>& found) const {
    const auto maker = makers_.find(replaced.by);
    if (maker == makers_.end()) return;
    const bool may_be_equal =
        call_of_value(maker->second.result) == call_of_value(replaced.value) && taken_.contains(maker->second.result);
    if (!may_be_equal) found.push_back(replaced);
  }

  const GraphBody& body_;
  const ExportSignature& signature_;
  const std::function<bool(const std::string&)>& is_made_;
  std::map<std::string, Maker> makers_;  // of values
  std::set<std::string> taken_;          // by calls, and given by the program
};

/// The first of the numbers that the lines of callers name, as a member of one of the modules around the reader; null
/// if they name none. Of "self.gains[i]" it is the first one of that list.
const std::string* passed_on(const Replaced& replaced, const std::set<std::string>& numbers) {
  for (const std::string& member : members_in(replaced.callers)) {
    for (std::string_view module = replaced.reader; !module.empty();) {
      module = split_name(module).first;
      const std::string name = module.empty() ? member : text(module, ".", member);
      const auto at = numbers.lower_bound(name);
      if (at != numbers.end() && (*at == name || at->starts_with(name + "."))) return &*at;
    }
  }
  return nullptr;
}

LeftOut left_out_by(const std::string& parameter, const std::string& value) {
  return {parameter, text("the exporter's optimiser has left out the call that computes ", quoted(ModelText(value)),
                          ", as it does with products with 1 and sums with 0")};
}

}  // namespace

std::optional<LeftOut> left_out_number(const GraphBody& body, const ExportSignature& signature,
                                       const std::set<std::string>& parameters,
                                       const std::function<bool(const std::string&)>& is_made) {
  std::map<std::string_view, std::vector<std::string>> numbers;  // by module
  std::set<std::string> all;
  for (const std::string& each : parameters)
    if (!is_of_layer(each, signature) && !has_lost_buffer(owner_of(each), signature, is_made)) {
      numbers[owner_of(each)].push_back(each);
      all.insert(each);
    }
  if (numbers.empty()) return std::nullopt;
  const Finder finder(body, signature, is_made);
  std::map<std::string_view, std::set<std::string>> left_out;  // values, by the modules that may have made them
  for (const Replaced& replaced : finder.run()) {
    if (const std::string* passed = passed_on(replaced, all)) return left_out_by(*passed, replaced.value);
    const std::string_view between = common_module(finder.module_of_value(replaced.by), replaced.reader);
    for (const auto& [module, names] : numbers)
      if (holds(between, module)) left_out[module].insert(replaced.value);
  }
  for (const auto& [module, values] : left_out)
    if (values.size() >= numbers[module].size()) return left_out_by(numbers[module].front(), *values.begin());
  return std::nullopt;
}

}  // namespace graphpipe::frontend
