// The end of a step: reductions, the norm, optimizer steps.

#include <algorithm>
#include <map>
#include <set>

#include "cost/update_time.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/simulate/links.h"
#include "scheduler/simulate/simulator.h"

namespace graphpipe::scheduler {

void Simulator::prepare_collectives() {
  group_of_ = reduction_groups(graph_);
  const std::vector<Ticks> lengths = reduction_lengths(graph_, cluster_, group_of_, options_.ticks_per_second);
  collective_of_action_.assign(resolved_.actions.size(), -1);
  std::map<std::pair<int, int64_t>, int32_t> numbers;
  std::vector<ir::DeviceId> norm_devices;
  // The norm comes first, then the reductions of each group, update by update.
  collectives_.resize(1);
  for (size_t p = 0; p < programs_.size(); ++p) {
    ActionIndex at = resolved_.first_action[p];
    for (const Action& action : schedule_.programs[p].actions) {
      const ActionIndex own = at++;
      const bool reduces = action.op == ActionOp::kReduceGradient;
      if (action.op == ActionOp::kNorm) {
        ++collectives_.front().members;
        norm_devices.push_back(schedule_.programs[p].device);
      }
      if (!reduces && action.op != ActionOp::kStep) continue;
      const int group = group_of_[StageId(static_cast<size_t>(action.stage))];
      if (group < 0) continue;
      const auto [found, added] =
          numbers.emplace(std::pair(group, action.range.first), static_cast<int32_t>(collectives_.size()));
      if (added) {
        Collective& collective = collectives_.emplace_back();
        collective.length = lengths[static_cast<size_t>(group)];
        collective.group = group;
      }
      collective_of_action_[static_cast<size_t>(own)] = found->second;
      if (reduces) ++collectives_[static_cast<size_t>(found->second)].members;
    }
  }
  collectives_.front().length = to_ticks(total_time(cluster_, norm_devices), options_.ticks_per_second);
  find_reduction_links();
  find_early_ends();
}

/// Rings go from each device to the next one; copies from each device of a stage to those of the others.
void Simulator::find_reduction_links() {
  Links links(cluster_);
  std::vector<std::set<int32_t>> of_group(graph_.stages.size());
  const auto add = [&](int group, ir::DeviceId from, ir::DeviceId to) {
    const int32_t link = group >= 0 && from != to ? links.between(from, to) : -1;
    if (link >= 0) of_group[static_cast<size_t>(group)].insert(link);
  };
  for (const StageId stage : graph_.stage_ids()) {
    std::vector<ir::DeviceId> ring = graph_.stages[stage].choice.devices;
    std::ranges::sort(ring);
    for (size_t i = 0; i < ring.size(); ++i) add(group_of_[stage], ring[i], ring[(i + 1) % ring.size()]);
  }
  for (const ir::SharedWeights& shared : graph_.shared)
    for (const StageId from : shared.stages)
      for (const StageId to : shared.stages) {
        const auto& senders = graph_.stages[from].choice.devices;
        const auto& receivers = graph_.stages[to].choice.devices;
        for (size_t r = 0; from != to && r < receivers.size(); ++r)
          add(group_of_[from], senders[r % senders.size()], receivers[r]);
      }
  for (const std::set<int32_t>& own : of_group) reduction_links_.emplace_back(own.begin(), own.end());
  reduction_link_free_.assign(static_cast<size_t>(links.count()), Ticks(0));
}

/// Reductions over the same link take turns, in the order in which all their members have contributed. Returns the end.
Ticks Simulator::occupy_links(const Collective& collective) {
  Ticks start = collective.latest;
  if (collective.group < 0) return start + collective.length;
  const std::vector<int32_t>& links = reduction_links_[static_cast<size_t>(collective.group)];
  for (const int32_t link : links) start = std::max(start, reduction_link_free_[static_cast<size_t>(link)]);
  const Ticks end = start + collective.length;
  for (const int32_t link : links) reduction_link_free_[static_cast<size_t>(link)] = end;
  return end;
}

/// Marks the reductions and steps that stand before compute actions of their update.
void Simulator::find_early_ends() {
  ends_early_.assign(resolved_.actions.size(), 0);
  const auto ends_update = [](const Action& action) {
    return action.op == ActionOp::kReduceGradient || action.op == ActionOp::kStep;
  };
  for (size_t p = 0; p < programs_.size(); ++p) {
    if (std::ranges::none_of(schedule_.programs[p].actions, ends_update)) continue;
    // Per stage and replica: the first sample that a later compute action works on.
    std::map<std::pair<int32_t, int32_t>, int64_t> later;
    for (ActionIndex at = resolved_.first_action[p + 1]; at-- > resolved_.first_action[p];) {
      const Action& action = action_of(at);
      const auto [first, added] = later.emplace(std::pair(action.stage, action.replica), graph_.batch.count);
      if (ir::is_compute(action.op)) first->second = std::min(first->second, action.range.first);
      if (ends_update(action)) ends_early_[static_cast<size_t>(at)] = first->second < action.range.last;
    }
  }
}

bool Simulator::ends_too_early(ActionIndex at) {
  if (!options_.synchronous || !ends_early_[static_cast<size_t>(at)]) return false;
  fail(at, "comes before compute actions of its stage");
  return true;
}

/// A norm adds up what the reductions of its device have given.
Simulator::Outcome Simulator::run_norm(size_t program, ActionIndex at) {
  ProgramRun& run = programs_[program];
  for (const size_t group : run.reduced) {
    if (collectives_[group].result == kUnknown) {
      run.waits_collective = true;
      return Outcome::kWait;
    }
    run.now = std::max(run.now, collectives_[group].result);
  }
  return contribute(program, at, collectives_.front());
}

/// Contributes and goes on; the result is known when the last member has contributed.
Simulator::Outcome Simulator::contribute(size_t program, ActionIndex at, Collective& collective) {
  const ProgramRun& run = programs_[program];
  collective.contributions.push_back(at);
  span(at).start = run.now;
  if (run.now >= collective.latest) {
    collective.latest = run.now;
    collective.cause = run.last_compute;
  }
  if (++collective.arrived < collective.members) return Outcome::kNext;
  collective.result = occupy_links(collective);
  for (const ActionIndex member : collective.contributions) {
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

Simulator::Outcome Simulator::run_step(size_t program, ActionIndex at, const Action& action) {
  const int32_t number = collective_of_action_[static_cast<size_t>(at)];
  ProgramRun& run = programs_[program];
  Ticks start = run.now;
  ActionIndex cause = run.last_compute;
  const Collective* const norm = collectives_.front().members > 0 ? &collectives_.front() : nullptr;
  const Collective* const reduction = number >= 0 ? &collectives_[static_cast<size_t>(number)] : nullptr;
  for (const Collective* collective : {reduction, norm}) {
    if (collective == nullptr) continue;
    if (collective->result == kUnknown) {
      run.waits_collective = true;
      return Outcome::kWait;
    }
    if (collective->result >= start) {
      start = collective->result;
      cause = collective->contributions.back();
    }
  }
  const cost::UpdateWork work = cost::update_work(graph_.stages[StageId(static_cast<size_t>(action.stage))]);
  const Seconds seconds = cost::update_time(work, cluster_, schedule_.programs[program].device);
  span(at) = {start, start + to_ticks(seconds, options_.ticks_per_second)};
  causes_[static_cast<size_t>(at)] = cause;
  run.last_compute = at;
  queue_.push({span(at).end, program});
  return Outcome::kLater;
}

}  // namespace graphpipe::scheduler
