#pragma once
// When the tensors of a generated function are released: right after their last use. The emitted text
// (function_writer.h) and the predicted memory (memory_walk.h) follow this one rule.

#include <map>
#include <span>
#include <vector>

#include "codegen/function_writer.h"

namespace graphpipe::codegen {

class Lifetimes {
 public:
  /// All three must outlive it.
  Lifetimes(const ir::Graph& graph, std::span<const Step> steps, const FunctionOptions& options);

  /// What the step reads, without parameters, each value once and ascending.
  std::vector<ir::ValueId> inputs_of(const Step& step) const;
  /// The values whose tensors are released after step `index`, which has produced `made`.
  std::vector<ir::ValueId> ended(size_t index, const std::vector<ir::ValueId>& made) const;
  /// The sums that these values are added to, in the order of the options.
  std::vector<const Accumulation*> sums_of(const std::vector<ir::ValueId>& made) const;
  /// Whether the value is only read here: its place keeps the tensor.
  bool is_borrowed(ir::ValueId value) const { return borrowed_.contains(value); }
  /// If step `index` only produces a share of a gradient, and its entry adds that to the sum without an intermediate
  /// tensor: the sum. Otherwise null.
  const Accumulation* added_in_place(size_t index) const;
  /// Whether step `index` computes its result in the memory of its input 0, which nothing reads afterwards.
  bool overwrites_input(size_t index) const;

 private:
  bool all_add_rows(const Place& sum) const;
  void find_shared();
  bool is_shared(ir::ValueId value) const { return shared_.contains(value) || shared_in_graph_->contains(value); }
  bool may_overwrite_input(size_t index) const;

  const ir::Graph& graph_;
  std::span<const Step> steps_;
  const FunctionOptions& options_;
  IdMap<ir::ValueId, ir::ParamId> param_of_;
  IdMap<ir::ValueId, size_t> last_use_;
  /// With and without a condition; those without.
  IdSet<ir::ValueId> ever_stored_, stored_;
  IdSet<ir::ValueId> borrowed_;
  /// Values whose memory something else may hold: what the function loads or passes on, and shared_values.
  IdSet<ir::ValueId> shared_, own_shared_in_graph_;
  const IdSet<ir::ValueId>* shared_in_graph_ = nullptr;
  std::map<ir::ValueId, std::vector<const Accumulation*>> sums_;
};

/// Values that may share memory with others: views, what is viewed, and what no node makes.
IdSet<ir::ValueId> shared_values(const ir::Graph& graph);

/// The nodes whose results take the places of their first operands. A function that is written in parts asks for them
/// as a whole: a value that one part hands on to another may also be stored.
IdSet<ir::NodeId> overwriting_nodes(const ir::Graph& graph, std::span<const Step> steps,
                                    const FunctionOptions& options);

}  // namespace graphpipe::codegen
