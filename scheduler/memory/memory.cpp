#include "scheduler/memory/memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "cost/memory.h"
#include "scheduler/memory/program_items.h"

namespace graphpipe::scheduler {
namespace {

class Walker {
 public:
  /// `boundaries` are those of the graph, and outlive this.
  Walker(const StageGraph& graph, const MemoryOptions& options, const IdMap<StageId, cost::StageBoundary>& boundaries,
         const IdSet<StageId>& joined, const ir::Program& program)
      : graph_(graph), options_(options), boundaries_(boundaries), items_(options.item, joined), gradients_(program) {}

  Bytes fixed(StageId id) const {
    const ir::Stage& stage = graph_.stages[id];
    const double replicas = static_cast<double>(stage.choice.devices.size());
    // The gradient, and the optimizer's state, which may be divided over the replicas.
    const double state = (options_.item ? 0 : 1) +
                         options_.optimizer_state_per_weight_byte / (stage.choice.shard_optimizer_state ? replicas : 1);
    const Bytes trained = stage.has_backward ? stage.trainable_weight_bytes : Bytes(0);
    return stage.weight_bytes + Bytes(std::llround(state * static_cast<double>(trained.count)));
  }

  /// A step that works on a copy makes one more version, a release drops one.
  MemoryChange change_of_versions(const Action& action, bool copies) {
    const Bytes weights = graph_.stages[StageId(static_cast<size_t>(action.stage))].trainable_weight_bytes;
    if (action.op == ActionOp::kFreeVersion) return {Bytes(0), Bytes(0) - weights};
    MemoryChange change{.before = complete_gradients(action)};
    if (int& open = open_reductions_[replica_key(action)]; open > 0 && --open == 0)
      change.before -= reduction_bytes(action);
    if (copies) change.before += weights;
    const Bytes scratch = graph_.stages[StageId(static_cast<size_t>(action.stage))].update_scratch;
    change.before += scratch;
    change.after -= scratch;
    if (options_.item) change.after -= Bytes(static_cast<int64_t>(gradients_.drop_before(action)) * weights.count);
    return change;
  }

  /// The change by an action of an item. `last`: the item ends with this action, and with it all that its slot holds.
  MemoryChange change(const Action& action, bool last) {
    Bytes& held = held_[slot_key(action)];
    MemoryChange change = options_.item ? counted_change(action) : change_within_item(action);
    if (action.op == ActionOp::kOffload) change.after = Bytes(0) - (away_[slot_key(action)] = held);
    if (action.op == ActionOp::kReload) change.before = std::exchange(away_[slot_key(action)], Bytes(0));
    held += change.before + change.after;
    if (last) change.after -= std::exchange(held, Bytes(0));
    if (options_.item && gradients_.note(action)) {
      change.after += items_.of(action).weight_gradients;
      other_rows_[replica_key(action)] += items_.of(action).other_rows;
    } else if (ir::makes_weight_gradients(action.op)) {
      // Each later item adds the rows that it looks up. How many is not known, so all of the table is counted.
      change.after += complete_gradients(action);
    }
    return change;
  }

  /// Chunks and copies on their way lie beside the gradients until the step has waited for them. A replica's updates
  /// reduce one after the other.
  MemoryChange change_of_reduction(const Action& action) {
    MemoryChange change{.before = complete_gradients(action)};
    if (options_.item && gradients_.note_others(action))
      change.before += graph_.stages[StageId(static_cast<size_t>(action.stage))].trainable_weight_bytes;
    if (open_reductions_[replica_key(action)]++ == 0) change.before += reduction_bytes(action);
    return change;
  }

 private:
  /// The bytes that complete the gradients of tables: with a second item, the reduction or the update they count as
  /// whole.
  Bytes complete_gradients(const Action& action) { return std::exchange(other_rows_[replica_key(action)], Bytes(0)); }

  Bytes reduction_bytes(const Action& action) const {
    return cost::reduction_bytes(graph_, StageId(static_cast<size_t>(action.stage)));
  }

  Bytes received(const Action& action) const {
    const ir::StageEdge& edge = graph_.edges[ir::EdgeId(static_cast<size_t>(action.edge))];
    return cost::bytes_at(ir::is_backward_message(action.op) ? edge.gradient_bytes : edge.bytes,
                          Samples(action.range.size()));
  }

  /// The change by an action of an item, counted over the code of its stage, without the weight gradients that it
  /// makes.
  MemoryChange counted_change(const Action& action) {
    if (ir::is_receive(action.op)) return {received(action), Bytes(0)};
    if (!ir::is_compute(action.op)) return {};
    const ir::FunctionMemory& function = function_of(items_.of(action), action.op, gradients_.are_new(action));
    return {function.peak, function.left - function.peak};
  }

