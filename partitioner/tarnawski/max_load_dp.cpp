#include "partitioner/tarnawski/max_load_dp.h"

#include <algorithm>
#include <numeric>

#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

/// Sums that differ by less than this, relatively, differ by rounding only.
constexpr double kMaxLoadRounding = 1e-12;

/// How much accelerator work CPUs can take over in a given time: the nodes that they are least slow at first.
class CpuShare {
 public:
  explicit CpuShare(const MaxLoadGraph& graph) {
    std::vector<uint32_t> order(graph.nodes.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t i) {
      const MaxLoadGraph::Node& node = graph.nodes[i];
      return node.cpu > 0 ? node.accelerator / node.cpu : node.accelerator > 0 ? kInfinity : 0;
    });
    cpu_ = {0};
    accelerator_ = {0};
    for (const uint32_t node : order) {
      if (!graph.nodes[node].on_accelerator) continue;
      cpu_.push_back(cpu_.back() + graph.nodes[node].cpu);
      accelerator_.push_back(accelerator_.back() + graph.nodes[node].accelerator);
    }
  }

  double within(double cpu_seconds) const {
    if (cpu_seconds >= cpu_.back()) return accelerator_.back();
    const auto next = std::ranges::upper_bound(cpu_, cpu_seconds);
    const auto i = static_cast<size_t>(next - cpu_.begin());
    const double part = (cpu_seconds - cpu_[i - 1]) / (cpu_[i] - cpu_[i - 1]);
    return accelerator_[i - 1] + part * (accelerator_[i] - accelerator_[i - 1]);
  }
  /// Work of all nodes that an accelerator can run.
  double total() const { return accelerator_.back(); }

 private:
  std::vector<double> cpu_, accelerator_;
};

/// A way to cover a set: the devices used and their largest load.
struct State {
  int accelerators = 0, cpus = 0;
  double load = 0;
  /// The set that the last device started from, its state there, and the device's kind.
  uint32_t from = 0, from_state = 0;
  bool on_cpu = false;
};

/// Sums over the nodes of a growing stage.
struct Sums {
  double accelerator = 0, cpu = 0, bytes = 0, transfers = 0;
  uint32_t unsupported = 0;
};

class MaxLoadDp {
 public:
  MaxLoadDp(const MaxLoadGraph& graph, const Lattice& lattice, const MaxLoadOptions& options)
      : graph_(graph),
        lattice_(lattice),
        options_(options),
        share_(graph),
        walk_(lattice),
        states_(lattice.size()),
        work_(lattice.size(), 0),
        inside_(graph.tensors.size(), 0),
        tensors_of_(graph.nodes.size()),
        sums_(1) {
    for (uint32_t tensor = 0; tensor < graph.tensors.size(); ++tensor)
      for (const uint32_t node : graph.tensors[tensor].nodes) tensors_of_[node].push_back(tensor);
    for (uint32_t set = 1; set < lattice.size(); ++set) {
      const Lattice::Step step = lattice.down(set).front();
      const MaxLoadGraph::Node& node = graph.nodes[step.node];
      work_[set] = work_[step.set] + (node.on_accelerator ? node.accelerator : 0);
    }
  }

  MaxLoadResult run() {
    result_.bound = min_max_load(graph_, options_);
    const double initial_bound = result_.bound;
    const double top = options_.below * (1 - kMaxLoadRounding);
    double slack = top < kInfinity ? std::max((top - initial_bound) / 16, initial_bound * 1e-3) : initial_bound * 0.01;
    for (bool is_last = false; !is_last && result_.bound < top; slack *= 2) {
      double limit = std::max(initial_bound + slack, result_.bound);
      is_last = initial_bound == 0 || slack > 1e3 * initial_bound || limit >= top;
      if (is_last) limit = top;
      if (probe(limit)) {
        result_.complete = true;
        result_.bound = result_.objective;
        return std::move(result_);
      }
      if (stopped_) break;
      result_.bound = std::min(options_.below, std::max({result_.bound, limit, beyond_}));
    }
    result_.complete = !stopped_;
    return std::move(result_);
  }

 private:
  bool probe(double limit) {
    limit_ = limit;
    beyond_ = kInfinity;
    cpu_takes_.clear();
    for (int cpus = 0; cpus <= options_.cpus; ++cpus)
      cpu_takes_.push_back(cpus == 0 ? 0 : share_.within(cpus * std::min(limit, 1e300)));
    for (auto& states : states_) states.clear();
    states_.front().push_back({});
    for (uint32_t set = 0; set < lattice_.full_set(); ++set) {
      if (states_[set].empty()) continue;
      if (result_.pairs > options_.max_pairs || (options_.stop && options_.stop())) {
        stopped_ = true;
        return false;
      }
      walk_.up(
          set,
          [&](uint32_t above, uint32_t node) {
            add(node);
            ++result_.pairs;
            return extend(set, above);
          },
          [&](uint32_t node) { remove(node); });
    }
    return keep_best();
  }

