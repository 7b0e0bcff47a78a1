#include "partitioner/graph/downsets.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace graphpipe::partitioner {

namespace {

uint64_t hash_of(const uint64_t* words, size_t width) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < width; ++i) {
    hash = (hash ^ words[i]) * 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 29;
  }
  return hash;
}

/// A topological order built greedily: of the nodes that are ready, the one after which the fewest bytes cross the
/// boundary comes next. With `backward` the order is built from the sinks and then reversed. Ties: lower number.
class GreedyOrder {
 public:
  GreedyOrder(const Dag& dag, const std::vector<double>& bytes, bool backward)
      : dag_(dag),
        bytes_(bytes),
        backward_(backward),
        waiting_(dag.size()),
        pending_(dag.size()),
        crossing_(dag.size(), false) {}

  std::vector<uint32_t> run() {
    std::set<std::pair<double, uint32_t>> ready;
    std::vector<double> key(dag_.size(), 0);
    const auto insert = [&](uint32_t node) { ready.emplace(key[node] = change(node), node); };
    for (uint32_t node = 0; node < dag_.size(); ++node) {
      waiting_[node] = before(node).size();
      pending_[node] = dag_.successors(node).size();
    }
    for (uint32_t node = 0; node < dag_.size(); ++node)
      if (waiting_[node] == 0) insert(node);
    std::vector<uint32_t> order;
    while (!ready.empty()) {
      const uint32_t node = ready.begin()->second;
      ready.erase(ready.begin());
      order.push_back(node);
      take(node);
      for (const uint32_t next : after(node))
        if (--waiting_[next] == 0) insert(next);
      // Nodes that read a tensor in common with this one may change the boundary by another amount now.
      for (const uint32_t shared : dag_.predecessors(node))
        for (const uint32_t other : dag_.successors(shared))
          if (ready.erase({key[other], other}) != 0) insert(other);
    }
    if (backward_) std::ranges::reverse(order);
    return order;
  }

 private:
  std::span<const uint32_t> before(uint32_t node) const {
    return backward_ ? dag_.successors(node) : dag_.predecessors(node);
  }
  std::span<const uint32_t> after(uint32_t node) const {
    return backward_ ? dag_.predecessors(node) : dag_.successors(node);
  }

  // Forward: the output of the node begins to cross, and outputs of producers whose last reader it is stop crossing.
  // Backward: the tensors that it reads begin to cross unless they already do, and its own stops.
  double change(uint32_t node) const {
    double sum = 0;
    if (backward_) {
      if (crossing_[node]) sum -= bytes_[node];
      for (const uint32_t from : dag_.predecessors(node))
        if (!crossing_[from]) sum += bytes_[from];
      return sum;
    }
    if (pending_[node] > 0) sum += bytes_[node];
    for (const uint32_t from : dag_.predecessors(node))
      if (pending_[from] == 1) sum -= bytes_[from];
    return sum;
  }

  void take(uint32_t node) {
    if (backward_) crossing_[node] = false;
    for (const uint32_t from : dag_.predecessors(node)) {
      if (backward_) crossing_[from] = true;
      else --pending_[from];
    }
  }

  const Dag& dag_;
  const std::vector<double>& bytes_;
  const bool backward_;
  std::vector<size_t> waiting_, pending_;
  std::vector<bool> crossing_;
};

}  // namespace

size_t SetTable::slot_of(const uint64_t* set) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_of(set, width_) & mask;
  while (slots_[slot] != 0 && std::memcmp((*this)[slots_[slot] - 1], set, width_ * sizeof(uint64_t)) != 0)
    slot = (slot + 1) & mask;
  return slot;
}

void SetTable::grow() {
  std::fill(slots_.begin(), slots_.end(), 0);
  slots_.resize(std::max<size_t>(64, slots_.size() * 2), 0);
  for (size_t set = 0; set < count_; ++set) slots_[slot_of((*this)[set])] = static_cast<uint32_t>(set + 1);
}

size_t SetTable::add(const uint64_t* set) {
  if (slots_.empty() || count_ * 2 >= slots_.size()) grow();
  const size_t slot = slot_of(set);
  if (slots_[slot] != 0) return slots_[slot] - 1;
  words_.insert(words_.end(), set, set + width_);
  slots_[slot] = static_cast<uint32_t>(++count_);
  return count_ - 1;
}

void SetTable::clear() {
  words_.clear();
  std::fill(slots_.begin(), slots_.end(), 0);
  count_ = 0;
}

LargerDownsets::LargerDownsets(const Dag& dag) : dag_(dag), sources_(words_for(dag.size()), 0) {
  for (uint32_t node = 0; node < dag.size(); ++node)
    if (dag.predecessors(node).empty()) set_bit(sources_.data(), node);
}

bool LargerDownsets::is_ready(const uint64_t* downset, uint32_t node) const {
  if (has_bit(downset, node)) return false;
  return std::ranges::all_of(dag_.predecessors(node), [&](uint32_t from) { return has_bit(downset, from); });
}

bool add_all_downsets(const Dag& dag, size_t max_bytes, const Deadline& deadline, SetTable& sets) {
  LargerDownsets larger(dag);
  for (size_t at = sets.add(BitWords(sets.width(), 0).data()); at < sets.size(); ++at) {
    if (at % 64 == 0 && deadline.passed()) return false;
    larger.for_each(sets.words(at), [&](uint32_t, const uint64_t* set) {
      if (sets.bytes() <= max_bytes) sets.add(set);
    });
    if (sets.bytes() > max_bytes) return false;
  }
  return true;
}

std::vector<std::vector<uint32_t>> cutting_orders(const EdgeList& edges, const std::vector<double>& output_bytes) {
  const size_t nodes = output_bytes.size();
  const Dag dag(nodes, edges);
  return {topological_order(nodes, edges), first_in_first_out_order(nodes, edges),
          last_in_first_out_order(nodes, edges), GreedyOrder(dag, output_bytes, false).run(),
          GreedyOrder(dag, output_bytes, true).run()};
}

void add_prefixes(const std::vector<uint32_t>& order, size_t max_sets, SetTable& sets) {
  BitWords set(sets.width(), 0);
  sets.add(set.data());
  const size_t step = order.size() / std::max<size_t>(max_sets, 1) + 1;
  for (size_t i = 0; i < order.size(); ++i) {
    set_bit(set.data(), order[i]);
    if ((i + 1) % step == 0 || i + 1 == order.size()) sets.add(set.data());
  }
}

void add_neighbours(const Dag& dag, const uint64_t* set, int steps, size_t max_sets, SetTable& sets) {
  const LargerDownsets larger(dag);
  SetTable found(dag.size());
  found.add(set);
  size_t begin = 0;
  for (int step = 0; step < steps && found.size() < max_sets; ++step) {
    const size_t end = found.size();
    for (size_t at = begin; at < end && found.size() < max_sets; ++at) {
      BitWords words(found[at], found[at] + found.width());
      for (uint32_t node = 0; node < dag.size() && found.size() < max_sets; ++node) {
        const bool movable =
            has_bit(words.data(), node)
                ? std::ranges::none_of(dag.successors(node), [&](uint32_t id) { return has_bit(words.data(), id); })
                : larger.is_ready(words.data(), node);
        if (!movable) continue;
        flip_bit(words.data(), node);
        found.add(words.data());
        flip_bit(words.data(), node);
      }
    }
    begin = end;
  }
  for (size_t i = 0; i < found.size(); ++i) sets.add(found[i]);
}

}  // namespace graphpipe::partitioner