  MemoryChange change_within_item(const Action& action) const {
    if (!ir::is_compute(action.op) && !ir::is_receive(action.op)) return {};
    const Samples samples(action.range.size());
    if (ir::is_receive(action.op)) return {received(action), Bytes(0)};
    const StageId id(static_cast<size_t>(action.stage));
    const ir::Stage& stage = graph_.stages[id];
    const cost::ItemBytes item = cost::item_bytes(graph_, boundaries_[id], id, samples);
    const Bytes space = item.workspace;
    switch (action.op) {
      case ActionOp::kForward: {
        const bool keeps = stage.has_backward && !stage.choice.recompute;
        return {item.stash + item.outputs + space, Bytes(0) - space - (keeps ? Bytes(0) : item.stash)};
      }
      case ActionOp::kRecompute:
        return {item.stash + space, Bytes(0) - space};
      case ActionOp::kBackward:
        return {item.gradients_of_inputs + space + item.kept_gradients,
                Bytes(0) - space - item.kept_gradients - item.stash};
      case ActionOp::kInputGradient:
        return {item.gradients_of_inputs + space + item.kept_gradients,
                item.kept - space - item.kept_gradients - item.stash};
      default:
        return {space, Bytes(0) - space - item.kept};
    }
  }

  const StageGraph& graph_;
  const MemoryOptions& options_;
  const IdMap<StageId, cost::StageBoundary>& boundaries_;
  std::map<SlotKey, Bytes> held_;
  /// Reductions whose step is still to come.
  std::map<ReplicaKey, int> open_reductions_;
  ItemMemories items_;
  GradientSets gradients_;
  std::map<ReplicaKey, Bytes> other_rows_;
  /// What an offload has taken.
  std::map<SlotKey, Bytes> away_;
};

std::map<ir::DeviceId, Bytes> fixed_bytes(const StageGraph& graph, const Walker& walker) {
  std::map<ir::DeviceId, Bytes> totals;
  for (const StageId stage : graph.stage_ids())
    for (const ir::DeviceId device : graph.stages[stage].choice.devices) totals[device] += walker.fixed(stage);
  return totals;
}

}  // namespace

std::vector<DeviceMemory> memory_of(const StageGraph& graph, const Schedule& schedule, const MemoryOptions& options) {
  std::vector<DeviceMemory> devices;
  const IdMap<StageId, cost::StageBoundary> boundaries = cost::boundaries(graph);
  const IdSet<StageId> joined = ir::undivided_backwards(schedule, graph.stages.size());
  const std::map<ir::DeviceId, Bytes> fixed = fixed_bytes(graph, Walker(graph, options, boundaries, joined, {}));
  for (const ir::Program& program : schedule.programs) {
    Walker walker(graph, options, boundaries, joined, program);
    DeviceMemory& memory = devices.emplace_back();
    if (const auto found = fixed.find(program.device); found != fixed.end()) memory.fixed = found->second;
    memory.peak = memory.fixed;
    Bytes held = memory.fixed;
    const std::vector<bool> ends = item_ends(program.actions), copies = ir::copying_steps(program);
    for (size_t i = 0; i < program.actions.size(); ++i) {
      const Action& action = program.actions[i];
      const bool updates = action.op == ActionOp::kStep || action.op == ActionOp::kFreeVersion;
      const MemoryChange change = updates ? walker.change_of_versions(action, copies[i])
                                  : action.op == ActionOp::kReduceGradient ? walker.change_of_reduction(action)
                                  : ir::is_of_item(action.op)              ? walker.change(action, ends[i])
                                                                           : MemoryChange();
      memory.changes.push_back(change);
      held += change.before;
      if (held > memory.peak) {
        memory.peak = held;
        memory.peak_position = i;
      }
      held += change.after;
    }
  }
  return devices;
}

std::vector<MemoryPoint> memory_over_time(const DeviceMemory& memory, const ir::Program& program,
                                          const std::vector<Span>& spans) {
  GP_CHECK(memory.changes.size() == spans.size() && program.actions.size() == spans.size());
  std::vector<MemoryPoint> points = {{Ticks(0), memory.fixed}};
  const auto change = [&](Ticks time, Bytes bytes) {
    if (time > points.back().time) points.push_back({time, points.back().bytes});
    points.back().bytes += bytes;
  };
  Ticks now(0);
  for (size_t i = 0; i < spans.size(); ++i) {
    const bool computes = program.actions[i].stream == wire::Stream::kCompute;
    if (computes) now = std::max(now, spans[i].start);
    change(now, memory.changes[i].before);
    if (computes) now = std::max(now, spans[i].end);
    change(now, memory.changes[i].after);
  }
  return points;
}

}  // namespace graphpipe::scheduler
