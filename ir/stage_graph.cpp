#include "ir/stage_graph.h"

#include <algorithm>
#include <limits>
#include <span>

#include "support/digraph.h"
#include "support/integer_math.h"
#include "support/sort_unique.h"

namespace graphpipe::ir {

namespace {

Diagnostic bad_plan(const ModelText& origin, std::string message, std::string hint) {
  return {.code = Code::kBadPlan, .origin = origin, .message = std::move(message), .hint = std::move(hint)};
}

/// Every node in a stage that exists, every stage with nodes.
Status check_shape(const PlanGraph& graph, const Assignment& assignment) {
  if (assignment.stage_of.size() != graph.nodes.size())
    return bad_plan({},
                    text("the plan places ", assignment.stage_of.size(), " nodes, the model has ", graph.nodes.size()),
                    "make the plan again from this model");
  Diagnostics problems;
  std::vector<size_t> sizes(assignment.choice.size(), 0);
  for (PlanNodeId node : graph.node_ids()) {
    const StageId stage = assignment.stage_of[node];
    if (stage.index() < sizes.size()) ++sizes[stage.index()];
    else
      problems.push_back(bad_plan(graph.nodes[node].label, text("node ", node, " is in no stage of the plan"),
                                  "give every node one of the plan's stages"));
  }
  for (size_t stage = 0; stage < sizes.size(); ++stage)
    if (sizes[stage] == 0)
      problems.push_back(bad_plan({}, text("stage ", stage, " has no nodes"), "remove the stage or give it nodes"));
  if (problems.empty()) return Ok{};
  return problems;
}

void check_choice(const StageChoice& choice, size_t stage, Samples batch, Diagnostics& problems) {
  if (choice.devices.empty())
    problems.push_back(bad_plan({}, text("stage ", stage, " has no device"), "give it at least one"));
  std::vector<DeviceId> distinct = choice.devices;
  sort_unique(distinct);
  if (distinct.size() != choice.devices.size())
    problems.push_back(
        bad_plan({}, text("stage ", stage, " names a device twice"), "give each replica its own device"));
  if (std::ranges::find(distinct, DeviceId()) != distinct.end())
    problems.push_back(
        bad_plan({}, text("stage ", stage, " names a device that does not exist"), "correct its devices"));
  if (choice.micro_batch.count < 1 || choice.micro_batch > batch)
    problems.push_back(bad_plan({}, text("stage ", stage, " has a micro-batch of ", choice.micro_batch),
                                text("use 1 to ", batch, " samples")));
  if (choice.k < 1)
    problems.push_back(bad_plan({}, text("stage ", stage, " has k = ", choice.k), "use a k of at least 1"));
}

Status check_colocation(const PlanGraph& graph, const Assignment& assignment) {
  Diagnostics problems;
  for (const auto& set : graph.colocated)
    for (PlanNodeId node : set)
      if (assignment.stage_of[node] != assignment.stage_of[set.front()])
        problems.push_back(bad_plan(graph.nodes[node].label,
                                    text("node ", node, " must share a stage with node ", set.front()),
                                    "put both into one stage"));
  if (problems.empty()) return Ok{};
  return problems;
}

/// A topological order of the quotient graph, old stage ids; ties go to the stage with the lowest node.
Result<std::vector<StageId>> stage_order(const PlanGraph& graph, const Assignment& assignment) {
  const size_t count = assignment.choice.size();
  std::vector<uint32_t> lowest(count, UINT32_MAX);
  for (PlanNodeId node : graph.node_ids()) {
    uint32_t& low = lowest[assignment.stage_of[node].index()];
    low = std::min(low, static_cast<uint32_t>(node.index()));
  }
  EdgeList edges;
  for (const PlanValue& value : graph.values)
    for (PlanNodeId reader : value.readers) {
      const StageId from = assignment.stage_of[value.producer], to = assignment.stage_of[reader];
      if (from != to) edges.emplace_back(static_cast<uint32_t>(from.index()), static_cast<uint32_t>(to.index()));
    }
  sort_unique(edges);
  const std::vector<uint32_t> order = topological_order(count, edges, lowest);
  if (order.size() < count)
    return bad_plan({}, text("stage ", *first_on_cycle(count, edges), " depends on itself through other stages"),
                    "a stage must not both feed another stage and read from it, directly or through others");
  return std::vector<StageId>(order.begin(), order.end());
}

void renumber(Assignment& assignment, const std::vector<StageId>& order) {
  IdMap<StageId, StageId> new_id(order.size());
  IdMap<StageId, StageChoice> choice;
  for (StageId old : order) {
    new_id[old] = StageId(choice.size());
    choice.push_back(std::move(assignment.choice[old]));
  }
  assignment.choice = std::move(choice);
  for (StageId& stage : assignment.stage_of) stage = new_id[stage];
}

void add_nodes(const PlanGraph& graph, const Assignment& assignment, StageGraph& result) {
  for (PlanNodeId id : graph.node_ids()) {
    const PlanNode& node = graph.nodes[id];
    Stage& stage = result.stages[assignment.stage_of[id]];
    stage.nodes.push_back(id);
    stage.stash_to_input_gradient += node.stash_to_input_gradient;
    stage.stash_to_weight_gradient += node.stash_to_weight_gradient;
    stage.kept_gradients += node.kept_gradients;
    stage.workspace = SampleFunction::larger(stage.workspace, node.workspace);
    stage.weight_bytes += node.buffer_bytes;
    stage.weights.insert(stage.weights.end(), node.weights.begin(), node.weights.end());
    stage.has_backward = stage.has_backward || node.has_backward;
    stage.scope = std::max(stage.scope, node.scope);
    stage.fewest_samples = std::max(stage.fewest_samples, node.fewest_samples);
    stage.may_have_replicas = stage.may_have_replicas && node.may_have_replicas();
    stage.exchanges_sums = stage.exchanges_sums ||
                           (node.sums_over_replicas && assignment.choice[assignment.stage_of[id]].devices.size() > 1);
  }
}

/// Seconds of all nodes of a stage on one device.
PassSeconds seconds_of(const PlanGraph& graph, const std::vector<PlanNodeId>& nodes, DeviceId device) {
  PassSeconds sum;
  for (const PlanNodeId node : nodes) {
    if (graph.kind_of_device.empty()) sum.add_seconds(graph.nodes[node]);
    else sum.add_seconds(graph.seconds_on(graph.nodes[node], device.index()));
  }
  return sum;
}

/// What the replicas of a stage take to exchange sums over the samples of an item.
void add_exchanges(const PlanGraph& graph, Stage& stage) {
  double forward = 0, input_gradient = 0;
  for (const PlanNodeId node : stage.nodes) {
    forward += graph.nodes[node].exchange_seconds;
    if (graph.nodes[node].has_backward) input_gradient += graph.nodes[node].exchange_seconds;
  }
  const double rounds = exchange_rounds(stage.choice.devices.size());
  stage.forward += SampleFunction::polynomial(rounds * forward, 0);
  stage.input_gradient += SampleFunction::polynomial(rounds * input_gradient, 0);
}

/// A stage takes as long as the slowest of its replicas: all of them get equal shares.
void add_seconds(const PlanGraph& graph, StageGraph& result) {
  std::vector<int> seen;  // kinds of devices
  for (Stage& stage : result.stages) {
    const Samples samples = stage.choice.item_samples();
    double slowest = -1;
    seen.clear();
    for (const DeviceId device : stage.choice.devices) {
      const bool known = device.index() < graph.kind_of_device.size();
      const int kind = known ? graph.kind_of_device[device.index()] : -1;
      if (std::ranges::find(seen, kind) != seen.end()) continue;
      seen.push_back(kind);
      PassSeconds sum = seconds_of(graph, stage.nodes, device);
      const double item = sum.total(samples);
      if (item <= slowest) continue;
      slowest = item;
      static_cast<PassSeconds&>(stage) = std::move(sum);
    }
    if (stage.exchanges_sums) add_exchanges(graph, stage);
  }
}

/// A stage that has a copy of a group of weights.
struct Holder {
  WeightGroupId group;
  StageId stage;
  auto operator<=>(const Holder&) const = default;
};

/// Calls `visit` with each group and the copies of it. Needs: sorted holders.
template <typename Visit>
void for_each_group(std::span<const Holder> holders, Visit visit) {
  for (size_t first = 0, end = 0; first < holders.size(); first = end) {
    while (end < holders.size() && holders[end].group == holders[first].group) ++end;
    visit(holders[first].group, holders.subspan(first, end - first));
  }
}

/// A copy of weights that another stage trains must follow them: its stage has a backward too, of nothing where none of
/// its nodes has one, so that it takes part in the sum of gradients and in the step.
void run_backwards_of_copies(const PlanGraph& graph, std::span<const Holder> holders, StageGraph& result) {
  for (bool changed = true; changed;) {
    changed = false;
    for_each_group(holders, [&](WeightGroupId group, std::span<const Holder> copies) {
      const auto has_backward = [&](const Holder& copy) { return result.stages[copy.stage].has_backward; };
      if (!graph.weight_groups[group].trainable || std::ranges::none_of(copies, has_backward)) return;
      for (const Holder& copy : copies) {
        changed = changed || !has_backward(copy);
        result.stages[copy.stage].has_backward = true;
      }
    });
  }
}

void add_update(const WeightGroup& weights, size_t holders, Samples batch, Stage& stage) {
  const Bytes bytes = updated_bytes(weights, holders * stage.choice.devices.size(), batch);
  stage.updated_weight_bytes += bytes;
  stage.update_traffic += weights.update_passes * static_cast<double>(bytes.count);
  stage.update_flops += weights.update_flops;
  stage.update_scratch = std::max(stage.update_scratch, weights.update_scratch);
}

/// Each stage holds one copy of a group, however many of its nodes use it.
void add_weights(const PlanGraph& graph, StageGraph& result) {
  std::vector<Holder> holders;
  for (StageId id : result.stage_ids()) {
    Stage& stage = result.stages[id];
    sort_unique(stage.weights);
    for (WeightGroupId group : stage.weights) {
      stage.weight_bytes += graph.weight_groups[group].bytes;
      if (graph.weight_groups[group].trainable) {
        stage.trainable_weight_bytes += graph.weight_groups[group].bytes;
        ++stage.trainable_tensors;
      }
      holders.push_back({group, id});
    }
  }
  std::ranges::sort(holders);
  run_backwards_of_copies(graph, holders, result);
  for_each_group(holders, [&](WeightGroupId group, std::span<const Holder> copies) {
    const WeightGroup& weights = graph.weight_groups[group];
    if (weights.trainable)
      for (const Holder& copy : copies) add_update(weights, copies.size(), graph.batch, result.stages[copy.stage]);
    if (copies.size() == 1) return;
    SharedWeights shared{group, {}, weights.trainable ? weights.bytes : Bytes(0)};
    for (const Holder& copy : copies) shared.stages.push_back(copy.stage);
    result.shared.push_back(std::move(shared));
  });
}

void add_stages_of(const std::vector<PlanNodeId>& nodes, const Assignment& assignment, std::vector<StageId>& stages) {
  for (PlanNodeId node : nodes) stages.push_back(assignment.stage_of[node]);
  sort_unique(stages);
}

std::vector<StageId> stages_of(const std::vector<PlanNodeId>& nodes, const Assignment& assignment) {
  std::vector<StageId> stages;
  add_stages_of(nodes, assignment, stages);
  return stages;
}

void add_shared_stash(const PlanGraph& graph, const Assignment& assignment, StageGraph& result) {
  std::vector<StageId> stages;  // one list for all values: plans are built by the thousand
  for (const PlanValue& value : graph.values) {
    stages.clear();
    add_stages_of(value.saved_by_weight_gradient, assignment, stages);
    for (StageId stage : stages) result.stages[stage].stash_to_weight_gradient += value.bytes;
    add_stages_of(value.saved_by_input_gradient, assignment, stages);
    for (StageId stage : stages) result.stages[stage].stash_to_input_gradient += value.bytes;
  }
}

/// Gradient tensors that stage `from` sends back. Readers are summed from the highest id down; a sum stays in a
/// reader's stage only while all its operands come from there, that is in the run of highest readers.
int gradient_count(const PlanValue& value, const Assignment& assignment, StageId from) {
  const auto stage_of = [&](PlanNodeId node) { return assignment.stage_of[node]; };
  int count = 0;
  bool in_first_run = true;
  for (auto reader = value.gradient_readers.rbegin(); reader != value.gradient_readers.rend(); ++reader) {
    if (stage_of(*reader) != stage_of(value.gradient_readers.back())) in_first_run = false;
    if (stage_of(*reader) != from) continue;
    if (in_first_run && count == 1) continue;
    ++count;
  }
  return count;
}

/// Whether a node of the stage keeps the value for its backward.
bool keeps(const PlanValue& value, const Assignment& assignment, StageId stage) {
  const auto in_stage = [&](PlanNodeId node) { return assignment.stage_of[node] == stage; };
  return std::any_of(value.saved_by_input_gradient.begin(), value.saved_by_input_gradient.end(), in_stage) ||
         std::any_of(value.saved_by_weight_gradient.begin(), value.saved_by_weight_gradient.end(), in_stage);
}

StageEdge edge_of(const PlanGraph& graph, const Assignment& assignment, PlanValueId id, StageId from, StageId to) {
  const PlanValue& value = graph.values[id];
  StageEdge edge{.from = from, .to = to, .value = id, .bytes = value.bytes, .gradient_bytes = {}, .batch = value.batch};
  edge.stashed_above = keeps(value, assignment, from);
  edge.stashed_below = keeps(value, assignment, to);
  return edge;
}

/// From the producer to each reader.
void add_straight_edges(const PlanGraph& graph, const Assignment& assignment, PlanValueId id,
                        std::vector<StageEdge>& edges) {
  const PlanValue& value = graph.values[id];
  const StageId from = assignment.stage_of[value.producer];
  const auto is_in_stage = [&](PlanNodeId node) { return assignment.stage_of[node] == from; };
  if (std::ranges::all_of(value.readers, is_in_stage)) return;
  for (const StageId to : stages_of(value.readers, assignment)) {
    if (to == from) continue;
    edges.push_back(edge_of(graph, assignment, id, from, to));
    edges.back().gradient_count = gradient_count(value, assignment, to);
  }
}

/// From each stage to the next, as far as the last reader; what comes back over an edge are the gradients of all
/// readers below it, each as it would come straight from there.
void add_edges_of_chain(const PlanGraph& graph, const Assignment& assignment, PlanValueId id,
                        std::vector<StageEdge>& edges) {
  const PlanValue& value = graph.values[id];
  const StageId producer = assignment.stage_of[value.producer];
  const std::vector<StageId> readers = stages_of(value.readers, assignment);
  int count = 0;  // of the gradients from the stages below
  const size_t first = edges.size(), last = readers.empty() ? producer.index() : readers.back().index();
  for (StageId to(last); producer < to; to = StageId(to.index() - 1)) {
    StageEdge edge = edge_of(graph, assignment, id, StageId(to.index() - 1), to);
    edge.passed_on = edge.from != producer;
    edge.stashed_above = edge.stashed_above && !edge.passed_on;
    edge.passed_gradients = count;
    edge.gradient_count = count += gradient_count(value, assignment, to);
    edges.push_back(std::move(edge));
  }
  std::reverse(edges.begin() + static_cast<std::ptrdiff_t>(first), edges.end());
}

void add_edges(const PlanGraph& graph, const Assignment& assignment, StageGraph& result) {
  const bool chain = graph.execution == Execution::kChain;
  std::vector<StageEdge> edges;
  for (PlanValueId id : graph.value_ids())
    (chain ? add_edges_of_chain : add_straight_edges)(graph, assignment, id, edges);
  std::sort(edges.begin(), edges.end(), [](const StageEdge& a, const StageEdge& b) {
    return std::tuple(a.from, a.to, a.value) < std::tuple(b.from, b.to, b.value);
  });
  for (StageEdge& edge : edges) {
    for (int i = 0; i < edge.gradient_count; ++i) edge.gradient_bytes += graph.values[edge.value].gradient_bytes;
    if (edge.passed_gradients > 0) result.stages[edge.to].has_backward = true;
    result.edges.push_back(std::move(edge));
  }
}

/// What a stage's nodes that work on samples together ask of its replicas.
void check_replicas(const PlanGraph& graph, StageId id, const Stage& stage, Diagnostics& problems) {
  const auto replicas = std::ssize(stage.choice.devices);
  if (stage.scope == SampleScope::kEach || replicas == 1) return;
  const auto works_together = [&](PlanNodeId n) {
    return graph.nodes[n].scope != SampleScope::kEach &&
           (stage.may_have_replicas || !graph.nodes[n].may_have_replicas());
  };
  const PlanNode& node = graph.nodes[*std::ranges::find_if(stage.nodes, works_together)];
  const std::string what =
      text("the node works on the samples of a ", node.scope == SampleScope::kBatch ? "batch" : "micro-batch",
           " together, but its stage ", id);
  if (!stage.may_have_replicas)
    problems.push_back(bad_plan(node.label, text(what, " has ", replicas, " replicas"), "give the stage one device"));
  else if (stage.choice.mode != ReplicaMode::kSplit)
    problems.push_back(bad_plan(node.label, text(what, " has replicas that take whole micro-batches in turn"),
                                "let them split the micro-batches, or give the stage one device"));
  else if (const int64_t smallest = smallest_micro_batch(graph.batch, stage.choice.micro_batch); smallest < replicas)
    problems.push_back(bad_plan(node.label, text(what, " has ", replicas, " replicas for a micro-batch of ", smallest),
                                "give each replica a sample: fewer devices, or larger micro-batches"));
}

/// What a stage's nodes that work on samples together ask of its micro-batch.
void check_scope(const PlanGraph& graph, StageId id, const Stage& stage, Diagnostics& problems) {
  if (stage.scope == SampleScope::kEach) return;
  const auto first = [&](auto is) -> const ModelText& {
    return graph
        .nodes[*std::find_if(stage.nodes.begin(), stage.nodes.end(), [&](PlanNodeId n) { return is(graph.nodes[n]); })]
        .label;
  };
  const bool whole = stage.scope == SampleScope::kBatch;
  const ModelText& node = first([&](const PlanNode& n) { return n.scope == stage.scope; });
  const int64_t batch = graph.batch.count, size = stage.choice.micro_batch.count;
  if (whole && size != batch)
    problems.push_back(bad_plan(node,
                                text("the node works on all ", batch, " samples of the batch together, but its stage ",
                                     id, " has micro-batches of ", size),
                                text("give the stage a micro-batch of ", batch,
                                     ", or say with --contrastive micro-batch or --batchnorm "
                                     "micro-batch that the samples of one micro-batch are meant")));
  const int64_t smallest = smallest_micro_batch(graph.batch, stage.choice.micro_batch);
  if (smallest < stage.fewest_samples)
    problems.push_back(bad_plan(first([&](const PlanNode& n) { return n.fewest_samples == stage.fewest_samples; }),
                                text("the node learns nothing from fewer than ", stage.fewest_samples,
                                     " samples, but its stage ", id, " has a micro-batch of ", smallest),
                                "use micro-batches of more samples, of which the batch is a multiple"));
}

Status check_mixing(const PlanGraph& graph, const StageGraph& result) {
  Diagnostics problems;
  for (StageId id : result.stage_ids()) {
    check_replicas(graph, id, result.stages[id], problems);
    check_scope(graph, id, result.stages[id], problems);
  }
  for (const StageEdge& edge : result.edges) {
    const StageChoice& from = result.stages[edge.from].choice;
    const StageChoice& to = result.stages[edge.to].choice;
    if (edge.batch != BatchKind::kMixed) continue;
    if (from.devices.size() == 1 && to.devices.size() == 1 && from.micro_batch == to.micro_batch) continue;
    problems.push_back(bad_plan(
        graph.nodes[graph.values[edge.value].producer].label,
        text("stages ", edge.from, " and ", edge.to, " exchange a value that mixes the samples of a micro-batch"),
        "give both one device and the same micro-batch, or put them into one stage"));
  }
  if (problems.empty()) return Ok{};
  return problems;
}

std::vector<StageId> neighbours(const StageGraph& graph, StageId stage, bool below) {
  std::vector<StageId> found;
  for (const StageEdge& edge : graph.edges)
    if ((below ? edge.from : edge.to) == stage) found.push_back(below ? edge.to : edge.from);
  sort_unique(found);
  return found;
}

}  // namespace

std::vector<StageId> StageGraph::predecessors(StageId stage) const { return neighbours(*this, stage, false); }
std::vector<StageId> StageGraph::successors(StageId stage) const { return neighbours(*this, stage, true); }

Result<StageGraph> build_stage_graph(const PlanGraph& graph, Assignment& assignment) {
  GP_TRY_VOID(check_shape(graph, assignment));
  Diagnostics problems;
  for (StageId stage : ids<StageId>(assignment.choice.size()))
    check_choice(assignment.choice[stage], stage.index(), graph.batch, problems);
  if (!problems.empty()) return problems;
  GP_TRY_VOID(check_colocation(graph, assignment));
  GP_TRY(const std::vector<StageId> order, stage_order(graph, assignment));
  renumber(assignment, order);

  StageGraph result;
  result.batch = graph.batch;
  result.execution = graph.execution;
  result.versions = graph.versions;
  result.one_sample = graph.one_sample;
  result.optimizer_state_per_weight_byte = graph.optimizer_state_per_weight_byte;
  for (const StageChoice& choice : assignment.choice) {
    Stage stage;
    stage.choice = choice;
    stage.has_backward = false;
    result.stages.push_back(std::move(stage));
  }
  add_nodes(graph, assignment, result);
  add_seconds(graph, result);
  add_edges(graph, assignment, result);
  add_weights(graph, result);
  add_shared_stash(graph, assignment, result);
  GP_TRY_VOID(check_mixing(graph, result));
  return result;
}

Result<StageGraph> with_batches(StageGraph graph, int64_t batches) {
  GP_CHECK(graph.batches == 1 && batches >= 1);
  for (const StageId stage : graph.stage_ids()) {
    const int64_t turns = graph.stages[stage].choice.samples_of_turns();
    if (batches == 1 || graph.batch.count % turns == 0) continue;
    return Diagnostic{
        .code = Code::kBadPlan,
        .message = text("stage ", stage, " takes ", turns, " samples in turn, which do not divide the batch of ",
                        graph.batch, ": a micro-batch would lie in two steps"),
        .hint = "take micro-batches that divide the batch, or --drain-every 1"};
  }
  if (graph.batch.count > std::numeric_limits<int32_t>::max() / batches)
    return Diagnostic{
        .code = Code::kBadPlan,
        .message = text(batches, " batches of ", graph.batch, " between two drains are more than 2^31 - 1"),
        .hint = "take a smaller --drain-every"};
  graph.batches = batches;
  graph.batch = Samples(graph.batch.count * batches);
  return graph;
}

int64_t micro_batch_count(const StageGraph& graph, StageId stage) {
  const int64_t size = graph.stages[stage].choice.micro_batch.count;
  return ceil_div(graph.batch.count, size);
}

int64_t max_micro_batches(const StageGraph& graph) {
  int64_t largest = 0;
  for (const StageId stage : graph.stage_ids()) largest = std::max(largest, micro_batch_count(graph, stage));
  return largest;
}

SampleRange item_range(const StageGraph& graph, StageId stage, int64_t index, int replica) {
  const StageChoice& choice = graph.stages[stage].choice;
  const int64_t first = index * choice.micro_batch.count;
  const int64_t size = std::min(choice.micro_batch.count, graph.batch.count - first);
  const int64_t replicas = static_cast<int64_t>(choice.devices.size());
  GP_CHECK(index >= 0 && size > 0 && replica >= 0 && replica < replicas);
  if (choice.mode == ReplicaMode::kRoundRobin) return {first, index % replicas == replica ? first + size : first};
  return {first + replica * size / replicas, first + (replica + 1) * size / replicas};
}

}  // namespace graphpipe::ir
