#include "cost/in_flight.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cost/cycle_period.h"
#include "cost/memory.h"
#include "support/integer_math.h"
#include "support/units.h"

namespace graphpipe::cost {

namespace {

using ir::StageId;

/// Tolerance for rounding errors: a ratio that should be an integer may come out slightly larger. Far below one sample.
constexpr double kSlack = 1e-7;

int64_t ceil_samples(double samples, int64_t limit) {
  if (!(samples < static_cast<double>(limit))) return limit;
  return static_cast<int64_t>(std::ceil(samples - kSlack));
}

}  // namespace

InFlightDemand in_flight_demand(const InFlightStage& stage, std::span<const InFlightDemand> readers, double period,
                                int64_t batch) {
  const int64_t round = stage.round();
  const int64_t max_samples = round_up(batch, stage.micro_batch);
  const double own = static_cast<double>(round) * stage.seconds_per_sample / period;
  double reach = 0;
  int64_t min_samples = round;
  for (const InFlightDemand& reader : readers) {
    const double wait = static_cast<double>(std::max<int64_t>(0, reader.round - round));
    reach = std::max(reach, own + wait + stage.hop_seconds / period + reader.turnaround);
    min_samples = std::max(min_samples, reader.samples + round - std::gcd(round, reader.round));
  }
  InFlightDemand demand;
  demand.round = round;
  demand.samples = round_up(std::max(min_samples, ceil_samples(reach, max_samples)), stage.micro_batch);
  demand.samples = std::min(demand.samples, max_samples);
  demand.turnaround = std::max(static_cast<double>(demand.samples - round) + own, reach);
  return demand;
}

InFlightStage in_flight_stage(const ir::StageChoice& choice, const StageCost& cost) {
  InFlightStage stage;
  stage.micro_batch = choice.micro_batch.count;
  stage.k = choice.k;
  stage.parallel_items = static_cast<int>(choice.turns());
  stage.seconds_per_sample = cost.compute_per_sample();
  stage.hop_seconds = cost.hop_down + cost.hop_up;
  return stage;
}

IdMap<StageId, Samples> in_flight_at(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                                     double period) {
  const size_t count = graph.stages.size();
  std::vector<std::vector<size_t>> readers(count);
  for (const ir::StageEdge& edge : graph.edges) readers[edge.from.index()].push_back(edge.to.index());
  std::vector<InFlightDemand> flights(count);
  IdMap<StageId, Samples> samples(count);
  for (size_t i = count; i-- > 0;) {
    const StageId stage(i);
    std::vector<InFlightDemand> below;
    for (size_t reader : readers[i]) below.push_back(flights[reader]);
    flights[i] =
        in_flight_demand(in_flight_stage(graph.stages[stage].choice, costs[stage]), below, period, graph.batch.count);
    samples[stage] = Samples(flights[i].samples);
  }
  return samples;
}

InFlightPlan in_flight(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  const IdMap<StageId, StageCost> costs = stage_costs(graph, cluster);
  return in_flight(graph, cluster, costs, bottleneck_period(graph, cluster, costs));
}

InFlightPlan in_flight(const ir::StageGraph& graph, const ir::Cluster& cluster, const IdMap<StageId, StageCost>& costs,
                       double bottleneck) {
  const double fastest = std::max(bottleneck, kMinSeconds);
  const auto at = [&](double period) {
    InFlightPlan result;
    result.fastest = fastest;
    result.samples = in_flight_at(graph, costs, period);
    if (std::isfinite(period)) result.samples = raise_to_period(graph, costs, period, std::move(result.samples));
    result.period = period;
    result.fits = memory_shortfall(graph, cluster, result.samples) <= Bytes(0);
    return result;
  };
  InFlightPlan best = at(fastest);
  if (best.fits) return best;
  // No cycle takes longer than all work of one round and all hops, so a longer period does not change the numbers.
  double slowest = 0;
  for (StageId stage : graph.stage_ids()) slowest += costs[stage].item() + costs[stage].hop_down + costs[stage].hop_up;
  slowest = std::max(slowest * static_cast<double>(graph.batch.count), fastest);
  InFlightPlan fewest = at(kInfinity);
  fewest.period = slowest;
  if (!fewest.fits) return fewest;
  constexpr double kPrecision = 1e-3;
  double low = fastest, high = slowest;
  best = std::move(fewest);
  while (high > low * (1 + kPrecision)) {
    const double middle = std::sqrt(low * high);
    InFlightPlan attempt = at(middle);
    (attempt.fits ? high : low) = middle;
    if (attempt.fits) best = std::move(attempt);
  }
  return best;
}

}  // namespace graphpipe::cost
