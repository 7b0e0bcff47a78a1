#include "scheduler/policies/compute_order.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include "scheduler/lowering/items.h"
#include "scheduler/simulate/durations.h"
#include "support/sort_unique.h"

namespace graphpipe::scheduler {
namespace {

struct List {
  StageId stage;
  int replica = 0;
  const std::vector<Action>* actions = nullptr;
  std::vector<ItemIndex> items;  // of its actions
  size_t next = 0;
  bool at_end() const { return next == actions->size(); }
  const Action& head() const { return (*actions)[next]; }
  ItemIndex head_item() const { return items[next]; }
};

struct DeviceState {
  ir::DeviceId device;
  std::vector<size_t> lists;
  bool busy = false;
};

/// Runs the lists on their devices without transfer times; the order in which a device starts actions is its program.
class Merger {
 public:
  Merger(const StageGraph& graph, const StageOrders& orders)
      : graph_(graph), items_(graph, orders), flow_(graph, items_), durations_(graph, kTicksPerSecond) {
    std::map<ir::DeviceId, size_t> device_of;
    for (const StageId stage : graph.stage_ids())
      for (size_t replica = 0; replica < orders[stage].size(); ++replica) {
        const ir::DeviceId device = graph.stages[stage].choice.devices[replica];
        device_of.emplace(device, 0);
        lists_.push_back({stage, static_cast<int>(replica), &orders[stage][replica], {}, 0});
        lists_.back().items.reserve(orders[stage][replica].size());
        for (const Action& action : orders[stage][replica]) lists_.back().items.push_back(items_.item_of(action));
      }
    for (auto& [device, index] : device_of) {
      index = devices_.size();
      devices_.push_back({device, {}, false});
    }
    for (size_t i = 0; i < lists_.size(); ++i)
      devices_[device_of[graph.stages[lists_[i].stage].choice.devices[static_cast<size_t>(lists_[i].replica)]]]
          .lists.push_back(i);
    for (const DeviceState& state : devices_) {
      size_t actions = 0;
      for (const size_t list : state.lists) actions += lists_[list].actions->size();
      result_.schedule.programs.push_back({state.device, {}});
      result_.schedule.programs.back().actions.reserve(actions);
    }
    find_neighbours(device_of);
  }

  MergedOrders run() {
    for (size_t device = 0; device < devices_.size(); ++device) start_next(device);
    while (!running_.empty()) {
      const Ticks now = running_.top().end;
      now_ = now;
      // All actions that end at one instant end together, so that equal times do not depend on the order of devices.
      while (!running_.empty() && running_.top().end == now) {
        const Running done = running_.top();
        running_.pop();
        flow_.finish(done.item, done.op);
        devices_[done.device].busy = false;
        waking_.push_back(done.device);
        for (const StageId stage : neighbours_[done.stage]) wake(stage);
      }
      for (const StageId stage : std::exchange(woken_, {})) {
        is_woken_[stage] = false;
        waking_.insert(waking_.end(), holders_[stage].begin(), holders_[stage].end());
      }
      // In the order of devices, as if all of them were asked.
      sort_unique(waking_);
      for (const size_t device : waking_)
        if (!devices_[device].busy) start_next(device);
      waking_.clear();
    }
    find_starved();
    return std::move(result_);
  }

 private:
  struct Running {
    Ticks end;
    size_t device = 0;
    StageId stage;
    ItemIndex item = -1;
    ActionOp op = ActionOp::kForward;
    bool operator>(const Running& other) const { return std::tie(end, device) > std::tie(other.end, other.device); }
  };

  // What a device finishes of a stage concerns itself, and the devices of the stages that are connected to this one.
  void find_neighbours(const std::map<ir::DeviceId, size_t>& device_of) {
    neighbours_.resize(graph_.stages.size());
    holders_.resize(graph_.stages.size());
    is_woken_.resize(graph_.stages.size(), false);
    for (const ir::StageEdge& edge : graph_.edges) {
      neighbours_[edge.from].push_back(edge.to);
      neighbours_[edge.to].push_back(edge.from);
    }
    for (const StageId stage : graph_.stage_ids())
      for (const ir::DeviceId device : graph_.stages[stage].choice.devices)
        if (const auto held = device_of.find(device); held != device_of.end()) holders_[stage].push_back(held->second);
  }
  void wake(StageId stage) {
    if (is_woken_[stage]) return;
    is_woken_[stage] = true;
    woken_.push_back(stage);
  }

