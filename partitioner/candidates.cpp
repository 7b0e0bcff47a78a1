#include "partitioner/candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cost/lower_bound.h"
#include "cost/memory.h"
#include "partitioner/batch_stages.h"
#include "partitioner/heterogeneous/device_order.h"
#include "partitioner/heterogeneous/group_packing.h"
#include "partitioner/min_memory.h"
#include "support/integer_math.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

using ir::StageId;

/// The items after which simulation stops sooner.
constexpr double kMaxSimulatedItems = 50'000;
constexpr double kStepRounding = 1e-9;

/// Items that the simulator moves in a step.
double items_of(const ir::PlanGraph& graph, const ir::Assignment& assignment) {
  double items = 0;
  for (const ir::StageChoice& choice : assignment.choice)
    items += std::ceil(static_cast<double>(graph.batch.count) / static_cast<double>(choice.micro_batch.count)) *
             static_cast<double>(choice.devices.size());
  return items;
}

}  // namespace

std::vector<Samples> micro_batch_sizes(const PlanRequest& request) {
  if (request.micro_batch) return {*request.micro_batch};
  std::vector<Samples> sizes;
  for (int64_t size = 1; size < request.graph->batch.count; size *= 2) sizes.push_back(Samples(size));
  sizes.push_back(request.graph->batch);
  return sizes;
}

std::vector<Samples> neighbouring_sizes(Samples batch, Samples size) {
  const int64_t count = ceil_div(batch.count, size.count);
  std::vector<Samples> sizes;
  for (int64_t other = std::max<int64_t>(1, count - 2); other <= std::min(batch.count, count + 2); ++other) {
    // Of many micro-batches several numbers have one size.
    const Samples beside(ceil_div(batch.count, other));
    if (beside != size && (sizes.empty() || sizes.back() != beside)) sizes.push_back(beside);
  }
  return sizes;
}

Result<DeviceBudget> device_budget(const PlanRequest& request) {
  DeviceBudget budget{.devices = static_cast<int>(request.cluster->devices.size())};
  budget.largest_replication = request.replication ? budget.devices : 1;
  if (request.replicas.empty()) return budget;
  budget.largest_replication = 1;
  for (const ForcedReplicas& forced : request.replicas) budget.devices -= forced.replicas - 1;
  if (budget.devices >= 1) return budget;
  return Diagnostic{
      .code = Code::kUsage,
      .message = text("the replicas asked for need more than the ", request.cluster->devices.size(), " devices"),
      .hint = "ask for fewer replicas or more devices"};
}

Status force_replicas(const PlanRequest& request, ir::Assignment& assignment) {
  const auto refused = [](std::string why) {
    return Diagnostic{.code = Code::kNoFeasiblePlan,
                      .message = std::move(why),
                      .hint = "ask for other stages, replicas or micro-batches, or for more devices"};
  };
  if (!request.replicas.empty())
    for (ir::StageChoice& choice : assignment.choice) choice.devices.resize(1);
  for (const ForcedReplicas& forced : request.replicas) {
    if (forced.stage >= static_cast<int>(assignment.choice.size()))
      return refused(
          text("there is no stage ", forced.stage, " to replicate: the plan has ", assignment.choice.size()));
    assignment.choice[StageId(static_cast<size_t>(forced.stage))].devices.resize(static_cast<size_t>(forced.replicas));
  }
  size_t devices = 0;
  for (const ir::StageChoice& choice : assignment.choice) devices += choice.devices.size();
  if (devices > request.cluster->devices.size())
    return refused(text("the stages and replicas need ", devices, " devices of ", request.cluster->devices.size()));
  place_in_order(assignment);
  return Ok{};
}

double closed_form(const PlanRequest& request, const ir::StageGraph& stages, const cost::IterationTime& step) {
  if (!request.without_flush || request.ranks_drained) return step.total();
  return cost::bottleneck_time_per_sample(stages, *request.cluster) * static_cast<double>(stages.batch.count);
}

double min_step_of_orders(const PlanRequest& request, const ir::StageGraph& stages) {
  const cost::StepBound bound = cost::step_bound(stages, *request.cluster);
  return request.without_flush ? std::max(bound.device_work, bound.link) : bound.total();
}

