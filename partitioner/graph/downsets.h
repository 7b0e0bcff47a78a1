#pragma once
// Downsets of a layer graph: sets of layers that hold the predecessors of their members. The difference of two nested
// downsets is a stage; a chain of downsets is a linear pipeline without a cycle. Sets are rows of bits.

#include <cstdint>
#include <span>
#include <vector>

#include "partitioner/cost_models/layer_graph.h"
#include "partitioner/graphpipe/pipeline_dp.h"

namespace graphpipe::partitioner {

/// A set of layers, one bit each, 64 to a word.
using Words = std::vector<uint64_t>;

inline bool has_bit(const uint64_t* words, size_t bit) { return (words[bit / 64] >> (bit % 64) & 1) != 0; }
inline void set_bit(uint64_t* words, size_t bit) { words[bit / 64] |= uint64_t{1} << (bit % 64); }

/// Distinct sets of one size in bits, in the order in which they were added.
class SetTable {
 public:
  explicit SetTable(size_t layers) : layers_(layers), width_((layers + 63) / 64) {}

  size_t size() const { return count_; }
  size_t layers() const { return layers_; }
  /// Words of a set.
  size_t width() const { return width_; }
  const uint64_t* operator[](size_t set) const { return words_.data() + set * width_; }
  /// The index of the set; `added` says whether it is new.
  size_t add(const uint64_t* set, bool* added = nullptr);
  bool includes(size_t larger, size_t smaller) const;
  bool contains(const uint64_t* set) const { return count_ > 0 && slots_[slot_of(set)] != 0; }
  /// Bytes in use.
  size_t bytes() const { return words_.capacity() * sizeof(uint64_t) + slots_.capacity() * sizeof(uint32_t); }

 private:
  void grow();
  size_t slot_of(const uint64_t* set) const;

  size_t layers_, width_, count_ = 0;
  Words words_;
  std::vector<uint32_t> slots_;  // 1 + index; 0: free
};

/// A layer graph with its neighbours, and the width of its sets.
struct SetGraph {
  explicit SetGraph(const LayerGraph& graph);
  size_t layers, width;
  LayerAdjacency adjacency;
  /// Whether the layer is outside of the downset and all its predecessors inside.
  bool is_ready(const uint64_t* downset, size_t layer) const;
};

/// Adds all downsets, the empty one first, in the order of a breadth-first search. Returns whether all were added
/// before there were `max_bytes` of them or the deadline passed.
bool add_all_downsets(const SetGraph& graph, size_t max_bytes, Deadline& deadline, SetTable& sets);

/// Topological orders that are worth cutting: smallest id first, first in first out, last in first out, and the two
/// greedy ones that keep the bytes across the boundary small (from the front and from the back).
std::vector<std::vector<LayerId>> cutting_orders(const LayerGraph& graph);

/// First in first out by the order of the file.
std::vector<LayerId> fifo_order(const LayerAdjacency& adjacency);

/// Adds the downsets that an order passes through, the empty one first: all of them, or (where they are more than
/// `most`) evenly spread ones and the last.
void add_prefixes(const std::vector<LayerId>& order, size_t most, SetTable& sets);

/// Adds the downsets that differ from `set` by up to `steps` layers added at the boundary or taken from it, at most
/// `most` of them.
void add_neighbours(const SetGraph& graph, const uint64_t* set, int steps, size_t most, SetTable& sets);

}  // namespace graphpipe::partitioner
