#include "partitioner/graph/downsets.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <queue>
#include <set>
#include <tuple>

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

template <typename Visit>
void for_each_bit(const uint64_t* words, size_t width, Visit visit) {
  for (size_t w = 0; w < width; ++w)
    for (uint64_t rest = words[w]; rest != 0; rest &= rest - 1)
      visit(w * 64 + static_cast<size_t>(__builtin_ctzll(rest)));
}

// An order that takes, of the layers that may come next, the one after which the fewest bytes cross the boundary; with
// `backward` the graph is read from its end and the order turned round. Ties: smaller id.
class GreedyOrder {
 public:
  GreedyOrder(const LayerGraph& graph, const LayerAdjacency& adjacency, bool backward)
      : graph_(graph),
        before_(backward ? adjacency.successors : adjacency.predecessors),
        after_(backward ? adjacency.predecessors : adjacency.successors),
        backward_(backward),
        waiting_(graph.layers.size()),
        pending_(graph.layers.size()),
        crossing_(graph.layers.size(), false) {}

  std::vector<LayerId> run() {
    std::set<std::pair<double, LayerId>> ready;
    IdMap<LayerId, double> key(graph_.layers.size(), 0);
    for (const LayerId id : graph_.layer_ids()) {
      waiting_[id] = before_[id].size();
      pending_[id] = (backward_ ? before_[id] : after_[id]).size();
    }
    const auto insert = [&](LayerId id) { ready.emplace(key[id] = change(id), id); };
    for (const LayerId id : graph_.layer_ids())
      if (waiting_[id] == 0) insert(id);
    std::vector<LayerId> order;
    while (!ready.empty()) {
      const LayerId id = ready.begin()->second;
      ready.erase(ready.begin());
      order.push_back(id);
      take(id);
      for (const LayerId next : after_[id])
        if (--waiting_[next] == 0) insert(next);
      // What shares a tensor with it has another price now.
      const auto refresh = [&](LayerId other) {
        if (ready.erase({key[other], other}) != 0) insert(other);
      };
      for (const LayerId shared : backward_ ? after_[id] : before_[id])
        for (const LayerId other : backward_ ? before_[shared] : after_[shared]) refresh(other);
    }
    if (backward_) std::ranges::reverse(order);
    return order;
  }

 private:
  double bytes(LayerId id) const { return graph_.layers[id].output_bytes; }

  // Forward: the output of `id` begins to cross, and those of producers whose last reader it is stop.
  // Backward: tensors that `id` reads begin to cross unless they do already, and its own stops.
  double change(LayerId id) const {
    double sum = 0;
    if (backward_) {
      if (crossing_[id]) sum -= bytes(id);
      for (const LayerId from : after_[id])
        if (!crossing_[from]) sum += bytes(from);
      return sum;
    }
    if (pending_[id] > 0) sum += bytes(id);
    for (const LayerId from : before_[id])
      if (pending_[from] == 1) sum -= bytes(from);
    return sum;
  }

  void take(LayerId id) {
    if (backward_) {
      crossing_[id] = false;
      for (const LayerId from : after_[id]) crossing_[from] = true;
      return;
    }
    for (const LayerId from : before_[id]) --pending_[from];
  }

  const LayerGraph& graph_;
  const IdMap<LayerId, std::vector<LayerId>>&before_, &after_;
  const bool backward_;
  IdMap<LayerId, size_t> waiting_, pending_;
  IdMap<LayerId, bool> crossing_;
};

std::vector<LayerId> kahn(const LayerAdjacency& adjacency, bool last_first) {
  IdMap<LayerId, size_t> waiting(adjacency.predecessors.size(), 0);
  std::deque<LayerId> ready;
  for (const LayerId id : ids<LayerId>(adjacency.predecessors.size()))
    if ((waiting[id] = adjacency.predecessors[id].size()) == 0) ready.push_back(id);
  std::vector<LayerId> order;
  while (!ready.empty()) {
    const LayerId id = last_first ? ready.back() : ready.front();
    if (last_first) ready.pop_back();
    else ready.pop_front();
    order.push_back(id);
    for (const LayerId next : adjacency.successors[id])
      if (--waiting[next] == 0) ready.push_back(next);
  }
  return order;
}

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

size_t SetTable::add(const uint64_t* set, bool* added) {
  if (slots_.empty() || count_ * 2 >= slots_.size()) grow();
  const size_t slot = slot_of(set);
  if (added != nullptr) *added = slots_[slot] == 0;
  if (slots_[slot] != 0) return slots_[slot] - 1;
  words_.insert(words_.end(), set, set + width_);
  slots_[slot] = static_cast<uint32_t>(++count_);
  return count_ - 1;
}