  void add(uint32_t node) {
    Sums sums = sums_.back();
    const MaxLoadGraph::Node& added = graph_.nodes[node];
    sums.accelerator += added.accelerator;
    sums.cpu += added.cpu;
    sums.bytes += added.bytes;
    sums.unsupported += added.on_accelerator ? 0 : 1;
    for (const uint32_t tensor : tensors_of_[node]) {
      const MaxLoadGraph::Tensor& touched = graph_.tensors[tensor];
      const uint32_t count = ++inside_[tensor];
      if (count == 1) sums.transfers += touched.seconds;
      if (count == touched.nodes.size()) sums.transfers -= touched.seconds;
    }
    sums_.push_back(sums);
  }

  void remove(uint32_t node) {
    for (const uint32_t tensor : tensors_of_[node]) --inside_[tensor];
    sums_.pop_back();
  }

  /// Tries the difference of the two sets as the load of one more device; returns whether larger ones make sense.
  bool extend(uint32_t from, uint32_t to) {
    const Sums& sums = sums_.back();
    const bool fits = sums.unsupported == 0 && sums.bytes <= options_.memory;
    const bool accelerator = fits && sums.accelerator <= limit_;
    const bool cpu = options_.cpus > 0 && sums.cpu <= limit_;
    if (fits && !accelerator) beyond_ = std::min(beyond_, sums.accelerator);
    if (options_.cpus > 0 && !cpu) beyond_ = std::min(beyond_, sums.cpu);
    if (!accelerator && !cpu) return false;
    const double load = sums.accelerator + sums.transfers;
    for (uint32_t i = 0; i < states_[from].size(); ++i) {
      const State& state = states_[from][i];
      if (cpu && state.cpus < options_.cpus)
        insert(to, {state.accelerators, state.cpus + 1, std::max(state.load, sums.cpu), from, i, true});
      if (!accelerator || state.accelerators == options_.accelerators) continue;
      if (load <= limit_) insert(to, {state.accelerators + 1, state.cpus, std::max(state.load, load), from, i, false});
      else beyond_ = std::min(beyond_, load);
    }
    return true;
  }

  void insert(uint32_t set, const State& state) {
    const int left = options_.accelerators - state.accelerators;
    const double rest = share_.total() - work_[set] - cpu_takes_[static_cast<size_t>(options_.cpus - state.cpus)];
    if (rest > left * limit_ * (1 + kMaxLoadRounding) + share_.total() * kMaxLoadRounding) {
      // The limit at which it would fit is hard to say with CPUs: the bound stays at this limit.
      beyond_ = std::min(beyond_, options_.cpus > 0 || left == 0 ? limit_ : rest / left);
      return;
    }
    std::vector<State>& states = states_[set];
    for (const State& other : states)
      if (other.accelerators <= state.accelerators && other.cpus <= state.cpus && other.load <= state.load) return;
    std::erase_if(states, [&](const State& other) {
      return other.accelerators >= state.accelerators && other.cpus >= state.cpus && other.load >= state.load;
    });
    states.push_back(state);
  }

  bool keep_best() {
    const auto& ends = states_[lattice_.full_set()];
    if (ends.empty()) return false;
    State state = *std::ranges::min_element(ends, [](const State& a, const State& b) {
      return std::tuple(a.load, a.accelerators, a.cpus) < std::tuple(b.load, b.accelerators, b.cpus);
    });
    result_.objective = state.load;
    for (uint32_t set = lattice_.full_set(); set != 0;) {
      result_.stages.push_back({.nodes = lattice_.difference(state.from, set), .on_cpu = state.on_cpu});
      set = state.from;
      state = states_[set][state.from_state];
    }
    std::ranges::reverse(result_.stages);
    return true;
  }

  const MaxLoadGraph& graph_;
  const Lattice& lattice_;
  const MaxLoadOptions& options_;
  const CpuShare share_;
  LatticeWalk walk_;
  std::vector<std::vector<State>> states_;
  /// Per set, its accelerator seconds; per number of CPUs, the accelerator seconds that they take over within the
  /// limit.
  std::vector<double> work_, cpu_takes_;
  std::vector<uint32_t> inside_;
  std::vector<std::vector<uint32_t>> tensors_of_;
  std::vector<Sums> sums_;
  double limit_ = 0, beyond_ = 0;
  bool stopped_ = false;
  MaxLoadResult result_;
};

}  // namespace

MaxLoadResult search_max_load(const MaxLoadGraph& graph, const Lattice& lattice, const MaxLoadOptions& options) {
  return MaxLoadDp(graph, lattice, options).run();
}

double min_max_load(const MaxLoadGraph& graph, const MaxLoadOptions& options) {
  const CpuShare share(graph);
  double min_load = 0;
  for (const MaxLoadGraph::Node& node : graph.nodes) {
    double alone = options.cpus > 0 ? node.cpu : kInfinity;
    if (node.on_accelerator && options.accelerators > 0) alone = std::min(alone, node.accelerator);
    min_load = std::max(min_load, alone);
  }
  const auto taken_over = [&](double load) { return options.cpus == 0 ? 0.0 : share.within(options.cpus * load); };
  // The smallest load L with work <= accelerators L + what the CPUs take over in L each.
  double low = min_load, high = std::max(min_load, share.total());
  if (options.accelerators == 0) return low;
  const auto suffices = [&](double load) { return share.total() <= options.accelerators * load + taken_over(load); };
  if (suffices(low)) return low;
  for (int step = 0; step < 100; ++step) {
    const double middle = low + (high - low) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace graphpipe::partitioner
