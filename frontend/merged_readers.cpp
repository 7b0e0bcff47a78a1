#include "frontend/merged_readers.h"

#include <algorithm>
#include <charconv>
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

/// What a node may read of a call's values. Of a sum with a product one node has the sum, and one the product.
std::set<std::string> values_of(const ExportedCall& call, const OnnxNode& node) {
  std::set<std::string> values;
  for (const std::string& value : call.values) values.insert(value.substr(1));
  const bool is_sum_with_product = call.target == "aten.addcmul.default" && call.arguments.size() == 3;
  if (!is_sum_with_product || (node.op != "Add" && node.op != "Mul")) return values;
  const auto is_argument = [&](const std::string& value, size_t i) { return call.arguments[i] == "%" + value; };
  std::erase_if(values, [&](const std::string& value) {
    return node.op == "Add" ? !is_argument(value, 0) : !is_argument(value, 1) && !is_argument(value, 2);
  });
  return values;
}

/// 12 of "unsqueeze_12": values of a kind are numbered as they are computed.
int64_t number_of_value(std::string_view value) {
  const size_t digits = std::min(call_of_value(value).size() + 1, value.size());
  int64_t number = 0;
  std::from_chars(value.data() + digits, value.data() + value.size(), number);
  return number;
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
  const auto takes = std::ranges::count(call->values, "%" + tensor);
  const std::set<std::string> values = values_of(*call, node);
  std::set<std::string> merged;  // values of the same kind that nothing makes
  for (const std::string& value : values)
    if (value != tensor && call_of_value(value) == call_of_value(tensor) && !made_.contains(value))
      merged.insert(value);
  if (values.contains(tensor)) {
    // Another value may be read as a tensor, or the result of a node, that it was merged with.
    const auto others = std::ranges::count_if(
        node.inputs, [&](const std::string& input) { return input != tensor && !values.contains(input); });
    if (reads > takes || std::ssize(merged) > others) return std::nullopt;
    reading.value = tensor;
    return reading;
  }
  if (merged.size() != 1 || reads != 1) return std::nullopt;
  reading.value = *merged.begin();
  return reading;
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

/// Of each value of one line; none where these are not the members on which it calls the same.
std::map<std::string, std::string> MergedReaders::parameters_on_line(const Readings& line, const Reading& known,
                                                                     const std::string& parameter) const {
  const std::string begin = member_of(known.module, ""), own = member_of(line.front().module, "");
  if (!parameter.starts_with(begin)) return {};
  const auto members = members_called_alike(line_of(line.front().code), parameter.substr(begin.size()));
  std::map<int64_t, std::string> values;
  for (const Reading& reading : line) values.emplace(number_of_value(reading.value), reading.value);
  if (values.size() != members.size()) return {};
  std::map<std::string, std::string> parameters;
  size_t i = 0;
  for (const auto& [number, value] : values) {
    const std::string name = own + members[i++];
    if (!signature_.lists_parameter(name) || (value == known.value) != (name == parameter)) return {};
    if (value != known.value && told_.contains(name)) return {};
    parameters.emplace(value, name);
  }
  return parameters;
}

std::optional<MergedReaders::Readings> MergedReaders::readings_of(const std::string& tensor) const {
  const auto nodes = nodes_.find(tensor);
  if (nodes == nodes_.end()) return std::nullopt;
  Readings readings;
  for (const size_t node : nodes->second) {
    std::optional<Reading> reading = reading_of(node, tensor);
    if (!reading) return std::nullopt;
    readings.push_back(std::move(*reading));
  }
  return readings;
}

std::optional<TensorReading> MergedReaders::readers_of(const std::string& tensor, const std::string& parameter) const {
  const std::optional<Readings> readings = readings_of(tensor);
  if (!readings) return std::nullopt;
  const auto known = std::ranges::find(*readings, tensor, &Reading::value);
  if (known == readings->end()) return std::nullopt;
  TensorReading result{.own = known->node, .merged = {}};
  std::map<std::pair<std::string, std::string_view>, Readings> lines;  // by module and place
  for (const Reading& each : *readings) lines[{each.module, place_of(each.code)}].push_back(each);
  std::map<std::string, MergedValue> merged;
  for (const auto& each_line : lines) {
    const Readings& line = each_line.second;
    const bool is_one = std::ranges::all_of(line, [&](const auto& each) { return each.value == line[0].value; });
    const auto on_line = is_one ? std::map<std::string, std::string>() : parameters_on_line(line, *known, parameter);
    // Two values on one line that are not those of its members would be of one module that is applied twice.
    if (!is_one && on_line.empty()) return std::nullopt;
    for (const Reading& each : line) {
      if (each.value == tensor) continue;
      const std::optional<Found> of =
          is_one ? parameter_of(each, *known, parameter) : Found{.parameter = on_line.at(each.value)};
      MergedValue& one = merged[each.value];
      if (!of || (!one.parameter.empty() && one.parameter != of->parameter)) return std::nullopt;
      one.name = each.value;
      one.parameter = of->parameter;
      one.is_same_line = one.is_same_line && of->is_same_line;
      one.readers.push_back(each.node);
    }
  }
  std::set<std::string> parameters;
  for (auto& [value, one] : merged) {
    if (!parameters.insert(one.parameter).second) return std::nullopt;
    result.merged.push_back(std::move(one));
  }
  return result;
}

}  // namespace graphpipe::frontend
