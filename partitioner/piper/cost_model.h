#pragma once
// What a stage costs by Piper's model (Tarnawski, Narayanan, Phanishayee, NeurIPS 2021): layers run with a
// tensor-parallel degree t and one of a few variants (plain, with recomputation), stages have d replicas.
//
//   seconds of a micro-batch = [ sum p + cut / B + 4 (d - 1) sum w / (N B) ] / d
//   memory of a device       = sum (a y + b),  y = ceil(s / d),  s = replicas of this and all later stages
//
// p, w, a, b of the variants chosen; cut: bytes of every edge that crosses the stage's boundary, with the bytes of its
// collective, twice; N micro-batches of a step, B bytes per second.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "partitioner/cost_models/unit_prices.h"
#include "support/units.h"

namespace graphpipe::partitioner {

enum class VariantRule : uint8_t {
  kChoose,  // each layer its own
  kFirst,   // the first one everywhere
  kLast,    // the last one everywhere: recomputation forced
};

struct PiperOptions {
  int devices = 1;
  int64_t micro_batches = 1;
  double bandwidth = 1e9, memory = kInfinity;
  /// Seconds that are charged per second of traffic (quirk P5).
  double communication_scale = 1;
  VariantRule variants = VariantRule::kChoose;
  /// Choose variants with cover_greedy instead of cover_exact (quirk P1).
  bool greedy = false;
  int max_replicas = std::numeric_limits<int>::max(), max_degree = std::numeric_limits<int>::max();
  /// Pairs of sets, and stages between them, that one search may look at.
  int64_t max_tries = std::numeric_limits<int64_t>::max();
};

/// The stage's time and the variant of each layer.
struct VariantChoice {
  /// Infinite where nothing fits the memory.
  double seconds = kInfinity;
  /// No choice of variants is faster.
  double bound = kInfinity;
  /// Bytes that are missing where nothing fits.
  double shortfall = 0;
  std::vector<int> variants;
};

class PiperCosts {
 public:
  /// Nodes without alternatives have degree 1 and one variant, with no memory.
  PiperCosts(const UnitPrices& prices, const PiperOptions& options);

  const PiperOptions& options() const { return options_; }
  const Dag& dag() const { return dag_; }
  /// Degrees that some layer offers, up to the limits; ascending.
  std::span<const int> degrees() const { return degrees_; }
  /// Divisors of the micro-batches up to the limits; ascending.
  std::span<const int> replicas() const { return replicas_; }
  int degree_index(int degree) const;
  /// Most replicas of a stage of the degree with this index, on `devices` devices; 0 where none fits.
  int max_replicas(size_t degree, int devices) const;
  bool offers(uint32_t layer, size_t degree) const { return !options_of(layer, degree).empty(); }
  /// Whether the variants of a layer differ in time and memory only, so that the best choice does not depend on d.
  bool uniform() const { return uniform_; }

  /// The fastest choice of variants that fits, by options().greedy or `quick` a good one with a bound of the fastest.
  /// `replicas` d, `items` y. Layers: ascending.
  VariantChoice choose(std::span<const uint32_t> layers, size_t degree, int replicas, int64_t items,
                       bool quick = false) const;
  /// What a unit of the cut or of the weights adds to the numerator of the formula above.
  double seconds_of_cut(double bytes) const { return options_.communication_scale * bytes / options_.bandwidth; }
  double seconds_of_reduction(double weights, int replicas) const {
    return options_.communication_scale * 4 * (replicas - 1) * weights /
           (static_cast<double>(options_.micro_batches) * options_.bandwidth);
  }
  /// Least device seconds of a layer alone: t p of its best degree and variant.
  double min_work(uint32_t layer) const { return min_work_[layer]; }

 private:
  friend class PiperStage;
  struct Option {
    int variant = 0;
    double seconds = 0, weights = 0, per_item = 0, fixed = 0;
  };
  /// One end of an edge.
  struct Link {
    uint32_t other;
    /// The same edge in the list of the other end.
    uint32_t mate;
    double bytes;
  };

  std::span<const Option> options_of(uint32_t layer, size_t degree) const {
    const size_t row = layer * degrees_.size() + degree;
    return std::span(variants_).subspan(variant_start_[row], variant_start_[row + 1] - variant_start_[row]);
  }
  std::span<const Link> links(uint32_t layer) const {
    return std::span(links_).subspan(link_start_[layer], link_start_[layer + 1] - link_start_[layer]);
  }
  /// Bytes of a link's collective.
  double sync(size_t link, size_t degree, int variant) const {
    return syncs_[(link * degrees_.size() + degree) * max_variants_ + static_cast<size_t>(variant)];
  }
  /// Twice the bytes of the edge with the least collective of the allowed variants.
  double charge(size_t link, size_t degree) const { return charges_[link * degrees_.size() + degree]; }

  /// By option of a layer its part of the numerator of the formula above, in a stage of the layers that are `inside`.
  void price_options(uint32_t layer, size_t degree, int replicas, const std::vector<char>& inside,
                     std::vector<double>& seconds) const;
  void collect_degrees(const UnitPrices& prices);
  void collect_variants(const UnitPrices& prices);
  void collect_links(const UnitPrices& prices);
  void collect_syncs(const UnitPrices& prices);

  PiperOptions options_;
  Dag dag_;
  std::vector<int> degrees_, replicas_;
  bool uniform_ = true;
  size_t max_variants_ = 1;
  std::vector<size_t> variant_start_, link_start_;
  std::vector<Option> variants_;
  std::vector<Link> links_;
  std::vector<double> syncs_, charges_, min_work_;
};

/// Sums over the layers of a stage that grows and shrinks by one layer at a time, for every degree.
class PiperStage {
 public:
  struct Sums {
    /// Of the fastest variants.
    double seconds = 0, weights = 0, per_item = 0, fixed = 0;
    /// With the least collectives.
    double cut = 0;
    /// With the smallest variants and one micro-batch in flight.
    double min_memory = 0;
    /// Layers that lack the degree.
    uint32_t missing = 0;
  };

  explicit PiperStage(const PiperCosts& costs);
  void clear();
  void add(uint32_t layer);
  /// Needs: the layer that was added last and not removed yet.
  void remove(uint32_t layer);
  const Sums& sums(size_t degree) const { return stack_[stack_.size() - width_ + degree]; }

 private:
  const PiperCosts& costs_;
  size_t width_;
  std::vector<Sums> stack_;
  std::vector<bool> inside_;
};

}  // namespace graphpipe::partitioner
