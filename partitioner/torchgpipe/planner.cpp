#include "partitioner/torchgpipe/planner.h"

#include <algorithm>
#include <cmath>

#include "support/even_runs.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

namespace {

/// The original stops by itself; this many moves are far beyond what it makes.
constexpr int64_t kMaxBalanceMoves = 10'000'000;

// Costs scaled to [0, 1], and the blocks into which the ends cut them.
class Balance {
 public:
  Balance(const std::vector<int64_t>& costs, size_t parts) : parts_(parts) {
    const auto [smallest, largest] = std::ranges::minmax(costs);
    for (const int64_t cost : costs) {
      const double share =
          largest > smallest ? static_cast<double>(cost - smallest) / static_cast<double>(largest - smallest) : 0;
      costs_.push_back(share);
    }
    for (size_t i = 1; i < parts; ++i) ends_.push_back(costs.size() / parts * i);
    ends_.push_back(costs.size());
  }

  /// Until no block can gain, or the deadline passes.
  std::vector<size_t> run(Deadline* deadline) {
    for (size_t i = 0; i < parts_; ++i) blocks_.push_back(value(i));
    for (int64_t moves = 0;;) {
      size_t heaviest = 0;
      for (size_t i = 0; i < parts_; ++i)
        if (blocks_[i] >= blocks_[heaviest]) heaviest = i;
      const double largest = blocks_[heaviest];
      // As long as no move reaches the heaviest block, its value stays as it is.
      for (size_t moved = parts_; moved != heaviest; ++moves) {
        const auto lightest = static_cast<size_t>(std::ranges::min_element(blocks_) - blocks_.begin());
        const bool is_late = deadline != nullptr && moves % 64 == 0 && deadline->passed();
        const bool is_stuck = heaviest < lightest ? ends_[lightest - 1] == 0 : ends_[lightest] == costs_.size();
        if (largest <= blocks_[lightest] + 1 || moves >= kMaxBalanceMoves || is_late || is_stuck) return sorted_ends();
        if (heaviest < lightest) {
          moved = lightest - 1;
          --ends_[moved];
        } else {
          moved = lightest + 1;
          ++ends_[lightest];
        }
        blocks_[moved] = value(moved);
        blocks_[lightest] = value(lightest);
      }
    }
  }

 private:
  // Summed anew and not updated: rounding would decide ties otherwise than in the original.
  double value(size_t block) const {
    double sum = 0;
    for (size_t at = block == 0 ? 0 : ends_[block - 1]; at < ends_[block]; ++at) sum += costs_[at];
    return sum;
  }

  // Among layers that weigh nothing, an end may have moved over the one before it: such a block is empty.
  std::vector<size_t> sorted_ends() const {
    std::vector<size_t> ends = ends_;
    for (size_t i = 1; i < parts_; ++i) ends[i] = std::max(ends[i], ends[i - 1]);
    return ends;
  }

  size_t parts_;
  std::vector<double> costs_, blocks_;
  std::vector<size_t> ends_;
};

}  // namespace

std::vector<size_t> torchgpipe_blocks(const std::vector<int64_t>& costs, size_t parts, Deadline* deadline) {
  return Balance(costs, parts).run(deadline);
}

int64_t smallest_heaviest_block(const std::vector<int64_t>& costs, size_t parts) {
  return largest_run(costs, even_runs(costs, parts));
}

std::span<const Quirk> torchgpipe_quirks() { return {}; }

Result<UnitAnswer> plan_torchgpipe(const UnitRequest& request) {
  const Stopwatch watch;
  const UnitPrices& prices = *request.prices;
  const auto parts = static_cast<size_t>(request.machine.devices());
  if (prices.size() < parts)
    return Diagnostic{.code = Code::kNoFeasiblePlan,
                      .message = text("torchgpipe cannot make ", parts, " blocks of ", prices.size(), " layers"),
                      .hint = "use fewer devices"};
  const std::vector<uint32_t> order = first_in_first_out_order(prices.size(), prices.edges);
  std::vector<int64_t> costs;
  for (const uint32_t layer : order) costs.push_back(std::llround(std::min(prices.seconds[layer] * 1e6, 1e12)));
  UnitAnswer answer;
  answer.model = {.score = Score::kBlocks, .memory = MemoryRule::kNone};
  answer.unit = "us";
  size_t begin = 0;
  int64_t heaviest = 0;
  int device = 0;
  Deadline deadline(request.time_limit, request.cancel);
  for (const size_t end : torchgpipe_blocks(costs, parts, &deadline)) {
    if (end == begin) continue;
    const std::span layers = std::span(order).subspan(begin, end - begin);
    int64_t block = 0;
    for (size_t i = begin; i < end; ++i) block += costs[i];
    heaviest = std::max(heaviest, block);
    add_stage(prices, layers, on_devices(device++, 1), {}, answer.plan);
    begin = end;
  }
  answer.objective = static_cast<double>(heaviest);
  answer.bound = static_cast<double>(smallest_heaviest_block(costs, parts));
  answer.states = static_cast<int64_t>(order.size());
  answer.complete = !deadline.passed();
  if (!answer.complete) answer.stopped = "the time limit or an interrupt ended the search";
  answer.search_seconds = watch.seconds();
  return answer;
}

}  // namespace graphpipe::partitioner
