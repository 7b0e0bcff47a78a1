#pragma once
// The items of a schedule and the data that flows between them, in sample ranges.
//
// An item is what one forward action works on: (stage, replica, sample range). Items of different stages need not have
// the same size: a message carries the intersection of the producer's and the consumer's range.

#include <span>
#include <vector>

#include "scheduler/terms.h"

namespace graphpipe::scheduler {

/// Index of an item in its table; -1 names none.
using ItemIndex = int32_t;

struct Item {
  StageId stage;
  int replica = 0;
  SampleRange range;
  bool operator==(const Item&) const = default;
};

/// All items of a schedule: stage by stage, in each stage by replica, then by first sample.
class ItemTable {
 public:
  /// Takes one item from every forward action. Needs: stages and replicas that exist in `graph`.
  ItemTable(const StageGraph& graph, const Schedule& schedule);

  size_t size() const { return items_.size(); }
  const Item& operator[](ItemIndex item) const { return items_[static_cast<size_t>(item)]; }
  /// The items of one replica of a stage, ascending by first sample: [first, last) of the table.
  std::pair<ItemIndex, ItemIndex> of(StageId stage, int replica) const;
  /// The item of this replica that contains `range`, or -1.
  ItemIndex containing(StageId stage, int replica, SampleRange range) const;
  /// That of an action of a stage.
  ItemIndex item_of(const Action& action) const {
    return containing(StageId(static_cast<size_t>(action.stage)), action.replica, action.range);
  }
  int replica_count(StageId stage) const { return replicas_[stage]; }
  size_t stage_count() const { return replicas_.size(); }

 private:
  std::vector<Item> items_;
  IdMap<StageId, int> replicas_;
  /// First index into `starts_` of a stage's replicas.
  IdMap<StageId, int> offset_;
  std::vector<ItemIndex> starts_;
};

/// A piece of an edge's value, or of its gradient, that goes from one item to another.
struct Message {
  ir::EdgeId edge;
  bool backward = false;
  ItemIndex from = -1, to = -1;
  SampleRange range;
};

/// Which items wait for which samples. Forward data flow along every edge; gradients flow back along the edges that
/// carry one.
class DataFlow {
 public:
  DataFlow(const StageGraph& graph, const ItemTable& items);

  /// Whether all messages that the action needs have been sent. Only forwards and (input-gradient) backwards wait.
  bool is_ready(ItemIndex item, ActionOp op) const;
  /// Marks the action done and returns the messages that leave the item now, in ascending order of edge, replica of the
  /// other end and range. The span holds until the next call.
  std::span<const Message> finish(ItemIndex item, ActionOp op);

 private:
  void collect(ItemIndex item, ir::EdgeId edge, bool backward);

  const StageGraph& graph_;
  const ItemTable& items_;
  IdMap<StageId, std::vector<ir::EdgeId>> out_, in_;
  /// Samples, summed over edges, that have not been sent yet to the item's forward and backward.
  std::vector<int64_t> missing_forward_, missing_backward_;
  std::vector<Message> messages_;
};

}  // namespace graphpipe::scheduler
