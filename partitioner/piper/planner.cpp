#include "partitioner/piper/planner.h"

#include <algorithm>
#include <array>

#include "partitioner/baselines/equal_split.h"
#include "partitioner/cost_models/plan_price.h"
#include "partitioner/cost_models/quirks.h"
#include "partitioner/graph/bounded_lattice.h"
#include "partitioner/piper/pipeline_dp.h"
#include "support/deadline.h"
#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

constexpr std::array kPiperQuirks = {
    quirks::kGreedyKnapsack,
    quirks::kReplicasAlways,
    quirks::kDevicesForEmptyEnd,
    quirks::kMixedTimeUnits,
};
constexpr int kMaxPiperDevices = 10'000;

double communication_scale(const UnitRequest& request) {
  if (!request.charge_traffic) return 0;
  return request.has(quirks::kMixedTimeUnits) ? request.prices->time_unit_seconds : 1;
}

PiperOptions options_of(const UnitRequest& request) {
  return {.devices = request.machine.devices(),
          .micro_batches = std::max<int64_t>(1, request.micro_batches),
          .bandwidth = request.machine.levels.front().bandwidth,
          .memory = request.machine.memory,
          .communication_scale = communication_scale(request),
          .variants = request.recompute ? VariantRule::kChoose : VariantRule::kFirst,
          .greedy = request.has(quirks::kGreedyKnapsack),
          .max_replicas = request.replication ? std::numeric_limits<int>::max() : 1,
          .max_degree = request.max_degree,
          .max_tries = request.max_pairs};
}

Status check_request(const UnitRequest& request) {
  if (request.machine.devices() > kMaxPiperDevices)
    return Diagnostic{.code = Code::kUsage,
                      .message = text(request.machine.devices(), " devices are more than this planner takes"),
                      .hint = text("plan for at most ", kMaxPiperDevices)};
  return Ok{};
}

/// Bytes of the edges that leave a set of layers.
double cut_bytes(const UnitPrices& prices, std::span<const uint64_t> bits) {
  double bytes = 0;
  for (size_t edge = 0; edge < prices.edges.size(); ++edge)
    if (has_bit(bits.data(), prices.edges[edge].first) && !has_bit(bits.data(), prices.edges[edge].second))
      bytes += prices.edge_bytes[edge];
  return bytes;
}

UnitAnswer answer_of(const UnitRequest& request, const std::vector<PiperStageChoice>& stages) {
  UnitAnswer answer;
  int next_device = 0;
  for (const PiperStageChoice& choice : stages) {
    add_stage(*request.prices, choice.layers, on_devices(next_device, choice.replicas, choice.degree), choice.variants,
              answer.plan);
    next_device += choice.replicas * choice.degree;
  }
  answer.model = {.overlap = Overlap::kAdd,
                  .traffic = TrafficRule::kStageEdges,
                  .memory = MemoryRule::kVariants,
                  .communication_scale = communication_scale(request),
                  .reduction_factor = 4,
                  .reduction_every = std::max<int64_t>(1, request.micro_batches)};
  const double units = request.prices->units_per_second();
  answer.unit = request.prices->time_unit();
  answer.objective = units * price_plan(*request.prices, answer.plan, request.machine, answer.model).bottleneck;
  return answer;
}

