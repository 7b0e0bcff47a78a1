#include <algorithm>
#include <vector>

#include "partitioner/alpa/planner.h"
#include "partitioner/auto/planner.h"
#include "partitioner/baselines/exhaustive.h"
#include "partitioner/baselines/simple_planners.h"
#include "partitioner/check_plan.h"
#include "partitioner/cost_models/plan_by_units.h"
#include "partitioner/dapple/planner.h"
#include "partitioner/graphpipe/planner.h"
#include "partitioner/heterogeneous/any_order.h"
#include "partitioner/min_memory.h"
#include "partitioner/pipedream/planner.h"
#include "partitioner/pipedream_2bw/planner.h"
#include "partitioner/piper/planner.h"
#include "partitioner/planner.h"
#include "partitioner/profile.h"
#include "partitioner/tarnawski/planner.h"
#include "partitioner/torchgpipe/planner.h"

namespace graphpipe::partitioner {

namespace {

// Among the planners of other projects the quick ones come first: `auto` asks them in this order, and its time may run
// out.
const std::vector<PlannerEntry> kPlanners = {
    {.name = "auto",
     .description = "the best plan of all planners and of a local search, by simulated step",
     .plan = plan_auto,
     .traits = {.asks_others = true, .takes_shapes = true}},
    {.name = kGraphPipe,
     .description = "stages of the series-parallel graph, branches beside each other",
     .plan = plan_graphpipe,
     .asked = AskedByAuto::kFirst,
     .traits = {.asked_on_parts = true}},
    {.name = kSequential,
     .description = "the best cut of one line of all nodes, with replicas",
     .plan = plan_sequential,
     .asked = AskedByAuto::kFirst,
     .traits = {.asked_on_parts = true}},
    {kEqualSplit,
     "as many runs of equal work as there are devices, no replicas; of a profile equal runs of the repeated layers, "
     "the same replicas and recomputation everywhere, by Piper's cost model",
     plan_equal_split,
     AskedByAuto::kFirst,
     piper_quirks(),
     plan_equal_runs,
     {.uses_all_devices = true, .takes_shapes = true}},
    {.name = "model-parallel",
     .description = "equal-split with the whole batch as one micro-batch",
     .plan = plan_model_parallel,
     .asked = AskedByAuto::kFirst,
     .traits = {.uses_all_devices = true}},
    {.name = "data-parallel",
     .description = "one stage, a replica on every device",
     .plan = plan_data_parallel,
     .asked = AskedByAuto::kFirst,
     .traits = {.is_one_stage = true, .uses_all_devices = true}},
    {"torchgpipe", "torchgpipe: blocks of one order, balanced by moves between neighbours", nullptr, AskedByAuto::kThen,
     torchgpipe_quirks(), plan_torchgpipe},
    {"2bw", "PipeDream-2BW: the largest throughput of whole pipelines of equal runs, recomputed or not", nullptr,
     AskedByAuto::kThen, two_bw_quirks(), plan_two_bw},
    {"alpa",
     "Alpa between operators: the smallest sum of stage times and waiting for the largest",
     nullptr,
     AskedByAuto::kThen,
     {},
     plan_alpa},
    {"dapple",
     "DAPPLE: the largest speed-up of a synchronous iteration, stages placed on machines",
     nullptr,
     AskedByAuto::kThen,
     dapple_quirks(),
     plan_dapple,
     {.divides_unit = true}},
    {"pipedream", "PipeDream: the smallest bottleneck of replicated stages, on levels of a machine", nullptr,
     AskedByAuto::kThen, pipedream_quirks(), plan_pipedream},
    {"max-throughput",
     "Tarnawski et al.: the smallest maximum load of accelerators and CPUs, one run of layers each",
     nullptr,
     AskedByAuto::kThen,
     max_throughput_quirks(),
     plan_max_throughput,
     {.plans_file_nodes = true}},
    {"piper", "Piper: stages of any downsets, with tensor-parallel degree, replicas and recomputation by layer",
     nullptr, AskedByAuto::kThen, piper_quirks(), plan_piper},
    {.name = "exhaustive",
     .description = "every plan of a graph of at most 10 nodes",
     .plan = plan_exhaustive,
     .traits = {.is_exhaustive = true}},
    {.name = kManual,
     .description = "the plan of --plan FILE, checked and used as given",
     .plan = plan_manual,
     .traits = {.is_given = true}},
};

Diagnostic bad_request(std::string message, std::string hint) {
  return {.code = Code::kUsage, .message = std::move(message), .hint = std::move(hint)};
}

/// Refuses a micro-batch size with which some node could learn nothing.
Status check_fewest_samples(const ir::PlanGraph& graph, Samples micro_batch) {
  const int64_t smallest = ir::smallest_micro_batch(graph.batch, micro_batch);
  Diagnostics problems;
  for (const ir::PlanNode& node : graph.nodes)
    if (node.scope == ir::SampleScope::kMicroBatch && smallest < node.fewest_samples)
      problems.push_back(
          {.code = Code::kBadPlan,
           .origin = node.label,
           .message = text("the node learns nothing from fewer than ", node.fewest_samples, " samples; --micro-batch ",
                           micro_batch, " of a batch of ", graph.batch, " gives it one of ", smallest),
           .hint = text("use micro-batches of at least ", node.fewest_samples,
                        ", of which the batch is a multiple, or let the node work on the whole batch")});
  if (problems.empty()) return Ok{};
  return problems;
}

Status check_request(const PlanRequest& request) {
  GP_CHECK(request.graph != nullptr && request.cluster != nullptr);
  if (request.graph->nodes.empty())
    return Diagnostic{.code = Code::kNoFeasiblePlan,
                      .message = "no node of the model depends on the samples",
                      .hint = "check the model's inputs with `graphpipe inspect`"};
  GP_TRY_VOID(verify_plan_graph(*request.graph));
  GP_CHECK(!request.cluster->devices.empty() && !request.cluster->levels.empty());
  if (request.stages && (*request.stages < 1 || *request.stages > static_cast<int>(request.cluster->devices.size())))
    return bad_request(
        text("--stages ", *request.stages, " does not fit ", request.cluster->devices.size(), " devices"),
        "ask for 1 stage to as many as there are devices; of chains some policies run several stages on each");
  if (request.micro_batch && (request.micro_batch->count < 1 || *request.micro_batch > request.graph->batch))
    return bad_request(text("--micro-batch ", *request.micro_batch, " does not fit a batch of ", request.graph->batch),
                       "ask for 1 sample to the whole batch");
  if (request.graph->one_sample && request.micro_batch.value_or(Samples(1)) != Samples(1))
    return bad_request(text("--micro-batch ", *request.micro_batch, ", but the model computes one sample at a time"),
                       "leave it out, or plan without --one-sample");
  if (request.micro_batch) GP_TRY_VOID(check_fewest_samples(*request.graph, *request.micro_batch));
  for (const ForcedReplicas& forced : request.replicas)
    if (forced.stage < 0 || forced.replicas < 1)
      return bad_request(text("--replicas ", forced.stage, "=", forced.replicas, " is not a stage and its replicas"),
                         "write STAGE=D with a stage from 0 and at least one replica");
    else if (request.stages && forced.stage >= *request.stages)
      return bad_request(text("--replicas ", forced.stage, "=", forced.replicas, ": of --stages ", *request.stages,
                              " none has this number"),
                         "stages are numbered from 0");
  return Ok{};
}

}  // namespace

std::string_view recompute_name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kAuto:
      return "auto";
    case Recompute::kAlways:
      return "always";
    case Recompute::kNever:
      break;
  }
  return "never";
}