bool may_beat(const PlanRequest& request, ir::Assignment assignment, double seconds) {
  if (!std::isfinite(seconds)) return true;
  const auto stages = build_stage_graph(*request.graph, assignment);
  return stages.ok() && min_step_of_orders(request, *stages) < seconds * (1 + kStepRounding);
}

double min_step_of_plans(const PlanRequest& request, const ir::Cluster& cluster) {
  const cost::PlanBound bound = cost::plan_bound(*request.graph, cluster);
  const Samples batch = request.graph->batch;
  return request.without_flush ? bound.time_per_sample() * static_cast<double>(batch.count) : bound.step(batch);
}

ir::Assignment Candidates::assignment_of(const std::vector<FoundStage>& stages) const {
  ir::Assignment assignment;
  assignment.stage_of.resize(request_.graph->nodes.size());
  size_t device = 0;
  for (const FoundStage& stage : stages) {
    ir::StageChoice choice{.micro_batch = stage.micro_batch, .k = stage.k, .recompute = stage.recompute};
    for (int replica = 0; replica < stage.devices; ++replica) choice.devices.push_back(ir::DeviceId(device++));
    const StageId id = assignment.choice.push_back(std::move(choice));
    for (ir::PlanNodeId node : stage.nodes) assignment.stage_of[node] = id;
  }
  give_whole_batch(*request_.graph, assignment);
  return assignment;
}

MemoryFit Candidates::add(const std::vector<FoundStage>& stages, const std::vector<ir::DeviceId>& order) {
  ir::Assignment assignment = assignment_of(stages);
  for (ir::StageChoice& choice : assignment.choice) {
    for (ir::DeviceId& device : choice.devices) {
      if (device.index() >= order.size()) return MemoryFit::kDoesNotFit;
      device = order[device.index()];
    }
    std::sort(choice.devices.begin(), choice.devices.end());
  }
  return add(std::move(assignment));
}

MemoryFit Candidates::add(const std::vector<FoundStage>& stages) {
  ir::Assignment assignment = assignment_of(stages);
  // The first build numbers the stages.
  auto built = build_stage_graph(*request_.graph, assignment);
  if (!built.ok()) {
    refuse(built.problems().front());
    return MemoryFit::kDoesNotFit;
  }
  if (const Status forced = force_replicas(request_, assignment); !forced.ok()) {
    refuse(forced.problems().front());
    return MemoryFit::kDoesNotFit;
  }
  std::vector<ir::Assignment> others;
  if (devices_differ(*request_.graph, *request_.cluster)) {
    for (StageId stage : built->stage_ids()) built->stages[stage].choice = assignment.choice[stage];
    others = other_placements(*request_.graph, *request_.cluster, *built, assignment);
  }
  MemoryFit fit = add(std::move(assignment));
  for (const ir::Assignment& other : others) fit = std::max(fit, add(other));
  return fit;
}

MemoryFit Candidates::add_packed(const std::vector<FoundStage>& stages, size_t group) {
  ir::Assignment assignment = assignment_of(stages);
  auto built = build_stage_graph(*request_.graph, assignment);
  if (!built.ok() || !force_replicas(request_, assignment).ok()) return MemoryFit::kDoesNotFit;
  for (StageId stage : built->stage_ids()) built->stages[stage].choice = assignment.choice[stage];
  return add(packed_into_groups(*request_.cluster, *built, std::move(assignment), group));
}

void set_recompute(const PlanRequest& request, ir::Assignment& assignment) {
  if (request.recompute == Recompute::kAuto) return;
  for (ir::StageChoice& choice : assignment.choice) choice.recompute = false;
  if (request.recompute == Recompute::kNever) return;
  for (const ir::PlanNodeId node : request.graph->node_ids())
    if (request.graph->nodes[node].has_backward) assignment.choice[assignment.stage_of[node]].recompute = true;
}

