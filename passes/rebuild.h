#pragma once
// Rebuilds a forward graph node by node, so that a rule may replace a node by others. Types and batch kinds of all
// later nodes are derived again from the dictionary.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::passes {

/// One node that is about to be rebuilt.
struct Rebuilding {
  ir::Graph& made;
  /// Its inputs are values of `made`.
  const ir::Node& node;
  /// Its outputs in the old graph: types are kept, batch kinds may become simpler.
  std::span<const ir::Value> outputs;
};

/// The values of `made` that replace the node's outputs, with the same types; nothing if the node stays as it is.
using Replacement = std::optional<std::vector<ir::ValueId>>;
using Rule = std::function<Result<Replacement>(const Rebuilding&)>;

/// Needs: no gradient nodes. Ensures: same inputs, parameters and outputs in the same order; nodes that were replaced
/// may be left without readers. If no rule applies the graph is returned unchanged.
Result<ir::Graph> rebuild(ir::Graph graph, const Rule& rule);

/// Gives an empty graph the inputs and parameters of another, in their order; the values of nodes come after theirs.
/// `stands_for`, by value of `from`, then names their values in `to`.
void copy_leaves(const ir::Graph& from, ir::Graph& to, IdMap<ir::ValueId, ir::ValueId>& stands_for);

inline const ir::Shape& shape_of(const ir::Graph& graph, ir::ValueId value) { return graph.value(value).type.shape; }

/// Appends a node with the origins of `like` and returns its only output.
Result<ir::ValueId> append_like(ir::Graph& graph, const ir::Node& like, std::string_view op,
                                std::vector<ir::ValueId> inputs, ir::Attributes attributes = {});

}  // namespace graphpipe::passes
