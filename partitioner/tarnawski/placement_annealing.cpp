#include "partitioner/tarnawski/placement_annealing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "support/splitmix64.h"

namespace graphpipe::partitioner {
namespace {

/// Rounds of annealing, and the moves of one round: per node, and at most.
constexpr int kRounds = 16;
constexpr int64_t kMovesPerNode = 4000, kMaxMoves = 2'000'000;
/// Most nodes that are moved together.
constexpr size_t kLargestPart = 128;
/// Temperatures at the start of a round, as shares of the energy: from a start of its own, and from the best known.
constexpr double kHot = 0.05, kMild = 0.004;
/// A round has this many parts; the temperature is halved from each to the next.
constexpr int kHalvings = 14;
constexpr int64_t kMovesBetweenStops = 1 << 12, kMovesBetweenRefreshes = 1 << 18;
/// Exceeding the memory by its whole size weighs as much as this many times the average load.
constexpr double kOverflowWeight = 8;
/// Loads that differ by less than this, relatively, differ by rounding only.
constexpr double kSameLoad = 1e-11;

/// Random numbers that are equal on all machines: only integers and exact products.
class PlacementDice {
 public:
  explicit PlacementDice(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    const uint64_t bits = splitmix64(state_);
    state_ += kSplitMixStep;
    return bits;
  }
  uint32_t below(size_t count) { return static_cast<uint32_t>(((next() >> 32) * count) >> 32); }
  /// Nearly exponential: uniform between two powers of two.
  double exponential() {
    const uint64_t bits = next() | 1;
    return 0.6931471805599453 * (std::countl_zero(bits) + static_cast<double>(next() >> 11) * 0x1p-53);
  }

 private:
  uint64_t state_;
};

/// Random changes of a placement that can be taken back.
class Mutator {
 public:
  Mutator(const MaxLoadGraph& graph, Placement& placement, PlacementDice& dice)
      : graph_(graph), placement_(placement), dice_(dice), seen_(graph.nodes.size(), 0) {}

  /// Moves one node, exchanges two, or moves a connected group of nodes; false if nothing could be changed.
  bool change() {
    moved_.clear();
    const uint32_t node = dice_.below(graph_.nodes.size()), from = placement_.device_of(node);
    const uint32_t to = other_device(node);
    if (to == from) return false;
    const uint32_t kind = dice_.below(10);
    if (kind < 5) return move_all({&node, 1}, to);
    if (kind >= 8) return move_all(part_around(node), to);
    const uint32_t other = node_on(to);
    if (other == node) return false;
    return move_all({&node, 1}, to) && move_all({&other, 1}, from);
  }

  void take_back() {
    for (auto last = moved_.rbegin(); last != moved_.rend(); ++last) placement_.move(last->first, last->second);
  }

 private:
  /// Three times of four a device that shares a tensor with the node.
  uint32_t other_device(uint32_t node) {
    const auto tensors = placement_.tensors_of(node);
    if (tensors.empty() || dice_.below(4) == 0) return dice_.below(placement_.devices());
    const auto& nodes = graph_.tensors[tensors[dice_.below(tensors.size())]].nodes;
    const uint32_t device = placement_.device_of(nodes[dice_.below(nodes.size())]);
    return device != placement_.device_of(node) ? device : dice_.below(placement_.devices());
  }

  /// Some node on the device or, after some attempts, any.
  uint32_t node_on(uint32_t device) {
    uint32_t node = 0;
    for (int attempt = 0; attempt < 8; ++attempt) {
      node = dice_.below(graph_.nodes.size());
      if (placement_.device_of(node) == device) return node;
    }
    return node;
  }

  /// Nodes of the same device that tensors connect: mostly a few, at times up to a quarter of all nodes.
  std::vector<uint32_t> part_around(uint32_t node) {
    const size_t max_size =
        2 + dice_.below(dice_.below(3) > 0 ? 6 : std::min(kLargestPart, graph_.nodes.size() / 4 + 1));
    const uint32_t device = placement_.device_of(node);
    std::vector<uint32_t> part{node};
    seen_[node] = ++round_;
    for (size_t i = 0; i < part.size(); ++i)
      for (const uint32_t tensor : placement_.tensors_of(part[i]))
        for (const uint32_t near : graph_.tensors[tensor].nodes) {
          if (part.size() >= max_size) return part;
          if (placement_.device_of(near) != device || seen_[near] == round_) continue;
          seen_[near] = round_;
          part.push_back(near);
        }
    return part;
  }

