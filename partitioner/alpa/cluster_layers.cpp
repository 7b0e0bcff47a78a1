#include "partitioner/alpa/cluster_layers.h"

#include <algorithm>
#include <limits>

#include "support/units.h"

namespace graphpipe::partitioner {
namespace {

constexpr double kSlack = 0.5;
/// The search takes time quadratic in the boundaries: in longer orders only every k-th position may be one.
constexpr size_t kMaxBoundaries = 3000;

/// A linear order of the layers, with its possible boundaries.
struct Line {
  std::vector<uint32_t> order;
  /// Positions where runs may end, from 0 to all layers; by boundary the seconds of the layers before it and the bytes
  /// that cross it.
  std::vector<size_t> boundary;
  std::vector<double> work, crossing;
};

void thin_out(Line& line) {
  const size_t step = line.order.size() / kMaxBoundaries + 1;
  size_t kept = 0;
  for (size_t i = 0; i < line.boundary.size(); ++i) {
    if (i % step != 0 && i + 1 != line.boundary.size()) continue;
    line.boundary[kept] = line.boundary[i];
    line.work[kept] = line.work[i];
    line.crossing[kept++] = line.crossing[i];
  }
  line.boundary.resize(kept);
  line.work.resize(kept);
  line.crossing.resize(kept);
}

Line line_of(const UnitPrices& prices) {
  Line line{.order = topological_layers(prices)};
  line.work = {0};
  std::vector<size_t> position(prices.size(), 0);
  for (size_t i = 0; i < line.order.size(); ++i) {
    position[line.order[i]] = i;
    line.work.push_back(line.work.back() + prices.seconds[line.order[i]]);
  }
  std::vector<size_t> last = position;
  for (const auto& [from, to] : prices.edges) last[from] = std::max(last[from], position[to]);
  std::vector<double> change(line.order.size() + 2, 0);
  for (uint32_t layer = 0; layer < prices.size(); ++layer) {
    change[position[layer] + 1] += prices.output_bytes[layer];
    change[last[layer] + 1] -= prices.output_bytes[layer];
  }
  line.crossing = {0};
  for (size_t i = 1; i <= line.order.size(); ++i) line.crossing.push_back(line.crossing.back() + change[i]);
  for (size_t i = 0; i <= line.order.size(); ++i) line.boundary.push_back(i);
  thin_out(line);
  return line;
}

/// Traffic between some runs, then the sum of their squared work: compared in this order.
struct Cost {
  double traffic = kInfinity, squares = 0;
  auto operator<=>(const Cost&) const = default;
};

/// [runs][boundary]: the cost of cutting the layers before the boundary into that many runs; infinite where that is not
/// possible.
using Table = std::vector<std::vector<Cost>>;

class Clusters {
 public:
  Clusters(const Line& line, size_t count) : line_(line), count_(count) {
    double largest = 0;
    for (size_t i = 1; i < line.work.size(); ++i) largest = std::max(largest, line.work[i] - line.work[i - 1]);
    max_work_ = std::max((1 + kSlack) * line.work.back() / static_cast<double>(count), largest) * (1 + 1e-9);
  }

  /// Per run, the number of layers up to its end, with no boundary that carries more than `max_bytes`; empty if there
  /// is no such split.
  std::vector<size_t> ends(double max_bytes) const {
    const size_t last = line_.boundary.size() - 1;
    Table table(count_ + 1, std::vector<Cost>(last + 1));
    std::vector<std::vector<size_t>> start(count_ + 1, std::vector<size_t>(last + 1, 0));
    table[0][0] = {.traffic = 0};
    for (size_t runs = 1; runs <= count_; ++runs)
      for (size_t end = runs; end <= last; ++end) {
        if (end < last && line_.crossing[end] > max_bytes) continue;
        for (size_t from = end; from-- > runs - 1;) {
          const double work = line_.work[end] - line_.work[from];
          if (work > max_work_) break;
          Cost cost = table[runs - 1][from];
          cost.traffic += end < last ? line_.crossing[end] : 0;
          cost.squares += work * work;
          if (cost < table[runs][end]) {
            table[runs][end] = cost;
            start[runs][end] = from;
          }
        }
      }
    std::vector<size_t> found;
    if (table[count_][last].traffic == kInfinity) return found;
    for (size_t runs = count_, end = last; runs > 0; end = start[runs--][end]) found.push_back(line_.boundary[end]);
    std::ranges::reverse(found);
    return found;
  }

 private:
  const Line& line_;
  size_t count_;
  double max_work_ = 0;
};

}  // namespace

std::vector<std::vector<uint32_t>> cluster_layers(const UnitPrices& prices, size_t count) {
  const Line line = line_of(prices);
  std::vector<double> traffic(line.crossing);
  std::ranges::sort(traffic);
  std::vector<size_t> best;
  for (count = std::min(count, line.boundary.size() - 1); best.empty(); --count) {
    const Clusters clusters(line, count);
    if (clusters.ends(traffic.back()).empty()) continue;  // one run always works
    size_t low = 0, high = traffic.size() - 1;            // the smallest limit that works is one of these
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (clusters.ends(traffic[middle]).empty()) low = middle + 1;
      else high = middle;
    }
    best = clusters.ends(traffic[low]);
  }
  std::vector<std::vector<uint32_t>> runs;
  size_t from = 0;
  for (const size_t end : best) {
    runs.emplace_back(line.order.begin() + static_cast<ptrdiff_t>(from),
                      line.order.begin() + static_cast<ptrdiff_t>(end));
    std::ranges::sort(runs.back());
    from = end;
  }
  return runs;
}

}  // namespace graphpipe::partitioner
