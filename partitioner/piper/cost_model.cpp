#include "partitioner/piper/cost_model.h"

#include <algorithm>
#include <set>

#include "partitioner/piper/cover_knapsack.h"
#include "support/check.h"
#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

std::vector<int> divisors(int64_t number, int64_t limit) {
  std::vector<int> found;
  for (int64_t d = 1; d <= std::min(number, limit); ++d)
    if (number % d == 0) found.push_back(static_cast<int>(d));
  return found;
}

}  // namespace

PiperCosts::PiperCosts(const UnitPrices& prices, const PiperOptions& options)
    : options_(options), dag_(prices.size(), prices.edges) {
  GP_CHECK(options.devices >= 1 && options.micro_batches >= 1 && options.bandwidth > 0);
  replicas_ = divisors(options.micro_batches, std::min(options.devices, options.max_replicas));
  collect_degrees(prices);
  collect_variants(prices);
  collect_links(prices);
  collect_syncs(prices);
}

void PiperCosts::collect_degrees(const UnitPrices& prices) {
  std::set<int> degrees;
  for (const ir::PlanNode& node : prices.graph->nodes) {
    if (node.alternatives.empty()) degrees.insert(1);
    for (const ir::NodeAlternative& way : node.alternatives) degrees.insert(way.degree);
  }
  for (const int degree : degrees)
    if (degree <= std::min(options_.devices, options_.max_degree)) degrees_.push_back(degree);
}

void PiperCosts::collect_variants(const UnitPrices& prices) {
  variant_start_ = {0};
  for (uint32_t layer = 0; layer < prices.size(); ++layer) {
    double cheapest = kInfinity;
    for (const int degree : degrees_) {
      const std::span<const ir::NodeAlternative> ways = alternatives_of(prices.node(layer), degree);
      const size_t first = variants_.size(), count = ways.size();
      const size_t from = options_.variants == VariantRule::kLast && count > 0 ? count - 1 : 0;
      const size_t to = options_.variants == VariantRule::kFirst ? std::min<size_t>(1, count) : count;
      for (size_t i = from; i < to; ++i)
        variants_.push_back({.variant = static_cast<int>(i),
                             .seconds = ways[i].seconds.total(1),
                             .weights = ways[i].weight_bytes,
                             .per_item = ways[i].kept_bytes,
                             .fixed = ways[i].fixed_bytes});
      max_variants_ = std::max(max_variants_, count);
      if (prices.node(layer).alternatives.empty() && degree == 1)
        variants_.push_back({.seconds = prices.seconds[layer], .weights = prices.weight_bytes[layer]});
      // The fastest first, then the one that takes less memory.
      std::stable_sort(
          variants_.begin() + static_cast<ptrdiff_t>(first), variants_.end(), [](const Option& a, const Option& b) {
            return std::tuple(a.seconds, a.per_item + a.fixed) < std::tuple(b.seconds, b.per_item + b.fixed);
          });
      for (size_t i = first; i < variants_.size(); ++i) {
        uniform_ = uniform_ && variants_[i].weights == variants_[first].weights;
        cheapest = std::min(cheapest, degree * variants_[i].seconds);
      }
      variant_start_.push_back(variants_.size());
    }
    min_work_.push_back(cheapest);
  }
}

void PiperCosts::collect_links(const UnitPrices& prices) {
  link_start_.assign(prices.size() + 1, 0);
  for (const auto& [from, to] : prices.edges) {
    ++link_start_[from + 1];
    ++link_start_[to + 1];
  }
  for (size_t i = 1; i < link_start_.size(); ++i) link_start_[i] += link_start_[i - 1];
  links_.resize(link_start_.back());
  std::vector<size_t> next(link_start_.begin(), link_start_.end() - 1);
  for (size_t edge = 0; edge < prices.edges.size(); ++edge) {
    const auto [from, to] = prices.edges[edge];
    links_[next[from]] = {to, static_cast<uint32_t>(next[to]), prices.edge_bytes[edge]};
    links_[next[to]++] = {from, static_cast<uint32_t>(next[from]), prices.edge_bytes[edge]};
    ++next[from];
  }
}

void PiperCosts::collect_syncs(const UnitPrices& prices) {
  syncs_.assign(links_.size() * degrees_.size() * max_variants_, 0);
  charges_.assign(links_.size() * degrees_.size(), 0);
  for (uint32_t layer = 0; layer < prices.size(); ++layer)
    for (size_t degree = 0; degree < degrees_.size(); ++degree) {
      const std::span<const ir::NodeAlternative> ways = alternatives_of(prices.node(layer), degrees_[degree]);
      for (size_t v = 0; v < ways.size(); ++v)
        for (const auto* side : {&ways[v].from, &ways[v].to})
          for (const auto& boundary : *side)
            for (size_t link = link_start_[layer]; link < link_start_[layer + 1]; ++link)
              if (prices.nodes[links_[link].other] == boundary.neighbour)
                syncs_[(link * degrees_.size() + degree) * max_variants_ + v] = boundary.bytes;
    }
  for (uint32_t layer = 0; layer < prices.size(); ++layer)
    for (size_t link = link_start_[layer]; link < link_start_[layer + 1]; ++link)
      for (size_t degree = 0; degree < degrees_.size(); ++degree) {
        double smallest = kInfinity, largest = 0;
        for (const Option& option : options_of(layer, degree)) {
          smallest = std::min(smallest, sync(link, degree, option.variant));
          largest = std::max(largest, sync(link, degree, option.variant));
        }
        if (smallest > largest) continue;  // the node lacks the degree
        uniform_ = uniform_ && smallest == largest;
        charges_[link * degrees_.size() + degree] = 2 * (links_[link].bytes + smallest);
      }
}

