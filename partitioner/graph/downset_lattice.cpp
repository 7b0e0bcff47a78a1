#include "partitioner/graph/downset_lattice.h"

#include <algorithm>
#include <numeric>

#include "partitioner/graph/downsets.h"
#include "support/check.h"

namespace graphpipe::partitioner {

/// The builder calls `stop` once per this many steps to larger sets.
constexpr size_t kStepsPerQuestion = 2000;

/// Builds the lattice size by size: the sets of one size have consecutive numbers.
struct LatticeBuilder {
  const LatticeLimits& limits;
  LargerDownsets larger;
  Lattice lattice;
  /// The sets of the size under construction; the number of the first set of the size before.
  SetTable found;
  uint32_t first = 0;
  /// Steps since `stop` was last called.
  size_t steps = 0;

  LatticeBuilder(const Dag& dag, const LatticeLimits& bounds) : limits(bounds), larger(dag), found(dag.size()) {
    lattice.words_ = words_for(dag.size());
    lattice.sizes_ = {0};
    lattice.bits_.assign(lattice.words_, 0);
    lattice.up_start_ = {0};
  }

  /// Bytes of the sets and of the steps up and down from them.
  double bytes() const {
    const size_t per_set = lattice.words_ * sizeof(uint64_t) + sizeof(uint32_t) + 2 * sizeof(size_t);
    const size_t sets = lattice.size() + found.size();
    return static_cast<double>(sets * per_set + 2 * lattice.up_.size() * sizeof(Lattice::Step));
  }

  bool is_beyond_limits() const {
    return lattice.size() + found.size() > limits.max_sets || bytes() > limits.max_bytes;
  }

  /// Finds all sets with one node more than the largest so far. Returns false if a limit ends it.
  bool grow() {
    found.clear();
    const auto end = static_cast<uint32_t>(lattice.size());
    for (uint32_t set = first; set < end; ++set) {
      const size_t before = lattice.up_.size();
      larger.for_each(lattice.bits(set), [&](uint32_t node, const uint64_t* words) {
        lattice.up_.push_back({end + static_cast<uint32_t>(found.add(words)), node});
      });
      lattice.up_start_.push_back(lattice.up_.size());
      if (is_beyond_limits()) return false;
      steps += lattice.up_.size() - before;
      if (steps < kStepsPerQuestion) continue;
      steps = 0;
      if (limits.stop && limits.stop()) return false;
    }
    return true;
  }

  /// Adds the found sets whose flag is set; all of them if `kept` is empty.
  void keep(const std::vector<bool>& kept) {
    const auto end = static_cast<uint32_t>(lattice.size());
    std::vector<uint32_t> renamed(found.size(), UINT32_MAX);
    for (size_t i = 0; i < found.size(); ++i) {
      if (!kept.empty() && !kept[i]) continue;
      renamed[i] = static_cast<uint32_t>(lattice.size());
      lattice.sizes_.push_back(lattice.sizes_[first] + 1);
      lattice.bits_.insert(lattice.bits_.end(), found[i], found[i] + found.width());
    }
    if (lattice.size() - end < found.size()) drop_steps(end, renamed);
    first = end;
  }

  /// Removes the steps from sets [first, end) to sets that were not kept, and renumbers the others.
  void drop_steps(uint32_t end, const std::vector<uint32_t>& renamed) {
    lattice.complete_ = false;
    size_t write = lattice.up_start_[first], read = write;
    for (uint32_t set = first; set < end; ++set) {
      for (; read < lattice.up_start_[set + 1]; ++read) {
        Lattice::Step step = lattice.up_[read];
        step.set = renamed[step.set - end];
        if (step.set != UINT32_MAX) lattice.up_[write++] = step;
      }
      lattice.up_start_[set + 1] = write;
    }
    lattice.up_.resize(write);
  }

  Lattice finish() {
    lattice.up_start_.resize(lattice.size() + 1, lattice.up_.size());
    lattice.down_start_.assign(lattice.size() + 1, 0);
    for (const Lattice::Step& step : lattice.up_) ++lattice.down_start_[step.set + 1];
    std::partial_sum(lattice.down_start_.begin(), lattice.down_start_.end(), lattice.down_start_.begin());
    lattice.down_.resize(lattice.up_.size());
    std::vector<size_t> next(lattice.down_start_.begin(), lattice.down_start_.end() - 1);
    for (uint32_t set = 0; set < lattice.size(); ++set)
      for (const Lattice::Step& step : lattice.up(set)) lattice.down_[next[step.set]++] = {set, step.node};
    return std::move(lattice);
  }
};

std::optional<Lattice> Lattice::enumerate(const Dag& dag, const LatticeLimits& limits) {
  LatticeBuilder builder(dag, limits);
  for (size_t size = 0; size < dag.size(); ++size) {
    if (!builder.grow()) return std::nullopt;
    builder.keep({});
  }
  return builder.finish();
}

std::optional<Lattice> Lattice::beam(const Dag& dag, size_t width, std::span<const uint32_t> order,
                                     const std::function<double(std::span<const uint64_t>)>& rank,
                                     const LatticeLimits& limits) {
  GP_CHECK(width > 0 && order.size() == dag.size());
  LatticeBuilder builder(dag, limits);
  BitWords prefix(words_for(dag.size()), 0);
  for (size_t size = 0; size < dag.size(); ++size) {
    if (!builder.grow()) return std::nullopt;
    set_bit(prefix.data(), order[size]);
    const size_t count = builder.found.size();
    std::vector<bool> kept;
    if (count > width) {
      std::vector<std::pair<double, size_t>> ranked;
      for (size_t i = 0; i < count; ++i) {
        const std::span<const uint64_t> set = builder.found.words(i);
        ranked.emplace_back(std::ranges::equal(set, prefix) ? -1e300 : rank(set), i);
      }
      std::ranges::nth_element(ranked, ranked.begin() + static_cast<ptrdiff_t>(width));
      kept.assign(count, false);
      for (size_t i = 0; i < width; ++i) kept[ranked[i].second] = true;
    }
    builder.keep(kept);
  }
  return builder.finish();
}

std::vector<uint32_t> Lattice::difference(uint32_t small, uint32_t large) const {
  BitWords rest(words_);
  for (size_t word = 0; word < words_; ++word) rest[word] = bits(large)[word] & ~bits(small)[word];
  std::vector<uint32_t> nodes;
  for_each_bit(rest, [&](size_t node) { nodes.push_back(static_cast<uint32_t>(node)); });
  return nodes;
}

std::optional<uint64_t> Lattice::nested_pairs(uint64_t max_pairs) const {
  LatticeWalk walk(*this);
  uint64_t pairs = 0;
  for (uint32_t set = 0; set < size(); ++set) {
    ++pairs;
    walk.down(
        set, [&](uint32_t, uint32_t) { return ++pairs <= max_pairs; }, [](uint32_t) {});
    if (pairs > max_pairs) return std::nullopt;
  }
  return pairs;
}

}  // namespace graphpipe::partitioner