void divide_states(const PlanRequest& request, ir::StageGraph& stages, ir::Assignment& assignment) {
  const bool divides = request.shard_optimizer_state && request.graph->optimizer_state_per_weight_byte > 0;
  for (const StageId stage : stages.stage_ids()) {
    ir::StageChoice& choice = assignment.choice[stage];
    if (divides && stages.stages[stage].trainable_weight_bytes.count > 0) choice.shard_optimizer_state = true;
    if (choice.devices.size() < 2) choice.shard_optimizer_state = false;  // there is nothing to divide
    stages.stages[stage].choice.shard_optimizer_state = choice.shard_optimizer_state;
  }
}

MemoryFit Candidates::add(ir::Assignment assignment) {
  set_recompute(request_, assignment);
  auto stages = build_stage_graph(*request_.graph, assignment);
  if (!stages.ok()) {
    refuse(stages.problems().front());
    return MemoryFit::kDoesNotFit;
  }
  divide_states(request_, *stages, assignment);
  const cost::IterationTime step = cost::iteration_time(*stages, *request_.cluster);
  if (request_.limit_memory && !step.fits) {
    const cost::InFlightPlan in_flight_plan = cost::in_flight(*stages, *request_.cluster);
    note_shortfall(
        static_cast<double>(cost::memory_shortfall(*stages, *request_.cluster, in_flight_plan.samples).count));
    return MemoryFit::kDoesNotFit;
  }
  keep({.assignment = std::move(assignment),
        .objective = cost::bottleneck_time_per_sample(*stages, *request_.cluster),
        .step_seconds = closed_form(request_, *stages, step)});
  return request_.limit_memory && step.slowed_by_memory ? MemoryFit::kThrottled : MemoryFit::kFits;
}

void Candidates::keep(PlanCandidate candidate) {
  const auto [first, last] = at_step_.equal_range(candidate.step_seconds);
  for (auto same = first; same != last; ++same)
    if (found_[same->second].assignment == candidate.assignment) return;
  at_step_.emplace(candidate.step_seconds, found_.size());
  found_.push_back(std::move(candidate));
}

void Candidates::note_shortfall(double bytes) { shortfall_ = std::min(shortfall_, bytes); }

void Candidates::absorb_refusals(const Candidates& other) {
  note_shortfall(other.shortfall_);
  if (refusal_.empty()) refusal_ = other.refusal_, place_ = other.place_, cure_ = other.cure_;
}

void Candidates::absorb(Candidates other) {
  absorb_refusals(other);
  for (PlanCandidate& candidate : other.found_) keep(std::move(candidate));
}

