#include "partitioner/heterogeneous/chain_dp.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "partitioner/graph/coarsen.h"
#include "partitioner/heterogeneous/device_order.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

using ir::DeviceId;

/// Limits on the device mixes (see DeviceMix), and on the combinations of a run of elements with two mixes, those used
/// so far and those of the run, that one pass looks at.
constexpr double kMaxStates = 400, kMaxPairs = 5e5;
constexpr double kMaxElements = 64, kFewestElements = 8;
/// The passes for latency limit the bottleneck to these multiples of the smallest one.
constexpr double kSlacks[] = {1, 1.05, 1.15, 1.4};

/// The graph with the prices of one kind of device.
ir::PlanGraph graph_on_kind(ir::PlanGraph graph, int kind) {
  take_prices_of(graph, kind);
  for (ir::PlanNode& node : graph.nodes) node.by_kind.clear();
  graph.kind_of_device.clear();
  return graph;
}

/// What each run of a line costs as one stage, at one micro-batch size, on one kind of device, for every replica count.
class RunTable {
 public:
  RunTable(const SearchChain& line, StageEvaluator& evaluator, size_t devices)
      : length_(line.elements.size()), devices_(devices) {
    options_.resize(length_ * (length_ + 1) * (devices_ + 1), StageOption{.devices = 0});
    for (size_t first = 0; first < length_; ++first) {
      evaluator.clear();
      for (size_t last = first; last < length_; ++last) {
        evaluator.add(line.elements[last].nodes);
        for (size_t i = 0; i < evaluator.counts(); ++i) {
          const StageOption option = evaluator.option_at(i, evaluator.forms().front());
          if (static_cast<size_t>(option.devices) <= devices_)
            at(first, last + 1, static_cast<size_t>(option.devices)) = option;
        }
      }
    }
  }

  size_t max_devices() const { return devices_; }
  /// Elements [first, last) as one stage. Its `devices` is 0 where the replica count is of no use. Needs: first < last.
  StageOption& at(size_t first, size_t last, size_t devices) {
    return options_[(first * (length_ + 1) + last) * (devices_ + 1) + devices];
  }

 private:
  size_t length_ = 0, devices_ = 0;
  std::vector<StageOption> options_;
};

/// Devices that the search does not tell apart.
struct DeviceClass {
  std::vector<DeviceId> devices;
  /// As in PlanGraph::kind_of_device.
  std::set<int> kinds;
  /// Bytes of the device with the least memory.
  double memory = kInfinity;
};

double states_of(const std::vector<DeviceClass>& classes, size_t bunch) {
  double states = 1;
  for (const DeviceClass& like : classes) states *= static_cast<double>(like.devices.size() / bunch + 1);
  return states;
}

/// The classes of devices, fastest first. Neighbouring classes are joined until there are at most kMaxStates mixes, or
/// two classes.
std::vector<DeviceClass> classes_of(const PlanRequest& request) {
  const std::vector<int> number = device_classes(*request.graph, *request.cluster);
  const std::vector<int>& kinds = request.graph->kind_of_device;
  std::vector<DeviceClass> classes;
  for (const DeviceId device : by_speed(*request.graph, *request.cluster)) {
    const auto is_like = [&](const DeviceClass& c) {
      return number[c.devices.front().index()] == number[device.index()];
    };
    auto like = std::find_if(classes.begin(), classes.end(), is_like);
    if (like == classes.end()) like = classes.insert(classes.end(), DeviceClass{});
    like->devices.push_back(device);
    like->kinds.insert(kinds.empty() ? 0 : kinds[device.index()]);
    if (request.limit_memory)
      like->memory = std::min(like->memory, static_cast<double>(request.cluster->devices[device].memory.count));
  }
  while (classes.size() > 2 && states_of(classes, 1) > kMaxStates) {
    size_t smallest = 0;
    const auto size = [&](size_t i) { return classes[i].devices.size() + classes[i + 1].devices.size(); };
    for (size_t i = 1; i + 1 < classes.size(); ++i)
      if (size(i) < size(smallest)) smallest = i;
    DeviceClass &into = classes[smallest], &other = classes[smallest + 1];
    into.devices.insert(into.devices.end(), other.devices.begin(), other.devices.end());
    into.kinds.merge(other.kinds);
    into.memory = std::min(into.memory, other.memory);
    classes.erase(classes.begin() + static_cast<std::ptrdiff_t>(smallest) + 1);
  }
  return classes;
}

