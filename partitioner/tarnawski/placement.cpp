#include "partitioner/tarnawski/placement.h"

#include <algorithm>
#include <numeric>

namespace graphpipe::partitioner {

Placement::Placement(const MaxLoadGraph& graph, const MaxLoadOptions& options, DeviceOfNode device_of)
    : graph_(graph),
      memory_(options.memory),
      accelerators_(static_cast<uint32_t>(options.accelerators)),
      device_of_(std::move(device_of)),
      tensors_of_(graph.nodes.size()),
      loads_(static_cast<size_t>(options.accelerators + options.cpus)) {
  for (uint32_t tensor = 0; tensor < graph.tensors.size(); ++tensor)
    for (const uint32_t node : graph.tensors[tensor].nodes) tensors_of_[node].push_back(tensor);
  refresh();
}

void Placement::refresh() {
  std::ranges::fill(loads_, 0.0);
  bytes_.assign(loads_.size(), 0);
  inside_.assign(graph_.tensors.size() * loads_.size(), 0);
  crossings_ = -static_cast<int64_t>(graph_.tensors.size());
  for (uint32_t node = 0; node < device_of_.size(); ++node) take(node, device_of_[node]);
}

double Placement::largest_load() const { return *std::ranges::max_element(loads_); }

double Placement::overflow() const {
  double beyond = 0;
  for (uint32_t device = 0; device < accelerators_; ++device)
    if (bytes_[device] > memory_) beyond += (bytes_[device] - memory_) / std::max(memory_, 1.0);
  return beyond;
}

void Placement::move(uint32_t node, uint32_t device) {
  give(node, device_of_[node]);
  device_of_[node] = device;
  take(node, device);
}

void Placement::take(uint32_t node, uint32_t device) {
  const MaxLoadGraph::Node& taken = graph_.nodes[node];
  const bool pays = is_accelerator(device);
  loads_[device] += pays ? taken.accelerator : taken.cpu;
  bytes_[device] += taken.bytes;
  for (const uint32_t id : tensors_of_[node]) {
    const MaxLoadGraph::Tensor& tensor = graph_.tensors[id];
    const uint32_t count = ++inside(id, device);
    if (count == 1) ++crossings_;
    if (pays && count == 1) loads_[device] += tensor.seconds;
    if (pays && count == tensor.nodes.size()) loads_[device] -= tensor.seconds;
  }
}

void Placement::give(uint32_t node, uint32_t device) {
  const MaxLoadGraph::Node& given = graph_.nodes[node];
  const bool pays = is_accelerator(device);
  loads_[device] -= pays ? given.accelerator : given.cpu;
  bytes_[device] -= given.bytes;
  for (const uint32_t id : tensors_of_[node]) {
    const MaxLoadGraph::Tensor& tensor = graph_.tensors[id];
    const uint32_t count = inside(id, device)--;
    if (count == 1) --crossings_;
    if (pays && count == 1) loads_[device] -= tensor.seconds;
    if (pays && count == tensor.nodes.size()) loads_[device] += tensor.seconds;
  }
}

namespace {

/// What is left to run, and what each device could run next.
class RunCutter {
 public:
  RunCutter(const MaxLoadGraph& graph, const DeviceOfNode& device_of)
      : device_of_(device_of),
        after_(graph.nodes.size()),
        waiting_(graph.nodes.size(), 0),
        ready_(*std::ranges::max_element(device_of) + 1),
        left_(ready_.size(), 0) {
    for (const auto& [from, to] : graph.edges) {
      after_[from].push_back(to);
      ++waiting_[to];
    }
    for (uint32_t node = 0; node < device_of.size(); ++node) {
      ++left_[device_of[node]];
      if (waiting_[node] == 0) ready_[device_of[node]].push_back(node);
    }
  }

  std::vector<DeviceRun> run() {
    std::vector<DeviceRun> runs;
    for (size_t done = 0; done < device_of_.size();) {
      DeviceRun next = best_run();
      GP_CHECK(!next.nodes.empty());
      done += next.nodes.size();
      left_[next.device] -= next.nodes.size();
      ready_[next.device].clear();
      for (const uint32_t node : next.nodes)
        for (const uint32_t reader : after_[node])
          if (--waiting_[reader] == 0 && device_of_[reader] != next.device)
            ready_[device_of_[reader]].push_back(reader);
      std::ranges::sort(next.nodes);
      runs.push_back(std::move(next));
    }
    return runs;
  }

 private:
  /// The run of the device that does the largest part of what it has left: all of it, if it has nothing left
  /// afterwards.
  DeviceRun best_run() {
    DeviceRun best;
    double largest = 0;
    for (uint32_t device = 0; device < left_.size(); ++device) {
      if (left_[device] == 0) continue;
      DeviceRun run{.device = device, .nodes = ready_nodes(device)};
      const double part = static_cast<double>(run.nodes.size()) / static_cast<double>(left_[device]);
      if (part <= largest) continue;
      largest = part;
      best = std::move(run);
    }
    return best;
  }

  /// What the device can do before another has to.
  std::vector<uint32_t> ready_nodes(uint32_t device) {
    std::vector<uint32_t> nodes = ready_[device];
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const uint32_t reader : after_[nodes[i]])
        if (--waiting_[reader] == 0 && device_of_[reader] == device) nodes.push_back(reader);
    for (const uint32_t node : nodes)
      for (const uint32_t reader : after_[node]) ++waiting_[reader];
    return nodes;
  }

  const DeviceOfNode& device_of_;
  std::vector<std::vector<uint32_t>> after_;
  /// Per node, its edges from nodes that are not done; per device, its nodes that have none.
  std::vector<uint32_t> waiting_;
  std::vector<std::vector<uint32_t>> ready_;
  std::vector<size_t> left_;
};

}  // namespace

std::vector<DeviceRun> runs_of(const MaxLoadGraph& graph, const DeviceOfNode& device_of) {
  return RunCutter(graph, device_of).run();
}

}  // namespace graphpipe::partitioner