std::optional<Recompute> recompute_of_name(std::string_view name) {
  for (const Recompute known : {Recompute::kAuto, Recompute::kAlways, Recompute::kNever})
    if (recompute_name(known) == name) return known;
  return std::nullopt;
}

std::span<const PlannerEntry> planners() { return kPlanners; }

std::vector<const PlannerEntry*> planners_with(bool PlannerTraits::*trait) {
  std::vector<const PlannerEntry*> entries;
  for (const PlannerEntry& entry : kPlanners)
    if (entry.traits.*trait) entries.push_back(&entry);
  return entries;
}

const PlannerEntry* find_planner(std::string_view name) {
  const auto found = std::ranges::find(kPlanners, name, &PlannerEntry::name);
  return found == kPlanners.end() ? nullptr : &*found;
}

Result<PlanAnswer> ask(const PlannerEntry& planner, const PlanRequest& request) {
  return planner.plan != nullptr ? planner.plan(request) : plan_by_units(planner, request);
}

Result<std::set<std::string, std::less<>>> parse_compat(const PlannerEntry& planner, std::string_view list) {
  std::set<std::string, std::less<>> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view word = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (word == "all") {
      for (const Quirk& quirk : planner.quirks)
        if (quirk.in_all) names.emplace(quirk.name);
      continue;
    }
    if (std::ranges::find(planner.quirks, word, &Quirk::name) == planner.quirks.end()) {
      std::string known = "all";
      for (const Quirk& quirk : planner.quirks) known += text(", ", quirk.name);
      return Diagnostic{.code = Code::kUsage,
                        .origin = ModelText("--compat"),
                        .message = text("the planner ", planner.name, " has no quirk '",
                                        Terminal::encode_text(word.substr(0, 40)).str(), "'"),
                        .hint = "it knows " + known};
    }
    names.emplace(word);
  }
  return names;
}

