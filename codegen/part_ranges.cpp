#include "codegen/part_ranges.h"

#include <algorithm>
#include <map>

#include "codegen/node_emitter.h"
#include "codegen/stage_steps.h"
#include "support/integer_math.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::ValueId;

/// Repeated layers of more steps than this are not searched for.
constexpr size_t kMaxPeriod = 400;
/// A call of a block with fewer steps than this is not worth its table; shorter layers are grouped.
constexpr size_t kMinBlock = 16;

/// Searches over all steps whose work is worth it: models have few kinds of layers.
constexpr size_t kMaxSearches = 64;

/// Functions of no more steps than this stay whole.
constexpr size_t kShort = 60;

/// `count` repetitions of `period` steps, from step `first` on.
struct Stretch {
  size_t first = 0, period = 0, count = 0;
  size_t saved() const { return count < 2 ? 0 : (count - 1) * period; }
};

class RangeFinder {
 public:
  RangeFinder(const Graph& graph, std::span<const Step> steps, size_t max_steps)
      : max_steps_(max_steps), kinds_(kinds_of(graph, steps)), crossing_(crossings_of(graph, steps)) {}

  std::vector<PartRange> run() {
    search(0, kinds_.size());
    return std::move(ranges_);
  }

 private:
  /// Numbers the steps so that those with the same operator and types get the same number.
  static std::vector<size_t> kinds_of(const Graph& graph, std::span<const Step> steps) {
    std::map<std::string, size_t> number_of;
    std::vector<size_t> kinds;
    for (const Step& step : steps) {
      const ir::Node& node = graph.node(step.node);
      std::string words = text(node.op, step.only_operand.valid(), step.zero.valid());
      for (const ValueId input : node.inputs) words += input.valid() ? type_text(graph.value(input).type) : "-";
      for (const ValueId output : node.outputs) words += ">" + type_text(graph.value(output).type);
      kinds.push_back(number_of.emplace(std::move(words), number_of.size()).first->second);
    }
    return kinds;
  }

  /// For each step, how many values that earlier steps make are read by it or a later step.
  static std::vector<size_t> crossings_of(const Graph& graph, std::span<const Step> steps) {
    std::map<ValueId, std::pair<size_t, size_t>> lives;  // made, last read
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const ValueId input : inputs_of_step(graph, steps[i]))
        if (const auto life = lives.find(input); life != lives.end()) life->second.second = i;
      for (const ValueId output : outputs_of_step(graph, steps[i])) lives.emplace(output, std::pair(i, i));
    }
    std::vector<size_t> begun(steps.size() + 1), ended(steps.size() + 1);
    for (const auto& [value, life] : lives) {
      ++begun[life.first + 1];
      ++ended[life.second + 1];
    }
    std::vector<size_t> crossing(steps.size());
    size_t alive = 0;
    for (size_t i = 0; i < steps.size(); ++i) crossing[i] = alive += begun[i] - ended[i];
    return crossing;
  }

  void search(size_t begin, size_t end) {
    searched_ += end - begin;
    if (end - begin <= std::min(kShort, max_steps_) || searched_ > kMaxSearches * kinds_.size())
      return add_even(begin, end, false);
    const Stretch found = best_stretch(begin, end);
    if (found.saved() < kMinBlock) return add_even(begin, end, false);
    search(begin, found.first);
    for (size_t i = 0; i < found.count; ++i)
      add_even(found.first + i * found.period, found.first + (i + 1) * found.period, true);
    search(found.first + found.count * found.period, end);
  }

  /// The stretch that saves the most steps to compile. For each period p it takes the longest runs in which step i is
  /// the same as step i + p: in a b c a b c a b d with p = 3 these are steps 0 to 4, so [0, 8) repeats a b c.
  Stretch best_stretch(size_t begin, size_t end) const {
    Stretch best;
    for (size_t period = 1; period <= std::min(kMaxPeriod, (end - begin) / 2); ++period)
      for (size_t i = begin; i + period < end;) {
        size_t same = i;
        while (same + period < end && kinds_[same] == kinds_[same + period]) ++same;
        if (const Stretch stretch = chosen(i, same + period, period); stretch.saved() > best.saved()) best = stretch;
        i = same + 1;
      }
    return best;
  }

  /// Cuts [begin, end), where each step is the same as the one a period later, into blocks: short periods are grouped,
  /// and the first block starts where the fewest values cross.
  Stretch chosen(size_t begin, size_t end, size_t period) const {
    const size_t block = period * std::max<size_t>(1, ceil_div(kMinBlock, period));
    const size_t count = (end - begin) / block;
    if (count < 2) return {};
    // A later start may cost one block, which does not matter if there are more than three.
    const size_t starts = std::min(block, (end - begin) - (count - (count > 3 ? 1 : 0)) * block + 1);
    const auto from = crossing_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto start = std::min_element(from, from + static_cast<std::ptrdiff_t>(starts));
    const size_t first = begin + static_cast<size_t>(start - from);
    return {.first = first, .period = block, .count = (end - first) / block};
  }

  void add_even(size_t begin, size_t end, bool repeats) {
    const size_t steps = end - begin, parts = ceil_div(steps, max_steps_);
    for (size_t i = 0; i < parts; ++i)
      ranges_.push_back({begin + i * steps / parts, begin + (i + 1) * steps / parts, repeats});
  }

  size_t max_steps_, searched_ = 0;
  std::vector<size_t> kinds_, crossing_;
  std::vector<PartRange> ranges_;
};

}  // namespace

std::vector<PartRange> part_ranges(const Graph& graph, std::span<const Step> steps, size_t max_steps) {
  if (steps.empty()) return {{0, 0, false}};
  return RangeFinder(graph, steps, max_steps).run();
}

}  // namespace graphpipe::codegen
