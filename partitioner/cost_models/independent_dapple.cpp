#include <algorithm>
#include <cmath>
#include <map>

#include "partitioner/cost_models/independent_score.h"
#include "partitioner/cost_models/quirks.h"
#include "support/digraph.h"

namespace graphpipe::partitioner {

namespace {

// The formula of docs/planners.md, section 5, from device numbers.
class DappleScore {
 public:
  DappleScore(const UnitRequest& request, const UnitAnswer& answer)
      : request_(request),
        prices_(*request.prices),
        plan_(answer.plan),
        model_(answer.model),
        members_(members_of(prices_, plan_)),
        is_original_(request.has(quirks::kFixedBandwidths)) {
    const auto& levels = request.machine.levels;
    collective_ = between_ = is_original_ ? 1e9 : levels.back().bandwidth;
    if (is_original_) collective_ = 3e9;
    std::map<size_t, int> size_of;
    for (int device = 0; device < request.machine.devices(); ++device) ++size_of[machine(device)];
    int largest = 0, group = 1;
    for (const auto& [number, size] : size_of) largest = std::max(largest, size);
    inside_ = is_original_ ? 25e9 : 0;
    for (const MachineLevels::Level& level : levels) {
      group *= level.count;
      if (inside_ == 0 && group >= largest) inside_ = level.bandwidth;
    }
  }

  double speed_up() const {
    const double copies = model_.pipeline_copies;
    const double micro_batches = std::floor(std::floor(static_cast<double>(request_.batch) / copies) /
                                            static_cast<double>(request_.micro_batch));
    double slowest = 0, whole = 0, fill = 0, hops = 0;
    LayerSet before;
    for (size_t s = 0; s < members_.size(); ++s) {
      const double time = seconds(s), devices = static_cast<double>(devices_of(s).size());
      const double entering = batches() * recomputed_boundary(prices_, before, model_.traffic);
      whole += time;
      fill += time / ((request_.has(quirks::kFillIgnoresReplicas) ? copies : devices) * micro_batches);
      slowest = std::max(slowest, time / devices);
      if (s > 0) {
        slowest = std::max(slowest, point_to_point(s, model_.traffic_factor * entering));
        hops += point_to_point(s, entering / (copies * micro_batches));
      }
      before.insert(members_[s].begin(), members_[s].end());
    }
    const double beat = slowest / micro_batches;
    double tail = 0;
    for (size_t s = 0; s < members_.size(); ++s) tail = std::max(tail, reduction(s) - static_cast<double>(s) * beat);
    return whole / (beat * (micro_batches - 1) + fill + hops + tail);
  }

 private:
  double batches() const { return static_cast<double>(request_.batch) / static_cast<double>(request_.profile_batch); }

  double seconds(size_t s) const {
    double sum = 0;
    for (const uint32_t layer : members_[s]) sum += batches() * prices_.seconds[layer];
    return sum;
  }

  std::vector<int> devices_of(size_t s) const {
    std::vector<int> numbers;
    for (const ir::DeviceId device : plan_.choice[ir::StageId(s)].devices)
      numbers.push_back(static_cast<int>(device.index()));
    return numbers;
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
    const std::vector<int> from = devices_of(to - 1), into = devices_of(to);
    if (!is_one_machine(into)) return bytes / collective_;
    const auto away = std::ranges::count_if(from, [&](int device) { return machine(device) != machine(into.front()); });
    return away > 0 ? bytes * static_cast<double>(away) / static_cast<double>(from.size()) / between_ : bytes / inside_;
  }

  double reduction(size_t s) const {
    const std::vector<int> devices = devices_of(s);
    double bytes = 0;
    for (const uint32_t layer : members_[s]) bytes += prices_.weight_bytes[layer];
    if (request_.has(quirks::kReducesWeightsOfNext) && s + 1 < members_.size())
      for (const uint32_t layer : topological_order(prices_.size(), prices_.edges))
        if (members_[s + 1].contains(layer)) {
          bytes += prices_.weight_bytes[layer];
          break;
        }
    if (devices.size() < 2) return 0;
    const auto count = static_cast<double>(devices.size());
    const double moved = 2 * bytes * (count - 1) / count;
    if (!is_one_machine(devices)) return moved / collective_;
    return moved / inside_ / (is_original_ ? std::floor(count / 2) : 1);
  }

  const UnitRequest& request_;
  const UnitPrices& prices_;
  const ir::Assignment& plan_;
  const CostModel& model_;
  const std::vector<LayerSet> members_;
  /// The constants of the original, whose reductions inside a machine use its links side by side.
  const bool is_original_;
  /// Bytes per second inside a machine, between two machines, and of collectives over several.
  double inside_ = 0, between_ = 0, collective_ = 0;
};

}  // namespace

double dapple_score(const UnitRequest& request, const UnitAnswer& answer) {
  return DappleScore(request, answer).speed_up();
}

}  // namespace graphpipe::partitioner
