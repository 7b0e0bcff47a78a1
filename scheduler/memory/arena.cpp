#include "scheduler/memory/arena.h"

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cost/memory.h"
#include "scheduler/memory/program_items.h"
#include "support/integer_math.h"
#include "support/offsets.h"

namespace graphpipe::scheduler {
namespace {

/// The tensors of a step of one device. Time is the number of tensors that were made before, as in the program
/// (runtime/executor/step_arena.h).
class StepTensors {
 public:
  StepTensors(const StageGraph& graph, const CountedItems& item, const IdSet<StageId>& joined,
              const ir::Program& program)
      : graph_(graph),
        items_(item, joined),
        gradients_(program),
        actions_(program.actions),
        copies_(ir::copying_steps(program)) {}

  std::vector<TimedBuffer> run() {
    const std::vector<bool> ends = item_ends(actions_);
    for (size_t i = 0; i < actions_.size() && buffers_.size() <= kMaxPlacedTensors; ++i) {
      add(actions_[i], copies_[i]);
      if (ends[i]) end_item(slot_key(actions_[i]));
    }
    for (TimedBuffer& buffer : buffers_)
      if (buffer.end == kOpen) buffer.end = now();
    for (const auto& [key, version] : versions_)
      for (const size_t buffer : version) buffers_[buffer].end = kOutlives;
    std::erase_if(buffers_, [](const TimedBuffer& buffer) { return buffer.end == kOutlives; });
    return std::move(buffers_);
  }

 private:
  static constexpr int64_t kOpen = -1, kOutlives = -2;

  int64_t now() const { return static_cast<int64_t>(buffers_.size()); }

  size_t take(Bytes bytes) {
    buffers_.push_back({now(), kOpen, bytes, Bytes(kStepAlignment)});
    return buffers_.size() - 1;
  }
  void let_go(size_t buffer) { buffers_[buffer].end = now(); }

  /// `copies`: it is a step that leaves the version before it to be read.
  void add(const Action& action, bool copies) {
    if (ir::is_receive(action.op)) return receive(action);
    if (ir::is_compute(action.op)) return compute(action);
    if (action.op == ActionOp::kReduceGradient) return reduce(action);
    if (action.op == ActionOp::kStep) step(action, copies);
    if (action.op == ActionOp::kFreeVersion) free_version(action);
  }

  /// All that an item receives of a kind is there from the first of its receives on.
  void receive(const Action& action) {
    const bool is_gradient = ir::is_backward_message(action.op);
    if (!received_.insert({slot_key(action), is_gradient}).second) return;
    const ir::ItemMemory& item = items_.of(action);
    follow(slot_key(action), is_gradient ? item.gradients : item.values);
  }

  void compute(const Action& action) {
    const bool is_first = gradients_.note(action);
    const ir::FunctionMemory& function = function_of(items_.of(action), action.op, is_first);
    follow(slot_key(action), function.events);
    if (!is_first) return;
    std::vector<Sum>& sums = sums_[{replica_key(action), gradients_.update_of(action)}];
    for (const size_t storage : function.sums) {
      const auto held = held_.find({slot_key(action), storage});
      if (held == held_.end()) continue;
      const auto table = function.tables.find(storage);
      sums.push_back({held->second, table == function.tables.end() ? Bytes(0) : table->second});
      held_.erase(held);
    }
  }

  void follow(const SlotKey& slot, const std::vector<ir::MemoryEvent>& events) {
    for (const ir::MemoryEvent& event : events) {
      if (event.storage == ir::MemoryEvent::kScratch) {
        let_go(take(event.bytes));
      } else if (event.taken) {
        held_[{slot, event.storage}] = take(event.bytes);
      } else if (const auto held = held_.find({slot, event.storage}); held != held_.end()) {
        let_go(held->second);
        held_.erase(held);
      }
    }
  }

  void end_item(const SlotKey& slot) {
    const auto first = held_.lower_bound({slot, 0});
    auto last = first;
    for (; last != held_.end() && last->first.first == slot; ++last) let_go(last->second);
    held_.erase(first, last);
    received_.erase({slot, false});
    received_.erase({slot, true});
  }

  /// The buffers of a reduction lie beside the gradients until the step has waited for it.
  void reduce(const Action& action) {
    complete_gradients(action);
    const StageId stage(static_cast<size_t>(action.stage));
    if (gradients_.note_others(action))
      sums_[{replica_key(action), gradients_.update_of(action)}].push_back(
          {take(graph_.stages[stage].trainable_weight_bytes), Bytes(0)});
    const Bytes bytes = cost::reduction_bytes(graph_, stage);
    Reductions& open = reductions_[replica_key(action)];
    if (open.count++ == 0 && bytes > Bytes(0)) open.buffer = take(bytes);
  }

