#include "partitioner/piper/cover_knapsack.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

/// Items in order of cost per saving, with prefix sums of both.
struct Ranking {
  std::vector<uint32_t> order;
  std::vector<double> costs, savings;

  explicit Ranking(std::span<const CoverItem> items) : order(items.size()) {
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, {}, [&](uint32_t i) { return items[i].cost / items[i].saving; });
    costs = {0};
    savings = {0};
    for (const uint32_t i : order) {
      costs.push_back(costs.back() + items[i].cost);
      savings.push_back(savings.back() + items[i].saving);
    }
  }

  /// Least cost to save `need` more with parts of the items from `from` on; infinite where they do not reach it.
  double fractional(size_t from, double need) const {
    if (need <= 0) return 0;
    const double goal = savings[from] + need;
    const auto end = std::lower_bound(savings.begin() + static_cast<ptrdiff_t>(from), savings.end(), goal);
    if (end == savings.end()) return kInfinity;
    const auto k = static_cast<size_t>(end - savings.begin());
    const double part = (goal - savings[k - 1]) / (savings[k] - savings[k - 1]);
    return costs[k - 1] - costs[from] + part * (costs[k] - costs[k - 1]);
  }
};

class CoverSearch {
 public:
  CoverSearch(std::span<const CoverItem> items, const Ranking& ranking, double best, size_t max_steps)
      : items_(items), ranking_(ranking), best_(best), steps_left_(max_steps) {}

  bool finished() const { return steps_left_ > 0; }
  bool improved() const { return improved_; }
  const std::vector<uint32_t>& chosen() const { return best_chosen_; }

  void run(size_t position, double cost, double need) {
    if (steps_left_ <= 1) {
      steps_left_ = 0;
      return;
    }
    --steps_left_;
    if (need <= 0) {
      if (cost < best_) {
        best_ = cost;
        best_chosen_ = chosen_;
        improved_ = true;
      }
      return;
    }
    // The margin prunes choices that are as good as the best but for rounding, which would be tried one by one
    // otherwise.
    if (cost + ranking_.fractional(position, need) >= best_ * (1 - 1e-12)) return;
    // What rounding leaves to be saved is no reason to look for more items than there are.
    if (position == ranking_.order.size()) return;
    const uint32_t item = ranking_.order[position];
    if (!is_dominated_by_skipped(item)) {
      chosen_.push_back(item);
      run(position + 1, cost + items_[item].cost, need - items_[item].saving);
      chosen_.pop_back();
    }
    skipped_.push_back(item);
    run(position + 1, cost, need);
    skipped_.pop_back();
  }

 private:
  bool is_dominated_by_skipped(uint32_t item) const {
    return std::ranges::any_of(skipped_, [&](uint32_t other) {
      return items_[other].cost <= items_[item].cost && items_[other].saving >= items_[item].saving;
    });
  }

  std::span<const CoverItem> items_;
  const Ranking& ranking_;
  double best_;
  size_t steps_left_;
  bool improved_ = false;
  std::vector<uint32_t> chosen_, skipped_, best_chosen_;
};

Cover greedy(std::span<const CoverItem> items, const Ranking& ranking, double need) {
  Cover cover;
  double saved = 0;
  for (const uint32_t item : ranking.order) {
    if (saved >= need) break;
    saved += items[item].saving;
    cover.cost += items[item].cost;
    cover.chosen.push_back(item);
  }
  cover.possible = saved >= need;
  std::ranges::sort(cover.chosen);
  cover.bound = cover.possible ? std::min(cover.cost, ranking.fractional(0, need)) : 0;
  return cover;
}

double cost_of(std::span<const CoverItem> items, std::span<const uint32_t> chosen) {
  double cost = 0;
  for (const uint32_t item : chosen) cost += items[item].cost;
  return cost;
}

}  // namespace

Cover cover_greedy(std::span<const CoverItem> items, double need) { return greedy(items, Ranking(items), need); }

Cover cover_exact(std::span<const CoverItem> items, double need, size_t max_steps) {
  const Ranking ranking(items);
  Cover cover = greedy(items, ranking, need);
  if (!cover.possible || cover.cost <= cover.bound) return cover;
  CoverSearch search(items, ranking, cover.cost, max_steps);
  search.run(0, 0, need);
  if (search.improved()) {
    cover.chosen = search.chosen();
    std::ranges::sort(cover.chosen);
    cover.cost = cost_of(items, cover.chosen);
  }
  if (search.finished()) cover.bound = cover.cost;
  return cover;
}

}  // namespace graphpipe::partitioner
