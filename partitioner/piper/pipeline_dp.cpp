#include "partitioner/piper/pipeline_dp.h"

#include <algorithm>
#include <unordered_map>

#include "support/integer_math.h"
#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

/// Thresholds closer than this, relatively, count as one.
constexpr double kSame = 1e-12;
constexpr size_t kMaxCached = 2'000'000;

/// A plan for the layers outside a set: the devices and replicas that it takes in all.
struct Point {
  int devices = 0, replicas = 0;
  /// Its first stage: the layers of the set `next` that are not in this one. The rest is point `next_point` of `next`.
  uint32_t next = 0, next_point = 0;
  int degree = 0, own_replicas = 0;
};

struct StageKey {
  uint32_t from, to;
  int degree, replicas;
  int64_t items;
  bool operator==(const StageKey&) const = default;
};

struct StageKeyHash {
  size_t operator()(const StageKey& key) const {
    uint64_t hash = (uint64_t{key.from} << 32 | key.to) * 0x9E3779B97F4A7C15ull;
    hash ^= (static_cast<uint64_t>(key.items) << 32 ^ static_cast<uint64_t>(key.degree) << 24 ^
             static_cast<uint64_t>(key.replicas)) *
            0xBF58476D1CE4E5B9ull;
    return hash ^ (hash >> 29);
  }
};

class PiperDp {
 public:
  PiperDp(const PiperCosts& costs, const Lattice& lattice, const std::function<bool()>& stop)
      : costs_(costs), lattice_(lattice), stop_(stop), stage_(costs), walk_(lattice), points_(lattice.size()) {
    const int devices = costs.options().devices;
    max_replicas_ = static_cast<int>(std::min<int64_t>(costs.options().micro_batches, devices));
    for (size_t degree = 0; degree < costs.degrees().size(); ++degree)
      max_of_degree_.push_back(costs.max_replicas(degree, devices));
    work_.assign(lattice.size(), 0);
    for (uint32_t set = 1; set < lattice.size(); ++set) {
      const Lattice::Step step = lattice.down(set).front();
      work_[set] = work_[step.set] + costs.min_work(step.node);
    }
  }

  PiperDpResult run(PiperDpResult known) {
    result_.stages = std::move(known.stages);
    result_.objective = known.objective;
    result_.pairs = known.pairs;
    result_.bound = min_piper_bottleneck(costs_);
    const double initial_bound = result_.bound;
    for (double slack = 0.01; !stopped_ && result_.stages.empty() && result_.bound < kInfinity; slack *= 4) {
      const bool is_last = slack > 1e4 || initial_bound == 0;
      if (!try_limit(is_last ? kInfinity : std::max(initial_bound * (1 + slack), result_.bound)) && is_last) break;
    }
    // Limits near the bound are quick to refute, those near the best objective are not: so the limits go up from the
    // bound in steps that double.
    double step = (result_.objective - result_.bound) / 16;
    while (!stopped_ && !result_.stages.empty() && result_.bound < result_.objective * (1 - kSame)) {
      const double middle = result_.bound + (result_.objective - result_.bound) / 2;
      const bool met = try_limit(std::min({result_.bound + step, middle, result_.objective * (1 - kSame)}));
      step = met ? (result_.objective - result_.bound) / 2 : step * 2;
    }
    result_.complete = !stopped_;
    result_.bound = result_.complete ? result_.objective : std::min(result_.bound, result_.objective);
    return std::move(result_);
  }

  bool has_pipeline() { return probe(kInfinity); }

 private:
  /// Whether a pipeline within the limit exists; keeps it if it is the best, or raises the bound.
  bool try_limit(double limit) {
    const bool found = probe(limit);
    if (stopped_) return false;
    if (!found) {
      result_.bound = std::max({result_.bound, limit == kInfinity ? result_.bound : limit, beyond_});
      return false;
    }
    std::vector<PiperStageChoice> stages = pipeline();
    const double objective = price_piper_pipeline(costs_, stages);
    if (objective < result_.objective) {
      result_.objective = objective;
      result_.stages = std::move(stages);
    } else {
      // Sums along the walk and the sum over the list differ in their last digits: the limit is met but not beaten.
      result_.bound = std::max(result_.bound, limit);
    }
    return true;
  }