/// The least memory of a device at which some pipeline exists, to about one percent.
double min_memory(const UnitPrices& prices, PiperOptions options, const Lattice& lattice, const Deadline& deadline) {
  const auto fits = [&](double memory) {
    options.memory = memory;
    const PiperCosts costs(prices, options);
    return has_piper_pipeline(costs, lattice, [&] { return deadline.passed(); });
  };
  double low = options.memory, high = std::max(1.0, options.memory);
  do high *= 2;
  while (!fits(high) && high < 1e24 && !deadline.passed());
  while (high > low * 1.01 && !deadline.passed()) {
    const double middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

Diagnostic no_plan(const UnitRequest& request, const Lattice& lattice, const Deadline& deadline) {
  Diagnostic none{.code = Code::kNoFeasiblePlan,
                  .message = text("no linear pipeline fits ", request.machine.memory, " bytes a device"),
                  .hint = "give the devices more memory, or plan for more devices"};
  if (!request.measure_shortfall) return none;
  const double missing = min_memory(*request.prices, options_of(request), lattice, deadline) - request.machine.memory;
  none.message += text(": about ", missing, " bytes more are needed");
  return none;
}

}  // namespace

std::span<const Quirk> piper_quirks() { return kPiperQuirks; }

Result<UnitAnswer> plan_piper(const UnitRequest& request) {
  GP_TRY_VOID(check_request(request));
  const Deadline deadline(request.time_limit, request.cancel);
  const auto stop = [&] { return deadline.passed(); };
  bool is_listed = false;
  const auto why_stopped = [&] {
    return deadline.passed() ? deadline.reason()
           : is_listed       ? std::string("the search looked at as many pairs of sets as it may")
                             : std::string("the graph has more layers than the memory budget holds sets of them");
  };
  const PiperCosts costs(*request.prices, options_of(request));
  const auto cut = [&](std::span<const uint64_t> bits) { return cut_bytes(*request.prices, bits); };
  // One order is searched in no time; what it gives bounds the search over all downsets.
  const Dag line = chained(costs.dag(), lattice_order(costs.dag()));
  const std::optional<Lattice> prefixes = Lattice::enumerate(line, {.max_bytes = request.memory_budget, .stop = stop});
  PiperDpResult found;
  if (prefixes) found = search_piper(costs, *prefixes, stop);
  const std::optional<Lattice> lattice = bounded_lattice(costs.dag(), request.memory_budget, cut, stop);
  is_listed = lattice.has_value();
  if (lattice) found = search_piper(costs, *lattice, stop, std::move(found));
  // Nothing found proves that nothing fits only where all was looked at.
  const bool is_unproven = !lattice || !found.complete || deadline.passed();
  if (found.stages.empty() && is_unproven) {
    EqualSplit split = split_equally(*request.prices, costs, request.has(quirks::kDevicesForEmptyEnd));
    found = {.stages = std::move(split.stages), .objective = split.objective, .complete = false};
  }
  if (found.stages.empty()) {
    if (is_unproven)
      return Diagnostic{.code = Code::kInterrupted,
                        .message = why_stopped() + " before any plan was found",
                        .hint = deadline.passed() ? "give the search more time"
                                                  : "use the planner graphpipe, which contracts large graphs"};
    return no_plan(request, *lattice, deadline);
  }
  UnitAnswer answer = answer_of(request, found.stages);
  const double units = request.prices->units_per_second();
  found.complete = found.complete && lattice;
  const bool is_proof = lattice && lattice->complete() && found.variants_proven;
  answer.bound = std::min(answer.objective, units * std::max(is_proof ? found.bound : 0, min_piper_bottleneck(costs)));
  if (found.complete && is_proof) answer.bound = answer.objective;
  answer.complete = found.complete;
  if (!found.complete) answer.stopped = why_stopped();
  else if (!lattice->complete())
    answer.stopped =
        "the graph has more downsets than the memory budget holds: those with the smallest cuts were tried";
  answer.states = lattice ? static_cast<int64_t>(lattice->size()) : 0;
  answer.pairs = found.pairs;
  answer.search_seconds = deadline.seconds();
  return answer;
}

Result<UnitAnswer> plan_equal_runs(const UnitRequest& request) {
  GP_TRY_VOID(check_request(request));
  const Deadline deadline(request.time_limit, request.cancel);
  PiperOptions options = options_of(request);
  if (request.has(quirks::kReplicasAlways)) options.max_replicas = std::numeric_limits<int>::max();
  std::vector<PiperStageChoice> best;
  double objective = kInfinity;
  for (const VariantRule rule : {VariantRule::kFirst, VariantRule::kLast}) {
    if (rule == VariantRule::kLast && !request.recompute) break;
    options.variants = rule;
    const PiperCosts costs(*request.prices, options);
    EqualSplit split = split_equally(*request.prices, costs, request.has(quirks::kDevicesForEmptyEnd));
    if (split.objective < objective) {
      objective = split.objective;
      best = std::move(split.stages);
    }
  }
  if (best.empty())
    return Diagnostic{.code = Code::kNoFeasiblePlan,
                      .message = text("no equal split fits ", request.machine.memory, " bytes a device"),
                      .hint = "give the devices more memory, or use the planner piper"};
  UnitAnswer answer = answer_of(request, best);
  answer.bound = answer.objective;
  answer.search_seconds = deadline.seconds();
  return answer;
}

}  // namespace graphpipe::partitioner
