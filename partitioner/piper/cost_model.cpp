#include "partitioner/piper/cost_model.h"

#include <algorithm>
#include <set>

#include "partitioner/piper/cover_knapsack.h"
#include "support/check.h"
#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

std::vector<int> divisors(int64_t number, int64_t most) {
  std::vector<int> found;
  for (int64_t d = 1; d <= std::min(number, most); ++d)
    if (number % d == 0) found.push_back(static_cast<int>(d));
  return found;
}

std::vector<std::pair<uint32_t, uint32_t>> edges_of(const LayerGraph& graph) {
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (const LayerEdge& edge : graph.edges)
    edges.emplace_back(static_cast<uint32_t>(edge.from.index()), static_cast<uint32_t>(edge.to.index()));
  return edges;
}

}  // namespace

PiperCosts::PiperCosts(const LayerGraph& graph, const PiperOptions& options)
    : options_(options), dag_(graph.layers.size(), edges_of(graph)) {
  GP_CHECK(options.devices >= 1 && options.micro_batches >= 1 && options.bandwidth > 0);
  replicas_ = divisors(options.micro_batches, std::min(options.devices, options.max_replicas));
  collect_degrees(graph);
  collect_variants(graph);
  collect_links(graph);
  collect_syncs(graph);
}

void PiperCosts::collect_degrees(const LayerGraph& graph) {
  std::set<int> degrees;
  for (const Layer& layer : graph.layers) {
    if (layer.degrees.empty()) degrees.insert(1);
    for (const LayerDegree& degree : layer.degrees) degrees.insert(degree.degree);
  }
  for (const int degree : degrees)
    if (degree <= std::min(options_.devices, options_.max_degree)) degrees_.push_back(degree);
}

void PiperCosts::collect_variants(const LayerGraph& graph) {
  variant_start_ = {0};
  for (const Layer& layer : graph.layers) {
    double least = kInfinity;
    for (const int degree : degrees_) {
      const auto found = std::ranges::find(layer.degrees, degree, &LayerDegree::degree);
      const size_t first = variants_.size();
      if (found != layer.degrees.end()) {
        const int count = static_cast<int>(found->variants.size());
        const int from = options_.variants == VariantRule::kLast ? count - 1 : 0;
        const int to = options_.variants == VariantRule::kFirst ? 1 : count;
        for (int i = from; i < to; ++i) {
          const LayerVariant& variant = found->variants[static_cast<size_t>(i)];
          variants_.push_back({.variant = i,
                               .seconds = variant.seconds,
                               .weights = variant.weight_bytes,
                               .per_item = variant.memory_per_item,
                               .fixed = variant.memory_fixed});
        }
        max_variants_ = std::max(max_variants_, found->variants.size());
      } else if (layer.degrees.empty() && degree == 1) {
        variants_.push_back({.seconds = layer.seconds(), .weights = layer.weight_bytes});
      }
      // The fastest first, then the one that takes less.
      std::stable_sort(
          variants_.begin() + static_cast<ptrdiff_t>(first), variants_.end(), [](const Option& a, const Option& b) {
            return std::tuple(a.seconds, a.per_item + a.fixed) < std::tuple(b.seconds, b.per_item + b.fixed);
          });
      for (size_t i = first; i < variants_.size(); ++i) {
        uniform_ = uniform_ && variants_[i].weights == variants_[first].weights;
        least = std::min(least, degree * variants_[i].seconds);
      }
      variant_start_.push_back(variants_.size());
    }
    least_work_.push_back(least);
  }
}

void PiperCosts::collect_links(const LayerGraph& graph) {
  link_start_.assign(graph.layers.size() + 1, 0);
  for (const LayerEdge& edge : graph.edges) {
    ++link_start_[edge.from.index() + 1];
    ++link_start_[edge.to.index() + 1];
  }
  for (size_t i = 1; i < link_start_.size(); ++i) link_start_[i] += link_start_[i - 1];
  links_.resize(link_start_.back());
  std::vector<size_t> next(link_start_.begin(), link_start_.end() - 1);
  for (const LayerEdge& edge : graph.edges) {
    const size_t from = edge.from.index(), to = edge.to.index();
    links_[next[from]] = {static_cast<uint32_t>(to), static_cast<uint32_t>(next[to]), edge.bytes};
    links_[next[to]++] = {static_cast<uint32_t>(from), static_cast<uint32_t>(next[from]), edge.bytes};
    ++next[from];
  }
}

void PiperCosts::collect_syncs(const LayerGraph& graph) {
  syncs_.assign(links_.size() * degrees_.size() * max_variants_, 0);
  charges_.assign(links_.size() * degrees_.size(), 0);
  for (uint32_t layer = 0; layer < graph.layers.size(); ++layer)
    for (const LayerDegree& degree : graph.layers[LayerId(layer)].degrees) {
      const auto row = std::ranges::find(degrees_, degree.degree);
      if (row == degrees_.end()) continue;
      for (size_t v = 0; v < degree.variants.size(); ++v)
        for (const auto* side : {&degree.variants[v].sync_from, &degree.variants[v].sync_to})
          for (const LayerSync& sync : *side)
            for (size_t link = link_start_[layer]; link < link_start_[layer + 1]; ++link)
              if (links_[link].other == sync.neighbour.index())
                syncs_[(link * degrees_.size() + static_cast<size_t>(row - degrees_.begin())) * max_variants_ + v] =
                    sync.bytes;
    }
  for (uint32_t layer = 0; layer < graph.layers.size(); ++layer)
    for (size_t link = link_start_[layer]; link < link_start_[layer + 1]; ++link)
      for (size_t degree = 0; degree < degrees_.size(); ++degree) {
        double least = kInfinity, most = 0;
        for (const Option& option : options_of(layer, degree)) {
          least = std::min(least, sync(link, degree, option.variant));
          most = std::max(most, sync(link, degree, option.variant));
        }
        if (least > most) continue;  // the layer lacks the degree
        uniform_ = uniform_ && least == most;
        charges_[link * degrees_.size() + degree] = 2 * (links_[link].bytes + least);
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
  double seconds = 0, memory = 0, least_memory = 0;
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
    double least = memory_of(*fast);
    for (const Option& option : options)
      if (memory_of(option) < memory_of(*fast)) {
        savings.push_back({time_of(option) - time_of(*fast), memory_of(*fast) - memory_of(option)});
        changes.push_back({position, option.variant});
        least = std::min(least, memory_of(option));
      }
    least_memory += least;
  }
  Cover cover{.possible = true};
  if (memory > options_.memory) {
    choice.shortfall = std::max(0.0, least_memory - options_.memory);
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
      double least = kInfinity;
      for (const auto& option : options) least = std::min(least, option.per_item + option.fixed);
      sums.least_memory += least;
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
