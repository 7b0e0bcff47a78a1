#pragma once
// The lattice of downsets of an acyclic graph. A downset holds with every node all of its predecessors; a stage of a
// pipeline is the difference of two nested downsets, so a search over linear pipelines is a search over nested pairs.
//
// Numbers: 0 is the empty set, the last one is the whole graph, and a set has a larger number than all of its subsets.
// Chains of n nodes have n + 1 downsets; b separate branches of l nodes have (l + 1)^b.
//
// Example: a -> (b | c) -> d has 0 = {}, 1 = {a}, 2 = {a, b}, 3 = {a, c}, 4 = {a, b, c} and 5, the graph. Between 2 and
// 5 lies the stage {c, d}. {a, d} is no stage: a set that holds d holds b and c too, and one without a holds neither.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "support/bits.h"
#include "support/digraph.h"
#include "support/units.h"

namespace graphpipe::partitioner {

struct LatticeLimits {
  size_t max_sets = 2'000'000;
  /// Of the sets and the steps between them.
  double max_bytes = kInfinity;
  /// Asked now and then; true ends the enumeration.
  std::function<bool()> stop;
};

class Lattice {
 public:
  /// One node more or less: `set` is the neighbour in the lattice, `node` the difference.
  struct Step {
    uint32_t set, node;
  };

  /// Nothing where the limits are exceeded.
  static std::optional<Lattice> enumerate(const Dag& dag, const LatticeLimits& limits = {});
  /// Of each size only the `width` sets that rank lowest (ties: found first), found from those of the size below, and
  /// all prefixes of `order`. Where no size has more sets it is the whole lattice.
  static std::optional<Lattice> beam(const Dag& dag, size_t width, std::span<const uint32_t> order,
                                     const std::function<double(std::span<const uint64_t>)>& rank,
                                     const LatticeLimits& limits = {});

  size_t size() const { return sizes_.size(); }
  uint32_t empty_set() const { return 0; }
  uint32_t full_set() const { return static_cast<uint32_t>(size() - 1); }
  /// Whether it holds all downsets of the graph.
  bool complete() const { return complete_; }
  size_t cardinality(uint32_t set) const { return sizes_[set]; }
  /// One bit per node.
  std::span<const uint64_t> bits(uint32_t set) const { return std::span(bits_).subspan(set * words_, words_); }
  bool contains(uint32_t set, uint32_t node) const { return has_bit(bits_.data() + set * words_, node); }
  /// Larger sets by one node, smaller sets by one node.
  std::span<const Step> up(uint32_t set) const { return row(up_start_, up_, set); }
  std::span<const Step> down(uint32_t set) const { return row(down_start_, down_, set); }
  /// Nodes of `large` that are not in `small`, ascending.
  std::vector<uint32_t> difference(uint32_t small, uint32_t large) const;
  /// Number of pairs (I', I) with I' inside I or equal, or nothing where there are more than `max_pairs`.
  std::optional<uint64_t> nested_pairs(uint64_t max_pairs) const;

 private:
  friend struct LatticeBuilder;
  static std::span<const Step> row(const std::vector<size_t>& start, const std::vector<Step>& items, uint32_t set) {
    return std::span(items).subspan(start[set], start[set + 1] - start[set]);
  }
  size_t words_ = 0;
  bool complete_ = true;
  std::vector<uint32_t> sizes_;
  BitWords bits_;
  std::vector<size_t> up_start_, down_start_;
  std::vector<Step> up_, down_;
};

/// Visits the sets below (or above) a set, each once, by taking away (adding) one node after the other, so that sums
/// over the difference are kept at the price of one node per pair.
class LatticeWalk {
 public:
  explicit LatticeWalk(const Lattice& lattice) : lattice_(&lattice), seen_(lattice.size(), 0) {}

  /// enter(set, node) is called after `node` joined the difference, and returns whether to go on from there.
  /// leave(node) is called once for every enter, also where enter returned false.
  template <typename Enter, typename Leave>
  void down(uint32_t from, Enter&& enter, Leave&& leave) {
    walk<false>(from, enter, leave);
  }
  template <typename Enter, typename Leave>
  void up(uint32_t from, Enter&& enter, Leave&& leave) {
    walk<true>(from, enter, leave);
  }

 private:
  struct Frame {
    std::span<const Lattice::Step> steps;
    size_t next;
    uint32_t node;
  };

  template <bool kUp, typename Enter, typename Leave>
  void walk(uint32_t from, Enter& enter, Leave& leave) {
    ++round_;
    if (round_ == 0) {  // the counter wrapped
      std::fill(seen_.begin(), seen_.end(), 0);
      round_ = 1;
    }
    stack_.clear();
    stack_.push_back({kUp ? lattice_->up(from) : lattice_->down(from), 0, 0});
    while (true) {
      Frame& frame = stack_.back();
      if (frame.next == frame.steps.size()) {
        const uint32_t node = frame.node;
        stack_.pop_back();
        if (stack_.empty()) return;
        leave(node);
        continue;
      }
      const Lattice::Step step = frame.steps[frame.next++];
      if (seen_[step.set] == round_) continue;
      seen_[step.set] = round_;
      if (enter(step.set, step.node))
        stack_.push_back({kUp ? lattice_->up(step.set) : lattice_->down(step.set), 0, step.node});
      else leave(step.node);
    }
  }

  const Lattice* lattice_;
  std::vector<uint32_t> seen_;
  std::vector<Frame> stack_;
  uint32_t round_ = 0;
};

}  // namespace graphpipe::partitioner