  void step(const Action& action, bool copies) {
    complete_gradients(action);
    make_version(action, copies);
    if (const auto open = reductions_.find(replica_key(action));
        open != reductions_.end() && --open->second.count == 0) {
      if (open->second.buffer) let_go(*open->second.buffer);
      reductions_.erase(open);
    }
    if (const Bytes scratch = graph_.stages[StageId(static_cast<size_t>(action.stage))].update_scratch;
        scratch > Bytes(0))
      let_go(take(scratch));
    const auto first = sums_.lower_bound({replica_key(action), std::numeric_limits<int64_t>::min()});
    const auto last = sums_.lower_bound({replica_key(action), action.range.first});
    for (auto sums = first; sums != last; ++sums)
      for (const Sum& sum : sums->second) let_go(sum.buffer);
    sums_.erase(first, last);
  }

  /// A step makes a version in new memory, or in that of the version before.
  void make_version(const Action& action, bool copies) {
    if (copies) {
      std::vector<size_t>& version = versions_[version_key(action, action.version)];
      for (const Bytes bytes : weights_of(action)) version.push_back(take(bytes));
    } else if (auto before = versions_.extract(version_key(action, action.version - 1)); !before.empty()) {
      before.key() = version_key(action, action.version);
      versions_.insert(std::move(before));
    }
  }

  /// Of each weight that trains. Their gradients have the same sizes.
  std::vector<Bytes> weights_of(const Action& action) const {
    const Bytes all = graph_.stages[StageId(static_cast<size_t>(action.stage))].trainable_weight_bytes;
    std::vector<Bytes> weights;
    Bytes sum;
    if (const auto sums = sums_.find({replica_key(action), action.range.first}); sums != sums_.end())
      for (const Sum& gradient : sums->second) {
        weights.push_back(buffers_[gradient.buffer].size);
        sum += weights.back();
      }
    return sum == all ? weights : std::vector<Bytes>{all};
  }

  void free_version(const Action& action) {
    const auto version = versions_.extract(version_key(action, action.version));
    if (version.empty()) return;
    for (const size_t buffer : version.mapped()) let_go(buffer);
  }

  using VersionKey = std::pair<ir::ReplicaKey, int32_t>;
  static VersionKey version_key(const Action& action, int32_t version) { return {replica_key(action), version}; }

  /// Gradients of tables grow from the rows that were looked up to all rows; the new buffer is taken before the old one
  /// is let go.
  void complete_gradients(const Action& action) {
    for (auto& [place, sums] : sums_) {
      if (place.first != replica_key(action) || place.second > action.range.first) continue;
      for (Sum& sum : sums) {
        if (sum.whole == Bytes(0)) continue;
        const size_t rows = std::exchange(sum.buffer, take(sum.whole));
        let_go(rows);
        sum.whole = Bytes(0);
      }
    }
  }

  struct Sum {
    size_t buffer = 0;
    /// Bytes of all rows, if it holds the looked-up rows of a table only; else 0.
    Bytes whole;
  };
  struct Reductions {
    int count = 0;
    std::optional<size_t> buffer = std::nullopt;
  };

  const StageGraph& graph_;
  ItemMemories items_;
  GradientSets gradients_;
  const std::vector<Action>& actions_;
  const std::vector<bool> copies_;
  std::vector<TimedBuffer> buffers_;
  /// Per slot and storage, the buffer that holds it.
  std::map<std::pair<SlotKey, size_t>, size_t> held_;
  /// Slots whose item has begun to receive values, or gradients.
  std::set<std::pair<SlotKey, bool>> received_;
  /// Per replica and update, the buffers of its weight gradients.
  std::map<std::pair<ir::ReplicaKey, int64_t>, std::vector<Sum>> sums_;
  std::map<ir::ReplicaKey, Reductions> reductions_;
  /// Versions of weights that steps of this program made. Those that are still there at its end outlive it.
  std::map<VersionKey, std::vector<size_t>> versions_;
};

}  // namespace

std::vector<Bytes> arenas_of(const StageGraph& graph, const Schedule& schedule, const CountedItems& item) {
  const IdSet<StageId> joined = ir::undivided_backwards(schedule, graph.stages.size());
  std::vector<std::vector<TimedBuffer>> steps;
  size_t tensors = 0;
  for (const ir::Program& program : schedule.programs) {
    steps.push_back(StepTensors(graph, item, joined, program).run());
    tensors += steps.back().size();
    if (tensors > kMaxPlacedTensors) return {};
  }
  std::vector<Bytes> arenas;
  for (const std::vector<TimedBuffer>& step : steps) {
    const int64_t height = plan_offsets(step, kStepOffsets).height.count;
    arenas.emplace_back((ceil_div(height, kPage) + 1) * kPage);
  }
  return arenas;
}

}  // namespace graphpipe::scheduler
