#include "partitioner/graph/ideals.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <queue>
#include <unordered_map>

#include "support/check.h"

namespace graphpipe::partitioner {
namespace {

/// Rows of second ends by first end. Needs: sorted edges.
void fill_rows(size_t nodes, const DagEdges& edges, std::vector<uint32_t>& start, std::vector<uint32_t>& items) {
  start.assign(nodes + 1, 0);
  items.clear();
  items.reserve(edges.size());
  for (const auto& [from, to] : edges) {
    ++start[from + 1];
    items.push_back(to);
  }
  std::partial_sum(start.begin(), start.end(), start.begin());
}

/// A fixed pseudo-random number per node (splitmix64), so that hashes and with them nothing else depends on the run.
uint64_t node_hash(uint64_t node) {
  uint64_t x = (node + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

Dag::Dag(size_t nodes, DagEdges edges) {
  for (const auto& [from, to] : edges) GP_CHECK(from < nodes && to < nodes && from != to);
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  fill_rows(nodes, edges, successor_start_, successors_);
  for (auto& [from, to] : edges) std::swap(from, to);
  std::ranges::sort(edges);
  fill_rows(nodes, edges, predecessor_start_, predecessors_);
}

std::vector<uint32_t> last_in_first_out_order(size_t nodes, const DagEdges& edges) {
  std::vector<std::vector<uint32_t>> readers(nodes);
  std::vector<uint32_t> missing(nodes, 0), order, stack;
  for (const auto& [from, to] : edges) {
    readers[from].push_back(to);
    ++missing[to];
  }
  for (uint32_t node = 0; node < nodes; ++node)
    if (missing[node] == 0) stack.push_back(node);
  while (!stack.empty()) {
    order.push_back(stack.back());
    stack.pop_back();
    for (const uint32_t next : readers[order.back()])
      if (--missing[next] == 0) stack.push_back(next);
  }
  GP_CHECK(order.size() == nodes);
  return order;
}

Dag chained(const Dag& dag, std::span<const uint32_t> order) {
  DagEdges edges;
  for (uint32_t node = 0; node < dag.size(); ++node)
    for (const uint32_t next : dag.successors(node)) edges.emplace_back(node, next);
  for (size_t i = 1; i < order.size(); ++i) edges.emplace_back(order[i - 1], order[i]);
  return Dag(dag.size(), std::move(edges));
}

/// Steps to larger sets after which the builder asks whether to stop.
constexpr size_t kStepsPerQuestion = 2000;

/// Builds the lattice size by size: the sets of one size have consecutive numbers.
struct LatticeBuilder {
  const Dag& dag;
  const LatticeLimits& limits;
  Lattice lattice;
  /// Sets of the size under construction by hash (sets with equal hashes are chained by the map), and the nodes that
  /// can join each set of the size before.
  std::unordered_multimap<uint64_t, uint32_t> found;
  std::vector<uint64_t> hashes, next_hashes;
  std::vector<std::vector<uint32_t>> free_nodes, next_free;
  size_t free_bytes = 0;
  /// Since `stop` was asked.
  size_t steps = 0;

  LatticeBuilder(const Dag& graph, const LatticeLimits& bounds) : dag(graph), limits(bounds) {
    lattice.words_ = std::max<size_t>(1, (dag.size() + 63) / 64);
    lattice.sizes_ = {0};
    lattice.bits_.assign(lattice.words_, 0);
    lattice.up_start_ = {0};
    hashes = {0};
    free_nodes.emplace_back();
    for (uint32_t node = 0; node < dag.size(); ++node)
      if (dag.predecessors(node).empty()) free_nodes.back().push_back(node);
  }

  bool has(uint32_t set, uint32_t node) const { return lattice.contains(set, node); }

  bool is_sum(uint32_t sum, uint32_t set, uint32_t node) const {
    for (size_t word = 0; word < lattice.words_; ++word) {
      uint64_t expected = lattice.bits_[set * lattice.words_ + word];
      if (word == node / 64) expected |= uint64_t{1} << (node % 64);
      if (lattice.bits_[sum * lattice.words_ + word] != expected) return false;
    }
    return true;
  }

  uint32_t append(uint32_t set, uint32_t node, uint64_t hash, const std::vector<uint32_t>& free) {
    const auto added = static_cast<uint32_t>(lattice.sizes_.size());
    lattice.sizes_.push_back(lattice.sizes_[set] + 1);
    for (size_t word = 0; word < lattice.words_; ++word)
      lattice.bits_.push_back(lattice.bits_[set * lattice.words_ + word]);
    lattice.bits_[added * lattice.words_ + node / 64] |= uint64_t{1} << (node % 64);
    std::vector<uint32_t> next = free;
    next.erase(std::ranges::find(next, node));
    for (const uint32_t reader : dag.successors(node))
      if (std::ranges::all_of(dag.predecessors(reader), [&](uint32_t p) { return has(added, p); }))
        next.insert(std::ranges::lower_bound(next, reader), reader);
    free_bytes += next.size() * sizeof(uint32_t) + sizeof(next);
    next_free.push_back(std::move(next));
    next_hashes.push_back(hash);
    found.emplace(hash, added);
    return added;
  }

  uint32_t find_or_append(uint32_t set, uint32_t node, uint64_t hash, const std::vector<uint32_t>& free) {
    const auto [first, last] = found.equal_range(hash);
    for (auto it = first; it != last; ++it)
      if (is_sum(it->second, set, node)) return it->second;
    return append(set, node, hash, free);
  }

  /// Sets, the steps up and the steps down from them, and what may join the newest of them.
  double bytes() const {
    const size_t per_set = lattice.words_ * sizeof(uint64_t) + sizeof(uint32_t) + 2 * sizeof(size_t);
    return static_cast<double>(lattice.size() * per_set + 2 * lattice.up_.size() * sizeof(Lattice::Step) + free_bytes);
  }

  bool is_beyond_limits() const { return lattice.size() > limits.max_sets || bytes() > limits.max_bytes; }

  /// All sets with one node more than those from `first` on. False where a limit ends it.
  bool grow(uint32_t first) {
    found.clear();
    next_free.clear();
    next_hashes.clear();
    free_bytes = 0;
    for (uint32_t index = 0; index < free_nodes.size(); ++index) {
      const uint32_t set = first + index;
      for (const uint32_t node : free_nodes[index]) {
        const uint32_t sum = find_or_append(set, node, hashes[index] ^ node_hash(node), free_nodes[index]);
        lattice.up_.push_back({sum, node});
      }
      lattice.up_start_.push_back(lattice.up_.size());
      if (is_beyond_limits()) return false;
      steps += free_nodes[index].size();
      if (steps < kStepsPerQuestion) continue;
      steps = 0;
      if (limits.stop && limits.stop()) return false;
    }
    free_nodes.swap(next_free);
    hashes.swap(next_hashes);
    return true;
  }

  /// Keeps the sets from `first` on whose flag is set, renumbered.
  void keep(uint32_t first, const std::vector<bool>& kept) {
    std::vector<uint32_t> renamed(kept.size(), UINT32_MAX);
    uint32_t count = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      renamed[i] = first + count;
      std::copy_n(lattice.bits_.begin() + static_cast<ptrdiff_t>((first + i) * lattice.words_), lattice.words_,
                  lattice.bits_.begin() + static_cast<ptrdiff_t>((first + count) * lattice.words_));
      std::swap(free_nodes[count], free_nodes[i]);
      hashes[count] = hashes[i];
      ++count;
    }
    lattice.sizes_.resize(first + count);
    lattice.bits_.resize(lattice.sizes_.size() * lattice.words_);
    free_nodes.resize(count);
    hashes.resize(count);
    drop_steps(first, renamed);
    lattice.complete_ = false;
  }

  /// Takes away the steps of the sets before `first` that lead to sets that were not kept.
  void drop_steps(uint32_t first, const std::vector<uint32_t>& renamed) {
    size_t set = first;
    while (set > 0 && lattice.sizes_[set - 1] + 1 == lattice.sizes_[first]) --set;
    size_t write = lattice.up_start_[set], read = write;
    for (; set < first; ++set) {
      const size_t end = lattice.up_start_[set + 1];
      for (; read < end; ++read) {
        Lattice::Step step = lattice.up_[read];
        step.set = renamed[step.set - first];
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
  for (size_t size = 0; size < dag.size(); ++size)
    if (!builder.grow(static_cast<uint32_t>(builder.lattice.sizes_.size() - builder.free_nodes.size())))
      return std::nullopt;
  return builder.finish();
}

std::optional<Lattice> Lattice::beam(const Dag& dag, size_t width, std::span<const uint32_t> order,
                                     const std::function<double(std::span<const uint64_t>)>& rank,
                                     const LatticeLimits& limits) {
  GP_CHECK(width > 0 && order.size() == dag.size());
  LatticeBuilder builder(dag, limits);
  uint64_t prefix_hash = 0;
  for (size_t size = 0; size < dag.size(); ++size) {
    if (!builder.grow(static_cast<uint32_t>(builder.lattice.sizes_.size() - builder.free_nodes.size())))
      return std::nullopt;
    prefix_hash ^= node_hash(order[size]);
    const size_t count = builder.free_nodes.size();
    if (count <= width) continue;
    const auto first = static_cast<uint32_t>(builder.lattice.sizes_.size() - count);
    std::vector<std::pair<double, size_t>> ranked;
    for (size_t i = 0; i < count; ++i) {
      const bool is_prefix = builder.hashes[i] == prefix_hash;
      ranked.emplace_back(is_prefix ? -1e300 : rank(builder.lattice.bits(static_cast<uint32_t>(first + i))), i);
    }
    std::ranges::nth_element(ranked, ranked.begin() + static_cast<ptrdiff_t>(width));
    std::vector<bool> kept(count, false);
    for (size_t i = 0; i < width; ++i) kept[ranked[i].second] = true;
    builder.keep(first, kept);
  }
  return builder.finish();
}

std::vector<uint32_t> Lattice::difference(uint32_t small, uint32_t large) const {
  std::vector<uint32_t> nodes;
  for (size_t word = 0; word < words_; ++word) {
    uint64_t rest = bits_[large * words_ + word] & ~bits_[small * words_ + word];
    for (; rest != 0; rest &= rest - 1) nodes.push_back(static_cast<uint32_t>(word * 64 + std::countr_zero(rest)));
  }
  return nodes;
}

std::optional<uint64_t> Lattice::nested_pairs(uint64_t most) const {
  LatticeWalk walk(*this);
  uint64_t pairs = 0;
  for (uint32_t set = 0; set < size(); ++set) {
    ++pairs;
    walk.down(
        set, [&](uint32_t, uint32_t) { return ++pairs <= most; }, [](uint32_t) {});
    if (pairs > most) return std::nullopt;
  }
  return pairs;
}

}  // namespace graphpipe::partitioner
