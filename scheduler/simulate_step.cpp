// The end of a step: reductions, the norm, optimizer steps.

#include <algorithm>

#include "scheduler/insert_transfers.h"
#include "scheduler/simulator.h"

namespace graphpipe::scheduler {

void Simulator::prepare_collectives() {
  group_of_ = reduction_groups(graph_);
  collectives_.resize(graph_.stages.size() + 1);
  IdMap<StageId, bool> priced(graph_.stages.size(), false);
  std::vector<std::vector<ir::DeviceId>> devices(collectives_.size());
  const auto add = [&](Collective& collective, const std::vector<ir::DeviceId>& members, Bytes bytes) {
    collective.length += to_ticks(all_reduce_time(cluster_, members, bytes), options_.ticks_per_second);
  };
  for (RowIndex row = 0; row < static_cast<RowIndex>(resolved_.rows.size()); ++row) {
    const Action& action = action_of(row);
    const StageId stage(static_cast<size_t>(action.stage));
    if (action.op == ActionOp::kNorm) {
      ++collectives_.back().members;
      devices.back().push_back(schedule_.programs[program_of(row)].device);
    }
    if (action.op != ActionOp::kReduceGradient || group_of_[stage] < 0) continue;
    Collective& collective = collectives_[static_cast<size_t>(group_of_[stage])];
    ++collective.members;
    if (!priced[stage])
      add(collective, graph_.stages[stage].choice.devices, graph_.stages[stage].trainable_weight_bytes);
    priced[stage] = true;
  }
  for (const ir::SharedWeights& shared : graph_.shared) {
    std::vector<ir::DeviceId> members;
    for (const StageId stage : shared.stages) members.push_back(graph_.stages[stage].choice.devices.front());
    if (const int group = group_of_[shared.stages.front()]; group >= 0)
      add(collectives_[static_cast<size_t>(group)], members, shared.gradient_bytes);
  }
  add(collectives_.back(), devices.back(), Bytes(8));
}

bool Simulator::ends_too_early(RowIndex row, const Action& action) {
  const StageId stage(static_cast<size_t>(action.stage));
  if (!options_.synchronous || compute_left_[stage][static_cast<size_t>(action.replica)] == 0) return false;
  if (action.op != ActionOp::kReduceGradient && action.op != ActionOp::kStep) return false;
  fail(row, "comes before compute actions of its stage");
  return true;
}

/// A norm adds up what the reductions of its device have given.
Simulator::Outcome Simulator::run_norm(size_t program, RowIndex row) {
  ProgramRun& run = programs_[program];
  for (const size_t group : run.reduced) {
    if (collectives_[group].result == kUnknown) {
      run.waits_collective = true;
      return Outcome::kWait;
    }
    run.now = std::max(run.now, collectives_[group].result);
  }
  return contribute(program, row, collectives_.back());
}

/// Contributes and goes on; the result is known when the last member has contributed.
Simulator::Outcome Simulator::contribute(size_t program, RowIndex row, Collective& collective) {
  const ProgramRun& run = programs_[program];
  collective.rows.push_back(row);
  span(row).start = run.now;
  if (run.now >= collective.latest) {
    collective.latest = run.now;
    collective.cause = run.last_compute;
  }
  if (++collective.arrived < collective.members) return Outcome::kNext;
  collective.result = collective.latest + collective.length;
  for (const RowIndex member : collective.rows) {
    span(member).end = collective.result;
    causes_[static_cast<size_t>(member)] = collective.cause;
    // Programs that stand at a step look again; the others find the result when they get there.
    const size_t other = program_of(member);
    if (!programs_[other].waits_collective) continue;
    programs_[other].waits_collective = false;
    queue_.push({run.now, other});
  }
  return Outcome::kNext;
}

Simulator::Outcome Simulator::run_step(size_t program, RowIndex row, const Action& action) {
  const int group = group_of_[StageId(static_cast<size_t>(action.stage))];
  ProgramRun& run = programs_[program];
  Ticks start = run.now;
  RowIndex cause = run.last_compute;
  const Collective* const norm = collectives_.back().members > 0 ? &collectives_.back() : nullptr;
  const Collective* const reduction = group >= 0 ? &collectives_[static_cast<size_t>(group)] : nullptr;
  for (const Collective* collective : {reduction, norm}) {
    if (collective == nullptr) continue;
    if (collective->result == kUnknown) {
      run.waits_collective = true;
      return Outcome::kWait;
    }
    if (collective->result >= start) {
      start = collective->result;
      cause = collective->rows.back();
    }
  }
  const ir::Device& device = cluster_.devices[schedule_.programs[program].device];
  const double bytes =
      static_cast<double>(graph_.stages[StageId(static_cast<size_t>(action.stage))].trainable_weight_bytes.count);
  const double seconds = options_.step_traffic * bytes / device.memory_bandwidth.count;
  span(row) = {start, start + to_ticks(Seconds(seconds), options_.ticks_per_second)};
  causes_[static_cast<size_t>(row)] = cause;
  run.last_compute = row;
  queue_.push({span(row).end, program});
  return Outcome::kLater;
}

}  // namespace graphpipe::scheduler
