#pragma once
// The memory that an item uses on its device, tensor by tensor: the statements of its stage's functions are walked as
// they are emitted, with the same lifetimes (lifetimes.h), and every tensor counts from the statement that allocates it
// to the one that releases it. A view keeps its underlying memory alive; a reshape copies when LibTorch's does.
//
// Not counted: what kernels allocate beyond OpDef::work().scratch, and the rows of a message whose batch axis is not
// the first.

#include "codegen/cut_stages.h"
#include "codegen/slot_layout.h"
#include "ir/item_memory.h"

namespace graphpipe::codegen {

/// Needs: `cut` from cut_stages, not by autograd, and its `layout`; shared_values(graph).
ir::ItemMemory walk_item(const ir::Graph& graph, const IdSet<ir::ValueId>& shared, const StageCut& cut,
                         const SlotLayout& layout, Samples samples);

/// The items of all stages of a plan, whose backwards are one function (`joins_backward`) or two.
class StageMemories {
 public:
  /// Needs and errors: those of cut_stages; `graph` must outlive this.
  static Result<StageMemories> of(const ir::Graph& graph, const ir::PlanGraph& plan, const ir::StageGraph& stages);
  ir::ItemMemory item(ir::StageId stage, Samples samples, bool joins_backward) const;

 private:
  explicit StageMemories(const ir::Graph& graph);

  struct Cuts {
    IdMap<ir::StageId, StageCut> cuts;
    IdMap<ir::StageId, SlotLayout> layouts;
  };

  const ir::Graph* graph_;
  IdSet<ir::ValueId> shared_;
  Cuts apart_, joined_;
};

}  // namespace graphpipe::codegen