std::vector<PlanCandidate> Candidates::best(size_t limit) const {
  std::vector<size_t> order(found_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(std::min(limit, order.size()));
  std::partial_sort(order.begin(), middle, order.end(), [&](size_t a, size_t b) {
    return is_better(found_[a], found_[b]) || (!is_better(found_[b], found_[a]) && a < b);
  });
  std::vector<PlanCandidate> sorted;
  for (auto at = order.begin(); at != middle; ++at) sorted.push_back(found_[*at]);
  return sorted;
}

double Candidates::min_step() const {
  return at_step_.empty() ? std::numeric_limits<double>::infinity() : at_step_.begin()->first;
}

void Candidates::drop_best_without_schedule() {
  if (!request_.evaluate) return;
  std::vector<PlanCandidate> sorted = best(found_.size());
  Deadline deadline(request_.time_limit - watch_.seconds(), request_.cancel);
  size_t first = 0;
  while (first + 1 < sorted.size() && !deadline.passed() && !std::isfinite(request_.evaluate(sorted[first].assignment)))
    ++first;
  if (first == 0) return;
  refused_ = sorted[first - 1].assignment;
  found_.clear();
  at_step_.clear();
  for (size_t i = first; i < sorted.size(); ++i) keep(std::move(sorted[i]));
}

void Candidates::drop_all_but(size_t limit) {
  if (found_.size() <= limit) return;
  drop_best_without_schedule();
  std::vector<PlanCandidate> kept = best(limit);
  const auto smallest = std::ranges::min_element(found_, {}, &PlanCandidate::objective);
  if (smallest->objective < std::ranges::min(kept, {}, &PlanCandidate::objective).objective) kept.push_back(*smallest);
  found_.clear();
  at_step_.clear();
  for (PlanCandidate& candidate : kept) keep(std::move(candidate));
}

double Candidates::min_objective() const {
  double smallest = kInfinity;
  for (const PlanCandidate& candidate : found_) smallest = std::min(smallest, candidate.objective);
  return smallest;
}

void Candidates::refuse(const Diagnostic& problem) {
  refusal_ = problem.message;
  place_ = problem.origin;
  cure_ = problem.hint;
}

void Candidates::explain_refusal() {
  if (!refused_) return;
  const std::optional<Diagnostic> why = request_.refusal ? request_.refusal(*refused_) : std::nullopt;
  refusal_ = text("the plan found has no schedule", why ? ": " + why->message : "");
  place_ = {};
  cure_ = why ? why->hint : "";
}

/// Simulates the best plans, and the one with the smallest objective if time allows; keeps those that have a schedule,
/// with its step. Needs: sorted.
bool Candidates::simulate_best(size_t max_simulated, bool keeps_slower) {
  std::vector<PlanCandidate> simulated;
  const auto smallest = std::ranges::min_element(found_, {}, &PlanCandidate::objective);
  double items = 0, known_step = request_.known_step;
  bool is_complete = true;
  for (auto candidate = found_.begin(); candidate != found_.end(); ++candidate) {
    const bool enough = simulated.size() >= max_simulated || (!simulated.empty() && items > kMaxSimulatedItems);
    if (enough && (candidate != smallest || items > kMaxSimulatedItems)) continue;
    if (!may_beat(request_, candidate->assignment, known_step)) continue;
    const bool is_cancelled = request_.cancel != nullptr && request_.cancel->load();
    if (!simulated.empty() && (is_cancelled || watch_.seconds() > request_.time_limit)) {
      is_complete = false;
      break;
    }
    items += items_of(*request_.graph, candidate->assignment);
    candidate->step_seconds = request_.evaluate(candidate->assignment);
    if (!keeps_slower) known_step = std::min(known_step, candidate->step_seconds);
    if (std::isfinite(candidate->step_seconds)) simulated.push_back(std::move(*candidate));
    else refused_ = std::move(candidate->assignment);
  }
  found_ = std::move(simulated);
  return is_complete;
}

Result<PlanAnswer> Candidates::answer(bool complete, double search_seconds, size_t max_simulated, size_t max_returned) {
  at_step_.clear();  // from here on steps are those of the simulator
  std::stable_sort(found_.begin(), found_.end(), is_better);
  if (request_.evaluate) complete = simulate_best(max_simulated, max_returned > kMaxReturned) && complete;
  if (found_.empty()) {
    if (!complete)
      return Diagnostic{.code = Code::kInterrupted,
                        .message = "the search ended before it found a plan",
                        .hint = "give it more time with --time-limit"};
    explain_refusal();
    std::string why = refusal_.empty() ? "no plan has the stages and devices asked for" : refusal_;
    if (std::isfinite(shortfall_))
      why = text("no plan was found that fits the devices: each has a stage that needs more, at least ",
                 in_words(shortfall_), ", and plans may need much more");
    return Diagnostic{.code = Code::kNoFeasiblePlan,
                      .origin = std::isfinite(shortfall_) ? ModelText() : place_,
                      .message = why,
                      .hint = std::isfinite(shortfall_)
                                  ? request_.micro_batch && request_.micro_batch->count > 1
                                        ? "use more devices, devices with more memory, or a smaller --micro-batch"
                                        : "use more devices, or devices with more memory"
                              : !cure_.empty()
                                  ? cure_
                                  : "ask for other stages, replicas or micro-batches, or for more devices"};
  }
  std::stable_sort(found_.begin(), found_.end(), is_better);
  const auto smallest = std::ranges::min_element(found_, {}, &PlanCandidate::objective);
  PlanAnswer answer;
  answer.bound = cost::plan_bound(*request_.graph, *request_.cluster).time_per_sample();
  answer.objective = smallest->objective;
  if (found_.size() > max_returned) {
    if (smallest - found_.begin() >= static_cast<std::ptrdiff_t>(max_returned)) found_[max_returned - 1] = *smallest;
    found_.resize(max_returned);
  }
  answer.candidates = std::move(found_);
  answer.complete = complete;
  answer.search_seconds = search_seconds;
  return answer;
}

}  // namespace graphpipe::partitioner