  bool probe(double limit) {
    limit_ = limit;
    beyond_ = kInfinity;
    for (auto& points : points_) points.clear();
    points_.back().push_back({});
    for (uint32_t set = lattice_.full_set(); set > 0; --set) {
      if (points_[set].empty()) continue;
      if (tries_ > costs_.options().max_tries || (stop_ && stop_())) {
        stopped_ = true;
        return false;
      }
      stage_.clear();
      walk_.down(
          set,
          [&](uint32_t below, uint32_t node) {
            stage_.add(node);
            ++result_.pairs;
            ++tries_;
            return extend(below, set);
          },
          [&](uint32_t node) { stage_.remove(node); });
    }
    return !points_[lattice_.empty_set()].empty();
  }

  /// Tries the difference of `to` and `from` as a stage; returns whether larger stages make sense.
  bool extend(uint32_t from, uint32_t to) {
    bool alive = false;
    for (size_t degree = 0; degree < costs_.degrees().size(); ++degree) {
      const PiperStage::Sums& sums = stage_.sums(degree);
      if (sums.missing > 0 || max_of_degree_[degree] == 0 || sums.min_memory > costs_.options().memory) continue;
      const double min_seconds = sums.seconds / max_of_degree_[degree];
      if (min_seconds > limit_) {
        beyond_ = std::min(beyond_, min_seconds);
        continue;
      }
      alive = true;
      for (uint32_t i = 0; i < points_[to].size(); ++i) place(from, to, i, degree, sums);
    }
    return alive;
  }

  /// Puts the stage in front of point `index` of `to`, with the fewest replicas that meet the limit.
  void place(uint32_t from, uint32_t to, uint32_t index, size_t degree, const PiperStage::Sums& sums) {
    ++tries_;
    const Point after = points_[to][index];
    const int width = costs_.degrees()[degree];
    const int available = std::min((costs_.options().devices - after.devices) / width, max_replicas_ - after.replicas);
    const double min_seconds = sums.seconds + costs_.seconds_of_cut(sums.cut);
    const auto replicas = costs_.replicas();
    auto it = std::ranges::lower_bound(replicas, min_seconds / limit_ * (1 - kSame), {},
                                       [](int d) { return static_cast<double>(d); });
    if (it != replicas.begin()) beyond_ = std::min(beyond_, std::max(min_seconds / *(it - 1), limit_ * (1 + kSame)));
    for (; it != replicas.end() && *it <= available; ++it) {
      const int d = *it;
      const int64_t items = ceil_div(int64_t{after.replicas} + d, d);
      const double seconds = stage_seconds(from, to, degree, d, items, sums);
      if (seconds > limit_) {
        beyond_ = std::min(beyond_, seconds);
        continue;
      }
      insert(from, {.devices = after.devices + d * width,
                    .replicas = after.replicas + d,
                    .next = to,
                    .next_point = index,
                    .degree = static_cast<int>(degree),
                    .own_replicas = d});
      return;
    }
  }

  void insert(uint32_t set, const Point& point) {
    const int left = costs_.options().devices - point.devices;
    if (set != lattice_.empty_set()) {
      if (left == 0) return;
      if (work_[set] > limit_ * left * (1 + kSame)) {
        beyond_ = std::min(beyond_, work_[set] / left);
        return;
      }
    }
    std::vector<Point>& points = points_[set];
    for (const Point& other : points)
      if (other.devices <= point.devices && other.replicas <= point.replicas) return;
    std::erase_if(
        points, [&](const Point& other) { return other.devices >= point.devices && other.replicas >= point.replicas; });
    points.push_back(point);
  }

  double stage_seconds(uint32_t from, uint32_t to, size_t degree, int replicas, int64_t items,
                       const PiperStage::Sums& sums) {
    if (!costs_.uniform()) return chosen(from, to, degree, replicas, items, limit_);
    const double cut = costs_.seconds_of_cut(sums.cut);
    const double reduction = costs_.seconds_of_reduction(sums.weights, replicas);
    double busy = sums.seconds + cut;
    if (sums.per_item * static_cast<double>(items) + sums.fixed > costs_.options().memory)
      busy = chosen(from, to, degree, 1, items, limit_ * replicas - reduction);
    return (busy + reduction) / replicas;
  }

