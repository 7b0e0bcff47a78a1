#include "partitioner/tarnawski/planner.h"

#include <algorithm>
#include <array>

#include "partitioner/cost_models/plan_price.h"
#include "partitioner/cost_models/quirks.h"
#include "partitioner/graph/bounded_lattice.h"
#include "partitioner/tarnawski/max_load_dp.h"
#include "partitioner/tarnawski/non_contiguous.h"
#include "support/deadline.h"

namespace graphpipe::partitioner {
namespace {

constexpr std::array kMaxThroughputQuirks = {
    quirks::kBiconnectedTogether,
    quirks::kOneLinearOrder,
};

/// Seconds of the tensors that cross the boundary of a set.
double crossing_seconds(const MaxLoadGraph& graph, std::span<const uint64_t> bits) {
  double seconds = 0;
  for (const MaxLoadGraph::Tensor& tensor : graph.tensors) {
    const auto inside = [&](uint32_t node) { return has_bit(bits.data(), node); };
    if (inside(tensor.nodes.front()) != std::ranges::all_of(tensor.nodes, inside) ||
        std::ranges::any_of(tensor.nodes, inside) != std::ranges::all_of(tensor.nodes, inside))
      seconds += tensor.seconds;
  }
  return seconds;
}

ir::Assignment plan_of(const UnitRequest& request, const MaxLoadGraph& graph, const std::vector<MaxLoadStage>& stages) {
  ir::Assignment plan;
  int next_accelerator = 0, next_cpu = request.machine.devices();
  for (const MaxLoadStage& chosen : stages)
    add_stage(*request.prices, graph.layers_of(chosen.nodes),
              on_devices(chosen.on_cpu ? next_cpu++ : next_accelerator++, 1), {}, plan);
  return plan;
}

struct Found {
  MaxLoadResult result;
  /// Whether the result's bound holds for all placements of the search space.
  bool is_proof = true;
  int64_t states = 0;
};

/// Runs of about equal work along one order, one to an accelerator; nothing where that does not fit. A plan for when
/// there is no time to search.
std::vector<MaxLoadStage> equal_runs(const MaxLoadGraph& graph, std::span<const uint32_t> order,
                                     const MaxLoadOptions& options) {
  double total = 0, before = 0, bytes = 0;
  for (const MaxLoadGraph::Node& node : graph.nodes) total += node.accelerator;
  std::vector<MaxLoadStage> runs(1);
  for (const uint32_t id : order) {
    const MaxLoadGraph::Node& node = graph.nodes[id];
    const double share = total * static_cast<double>(runs.size()) / options.accelerators;
    if (!runs.back().nodes.empty() && (before >= share || bytes + node.bytes > options.memory)) {
      runs.emplace_back();
      bytes = 0;
    }
    before += node.accelerator;
    bytes += node.bytes;
    if (!node.on_accelerator || bytes > options.memory || std::ssize(runs) > options.accelerators) return {};
    runs.back().nodes.push_back(id);
  }
  return runs;
}

/// One order is searched in no time, and what it gives bounds the search over all downsets.
Found search(const UnitRequest& request, const MaxLoadGraph& graph, const MaxLoadOptions& options) {
  Found found;
  const Dag dag(graph.nodes.size(), graph.edges);
  const std::vector<uint32_t> order = last_in_first_out_order(graph.nodes.size(), graph.edges);
  const Dag line = chained(dag, order);
  const std::optional<Lattice> prefixes =
      Lattice::enumerate(line, {.max_bytes = request.memory_budget, .stop = options.stop});
  if (prefixes) {
    found.states = static_cast<int64_t>(prefixes->size());
    found.result = search_max_load(graph, *prefixes, options);
  }
  if (!prefixes || (found.result.stages.empty() && !found.result.complete)) {
    found.result.stages = equal_runs(graph, order, options);
    found.result.complete = found.is_proof = false;
    return found;
  }
  if (request.has(quirks::kBiconnectedTogether) || request.has(quirks::kOneLinearOrder)) return found;
  found.is_proof = false;
  const auto cut = [&](std::span<const uint64_t> bits) { return crossing_seconds(graph, bits); };
  const std::optional<Lattice> lattice = bounded_lattice(dag, request.memory_budget, cut, options.stop);
  if (!lattice) {
    found.result.complete = false;
    return found;
  }
  MaxLoadOptions better_only = options;
  better_only.below = found.result.objective;
  MaxLoadResult better = search_max_load(graph, *lattice, better_only);
  better.pairs += found.result.pairs;
  if (better.stages.empty()) {
    better.stages = std::move(found.result.stages);
    better.objective = found.result.objective;
  }
  return {
      .result = std::move(better), .is_proof = lattice->complete(), .states = static_cast<int64_t>(lattice->size())};
}

Diagnostic no_plan(const UnitRequest& request, const MaxLoadGraph& graph) {
  double largest = 0, total = 0;
  for (const MaxLoadGraph::Node& node : graph.nodes) {
    largest = std::max(largest, node.bytes);
    total += node.bytes;
  }
  const double missing = std::max(largest, total / request.machine.devices()) - request.machine.memory;
  return {.code = Code::kNoFeasiblePlan,
          .message = missing > 0 ? text("the layers do not fit accelerators of ", request.machine.memory,
                                        " bytes: at least ", missing, " bytes more are needed on each")
                                 : text("no placement fits accelerators of ", request.machine.memory, " bytes"),
          .hint = "give the accelerators more memory, or plan for more devices"};
}

Result<UnitAnswer> plan_contiguous(const UnitRequest& request, const Deadline& deadline) {
  const MaxLoadGraph graph =
      fuse_nodes(*request.prices, request.has(quirks::kBiconnectedTogether) ? Fusion::kBiconnected : Fusion::kClasses);
  const MaxLoadOptions options{.accelerators = request.machine.devices(),
                               .cpus = request.machine.cpus,
                               .memory = request.machine.memory,
                               .stop = [&] { return deadline.passed(); },
                               .max_pairs = request.max_pairs};
  const Found found = search(request, graph, options);
  const std::string why_stopped =
      deadline.passed() ? deadline.reason() : "the search looked at as many pairs of sets as it may, or holds";
  if (found.result.stages.empty()) {
    if (found.result.complete) return no_plan(request, graph);
    return Diagnostic{.code = Code::kInterrupted,
                      .message = why_stopped + " before any plan was found",
                      .hint = deadline.passed() ? "give the search more time"
                                                : "use the planner graphpipe, which contracts large graphs"};
  }
  const double units = request.prices->units_per_second();
  UnitAnswer answer{.plan = plan_of(request, graph, found.result.stages), .model = max_throughput_model()};
  answer.unit = request.prices->time_unit();
  answer.objective = units * price_plan(*request.prices, answer.plan, request.machine, answer.model).bottleneck;
  answer.complete = found.result.complete;
  if (answer.complete && found.is_proof) answer.bound = answer.objective;
  else answer.bound = units * (found.is_proof ? found.result.bound : min_max_load(graph, options));
  answer.bound = std::min(answer.bound, answer.objective);
  if (!answer.complete) answer.stopped = why_stopped;
  else if (!found.is_proof)
    answer.stopped =
        "the graph has more downsets than the memory budget holds: those with the smallest cuts were tried";
  answer.states = found.states;
  answer.pairs = found.result.pairs;
  answer.search_seconds = deadline.seconds();
  return answer;
}

}  // namespace

std::span<const Quirk> max_throughput_quirks() { return kMaxThroughputQuirks; }

CostModel max_throughput_model() {
  return {.overlap = Overlap::kAdd,
          .traffic = TrafficRule::kStageTransfers,
          .memory = MemoryRule::kMeasured,
          .reduction_factor = 0};
}

Result<UnitAnswer> plan_max_throughput(const UnitRequest& request) {
  if (request.non_contiguous && !request.compat.empty())
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText("--non-contiguous"),
                      .message = text("with --compat ", *request.compat.begin(), " each device has one run of layers"),
                      .hint = "leave one of the two out"};
  const Deadline deadline(request.time_limit, request.cancel);
  Result<UnitAnswer> contiguous = plan_contiguous(request, deadline);
  return request.non_contiguous ? plan_non_contiguous(request, contiguous, deadline) : contiguous;
}

}  // namespace graphpipe::partitioner
