#include "partitioner/planners.h"

#include <algorithm>
#include <array>

#include "partitioner/auto/planner.h"
#include "partitioner/baselines/exhaustive.h"
#include "partitioner/baselines/simple_planners.h"
#include "partitioner/check_plan.h"
#include "partitioner/graphpipe/planner.h"
#include "partitioner/layers/layer_adapter.h"

namespace graphpipe::partitioner {

namespace {

constexpr std::array kPlanners = {
    PlannerEntry{"auto", "the best plan of all planners and of a local search, by simulated step", plan_auto},
    PlannerEntry{"graphpipe", "stages of the series-parallel graph, branches beside each other", plan_graphpipe,
                 AskedByAuto::kFirst},
    PlannerEntry{"sequential", "the best cut of one line of all nodes, with replicas", plan_sequential,
                 AskedByAuto::kFirst},
    PlannerEntry{"equal-split", "as many runs of equal work as there are devices, no replicas", plan_equal_split,
                 AskedByAuto::kFirst},
    PlannerEntry{"model-parallel", "equal-split with the whole batch as one micro-batch", plan_model_parallel,
                 AskedByAuto::kFirst},
    PlannerEntry{"data-parallel", "one stage, a replica on every device", plan_data_parallel, AskedByAuto::kFirst},
    PlannerEntry{"pipedream", "PipeDream: the smallest bottleneck of a row of replicated stages",
                 [](const PlanRequest& request) { return plan_by_layers("pipedream", request); }, AskedByAuto::kThen},
    PlannerEntry{"2bw", "PipeDream-2BW: the largest throughput of whole pipelines of equal runs, recomputed or not",
                 [](const PlanRequest& request) { return plan_by_layers("2bw", request); }, AskedByAuto::kThen},
    PlannerEntry{"piper", "Piper: stages of any downsets, with replicas and recomputation by layer",
                 [](const PlanRequest& request) { return plan_by_layers("piper", request); }, AskedByAuto::kThen},
    PlannerEntry{"dapple", "DAPPLE: the largest speed-up of a synchronous iteration",
                 [](const PlanRequest& request) { return plan_by_layers("dapple", request); }, AskedByAuto::kThen},
    PlannerEntry{"torchgpipe", "torchgpipe: blocks of one order, balanced by moves between neighbours",
                 [](const PlanRequest& request) { return plan_by_layers("torchgpipe", request); }, AskedByAuto::kThen},
    PlannerEntry{"max-throughput", "Tarnawski et al.: the smallest maximum load, one run of layers to a device",
                 [](const PlanRequest& request) { return plan_by_layers("max-throughput", request); },
                 AskedByAuto::kThen},
    PlannerEntry{"alpa", "Alpa between operators: the smallest sum of stage times and waiting for the largest",
                 [](const PlanRequest& request) { return plan_by_layers("alpa", request); }, AskedByAuto::kThen},
    PlannerEntry{"exhaustive", "every plan of a graph of at most 10 nodes", plan_exhaustive},
    PlannerEntry{"manual", "the plan of --plan FILE, checked and used as given", plan_manual},
};

Diagnostic bad_request(std::string message, std::string hint) {
  return {.code = Code::kUsage, .message = std::move(message), .hint = std::move(hint)};
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
        "ask for 1 stage to as many as there are devices");
  if (request.micro_batch && (request.micro_batch->count < 1 || *request.micro_batch > request.graph->batch))
    return bad_request(text("--micro-batch ", *request.micro_batch, " does not fit a batch of ", request.graph->batch),
                       "ask for 1 sample to the whole batch");
  for (const ForcedReplicas& forced : request.replicas)
    if (forced.stage < 0 || forced.replicas < 1)
      return bad_request(text("--replicas ", forced.stage, "=", forced.replicas, " is not a stage and its replicas"),
                         "write STAGE=D with a stage from 0 and at least one replica");
  return Ok{};
}

}  // namespace

std::span<const PlannerEntry> planners() { return kPlanners; }

const PlannerEntry* find_planner(std::string_view name) {
  const auto found =
      std::find_if(kPlanners.begin(), kPlanners.end(), [&](const auto& row) { return row.name == name; });
  return found == kPlanners.end() ? nullptr : &*found;
}

Result<PlanAnswer> plan(std::string_view planner, const PlanRequest& request) {
  const PlannerEntry* row = find_planner(planner);
  if (row == nullptr) {
    std::string names;
    for (const PlannerEntry& known : kPlanners) names += text(names.empty() ? "" : ", ", known.name);
    return bad_request(text("there is no planner '", Terminal::encode_text(planner).str(), "'"), "use one of " + names);
  }
  GP_TRY_VOID(check_request(request));
  GP_TRY(PlanAnswer answer, row->plan(request));
  for (const PlanCandidate& candidate : answer.candidates) {
    const bool is_manual = planner == "manual";
    const bool may_share_devices = is_manual || planner == "auto";
    const Diagnostics problems = check_plan(*request.graph, *request.cluster, candidate.assignment,
                                            {.one_stage_per_device = !may_share_devices,
                                             .limit_memory = request.limit_memory,
                                             .stages = is_manual ? 0 : request.stages.value_or(0),
                                             .objective = candidate.objective});
    if (!problems.empty()) {
      if (is_manual) return problems;
      GP_CHECK(problems.empty());  // a planner and the checker disagree: a defect of ours
    }
  }
  return answer;
}

}  // namespace graphpipe::partitioner