  /// Seconds with the best variants; where a bound already tells on which side of `limit` they lie, only that bound.
  double chosen(uint32_t from, uint32_t to, size_t degree, int replicas, int64_t items, double limit) {
    if (cache_.size() > kMaxCached) cache_.clear();
    const auto [found, is_new] = cache_.try_emplace({from, to, static_cast<int>(degree), replicas, items}, Known{});
    Known& known = found->second;
    if (is_new) {
      const VariantChoice choice = costs_.choose(lattice_.difference(from, to), degree, replicas, items, true);
      known = {.seconds = choice.seconds, .bound = choice.bound, .final = costs_.options().greedy};
    }
    if (known.final || known.seconds <= limit) return known.seconds;
    if (known.bound > limit) return known.bound;
    const VariantChoice choice = costs_.choose(lattice_.difference(from, to), degree, replicas, items, false);
    if (choice.bound < choice.seconds) result_.variants_proven = false;
    known = {.seconds = choice.seconds, .bound = choice.seconds, .final = true};
    return known.seconds;
  }

  /// The pipeline of the empty set's point with the fewest devices, then replicas.
  std::vector<PiperStageChoice> pipeline() const {
    const auto& ends = points_[lattice_.empty_set()];
    Point point =
        *std::ranges::min_element(ends, {}, [](const Point& end) { return std::pair(end.devices, end.replicas); });
    std::vector<PiperStageChoice> stages;
    for (uint32_t set = lattice_.empty_set(); set != lattice_.full_set();) {
      stages.push_back({.layers = lattice_.difference(set, point.next),
                        .degree = costs_.degrees()[static_cast<size_t>(point.degree)],
                        .replicas = point.own_replicas,
                        .variants = {}});
      set = point.next;
      point = points_[set][point.next_point];
    }
    return stages;
  }

  const PiperCosts& costs_;
  const Lattice& lattice_;
  const std::function<bool()>& stop_;
  PiperStage stage_;
  LatticeWalk walk_;
  std::vector<std::vector<Point>> points_;
  std::vector<double> work_;
  std::vector<int> max_of_degree_;
  int max_replicas_ = 1;
  struct Known {
    double seconds = kInfinity, bound = kInfinity;
    bool final = false;
  };
  std::unordered_map<StageKey, Known, StageKeyHash> cache_;
  /// The limit of this probe, and the smallest limit above it that might change its answer.
  double limit_ = 0, beyond_ = 0;
  bool stopped_ = false;
  /// Pairs of sets, and stages between them that were priced.
  int64_t tries_ = 0;
  PiperDpResult result_;
};

}  // namespace

PiperDpResult search_piper(const PiperCosts& costs, const Lattice& lattice, const std::function<bool()>& stop,
                           PiperDpResult known) {
  return PiperDp(costs, lattice, stop).run(std::move(known));
}

bool has_piper_pipeline(const PiperCosts& costs, const Lattice& lattice, const std::function<bool()>& stop) {
  return PiperDp(costs, lattice, stop).has_pipeline();
}

double price_piper_pipeline(const PiperCosts& costs, std::vector<PiperStageChoice>& stages, int64_t replicas_behind) {
  double slowest = 0;
  int64_t replicas = replicas_behind;
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    replicas += stage->replicas;
    const int degree = costs.degree_index(stage->degree);
    if (degree < 0) return kInfinity;
    VariantChoice choice =
        costs.choose(stage->layers, static_cast<size_t>(degree), stage->replicas, ceil_div(replicas, stage->replicas));
    slowest = std::max(slowest, choice.seconds);
    stage->variants = std::move(choice.variants);
  }
  return slowest;
}

double min_piper_bottleneck(const PiperCosts& costs) {
  double work = 0, largest = 0;
  for (uint32_t layer = 0; layer < costs.dag().size(); ++layer) {
    work += costs.min_work(layer);
    double alone = kInfinity;
    for (size_t degree = 0; degree < costs.degrees().size(); ++degree) {
      const int max_replicas = costs.max_replicas(degree, costs.options().devices);
      if (max_replicas > 0 && costs.offers(layer, degree))
        alone = std::min(alone, costs.min_work(layer) / (costs.degrees()[degree] * max_replicas));
    }
    largest = std::max(largest, alone);
  }
  return std::max(work / costs.options().devices, largest);
}

}  // namespace graphpipe::partitioner
