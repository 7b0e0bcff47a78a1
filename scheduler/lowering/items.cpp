#include "scheduler/lowering/items.h"

#include <algorithm>

namespace graphpipe::scheduler {
ItemTable::ItemTable(const StageGraph& graph, const Schedule& schedule) : ItemTable(graph) {
  for (const ir::Program& program : schedule.programs) add_forwards(program.actions);
  find_rows();
}

ItemTable::ItemTable(const StageGraph& graph, const StageOrders& orders) : ItemTable(graph) {
  for (const auto& replicas : orders)
    for (const std::vector<Action>& actions : replicas) add_forwards(actions);
  find_rows();
}

ItemTable::ItemTable(const StageGraph& graph) : replicas_(graph.stages.size()), offset_(graph.stages.size()) {
  int total = 0;
  for (const StageId stage : graph.stage_ids()) {
    replicas_[stage] = static_cast<int>(graph.stages[stage].choice.devices.size());
    offset_[stage] = total;
    total += replicas_[stage];
  }
  starts_.assign(static_cast<size_t>(total) + 1, 0);
}

void ItemTable::add_forwards(const std::vector<Action>& actions) {
  for (const Action& action : actions)
    if (action.op == ActionOp::kForward)
      items_.push_back({StageId(static_cast<size_t>(action.stage)), action.replica, action.range});
}

void ItemTable::find_rows() {
  const auto is_before = [](const Item& a, const Item& b) {
    return std::tuple(a.stage, a.replica, a.range.first, a.range.last) <
           std::tuple(b.stage, b.replica, b.range.first, b.range.last);
  };
  // They are where every replica has a list of its own.
  if (!std::ranges::is_sorted(items_, is_before)) std::ranges::sort(items_, is_before);
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

ItemIndex ItemTable::guess(ItemIndex first, ItemIndex last, int64_t sample) const {
  if (last - first < 2) return first;
  const int64_t begin = (*this)[first].range.first, stride = (*this)[first + 1].range.first - begin;
  if (stride <= 0 || sample < begin) return first;
  return static_cast<ItemIndex>(std::min<int64_t>(first + (sample - begin) / stride, last - 1));
}

ItemIndex ItemTable::first_after(StageId stage, int replica, int64_t sample, ItemIndex number) const {
  auto [first, last] = of(stage, replica);
  const auto ends_after = [&](ItemIndex item) { return (*this)[item].range.last > sample; };
  const auto is_found = [&](ItemIndex item) { return ends_after(item) && (item == first || !ends_after(item - 1)); };
  if (number < last - first && is_found(first + number)) return first + number;
  if (first < last) {
    const ItemIndex at = guess(first, last, sample);
    if (is_found(at)) return at;
    // Or the sample belongs to another replica, and the guess ends before it.
    if (!ends_after(at) && (at + 1 == last || ends_after(at + 1))) return at + 1;
  }
  while (first < last) {
    const ItemIndex middle = first + (last - first) / 2;
    if (ends_after(middle)) last = middle;
    else first = middle + 1;
  }
  return first;
}

ItemIndex ItemTable::containing(StageId stage, int replica, SampleRange range) const {
  const auto [first, last] = of(stage, replica);
  if (first == last) return -1;
  const auto begins_behind = [&](ItemIndex item) { return (*this)[item].range.first > range.first; };
  ItemIndex at = guess(first, last, range.first);
  if (begins_behind(at) || (at + 1 < last && !begins_behind(at + 1))) {
    const auto after = std::upper_bound(items_.begin() + first, items_.begin() + last, range.first,
                                        [](int64_t sample, const Item& i) { return sample < i.range.first; });
    at = static_cast<ItemIndex>(after - items_.begin()) - 1;
  }
  return at >= first && (*this)[at].range.last >= range.last ? at : -1;
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
  const auto& [stage, own_replica, range] = items_[item];
  const ItemIndex number = item - items_.of(stage, own_replica).first;
  for (int replica = 0; replica < items_.replica_count(other); ++replica) {
    const ItemIndex last = items_.of(other, replica).second;
    ItemIndex low = items_.first_after(other, replica, range.first, number);
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