/// Some devices of each class, in bunches: those that are used so far, or those of one stage.
struct DeviceMix {
  std::vector<size_t> bunches;
  size_t devices = 0;
  std::set<int> kinds;
  double memory = kInfinity;
};

/// All mixes, numbered in mixed radix: a bunch of the first class counts 1, a bunch of the next class one more than the
/// first class has bunches, and so on. Example: with classes of 2 and 3 bunches, 1 of the first and 2 of the second are
/// number 1 + 2 * 3 = 7.
std::vector<DeviceMix> all_mixes(const std::vector<DeviceClass>& classes, size_t bunch) {
  std::vector<DeviceMix> mixes{DeviceMix{.bunches = std::vector<size_t>(classes.size(), 0)}};
  for (size_t c = 0; c < classes.size(); ++c) {
    const std::vector<DeviceMix> without = mixes;
    for (size_t count = 1; count <= classes[c].devices.size() / bunch; ++count)
      for (DeviceMix mix : without) {
        mix.bunches[c] = count;
        mix.devices += count * bunch;
        mix.kinds.insert(classes[c].kinds.begin(), classes[c].kinds.end());
        mix.memory = std::min(mix.memory, classes[c].memory);
        mixes.push_back(std::move(mix));
      }
  }
  return mixes;
}

struct RunPrice {
  double time = kInfinity, latency = kInfinity;
};

/// The search over all pipelines at one micro-batch size.
class ChainDp {
 public:
  ChainDp(const SearchChain& line, std::vector<RunTable>& tables, Samples micro_batch,
          const std::vector<DeviceClass>& classes, size_t bunch)
      : line_(line),
        tables_(tables),
        micro_batch_(micro_batch),
        classes_(classes),
        bunch_(bunch),
        mixes_(all_mixes(classes, bunch)) {}

  void run(Deadline& deadline, Candidates& found) {
    const double bottleneck = pass(kInfinity);
    if (!std::isfinite(bottleneck)) return;
    for (const double slack : kSlacks) {
      if (deadline.passed()) return;
      if (!std::isfinite(pass(bottleneck * slack * (1 + 1e-12)))) continue;
      std::vector<DeviceId> devices;
      const std::vector<FoundStage> stages = collect(devices);
      found.add(stages, devices);
    }
  }

 private:
  struct Cell {
    double value = kInfinity;
    size_t element = 0, mix = 0;
  };
  Cell& cell(size_t element, size_t used) { return cells_[element * mixes_.size() + used]; }

  /// The run of elements as one stage: as slow as the slowest of its devices, with the memory of the smallest.
  RunPrice price(size_t first, size_t last, const DeviceMix& mix) {
    RunPrice worst{0, 0};
    for (const int kind : mix.kinds) {
      RunTable& table = tables_[static_cast<size_t>(kind)];
      if (mix.devices > table.max_devices()) return {};
      const StageOption& option = table.at(first, last, mix.devices);
      if (option.devices == 0 || option.memory(micro_batch_.count) > mix.memory) return {};
      worst.time = std::max(worst.time, option.time_per_sample);
      worst.latency = std::max(worst.latency, option.latency);
    }
    return worst;
  }

  static bool holds(const DeviceMix& all, const DeviceMix& part) {
    for (size_t c = 0; c < all.bunches.size(); ++c)
      if (part.bunches[c] > all.bunches[c]) return false;
    return true;
  }

  /// Without a limit: the smallest bottleneck. With one: the smallest sum of latencies of stages that stay within it.
  double pass(double limit) {
    const size_t length = line_.elements.size();
    cells_.assign((length + 1) * mixes_.size(), Cell{});
    cell(0, 0).value = 0;
    // Taking a mix out of the used devices leaves the mix whose number is the difference of theirs.
    for (size_t used = 1; used < mixes_.size(); ++used)
      for (size_t mix = 1; mix <= used; ++mix)
        if (holds(mixes_[used], mixes_[mix]))
          for (size_t last = 1; last <= length; ++last)
            for (size_t first = 0; first < last; ++first) offer(first, last, used, mix, limit);
    used_ = 0;
    for (size_t used = 1; used < mixes_.size(); ++used)
      if (used_ == 0 || cell(length, used).value < cell(length, used_).value) used_ = used;
    return cell(length, used_).value;
  }

  void offer(size_t first, size_t last, size_t used, size_t mix, double limit) {
    const double before = cell(first, used - mix).value;
    Cell& to = cell(last, used);
    if (before >= to.value) return;
    const RunPrice run = price(first, last, mixes_[mix]);
    if (run.time > limit) return;
    const double value = std::isfinite(limit) ? before + run.latency : std::max(before, run.time);
    if (value < to.value) to = {value, first, mix};
  }