  bool move_all(std::span<const uint32_t> nodes, uint32_t to) {
    for (const uint32_t node : nodes) {
      if (!placement_.can_run(node, to)) return false;
      moved_.emplace_back(node, placement_.device_of(node));
      placement_.move(node, to);
    }
    return true;
  }

  const MaxLoadGraph& graph_;
  Placement& placement_;
  PlacementDice& dice_;
  std::vector<uint64_t> seen_;
  uint64_t round_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> moved_;
};

int64_t moves_of_a_round(const MaxLoadGraph& graph) {
  return std::min(kMaxMoves, kMovesPerNode * static_cast<int64_t>(graph.nodes.size()));
}

/// Compares loads from the largest down: -1, 0 or 1 as `a` is better, the same or worse.
int compare_sorted(std::vector<double> a, std::vector<double> b) {
  std::ranges::sort(a, std::greater<>());
  std::ranges::sort(b, std::greater<>());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] < b[i] * (1 - kSameLoad)) return -1;
    if (a[i] > b[i] * (1 + kSameLoad)) return 1;
  }
  return 0;
}

class PlacementAnnealing {
 public:
  PlacementAnnealing(const MaxLoadGraph& graph, const MaxLoadOptions& options, double bound)
      : graph_(graph), options_(options), bound_(bound) {
    double total = 0;
    for (const MaxLoadGraph::Node& node : graph.nodes) total += node.on_accelerator ? node.accelerator : node.cpu;
    if (total > 0) unit_ = total / (options.accelerators + options.cpus);
  }

  PlacementResult run(const std::vector<DeviceOfNode>& starts) {
    for (const DeviceOfNode& start : starts) note(Placement(graph_, options_, start));
    for (int round = 0; round < kRounds && !is_over(); ++round) {
      // Rounds alternate between the given starts, in turn, and the best placement so far.
      const bool again = round % 2 == 1 && !result_.device_of.empty();
      const DeviceOfNode& start = again ? result_.device_of : starts[static_cast<size_t>(round / 2) % starts.size()];
      anneal(Placement(graph_, options_, start), again ? kMild : kHot, static_cast<uint64_t>(round));
    }
    if (!result_.device_of.empty() && !is_over()) descend();
    result_.complete = !stopped_;
    return std::move(result_);
  }

 private:
  bool is_over() { return stopped_ || result_.objective <= bound_ * (1 + kSameLoad); }

  void note(Placement placement) {
    if (placement.overflow() > 0) return;
    placement.refresh();
    if (placement.largest_load() >= result_.objective * (1 - kSameLoad)) return;
    result_.objective = placement.largest_load();
    result_.device_of = placement.all();
  }

  /// The sum of the sixteenth powers of the loads, in units of the average load: dominated by the largest, but the
  /// others count too. What exceeds the memory counts as load.
  double energy(const Placement& placement) const {
    const double overflow = kOverflowWeight * placement.overflow();
    double sum = 0;
    for (const double load : placement.loads()) {
      double power = load / unit_ + overflow;
      for (int doubling = 0; doubling < 4; ++doubling) power *= power;
      sum += power;
    }
    return sum;
  }

  void anneal(Placement placement, double loss, uint64_t seed) {
    PlacementDice dice(seed);
    Mutator mutator(graph_, placement, dice);
    const int64_t moves = moves_of_a_round(graph_);
    double now = energy(placement), lowest = kInfinity;
    for (int64_t move = 0; move < moves; ++move) {
      if (move % kMovesBetweenStops == 0 && must_stop()) return;
      if (move % kMovesBetweenRefreshes == 0) {
        placement.refresh();
        now = energy(placement);
      }
      if (move % (moves / kHalvings + 1) == 0 && move > 0) loss /= 2;
      ++result_.tried;
      if (!mutator.change()) {
        mutator.take_back();
        continue;
      }
      const double then = energy(placement);
      if (then > now && then > now * (1 + 16 * loss * dice.exponential())) {
        mutator.take_back();
        continue;
      }
      now = then;
      const double load = placement.largest_load();
      if (load >= lowest || load >= result_.objective || placement.overflow() > 0) continue;
      lowest = load;
      note(placement);
    }
  }

