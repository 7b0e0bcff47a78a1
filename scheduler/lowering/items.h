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

/// Per stage and replica, what it runs, in order.
using StageOrders = IdMap<StageId, std::vector<std::vector<Action>>>;

/// All items of a schedule: stage by stage, in each stage by replica, then by first sample.
class ItemTable {
 public:
  /// Takes one item from every forward action. Needs: stages and replicas that exist in `graph`.
  ItemTable(const StageGraph& graph, const Schedule& schedule);
  ItemTable(const StageGraph& graph, const StageOrders& orders);

  size_t size() const { return items_.size(); }
  const Item& operator[](ItemIndex item) const { return items_[static_cast<size_t>(item)]; }
  /// The items of one replica of a stage, ascending by first sample: [first, last) of the table.
  std::pair<ItemIndex, ItemIndex> of(StageId stage, int replica) const;
  /// The first item of this replica that ends after `sample`, or the end of its row. Needs: items that do not overlap,
  /// so that their ends ascend. It is found at once if it is this `number` of the row, or all of them are equally long.
  ItemIndex first_after(StageId stage, int replica, int64_t sample, ItemIndex number) const;
  /// The item of this replica that contains `range`, or -1.
  ItemIndex containing(StageId stage, int replica, SampleRange range) const;
  /// That of an action of a stage.
  ItemIndex item_of(const Action& action) const {
    return containing(StageId(static_cast<size_t>(action.stage)), action.replica, action.range);
  }
  int replica_count(StageId stage) const { return replicas_[stage]; }
  size_t stage_count() const { return replicas_.size(); }

 private:
  explicit ItemTable(const StageGraph& graph);
  void add_forwards(const std::vector<Action>& actions);
  void find_rows();
  /// Where an item of [first, last) with this sample stands if each begins as many samples after the one before it as
  /// the second after the first, which nearly all do. Needs: first < last.
  ItemIndex guess(ItemIndex first, ItemIndex last, int64_t sample) const;

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