  /// The stages that the last pass found; `devices` gets their devices in the same order.
  std::vector<FoundStage> collect(std::vector<DeviceId>& devices) {
    std::vector<std::pair<Cell, size_t>> pipeline;
    for (size_t element = line_.elements.size(), used = used_; element > 0;) {
      const Cell at = cell(element, used);
      pipeline.push_back({at, element});
      element = at.element;
      used -= at.mix;
    }
    std::reverse(pipeline.begin(), pipeline.end());
    std::vector<FoundStage> stages;
    std::vector<size_t> next(classes_.size(), 0);
    for (const auto& [at, end] : pipeline) {
      const DeviceMix& mix = mixes_[at.mix];
      FoundStage stage{.devices = static_cast<int>(mix.devices), .micro_batch = micro_batch_};
      for (size_t i = at.element; i < end; ++i)
        stage.nodes.insert(stage.nodes.end(), line_.elements[i].nodes.begin(), line_.elements[i].nodes.end());
      stages.push_back(std::move(stage));
      for (size_t c = 0; c < classes_.size(); ++c)
        for (size_t i = 0; i < mix.bunches[c] * bunch_; ++i) devices.push_back(classes_[c].devices[next[c]++]);
    }
    return stages;
  }

  const SearchChain& line_;
  std::vector<RunTable>& tables_;
  const Samples micro_batch_;
  const std::vector<DeviceClass>& classes_;
  const size_t bunch_;
  const std::vector<DeviceMix> mixes_;
  size_t used_ = 0;
  std::vector<Cell> cells_;
};

/// Searches all pipelines of one line, at every micro-batch size.
void search_line(const PlanRequest& request, const SearchChain& line, const std::vector<DeviceClass>& classes,
                 size_t bunch, Deadline& deadline, Candidates& found) {
  std::vector<ir::PlanGraph> by_kind;
  for (int kind = 0; kind < request.graph->kind_count(); ++kind) by_kind.push_back(graph_on_kind(*request.graph, kind));
  if (by_kind.empty()) by_kind.push_back(*request.graph);
  const size_t max_replicas = request.replication ? request.cluster->devices.size() : 1;
  for (const Samples size : micro_batch_sizes(request)) {
    if (deadline.passed()) return;
    std::vector<RunTable> tables;
    for (const ir::PlanGraph& graph : by_kind) {
      StageEvaluator evaluator(graph, *request.cluster, size, 1, static_cast<int>(max_replicas),
                               evaluator_options(request, false));
      tables.emplace_back(line, evaluator, max_replicas);
    }
    ChainDp(line, tables, size, classes, bunch).run(deadline, found);
  }
}

}  // namespace

void search_unequal_devices(const PlanRequest& request, Deadline& deadline, Candidates& found) {
  if (request.stages || !request.replicas.empty() || !devices_differ(*request.graph, *request.cluster)) return;
  const std::vector<DeviceClass> classes = classes_of(request);
  size_t bunch = 1;
  while (states_of(classes, bunch) > kMaxStates) bunch *= 2;
  const double parts = std::clamp(std::sqrt(8 * kMaxPairs) / states_of(classes, bunch), kFewestElements, kMaxElements);
  const NodeGroups groups = group_nodes(*request.graph);
  const bool is_small = static_cast<double>(groups.nodes.size()) <= parts;
  const CoarseGraph small =
      contract(*request.graph, is_small ? groups.nodes : coarsen(*request.graph, groups, {.parts = parts}));
  PlanRequest narrow = request;
  narrow.graph = &small.graph;
  Candidates found_here(narrow);
  // Two lines: one follows each branch to its end, the other the order of the node numbers.
  const SearchSpace depth_first = space_of_line(group_nodes(small.graph), 0);
  SearchChain numbered;
  for (const ir::PlanNodeId node : small.graph.node_ids())
    numbered.elements.push_back({.nodes = {node}, .branches = {}});
  for (const SearchChain* line : {&depth_first.chains.back(), static_cast<const SearchChain*>(&numbered)})
    search_line(narrow, *line, classes, bunch, deadline, found_here);
  for (const PlanCandidate& candidate : found_here.best(std::numeric_limits<size_t>::max()))
    found.add(expand(small, request.graph->nodes.size(), candidate.assignment));
}

}  // namespace graphpipe::partitioner
