#pragma once
// What the readers of JSON profiles share once all fields are read: a layer graph under construction whose layers and
// edges go by the numbers of the file, and the problems found on the way.

#include <map>
#include <optional>
#include <string>

#include "files/json_field_reader.h"
#include "files/proto_json.h"
#include "files/text_file.h"
#include "ir/layer_graph.h"

namespace graphpipe::files {

class NumberedLayers {
 public:
  explicit NumberedLayers(ir::LayerSource source) : graph({.source = source}) {}

  ir::LayerGraph graph;
  FieldProblems problems{Code::kBadProfile, "correct the file"};
  bool may_go_on() const { return problems.size() < kMaxProblems; }

  /// The field, or 0 and a problem where the file does not have it.
  double need(const std::optional<double>& field, const std::string& path, std::string_view name) {
    if (!field) problems.add(path, "has no ", name);
    return field.value_or(0);
  }

  void add(int64_t number, ir::Layer layer, const std::string& path) {
    layer.id = ModelText(std::to_string(number));
    if (!layer_of_.emplace(number, graph.layers.push_back(std::move(layer))).second)
      problems.add(path + ".id", "another node has this id");
  }

  std::optional<ir::LayerId> find(int64_t number) const {
    const auto found = layer_of_.find(number);
    return found == layer_of_.end() ? std::nullopt : std::optional(found->second);
  }

  /// The layer at one end of an edge; invalid, and a problem, where there is none.
  ir::LayerId end_of(const std::optional<int64_t>& number, const std::string& path) {
    const auto found = number ? find(*number) : std::nullopt;
    if (!found) problems.add(path, "names no node");
    return found.value_or(ir::LayerId());
  }

  Result<ir::LayerGraph> finish() {
    if (!problems.empty()) return problems.take();
    GP_TRY_VOID(verify_layer_graph(graph));
    return std::move(graph);
  }

 private:
  std::map<int64_t, ir::LayerId> layer_of_;
};

/// Reads and parses a file; problems name it.
template <typename Parse>
Result<ir::LayerGraph> read_layers(const std::string& path, Parse parse) {
  GP_TRY(const std::string text, read_file(path, kProfileLimits.max_bytes));
  Result<ir::LayerGraph> graph = parse(text);
  if (!graph.ok()) return with_origin(graph.problems(), path);
  return graph;
}

}  // namespace graphpipe::files