  /// Moves of one node and exchanges of two that make the sorted loads smaller, until there is none.
  void descend() {
    Placement placement(graph_, options_, result_.device_of);
    const int64_t max_tried = result_.tried + kMaxMoves;
    bool improved = true;
    while (improved && result_.tried < max_tried && !must_stop()) {
      improved = false;
      for (uint32_t node = 0; node < graph_.nodes.size() && !must_stop(); ++node)
        improved |= improve_node(placement, node);
      placement.refresh();
    }
    note(std::move(placement));
  }

  bool improve_node(Placement& placement, uint32_t node) {
    const std::vector<double> before = placement.loads();
    const uint32_t from = placement.device_of(node);
    const double largest = placement.largest_load() * (1 + kSameLoad);
    const auto is_better = [&] {
      ++result_.tried;
      return placement.largest_load() <= largest && placement.overflow() == 0 &&
             compare_sorted(placement.loads(), before) < 0;
    };
    for (uint32_t to = 0; to < placement.devices(); ++to) {
      if (to == from || !placement.can_run(node, to)) continue;
      placement.move(node, to);
      if (is_better()) return true;
      for (uint32_t other = node + 1; other < graph_.nodes.size(); ++other) {
        if (placement.device_of(other) != to || !placement.can_run(other, from)) continue;
        placement.move(other, from);
        if (is_better()) return true;
        placement.move(other, to);
      }
      placement.move(node, from);
    }
    return false;
  }

  bool must_stop() {
    if (options_.stop && options_.stop()) stopped_ = true;
    return stopped_;
  }

  const MaxLoadGraph& graph_;
  const MaxLoadOptions& options_;
  const double bound_;
  double unit_ = 1;
  bool stopped_ = false;
  PlacementResult result_;
};

}  // namespace

PlacementResult search_placements(const MaxLoadGraph& graph, const MaxLoadOptions& options,
                                  const std::vector<DeviceOfNode>& starts, double bound) {
  GP_CHECK(!starts.empty());
  return PlacementAnnealing(graph, options, bound).run(starts);
}

DeviceOfNode with_fewer_crossings(const MaxLoadGraph& graph, const MaxLoadOptions& options, DeviceOfNode device_of) {
  Placement placement(graph, options, std::move(device_of));
  DeviceOfNode best = placement.all();
  const double max_load = placement.largest_load() * (1 + kSameLoad);
  int64_t fewest = placement.crossings();
  PlacementDice dice(0);
  Mutator mutator(graph, placement, dice);
  const int64_t moves = moves_of_a_round(graph);
  double loss = 2;
  for (int64_t move = 0; move < moves; ++move) {
    if (move % kMovesBetweenStops == 0 && options.stop && options.stop()) break;
    if (move % kMovesBetweenRefreshes == 0) placement.refresh();
    if (move % (moves / kHalvings + 1) == 0 && move > 0) loss /= 2;
    const int64_t before = placement.crossings();
    if (!mutator.change() || placement.largest_load() > max_load || placement.overflow() > 0 ||
        static_cast<double>(placement.crossings() - before) > loss * dice.exponential()) {
      mutator.take_back();
      continue;
    }
    if (placement.crossings() >= fewest) continue;
    fewest = placement.crossings();
    best = placement.all();
  }
  return best;
}

std::optional<DeviceOfNode> balanced_placement(const MaxLoadGraph& graph, const MaxLoadOptions& options) {
  std::vector<uint32_t> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t node) { return graph.nodes[node].accelerator; });
  const auto accelerators = static_cast<uint32_t>(options.accelerators);
  std::vector<double> loads(static_cast<size_t>(options.accelerators + options.cpus), 0);
  DeviceOfNode device_of(graph.nodes.size(), 0);
  for (const uint32_t node : order) {
    double smallest = kInfinity;
    for (uint32_t device = 0; device < loads.size(); ++device) {
      const bool is_cpu = device >= accelerators;
      if (!is_cpu && !graph.nodes[node].on_accelerator) continue;
      const double load = loads[device] + (is_cpu ? graph.nodes[node].cpu : graph.nodes[node].accelerator);
      if (load >= smallest) continue;
      smallest = load;
      device_of[node] = device;
    }
    if (smallest == kInfinity) return std::nullopt;
    loads[device_of[node]] = smallest;
  }
  return device_of;
}

}  // namespace graphpipe::partitioner