  bool is_ready(const List& list) const { return !list.at_end() && flow_.is_ready(list.head_item(), list.head().op); }

  void start_next(size_t device) {
    List* best = nullptr;
    for (const size_t index : devices_[device].lists) {
      List& list = lists_[index];
      if (!is_ready(list)) continue;
      const bool forward = list.head().op == ActionOp::kForward;
      if (best == nullptr || (!forward && best->head().op == ActionOp::kForward)) best = &list;
    }
    if (best == nullptr) return;
    const Action& action = best->head();
    result_.schedule.programs[device].actions.push_back(action);
    running_.push({now_ + durations_.of(action), device, best->stage, best->head_item(), action.op});
    devices_[device].busy = true;
    ++best->next;
  }

  void find_starved() {
    for (const List& list : lists_) {
      if (list.at_end() || list.head().op == ActionOp::kForward) continue;
      int64_t missing = 0;
      for (const List& below : lists_) {
        if (below.at_end() || below.head().op != ActionOp::kForward) continue;
        const int64_t wanted = forwards_wanted(below, list);
        if (wanted > 0 && (missing == 0 || wanted < missing)) missing = wanted;
      }
      if (missing > 0) result_.starved.push_back({list.stage, list.replica, missing});
    }
  }

  /// How many forwards `list` still has to run until the forward at the head of `below` has all of its samples; 0 where
  /// it waits for none.
  int64_t forwards_wanted(const List& below, const List& list) const {
    const bool connected = std::any_of(graph_.edges.begin(), graph_.edges.end(), [&](const ir::StageEdge& edge) {
      return edge.from == list.stage && edge.to == below.stage;
    });
    if (!connected) return 0;
    int64_t forwards = 0, wanted = 0;
    for (size_t next = list.next; next < list.actions->size(); ++next) {
      const Action& action = (*list.actions)[next];
      if (action.op != ActionOp::kForward) continue;
      ++forwards;
      if (!wire::intersect(action.range, below.head().range).empty()) wanted = forwards;
    }
    return wanted;
  }

  const StageGraph& graph_;
  ItemTable items_;
  DataFlow flow_;
  Durations durations_;
  std::vector<List> lists_;
  std::vector<DeviceState> devices_;
  IdMap<StageId, std::vector<StageId>> neighbours_;
  IdMap<StageId, std::vector<size_t>> holders_;  // devices
  IdMap<StageId, uint8_t> is_woken_;
  std::vector<StageId> woken_;  // by what ended last
  std::vector<size_t> waking_;
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  Ticks now_;
  MergedOrders result_;
};

}  // namespace

std::vector<SampleRange> item_ranges(const StageGraph& graph, StageId stage, int replica) {
  std::vector<SampleRange> ranges;
  const int64_t count = micro_batch_count(graph, stage);
  ranges.reserve(static_cast<size_t>(count));
  for (int64_t index = 0; index < count; ++index) {
    const SampleRange range = ir::item_range(graph, stage, index, replica);
    if (!range.empty()) ranges.push_back(range);
  }
  return ranges;
}

SampleRange micro_batch_range(const StageGraph& graph, StageId stage, int64_t index) {
  const int64_t b = graph.stages[stage].choice.micro_batch.count;
  return {index * b, std::min((index + 1) * b, graph.batch.count)};
}

Action compute_action(ActionOp op, StageId stage, int replica, SampleRange range) {
  Action action;
  action.op = op;
  action.stream = ir::stream_of(op);
  action.stage = static_cast<int32_t>(stage.index());
  action.replica = replica;
  action.range = range;
  return action;
}

MergedOrders merge_orders(const StageGraph& graph, const StageOrders& orders) { return Merger(graph, orders).run(); }

}  // namespace graphpipe::scheduler