int PiperCosts::degree_index(int degree) const {
  const auto found = std::ranges::find(degrees_, degree);
  return found == degrees_.end() ? -1 : static_cast<int>(found - degrees_.begin());
}

int PiperCosts::max_replicas(size_t degree, int devices) const {
  const auto end = std::ranges::upper_bound(replicas_, devices / degrees_[degree]);
  return end == replicas_.begin() ? 0 : *(end - 1);
}

void PiperCosts::price_options(uint32_t layer, size_t degree, int replicas, const std::vector<char>& inside,
                               std::vector<double>& seconds) const {
  const auto options = options_of(layer, degree);
  std::fill(seconds.begin(), seconds.end(), 0.0);
  for (size_t link = link_start_[layer]; link < link_start_[layer + 1]; ++link)
    if (inside[links_[link].other] == 0)
      for (size_t i = 0; i < options.size(); ++i)
        seconds[i] += 2 * (links_[link].bytes + sync(link, degree, options[i].variant));
  for (size_t i = 0; i < options.size(); ++i)
    seconds[i] = options[i].seconds + seconds_of_cut(seconds[i]) + seconds_of_reduction(options[i].weights, replicas);
}

VariantChoice PiperCosts::choose(std::span<const uint32_t> layers, size_t degree, int replicas, int64_t items,
                                 bool quick) const {
  struct Change {
    size_t position;
    int variant;
  };
  std::vector<char> inside(dag_.size(), 0);
  for (const uint32_t layer : layers) inside[layer] = 1;
  const auto y = static_cast<double>(items);
  VariantChoice choice;
  double seconds = 0, memory = 0, min_memory = 0;
  std::vector<double> times(max_variants_);
  std::vector<CoverItem> savings;
  std::vector<Change> changes;
  for (size_t position = 0; position < layers.size(); ++position) {
    const uint32_t layer = layers[position];
    const auto options = options_of(layer, degree);
    if (options.empty()) return choice;
    price_options(layer, degree, replicas, inside, times);
    const auto time_of = [&](const Option& option) { return times[static_cast<size_t>(&option - options.data())]; };
    const auto memory_of = [&](const Option& option) { return option.per_item * y + option.fixed; };
    const Option* fast = &options.front();
    for (const Option& option : options)
      if (std::pair(time_of(option), memory_of(option)) < std::pair(time_of(*fast), memory_of(*fast))) fast = &option;
    choice.variants.push_back(fast->variant);
    seconds += time_of(*fast);
    memory += memory_of(*fast);
    double smallest = memory_of(*fast);
    for (const Option& option : options)
      if (memory_of(option) < memory_of(*fast)) {
        savings.push_back({time_of(option) - time_of(*fast), memory_of(*fast) - memory_of(option)});
        changes.push_back({position, option.variant});
        smallest = std::min(smallest, memory_of(option));
      }
    min_memory += smallest;
  }
  Cover cover{.possible = true};
  if (memory > options_.memory) {
    choice.shortfall = std::max(0.0, min_memory - options_.memory);
    const double need = memory - options_.memory;
    cover = options_.greedy || quick ? cover_greedy(savings, need) : cover_exact(savings, need);
    if (!cover.possible) return choice;
    for (const uint32_t item : cover.chosen) choice.variants[changes[item].position] = changes[item].variant;
  }
  choice.seconds = (seconds + cover.cost) / replicas;
  choice.bound = (seconds + cover.bound) / replicas;
  return choice;
}

PiperStage::PiperStage(const PiperCosts& costs) : costs_(costs), width_(costs.degrees().size()) { clear(); }

void PiperStage::clear() {
  stack_.assign(width_, {});
  inside_.assign(costs_.dag().size(), false);
}

void PiperStage::add(uint32_t layer) {
  const size_t before = stack_.size() - width_;
  stack_.resize(stack_.size() + width_);
  const size_t first = costs_.link_start_[layer], last = costs_.link_start_[layer + 1];
  for (size_t degree = 0; degree < width_; ++degree) {
    Sums sums = stack_[before + degree];
    const auto options = costs_.options_of(layer, degree);
    if (options.empty()) {
      ++sums.missing;
    } else {
      sums.seconds += options.front().seconds;
      sums.weights += options.front().weights;
      sums.per_item += options.front().per_item;
      sums.fixed += options.front().fixed;
      double smallest = kInfinity;
      for (const auto& option : options) smallest = std::min(smallest, option.per_item + option.fixed);
      sums.min_memory += smallest;
    }
    for (size_t link = first; link < last; ++link)
      sums.cut += inside_[costs_.links_[link].other] ? -costs_.charge(costs_.links_[link].mate, degree)
                                                     : costs_.charge(link, degree);
    stack_[before + width_ + degree] = sums;
  }
  inside_[layer] = true;
}

void PiperStage::remove(uint32_t layer) {
  inside_[layer] = false;
  stack_.resize(stack_.size() - width_);
}

}  // namespace graphpipe::partitioner
