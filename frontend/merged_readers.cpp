#include "frontend/merged_readers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "frontend/code_line.h"
#include "frontend/folding_note.h"
#include "frontend/told_parameters.h"

namespace graphpipe::frontend {
namespace {

/// "encoder.weight" of "encoder" and "weight"; the module itself has no name.
std::string member_of(const std::string& module, std::string_view name) {
  return module.empty() ? std::string(name) : text(module, ".", name);
}

}  // namespace

std::string_view place_of(std::string_view code) { return code.substr(0, code.find('\n')); }

std::string_view line_of(std::string_view code) {
  const size_t end = code.find('\n');
  return end == code.npos ? std::string_view() : code.substr(end + 1);
}

/// What a node takes the tensor for, and where the call stands.
struct MergedReaders::Reading {
  std::string value, target, module, code;
  size_t node = 0;
};

MergedReaders::MergedReaders(const GraphBody& body, const ExportSignature& signature)
    : body_(body), signature_(signature), told_(told_parameters(body, signature)) {
  for (const Tensor& tensor : body.initializers) made_.insert(tensor.name);
  for (const ValueInfo& input : body.inputs) made_.insert(input.name);
  for (size_t n = 0; n < body.nodes.size(); ++n) {
    const OnnxNode& node = body.nodes[n];
    made_.insert(node.outputs.begin(), node.outputs.end());
    for (const std::string& input : node.inputs)
      if (auto& nodes = nodes_[input]; nodes.empty() || nodes.back() != n) nodes.push_back(n);
    const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
    if (!call) continue;
    made_.insert(call->result);
    for (const std::string& value : call->values)
      if (std::string name = signature.tensor_of(value); !name.empty()) called_.insert(std::move(name));
  }
}

std::optional<MergedReaders::Reading> MergedReaders::reading_of(size_t n, const std::string& tensor) const {
  const OnnxNode& node = body_.nodes[n];
  const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
  if (!call) return std::nullopt;
  Reading reading{.target = call->target, .module = node.module, .code = node.code, .node = n};
  const auto reads = std::ranges::count(node.inputs, tensor);
  if (const auto takes = std::ranges::count(call->values, "%" + tensor); takes > 0) {
    reading.value = tensor;
    return reads <= takes ? std::optional(reading) : std::nullopt;
  }
  // The one value of the same kind that nothing makes.
  for (const std::string& value : call->values) {
    const std::string name = value.substr(1);
    if (call_of_value(name) != call_of_value(tensor) || made_.contains(name) || name == reading.value) continue;
    if (!reading.value.empty()) return std::nullopt;
    reading.value = name;
  }
  return reads == 1 && !reading.value.empty() ? std::optional(reading) : std::nullopt;
}

std::string MergedReaders::repeated(const std::string& tensor) const {
  std::string parameter;
  const auto nodes = nodes_.find(tensor);
  if (nodes == nodes_.end()) return {};
  for (const size_t n : nodes->second) {
    const std::optional<ExportedCall> call = parse_exported_call(body_.nodes[n].exported_from);
    if (!call || call->target != "aten.repeat.default" || body_.nodes[n].op != "Tile") return {};
    std::string name = signature_.tensor_of(call->argument(0));
    if (!signature_.lists_parameter(name) || (!parameter.empty() && name != parameter)) return {};
    parameter = std::move(name);
  }
  return parameter;
}

/// The parameters of the reading's module that its line names, but for those that are known to be read elsewhere.
std::set<std::string> MergedReaders::named_by(const Reading& reading) const {
  std::set<std::string> names;
  for (const std::string& member : members_in(line_of(reading.code)))
    if (std::string name = member_of(reading.module, member); signature_.lists_parameter(name) && !told_.contains(name))
      names.insert(std::move(name));
  return names;
}

/// That of the same line in another module, or the one that the line names and on which it calls the same.
std::optional<MergedReaders::Found> MergedReaders::parameter_of(const Reading& reading, const Reading& known,
                                                                const std::string& parameter) const {
  const std::string begin = member_of(known.module, "");
  if (!parameter.starts_with(begin) || known.code.empty()) return std::nullopt;
  const std::string member = parameter.substr(begin.size());
  const std::set<std::string> named = named_by(reading);
  Found found{.is_same_line = place_of(reading.code) == place_of(known.code) && reading.target == known.target};
  if (found.is_same_line) {
    found.parameter = member_of(reading.module, member);
    if (named.size() > 1 || (named.size() == 1 && !named.contains(found.parameter))) return std::nullopt;
  } else {
    const std::optional<std::string> calls = calls_on_member(line_of(known.code), member);
    if (named.size() != 1 || !calls) return std::nullopt;
    found.parameter = *named.begin();
    const size_t module = member_of(reading.module, "").size();
    if (calls_on_member(line_of(reading.code), found.parameter.substr(module)) != calls) return std::nullopt;
  }
  const bool may_be = signature_.lists_parameter(found.parameter) && !told_.contains(found.parameter);
  return may_be ? std::optional(found) : std::nullopt;
}

std::optional<TensorReading> MergedReaders::readers_of(const std::string& tensor, const std::string& parameter) const {
  std::optional<Reading> known;
  std::map<std::pair<std::string, std::string>, std::string> values;  // by module and line
  std::map<std::string, std::vector<Reading>> readings;               // by value
  const auto nodes = nodes_.find(tensor);
  if (nodes == nodes_.end()) return std::nullopt;
  for (const size_t node : nodes->second) {
    std::optional<Reading> reading = reading_of(node, tensor);
    if (!reading) return std::nullopt;
    if (reading->value == tensor && !known) known = reading;
    readings[reading->value].push_back(std::move(*reading));
  }
  if (!known) return std::nullopt;
  TensorReading result{.own = known->node, .merged = {}};
  if (readings.size() == 1) return result;
  std::set<std::string> parameters;
  for (const auto& [value, all] : readings) {
    // Two values on one line would be of two parameters, or of one module that is applied twice.
    for (const Reading& each : all)
      if (const auto at = values.try_emplace({each.module, std::string(place_of(each.code))}, value).first;
          at->second != value)
        return std::nullopt;
    if (value == tensor) continue;
    MergedValue one{.name = value};
    for (const Reading& each : all) {
      const std::optional<Found> of = parameter_of(each, *known, parameter);
      if (!of || (!one.parameter.empty() && one.parameter != of->parameter)) return std::nullopt;
      one.parameter = of->parameter;
      one.is_same_line = one.is_same_line && of->is_same_line;
      one.readers.push_back(each.node);
    }
    if (!parameters.insert(one.parameter).second) return std::nullopt;
    result.merged.push_back(std::move(one));
  }
  return result;
}

}  // namespace graphpipe::frontend
