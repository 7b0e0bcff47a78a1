#include "partitioner/pipedream/priced_downsets.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "partitioner/cost_models/boundary_bytes.h"

namespace graphpipe::partitioner {

namespace {

constexpr size_t kMaxLayersOfAntichains = 10'000;

}  // namespace

Status check_boundary_rule(const UnitPrices& prices, TrafficRule rule) {
  if (rule != TrafficRule::kBoundaryAntichain || prices.size() <= kMaxLayersOfAntichains) return Ok{};
  return Diagnostic{.code = Code::kLimitExceeded,
                    .origin = ModelText("--compat"),
                    .message = text("the quirk PD2 takes a table of the square of ", prices.size(), " layers"),
                    .hint = text("leave PD2 out above ", kMaxLayersOfAntichains, " layers")};
}

double quantum_of(const UnitPrices& prices) {
  std::vector<double> seconds = prices.seconds;
  std::ranges::sort(seconds);  // the same sum for every order of the layers
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return total > 0 ? std::ldexp(1.0, std::ilogb(total) - 59) : 1;
}

PricedDownsets::PricedDownsets(const UnitPrices& prices, const SetTable& sets, TrafficRule rule)
    : sets_(prices.size()), quantum_(quantum_of(prices)) {
  const Dag dag(prices.size(), prices.edges);
  std::vector<int64_t> ticks(sets.size(), 0), layer_ticks;
  std::vector<size_t> counts(sets.size(), 0);
  for (const double seconds : prices.seconds) layer_ticks.push_back(std::llround(seconds / quantum_));
  for (size_t s = 0; s < sets.size(); ++s)
    for_each_bit(sets.words(s), [&](size_t layer) {
      ticks[s] += layer_ticks[layer];
      ++counts[s];
    });
  std::vector<uint32_t> order(sets.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    return std::tuple(ticks[a], counts[a], a) < std::tuple(ticks[b], counts[b], b);
  });
  const BoundaryBytes boundary(prices, dag, rule);
  for (const uint32_t s : order) {
    sets_.add(sets[s]);
    ticks_.push_back(ticks[s]);
    double weights = 0, outputs = 0;
    for_each_bit(sets.words(s), [&](size_t layer) {
      weights += prices.weight_bytes[layer];
      outputs += prices.output_bytes[layer];
    });
    weights_.push_back(weights);
    outputs_.push_back(outputs);
    leaving_.push_back(counts[s] == prices.size() ? 0 : boundary.of(sets.words(s)));
  }
}

std::vector<uint32_t> PricedDownsets::stage(size_t from, size_t to) const {
  std::vector<uint32_t> layers;
  for_each_bit(sets_.words(to), [&](size_t layer) {
    if (!has_bit(sets_[from], layer)) layers.push_back(static_cast<uint32_t>(layer));
  });
  return layers;
}

bool add_downsets_of_first_source(const Dag& dag, size_t max_bytes, const Deadline& deadline, SetTable& sets) {
  BitWords set(sets.width(), 0);
  sets.add(set.data());
  // The table of each node's ancestors takes one set per node.
  if (dag.size() * sets.width() * sizeof(uint64_t) > max_bytes) return false;
  const BitRows ancestors = ancestors_of(dag);
  BitWords full(sets.width(), 0);
  for (uint32_t node = 0; node < dag.size(); ++node) set_bit(full.data(), node);
  for (uint32_t node = 0; node < dag.size(); ++node)
    if (dag.predecessors(node).empty()) {
      set_bit(set.data(), node);
      break;
    }
  bool all = true;
  for (size_t at = sets.add(set.data()); at < sets.size() && all; ++at) {
    all = !(at % 64 == 0 && deadline.passed());
    const BitWords here(sets[at], sets[at] + sets.width());
    for (uint32_t u = 0; u < dag.size(); ++u) {
      if (!has_bit(here.data(), u)) continue;
      for (const uint32_t v : dag.successors(u)) {
        if (has_bit(here.data(), v)) continue;
        for (size_t w = 0; w < sets.width(); ++w) set[w] = here[w] | ancestors[v][w];
        sets.add(set.data());
        if (sets.bytes() > max_bytes) return sets.add(full.data()), false;
      }
    }
  }
  sets.add(full.data());
  return all;
}

}  // namespace graphpipe::partitioner
