#include <algorithm>
#include <cmath>
#include <map>

#include "partitioner/cost_models/independent_score.h"

namespace graphpipe::partitioner {

namespace {

// The formula of docs/planners.md, section 5, from device numbers.
class DappleScore {
 public:
  DappleScore(const LayerPlanRequest& request, const LayerPlanAnswer& answer)
      : request_(request),
        graph_(*request.graph),
        plan_(answer.plan),
        terms_(answer.terms),
        is_original_(request.has("D9")) {
    const auto& levels = request.machine.levels;
    collective_ = between_ = is_original_ ? 1e9 : levels.back().bandwidth;
    if (is_original_) collective_ = 3e9;
    std::map<size_t, int> size_of;
    for (int device = 0; device < request.machine.devices(); ++device) ++size_of[machine(device)];
    int largest = 0, group = 1;
    for (const auto& [number, size] : size_of) largest = std::max(largest, size);
    inside_ = is_original_ ? 25e9 : 0;
    for (const LayerMachine::Level& level : levels) {
      group *= level.count;
      if (inside_ == 0 && group >= largest) inside_ = level.bandwidth;
    }
  }

  double speed_up() const {
    const double copies = terms_.copies;
    const double micro_batches = std::floor(std::floor(static_cast<double>(request_.batch) / copies) /
                                            static_cast<double>(request_.micro_batch));
    double slowest = 0, whole = 0, fill = 0, hops = 0;
    std::set<LayerId> before;
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const double time = seconds(s), devices = static_cast<double>(plan_.stages[s].devices.size());
      const double entering = batches() * recomputed_boundary(graph_, before, terms_.convention.cut);
      whole += time;
      fill += time / ((request_.has("D3") ? copies : devices) * micro_batches);
      slowest = std::max(slowest, time / devices);
      if (s > 0) {
        slowest = std::max(slowest, point_to_point(s, terms_.traffic_factor * entering));
        hops += point_to_point(s, entering / (copies * micro_batches));
      }
      before.insert(plan_.stages[s].layers.begin(), plan_.stages[s].layers.end());
    }
    const double beat = slowest / micro_batches;
    double tail = 0;
    for (size_t s = 0; s < plan_.stages.size(); ++s)
      tail = std::max(tail, reduction(s) - static_cast<double>(s) * beat);
    return whole / (beat * (micro_batches - 1) + fill + hops + tail);
  }

 private:
  double batches() const { return static_cast<double>(request_.batch) / static_cast<double>(request_.profile_batch); }

  double seconds(size_t s) const {
    double sum = 0;
    for (const LayerId id : plan_.stages[s].layers)
      sum += batches() * (graph_.layers[id].forward_seconds + graph_.layers[id].backward_seconds);
    return sum;
  }

  size_t machine(int device) const {
    const auto& levels = request_.machine.levels;
    if (request_.machines.empty() && levels.size() > 1 && !is_original_)
      return static_cast<size_t>(device / (request_.machine.devices() / levels.back().count));
    return static_cast<size_t>(std::ranges::count_if(request_.machines, [&](int end) { return end <= device; }));
  }

  bool is_one_machine(const std::vector<int>& devices) const {
    return std::ranges::all_of(devices, [&](int device) { return machine(device) == machine(devices.front()); });
  }

  double point_to_point(size_t to, double bytes) const {
    const std::vector<int>&from = plan_.stages[to - 1].devices, &into = plan_.stages[to].devices;
    if (!is_one_machine(into)) return bytes / collective_;
    const auto away = std::ranges::count_if(from, [&](int device) { return machine(device) != machine(into.front()); });
    return away > 0 ? bytes * static_cast<double>(away) / static_cast<double>(from.size()) / between_ : bytes / inside_;
  }

  double reduction(size_t s) const {
    const std::vector<int>& devices = plan_.stages[s].devices;
    double bytes = 0;
    for (const LayerId id : plan_.stages[s].layers) bytes += graph_.layers[id].weight_bytes;
    if (request_.has("D4") && s + 1 < plan_.stages.size()) {
      const std::vector<LayerId>& next = plan_.stages[s + 1].layers;
      for (const LayerId id : adjacency_of(graph_).order)
        if (std::ranges::find(next, id) != next.end()) {
          bytes += graph_.layers[id].weight_bytes;
          break;
        }
    }
    if (devices.size() < 2) return 0;
    const auto count = static_cast<double>(devices.size());
    const double moved = 2 * bytes * (count - 1) / count;
    if (!is_one_machine(devices)) return moved / collective_;
    return moved / inside_ / (is_original_ ? std::floor(count / 2) : 1);
  }

  const LayerPlanRequest& request_;
  const LayerGraph& graph_;
  const LayerPlan& plan_;
  const LayerTerms& terms_;
  /// The constants of the original, whose reductions inside a machine use its links side by side.
  const bool is_original_;
  /// Bytes per second inside a machine, between two, and of what involves several.
  double inside_ = 0, between_ = 0, collective_ = 0;
};

}  // namespace

double dapple_score(const LayerPlanRequest& request, const LayerPlanAnswer& answer) {
  return DappleScore(request, answer).speed_up();
}

}  // namespace graphpipe::partitioner
