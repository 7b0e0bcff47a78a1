#include "frontend/name_repeated.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/body_reads.h"
#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/lost_by_export.h"
#include "frontend/value_names.h"

namespace graphpipe::frontend {
namespace {

/// The value that the node repeats, by its call; nothing for others.
std::optional<std::string> repeated_value(const OnnxNode& node, const std::string& tensor) {
  if (node.op != "Tile" || node.inputs.empty() || node.inputs[0] != tensor) return std::nullopt;
  const std::optional<ExportedCall> call = parse_exported_call(node.exported_from);
  const std::string_view value = call && call->target == "aten.repeat.default" ? call->argument(0) : "";
  return value.starts_with('%') ? std::optional<std::string>(value.substr(1)) : std::nullopt;
}

/// The note's value that all of these repeat, or that others of the same call's kind were merged with.
std::optional<std::string> name_for(const Tensor& tensor, const std::vector<std::string>& note,
                                    const std::vector<OnnxNode*>& readers) {
  std::optional<std::string> name;
  for (const OnnxNode* reader : readers) {
    const std::optional<std::string> value = repeated_value(*reader, tensor.name);
    if (!value || call_of_value(*value) != "unsqueeze") return std::nullopt;
    if (std::ranges::find(note, *value) != note.end()) name = value;
  }
  const auto added =
      std::ranges::count_if(note, [](const std::string& each) { return call_of_value(each) == "unsqueeze"; });
  return std::ranges::count(tensor.dims, 1) == added ? name : std::nullopt;
}

std::string as_note(const std::vector<std::string>& names) {
  std::string note = "[";
  for (const std::string& name : names) note += (note.size() > 1 ? ", '" : "'") + name + "'";
  return note + "]";
}

}  // namespace

void name_repeated(GraphBody& body) {
  std::set<std::string> names = value_names(body), bound = inner_reads(body);
  for (const ValueInfo& output : body.outputs) bound.insert(output.name);
  std::map<std::string, std::vector<OnnxNode*>> readers;
  for (OnnxNode& node : body.nodes)
    for (const std::string& input : std::set<std::string>(node.inputs.begin(), node.inputs.end()))
      readers[input].push_back(&node);
  for (Tensor& tensor : body.initializers) {
    const auto note = body.folded_from.find(tensor.name);
    const auto nodes = readers.find(tensor.name);
    if (note == body.folded_from.end() || nodes == readers.end() || !is_anonymous(tensor.name) ||
        bound.contains(tensor.name))
      continue;
    std::vector<std::string> from = parse_names(note->second);
    const std::optional<std::string> name = name_for(tensor, from, nodes->second);
    if (!name || !names.insert(*name).second) continue;
    std::erase(from, *name);
    body.folded_from.erase(note);
    body.folded_from[*name] = as_note(from);
    for (OnnxNode* reader : nodes->second) reader->inputs[0] = *name;
    tensor.name = *name;
  }
}

}  // namespace graphpipe::frontend
