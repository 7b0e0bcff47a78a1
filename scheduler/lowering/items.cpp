#include "scheduler/lowering/items.h"

#include <algorithm>

namespace graphpipe::scheduler {

ItemTable::ItemTable(const StageGraph& graph, const Schedule& schedule)
    : replicas_(graph.stages.size()), offset_(graph.stages.size()) {
  int total = 0;
  for (const StageId stage : graph.stage_ids()) {
    replicas_[stage] = static_cast<int>(graph.stages[stage].choice.devices.size());
    offset_[stage] = total;
    total += replicas_[stage];
  }
  for (const ir::Program& program : schedule.programs)
    for (const Action& action : program.actions)
      if (action.op == ActionOp::kForward)
        items_.push_back({StageId(static_cast<size_t>(action.stage)), action.replica, action.range});
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return std::tuple(a.stage, a.replica, a.range.first, a.range.last) <
           std::tuple(b.stage, b.replica, b.range.first, b.range.last);
  });
  starts_.assign(static_cast<size_t>(total) + 1, 0);
  for (const Item& item : items_) {
    GP_CHECK(item.replica >= 0 && item.replica < replicas_[item.stage]);
    ++starts_[static_cast<size_t>(offset_[item.stage] + item.replica) + 1];
  }
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
}

std::pair<ItemIndex, ItemIndex> ItemTable::of(StageId stage, int replica) const {
  const size_t row = static_cast<size_t>(offset_[stage] + replica);
  return {starts_[row], starts_[row + 1]};
}

ItemIndex ItemTable::containing(StageId stage, int replica, SampleRange range) const {
  const auto [first, last] = of(stage, replica);
  const auto begin = items_.begin() + first, end = items_.begin() + last;
  const auto after =
      std::upper_bound(begin, end, range.first, [](int64_t sample, const Item& i) { return sample < i.range.first; });
  if (after == begin || (after - 1)->range.last < range.last) return -1;
  return static_cast<ItemIndex>(after - 1 - items_.begin());
}

DataFlow::DataFlow(const StageGraph& graph, const ItemTable& items)
    : graph_(graph),
      items_(items),
      out_(graph.stages.size()),
      in_(graph.stages.size()),
      missing_forward_(items.size()),
      missing_backward_(items.size()) {
  IdMap<StageId, int64_t> gradients(graph.stages.size());
  for (const ir::EdgeId id : graph.edge_ids()) {
    const ir::StageEdge& edge = graph.edges[id];
    out_[edge.from].push_back(id);
    in_[edge.to].push_back(id);
    if (edge.carries_gradient()) ++gradients[edge.from];
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[static_cast<ItemIndex>(i)];
    missing_forward_[i] = item.range.size() * static_cast<int64_t>(in_[item.stage].size());
    missing_backward_[i] = item.range.size() * gradients[item.stage];
  }
}

bool DataFlow::is_ready(ItemIndex item, ActionOp op) const {
  const size_t index = static_cast<size_t>(item);
  if (op == ActionOp::kForward) return missing_forward_[index] == 0;
  if (ir::makes_input_gradient(op)) return missing_backward_[index] == 0;
  return true;
}

void DataFlow::collect(ItemIndex item, ir::EdgeId edge, bool backward) {
  const StageId other = backward ? graph_.edges[edge].from : graph_.edges[edge].to;
  const SampleRange range = items_[item].range;
  for (int replica = 0; replica < items_.replica_count(other); ++replica) {
    const auto [first, last] = items_.of(other, replica);
    // The first item that ends after the range begins; items of a replica do not overlap, so ends ascend too.
    ItemIndex low = first, high = last;
    while (low < high) {
      const ItemIndex middle = low + (high - low) / 2;
      if (items_[middle].range.last > range.first) high = middle;
      else low = middle + 1;
    }
    for (; low < last && items_[low].range.first < range.last; ++low) {
      const SampleRange shared = wire::intersect(range, items_[low].range);
      if (!shared.empty()) messages_.push_back({edge, backward, item, low, shared});
    }
  }
}

std::span<const Message> DataFlow::finish(ItemIndex item, ActionOp op) {
  messages_.clear();
  const StageId stage = items_[item].stage;
  if (op == ActionOp::kForward)
    for (const ir::EdgeId edge : out_[stage]) collect(item, edge, false);
  if (ir::makes_input_gradient(op))
    for (const ir::EdgeId edge : in_[stage])
      if (graph_.edges[edge].carries_gradient()) collect(item, edge, true);
  for (const Message& message : messages_) {
    auto& missing = message.backward ? missing_backward_ : missing_forward_;
    missing[static_cast<size_t>(message.to)] -= message.range.size();
  }
  return messages_;
}

}  // namespace graphpipe::scheduler