bool is_better(const PlanCandidate& a, const PlanCandidate& b) {
  return std::pair(a.step_seconds, a.objective) < std::pair(b.step_seconds, b.objective);
}

int64_t usual_micro_batch(int64_t batch) {
  int64_t size = std::min<int64_t>(64, batch);
  while (batch % size != 0) --size;
  return size;
}

double OwnObjective::gap() const { return larger_is_better ? gap_over(bound, objective) : gap_over(objective, bound); }

double gap_over(double value, double bound) {
  if (value <= bound) return 0;
  return bound > 0 ? value / bound - 1 : kInfinity;
}

Result<PlanAnswer> plan(std::string_view planner, const PlanRequest& asked) {
  PlanRequest request = asked;
  if (request.graph != nullptr && request.graph->one_sample && !request.micro_batch) {
    request.micro_batch = Samples(1);
    request.micro_batch_per_stage = false;
  }
  const PlannerEntry* entry = find_planner(planner);
  if (entry == nullptr) {
    std::string names;
    for (const PlannerEntry& known : kPlanners) names += text(names.empty() ? "" : ", ", known.name);
    return bad_request(text("there is no planner '", Terminal::encode_text(planner).str(), "'"), "use one of " + names);
  }
  GP_TRY_VOID(check_request(request));
  if (request.profile != nullptr) return plan_of_profile(*entry, request);
  if (request.limit_memory && !entry->traits.is_given)
    GP_TRY_VOID(check_min_memory(*request.graph, *request.cluster, request.shard_optimizer_state));
  GP_TRY(PlanAnswer answer, ask_in_any_order(*entry, request));
  for (const PlanCandidate& candidate : answer.candidates) {
    const bool is_given = entry->traits.is_given;
    const bool may_share_devices = is_given || entry->traits.asks_others;
    const Diagnostics problems = check_plan(*request.graph, *request.cluster, candidate.assignment,
                                            {.one_stage_per_device = !may_share_devices,
                                             .limit_memory = request.limit_memory,
                                             .stages = is_given ? 0 : request.stages.value_or(0),
                                             .objective = candidate.objective,
                                             .recompute = is_given ? Recompute::kAuto : request.recompute});
    if (!problems.empty()) {
      if (is_given) return problems;
      // A planner and the checker disagree: a defect of ours.
      fail_check(text("a plan of ", planner, " has no problems: ", to_line(problems.front())).c_str(), __FILE__,
                 __LINE__);
    }
  }
  return answer;
}

}  // namespace graphpipe::partitioner
