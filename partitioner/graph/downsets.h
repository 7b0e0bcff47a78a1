#pragma once
// Downsets of an acyclic graph: sets of nodes that hold the predecessors of their members. The difference of two nested
// downsets is a stage; a chain of downsets is a linear pipeline without a cycle. Sets are rows of bits.
//
// A table is for searches that pair sets however they lie to each other, and that add some sets only, along orders or
// around a good one. Those that step from a set to its neighbours need the lattice (downset_lattice.h), which also
// keeps the steps and numbers a set after its subsets. Both go on by LargerDownsets.

#include <cstdint>
#include <span>
#include <vector>

#include "support/bits.h"
#include "support/deadline.h"
#include "support/digraph.h"

namespace graphpipe::partitioner {

/// Distinct sets of one size in bits, in the order in which they were added.
class SetTable {
 public:
  /// `items`: numbers that sets are made of.
  explicit SetTable(size_t items) : items_(items), width_(words_for(items)) {}

  size_t size() const { return count_; }
  size_t items() const { return items_; }
  /// Words of a set.
  size_t width() const { return width_; }
  const uint64_t* operator[](size_t set) const { return words_.data() + set * width_; }
  std::span<const uint64_t> words(size_t set) const { return {(*this)[set], width_}; }
  /// The index of the set, which is size() - 1 where it is new. Needs: the set is not in this table's memory.
  size_t add(const uint64_t* set);
  /// Forgets all sets and keeps the memory.
  void clear();
  bool includes(size_t larger, size_t smaller) const { return is_subset((*this)[smaller], (*this)[larger], width_); }
  bool contains(const uint64_t* set) const { return count_ > 0 && slots_[slot_of(set)] != 0; }
  /// Bytes in use.
  size_t bytes() const { return words_.capacity() * sizeof(uint64_t) + slots_.capacity() * sizeof(uint32_t); }

 private:
  void grow();
  size_t slot_of(const uint64_t* set) const;

  size_t items_, width_, count_ = 0;
  BitWords words_;
  std::vector<uint32_t> slots_;  // 1 + index; 0: free
};

/// Goes from downsets to those that hold one node more: the step of every enumeration of them.
class LargerDownsets {
 public:
  explicit LargerDownsets(const Dag& dag);

  /// Calls visit(node, words of the downset with it) for every node that can join, ascending. The words last until the
  /// next call.
  template <typename Visit>
  void for_each(std::span<const uint64_t> downset, Visit&& visit) {
    set_.assign(downset.begin(), downset.end());
    // What may come next is a source, or follows a member.
    next_ = sources_;
    for_each_bit(set_, [&](size_t member) {
      for (const uint32_t reader : dag_.successors(static_cast<uint32_t>(member))) set_bit(next_.data(), reader);
    });
    for (size_t w = 0; w < set_.size(); ++w) next_[w] &= ~set_[w];
    for_each_bit(next_, [&](size_t node) {
      if (!is_ready(set_.data(), static_cast<uint32_t>(node))) return;
      set_bit(set_.data(), node);
      visit(static_cast<uint32_t>(node), static_cast<const uint64_t*>(set_.data()));
      flip_bit(set_.data(), node);
    });
  }

  /// Whether the node is outside of the downset and all its predecessors inside.
  bool is_ready(const uint64_t* downset, uint32_t node) const;

 private:
  const Dag& dag_;
  BitWords sources_, set_, next_;
};

/// Adds all downsets, the empty one first, in the order of a breadth-first search. Returns whether all were added
/// before there were `max_bytes` of them or the deadline passed.
bool add_all_downsets(const Dag& dag, size_t max_bytes, const Deadline& deadline, SetTable& sets);

/// Topological orders that are worth cutting: smallest number first, first in first out and last in first out by the
/// order of the edges, and the two greedy ones that keep the bytes across the boundary small (from the front and from
/// the back). `output_bytes`: of each node.
std::vector<std::vector<uint32_t>> cutting_orders(const EdgeList& edges, const std::vector<double>& output_bytes);

/// Adds the downsets that an order passes through, the empty one first: all of them, or (where they are more than
/// `max_sets`) evenly spread ones and the last.
void add_prefixes(const std::vector<uint32_t>& order, size_t max_sets, SetTable& sets);

/// Adds the downsets that differ from `set` by up to `steps` nodes added at the boundary or taken from it, at most
/// `max_sets` of them.
void add_neighbours(const Dag& dag, const uint64_t* set, int steps, size_t max_sets, SetTable& sets);

}  // namespace graphpipe::partitioner
