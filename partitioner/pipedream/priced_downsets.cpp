#include "partitioner/pipedream/priced_downsets.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace graphpipe::partitioner {

namespace {

constexpr size_t kMaxLayersOfAntichains = 10'000;

// The layers before each one, it included.
class Ancestors {
 public:
  explicit Ancestors(const SetGraph& graph) : width_(graph.width), words_(graph.layers * graph.width, 0) {
    for (const LayerId id : graph.adjacency.order) {
      uint64_t* own = words_.data() + id.index() * width_;
      set_bit(own, id.index());
      for (const LayerId from : graph.adjacency.predecessors[id])
        for (size_t w = 0; w < width_; ++w) own[w] |= words_[from.index() * width_ + w];
    }
  }
  const uint64_t* operator[](LayerId id) const { return words_.data() + id.index() * width_; }

 private:
  size_t width_;
  Words words_;
};

// Quirk PD2: for a last layer x the layers before it that something not before it reads, and x.
class AntichainBoundaries {
 public:
  AntichainBoundaries(const LayerGraph& graph, const SetGraph& sets) : graph_(graph), sets_(sets) {
    const Ancestors ancestors(sets);
    senders_.assign(sets.layers * sets.width, 0);
    for (const LayerId x : graph.layer_ids()) {
      const uint64_t* before = ancestors[x];
      uint64_t* senders = senders_.data() + x.index() * sets.width;
      set_bit(senders, x.index());
      for (const LayerId p : graph.layer_ids())
        if (p != x && has_bit(before, p.index()))
          for (const LayerId reader : sets.adjacency.successors[p])
            if (!has_bit(before, reader.index())) set_bit(senders, p.index());
    }
  }

  double bytes(const uint64_t* set) const {
    Words all(sets_.width, 0);
    for (const LayerId x : graph_.layer_ids()) {
      if (!has_bit(set, x.index())) continue;
      const auto inside = [&](LayerId reader) { return has_bit(set, reader.index()); };
      if (std::ranges::any_of(sets_.adjacency.successors[x], inside)) continue;
      for (size_t w = 0; w < sets_.width; ++w) all[w] |= senders_[x.index() * sets_.width + w];
    }
    double sum = 0;
    for (const LayerId x : graph_.layer_ids())
      if (has_bit(all.data(), x.index())) sum += graph_.layers[x].output_bytes;
    return sum;
  }

 private:
  const LayerGraph& graph_;
  const SetGraph& sets_;
  Words senders_;
};

double exact_boundary(const LayerGraph& graph, const SetGraph& sets, const uint64_t* set) {
  double sum = 0;
  for (const LayerId x : graph.layer_ids()) {
    if (!has_bit(set, x.index())) continue;
    const auto outside = [&](LayerId reader) { return !has_bit(set, reader.index()); };
    if (std::ranges::any_of(sets.adjacency.successors[x], outside)) sum += graph.layers[x].output_bytes;
  }
  return sum;
}

}  // namespace

Status check_boundary_rule(const LayerGraph& graph, CutRule rule) {
  if (rule != CutRule::kBoundaryAntichain || graph.layers.size() <= kMaxLayersOfAntichains) return Ok{};
  return Diagnostic{.code = Code::kLimitExceeded,
                    .origin = ModelText("--compat"),
                    .message = text("the quirk PD2 takes a table of the square of ", graph.layers.size(), " layers"),
                    .hint = text("leave PD2 out above ", kMaxLayersOfAntichains, " layers")};
}

double quantum_of(const LayerGraph& graph) {
  std::vector<double> seconds;
  for (const Layer& layer : graph.layers) seconds.push_back(layer.seconds());
  std::ranges::sort(seconds);  // the same sum for every order of the layers
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return total > 0 ? std::ldexp(1.0, std::ilogb(total) - 59) : 1;
}

PricedDownsets::PricedDownsets(const LayerGraph& graph, const SetTable& sets, CutRule rule)
    : sets_(graph.layers.size()), quantum_(quantum_of(graph)) {
  const SetGraph neighbours(graph);
  std::vector<int64_t> ticks(sets.size(), 0);
  std::vector<int> counts(sets.size(), 0);
  IdMap<LayerId, int64_t> layer_ticks(graph.layers.size());
  for (const LayerId id : graph.layer_ids()) layer_ticks[id] = std::llround(graph.layers[id].seconds() / quantum_);
  for (size_t s = 0; s < sets.size(); ++s) {
    for (size_t w = 0; w < sets.width(); ++w) counts[s] += std::popcount(sets[s][w]);
    for (const LayerId id : graph.layer_ids())
      if (has_bit(sets[s], id.index())) ticks[s] += layer_ticks[id];
  }
  std::vector<uint32_t> order(sets.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    return std::tuple(ticks[a], counts[a], a) < std::tuple(ticks[b], counts[b], b);
  });
  const bool antichain = rule == CutRule::kBoundaryAntichain;
  std::optional<AntichainBoundaries> boundaries;
  if (antichain) boundaries.emplace(graph, neighbours);
  for (const uint32_t s : order) {
    sets_.add(sets[s]);
    ticks_.push_back(ticks[s]);
    double weights = 0, outputs = 0;
    for (const LayerId id : graph.layer_ids()) {
      if (!has_bit(sets[s], id.index())) continue;
      weights += graph.layers[id].weight_bytes;
      outputs += graph.layers[id].output_bytes;
    }
    weights_.push_back(weights);
    outputs_.push_back(outputs);
    const bool is_full = static_cast<size_t>(counts[s]) == graph.layers.size();
    leaving_.push_back(rule == CutRule::kNone || is_full ? 0
                       : antichain                             ? boundaries->bytes(sets[s])
                                                               : exact_boundary(graph, neighbours, sets[s]));
  }
}

std::vector<LayerId> PricedDownsets::stage(size_t from, size_t to) const {
  std::vector<LayerId> layers;
  for (size_t layer = 0; layer < sets_.layers(); ++layer)
    if (has_bit(sets_[to], layer) && !has_bit(sets_[from], layer)) layers.push_back(LayerId(layer));
  return layers;
}

bool add_downsets_of_first_source(const SetGraph& graph, size_t max_bytes, Deadline& deadline, SetTable& sets) {
  Words set(graph.width, 0);
  sets.add(set.data());
  // The layers before each one take a set each.
  if (graph.layers * graph.width * sizeof(uint64_t) > max_bytes) return false;
  const Ancestors ancestors(graph);
  for (size_t layer = 0; layer < graph.layers; ++layer) set_bit(set.data(), layer);
  const Words full = set;
  std::ranges::fill(set, 0);
  for (size_t layer = 0; layer < graph.layers; ++layer)
    if (graph.adjacency.predecessors[LayerId(layer)].empty()) {
      set_bit(set.data(), layer);
      break;
    }
  bool all = true;
  for (size_t at = sets.add(set.data()); at < sets.size() && all; ++at) {
    all = !(at % 64 == 0 && deadline.passed());
    const Words here(sets[at], sets[at] + graph.width);
    for (size_t u = 0; u < graph.layers; ++u) {
      if (!has_bit(here.data(), u)) continue;
      for (const LayerId v : graph.adjacency.successors[LayerId(u)]) {
        if (has_bit(here.data(), v.index())) continue;
        for (size_t w = 0; w < graph.width; ++w) set[w] = here[w] | ancestors[v][w];
        sets.add(set.data());
        if (sets.bytes() > max_bytes) return sets.add(full.data()), false;
      }
    }
  }
  sets.add(full.data());
  return all;
}

}  // namespace graphpipe::partitioner
