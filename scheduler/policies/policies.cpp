#include "scheduler/policies/policies.h"

#include <algorithm>

namespace graphpipe::scheduler {
namespace {

/// 2bw is in vertical sync anyway.
constexpr PolicyChoices kUpdate = {.vertical_sync = true, .update = true, .drain_every = true};
constexpr PolicyChoices kStashing = {.vertical_sync = true, .drain_every = true};
/// auto hands its request to every synchronous policy.
constexpr PolicyChoices kSynchronous = {.backward_order = true, .group = true};

constexpr Policy kPolicies[] = {
    {.name = "kfkb",
     .description = "k forwards, then k backwards, with the fewest samples in flight that keep the full rate",
     .order = order_kfkb},
    {.name = "gpipe",
     .description = "all forwards, then all backwards (--backward fifo|lifo)",
     .order = order_gpipe,
     .choices = {.backward_order = true}},
    {.name = "1f1b",
     .description = "one forward, one backward; as many in flight as stages follow (PipeDream-Flush)",
     .order = order_1f1b},
    {.name = "dapple-a",
     .description = "DAPPLE's early backward, policy A: the order of 1f1b",
     .order = order_dapple_a},
    {.name = "dapple-b",
     .description = "DAPPLE's policy B: about twice the warm-up of 1f1b, less sensitive to latency",
     .order = order_dapple_b},
    {.name = "zb-1p",
     .description = "backward split in two, weight gradients fill the bubble within the memory of 1f1b",
     .order = order_zb_1p},
    {.name = "zb-2p", .description = "like zb-1p with twice the memory", .order = order_zb_2p, .delays_starts = true},
    {.name = "interleaved",
     .description = "1f1b over several chunks of a chain on each device (--group)",
     .order = order_interleaved,
     .shape = StageShape::kLoop,
     .choices = {.group = true}},
    {.name = "interleaved-zb",
     .description = "interleaved with a split backward",
     .order = order_interleaved_zb,
     .shape = StageShape::kLoop,
     .choices = {.group = true}},
    {.name = "looped-bfs",
     .description = "all micro-batches through a device's first chunk, then through its next",
     .order = order_looped_bfs,
     .shape = StageShape::kLoop},
    {.name = "zb-v",
     .description = "zero bubble with two chunks per device in a V, within the memory of 1f1b",
     .order = order_zb_v,
     .shape = StageShape::kV},
    {.name = "v-1f1b",
     .description = "two chunks per device in a V, whole backwards, two thirds of the memory of 1f1b",
     .order = order_v_1f1b,
     .shape = StageShape::kV},
    {.name = "v-half",
     .description = "zero bubble in a V with half of the memory of 1f1b",
     .order = order_v_half,
     .shape = StageShape::kV},
    {.name = "v-min",
     .description = "zero bubble in a V with about a third of the memory of 1f1b",
     .order = order_v_min,
     .shape = StageShape::kV},
    {.name = "dualpipe",
     .description = "a chain fed from both ends, two replicas, forwards beside backwards",
     .order = order_dualpipe,
     .shape = StageShape::kBidirectional},
    {.name = "dualpipev",
     .description = "dualpipe folded into a V: one replica, two chunks per device",
     .order = order_dualpipev,
     .shape = StageShape::kV},
    {.name = "chimera",
     .description = "a chain fed from both ends in units of as many micro-batches as devices",
     .order = order_chimera,
     .shape = StageShape::kBidirectional},
    {.name = "pipedream",
     .description =
         "1f1b without a flush: an update after every micro-batch, weight versions stashed (--vertical-sync)",
     .order = order_pipedream,
     .asynchronous = true,
     .versions = ir::WeightVersions::kPerItem,
     .choices = kStashing},
    {.name = "pipedream-rr",
     .description = "pipedream with replicas that take micro-batches in turn (1F1B-RR)",
     .order = order_pipedream_rr,
     .asynchronous = true,
     .versions = ir::WeightVersions::kPerItem,
     .takes_turns = true,
     .choices = kStashing},
    {.name = "2bw",
     .description = "1f1b without a flush, updates delayed by one so that two weight versions are enough (--update)",
     .order = order_2bw,
     .asynchronous = true,
     .versions = ir::WeightVersions::kTwo,
     .choices = kUpdate},
    {.name = "data-parallel",
     .description = "replicas of the whole model, one synchronous update",
     .order = order_data_parallel,
     .shape = StageShape::kReplicas},
    {.name = "parameter-server",
     .description = "replicas whose updates are applied one by one, in the order of the micro-batches",
     .order = order_parameter_server,
     .shape = StageShape::kReplicas,
     .asynchronous = true,
     .takes_turns = true,
     .choices = {.drain_every = true}},
    {.name = "inference", .description = "forwards only", .order = order_inference, .forward_only = true},
    {.name = "auto",
     .description = "the synchronous policy that simulates fastest within the memory, improved by a search",
     .order = order_auto,
     .tries_others = true,
     .choices = kSynchronous},
    {.name = "none", .description = "no pipelining: one micro-batch after the other", .order = order_none},
};

}  // namespace

Diagnostic refused(std::string_view policy, std::string_view what, std::string hint) {
  return Diagnostic{.code = Code::kBadPlan, .message = text(policy, ": ", what), .hint = std::move(hint)};
}

Status expect_one_micro_batch(const StageGraph& graph, std::string_view policy, OtherSizes other_sizes) {
  StageId whole;
  bool differ = false;
  Samples smallest = graph.batch;
  for (const StageId id : graph.stage_ids()) {
    const ir::Stage& stage = graph.stages[id];
    smallest = std::min(smallest, stage.choice.micro_batch);
    differ = differ || stage.choice.micro_batch != graph.stages[StageId(0u)].choice.micro_batch;
    if (!whole.valid() && stage.scope == ir::SampleScope::kBatch) whole = id;
  }
  if (!differ) return Ok{};
  if (whole.valid())
    return refused(policy,
                   text("stage ", whole, " works on all ", graph.batch,
                        " samples of the batch together, others on micro-", "batches of ", smallest),
                   text("use kfkb, gpipe, 1f1b or zb-1p, or --micro-batch ", graph.batch,
                        "; --contrastive micro-batch and --batchnorm micro-batch work on each micro-batch alone"));
  if (other_sizes == OtherSizes::kTaken) return Ok{};
  return refused(policy, "stages have different micro-batch sizes", "give all stages one size");
}

ir::WeightVersions versions_of(const Policy& policy, bool vertical_sync) {
  return vertical_sync && policy.choices.vertical_sync ? ir::WeightVersions::kPerItemOfFirst : policy.versions;
}

ir::PlanGraph with_versions_of(std::string_view policy, bool vertical_sync, ir::PlanGraph graph) {
  const Policy* const known = find_policy(policy);
  if (known == nullptr) return graph;
  graph.versions = versions_of(*known, vertical_sync);
  for (ir::PlanNode& node : graph.nodes) node.sums_over_replicas = node.sums_over_replicas && !known->takes_turns;
  return graph;
}

std::span<const Policy> all_policies() { return kPolicies; }

const Policy* find_policy(std::string_view name) {
  for (const Policy& policy : kPolicies)
    if (policy.name == name) return &policy;
  return nullptr;
}

}  // namespace graphpipe::scheduler