bool SetTable::includes(size_t larger, size_t smaller) const {
  const uint64_t *big = (*this)[larger], *small = (*this)[smaller];
  for (size_t w = 0; w < width_; ++w)
    if ((small[w] & ~big[w]) != 0) return false;
  return true;
}

SetGraph::SetGraph(const LayerGraph& graph)
    : layers(graph.layers.size()), width((graph.layers.size() + 63) / 64), adjacency(adjacency_of(graph)) {}

bool SetGraph::is_ready(const uint64_t* downset, size_t layer) const {
  if (has_bit(downset, layer)) return false;
  return std::ranges::all_of(adjacency.predecessors[LayerId(layer)],
                             [&](LayerId from) { return has_bit(downset, from.index()); });
}

bool add_all_downsets(const SetGraph& graph, size_t max_bytes, Deadline& deadline, SetTable& sets) {
  Words set(graph.width, 0);
  const size_t first = sets.add(set.data());
  std::vector<size_t> sources;
  for (size_t layer = 0; layer < graph.layers; ++layer)
    if (graph.adjacency.predecessors[LayerId(layer)].empty()) sources.push_back(layer);
  for (size_t at = first; at < sets.size(); ++at) {
    if (at % 64 == 0 && deadline.passed()) return false;
    set.assign(sets[at], sets[at] + graph.width);
    const auto extend = [&](size_t layer) {
      if (sets.bytes() > max_bytes || !graph.is_ready(set.data(), layer)) return;
      set_bit(set.data(), layer);
      sets.add(set.data());
      set[layer / 64] &= ~(uint64_t{1} << (layer % 64));
    };
    // What may come next is a source, or follows a member.
    Words next(graph.width, 0);
    for (const size_t layer : sources) set_bit(next.data(), layer);
    for_each_bit(set.data(), graph.width, [&](size_t member) {
      for (const LayerId id : graph.adjacency.successors[LayerId(member)]) set_bit(next.data(), id.index());
    });
    for (size_t w = 0; w < graph.width; ++w) next[w] &= ~set[w];
    for_each_bit(next.data(), graph.width, extend);
    if (sets.bytes() > max_bytes) return false;
  }
  return true;
}

std::vector<LayerId> fifo_order(const LayerAdjacency& adjacency) { return kahn(adjacency, false); }

std::vector<std::vector<LayerId>> cutting_orders(const LayerGraph& graph) {
  const LayerAdjacency adjacency = adjacency_of(graph);
  return {adjacency.order, kahn(adjacency, false), kahn(adjacency, true), GreedyOrder(graph, adjacency, false).run(),
          GreedyOrder(graph, adjacency, true).run()};
}

void add_prefixes(const std::vector<LayerId>& order, size_t most, SetTable& sets) {
  Words set(sets.width(), 0);
  sets.add(set.data());
  const size_t step = order.size() / std::max<size_t>(most, 1) + 1;
  for (size_t i = 0; i < order.size(); ++i) {
    set_bit(set.data(), order[i].index());
    if ((i + 1) % step == 0 || i + 1 == order.size()) sets.add(set.data());
  }
}

void add_neighbours(const SetGraph& graph, const uint64_t* set, int steps, size_t most, SetTable& sets) {
  SetTable found(graph.layers);
  found.add(set);
  size_t begin = 0;
  for (int step = 0; step < steps && found.size() < most; ++step) {
    const size_t end = found.size();
    for (size_t at = begin; at < end && found.size() < most; ++at) {
      Words words(found[at], found[at] + graph.width);
      for (size_t layer = 0; layer < graph.layers && found.size() < most; ++layer) {
        const bool inside = has_bit(words.data(), layer);
        const bool movable = inside
                                 ? std::ranges::none_of(graph.adjacency.successors[LayerId(layer)],
                                                        [&](LayerId id) { return has_bit(words.data(), id.index()); })
                                 : graph.is_ready(words.data(), layer);
        if (!movable) continue;
        words[layer / 64] ^= uint64_t{1} << (layer % 64);
        found.add(words.data());
        words[layer / 64] ^= uint64_t{1} << (layer % 64);
      }
    }
    begin = end;
  }
  for (size_t i = 0; i < found.size(); ++i) sets.add(found[i]);
}

}  // namespace graphpipe::partitioner
