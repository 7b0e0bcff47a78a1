#include "partitioner/graph/sp_decompose.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "support/check.h"
#include "support/union_find.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

/// Reachability between vertices.
class Closure {
 public:
  explicit Closure(const Dag& graph) : ancestors_(ancestors_of(graph)) {}

  /// Whether a path of at least one edge leads from one to the other.
  bool reaches(size_t from, size_t to) const { return from != to && ancestors_.contains(to, from); }

 private:
  BitRows ancestors_;
};

/// The two-terminal multigraph whose edges are the vertices; series and parallel steps merge edges until one is left.
class Reducer {
 public:
  explicit Reducer(size_t junctions) : in_(junctions), out_(junctions) {}

  void add(size_t from, size_t to, SpTree tree) {
    edges_.push_back({from, to, std::move(tree), true});
    out_[from].insert(edges_.size() - 1);
    in_[to].insert(edges_.size() - 1);
    ++alive_;
  }

  /// Merges until no step applies. Returns the tree if a single edge is left.
  std::optional<SpTree> run() {
    std::set<size_t> pending;
    for (size_t junction = 0; junction < in_.size(); ++junction) pending.insert(junction);
    while (!pending.empty()) {
      const size_t junction = *pending.begin();
      pending.erase(pending.begin());
      merge_parallel(junction, pending);
      merge_series(junction, pending);
    }
    if (alive_ != 1) return std::nullopt;
    const auto last = std::find_if(edges_.begin(), edges_.end(), [](const Edge& edge) { return edge.alive; });
    return std::move(last->tree);
  }

 private:
  struct Edge {
    size_t from, to;
    SpTree tree;
    bool alive;
  };

  void remove(size_t edge) {
    edges_[edge].alive = false;
    out_[edges_[edge].from].erase(edge);
    in_[edges_[edge].to].erase(edge);
    --alive_;
  }

  void merge_parallel(size_t junction, std::set<size_t>& pending) {
    std::map<size_t, std::vector<size_t>> by_target;
    for (size_t edge : out_[junction]) by_target[edges_[edge].to].push_back(edge);
    for (const auto& [target, twins] : by_target) {
      if (twins.size() < 2) continue;
      std::vector<SpTree> trees;
      for (size_t edge : twins) {
        trees.push_back(std::move(edges_[edge].tree));
        remove(edge);
      }
      add(junction, target, SpTree::parallel(std::move(trees)));
      pending.insert(junction);
      pending.insert(target);
    }
  }

  void merge_series(size_t junction, std::set<size_t>& pending) {
    if (in_[junction].size() != 1 || out_[junction].size() != 1) return;
    const size_t before = *in_[junction].begin(), after = *out_[junction].begin();
    if (before == after) return;
    const size_t from = edges_[before].from, to = edges_[after].to;
    std::vector<SpTree> trees;
    trees.push_back(std::move(edges_[before].tree));
    trees.push_back(std::move(edges_[after].tree));
    remove(before);
    remove(after);
    add(from, to, SpTree::series(std::move(trees)));
    pending.insert(from);
    pending.insert(to);
  }

  std::vector<Edge> edges_;
  std::vector<std::set<size_t>> in_, out_;
  size_t alive_ = 0;
};

/// Decomposes by connected components: those of comparability are parallel, those of incomparability in series. A set
/// with neither is cut in two by `cut_prime`, or refused if there are no weights. Sets are ascending, and have every
/// vertex on a path between two of theirs.
class ByComponents {
 public:
  ByComponents(const Dag& graph, const std::vector<double>* weight) : graph_(graph), closure_(graph), weight_(weight) {}

  std::optional<SpTree> tree(const std::vector<size_t>& vertices) const {
    if (vertices.size() == 1) return SpTree::leaf(vertices.front());
    if (const auto parts = parallel_parts(vertices); parts.size() > 1) return combined(parts, SpTree::parallel);
    if (const auto parts = series_parts(vertices); parts.size() > 1) return combined(parts, SpTree::series);
    if (weight_ == nullptr) return std::nullopt;
    return combined(cut_prime(vertices), SpTree::series);
  }

 private:
  std::optional<SpTree> combined(const std::vector<std::vector<size_t>>& parts,
                                 SpTree (*combine)(std::vector<SpTree>)) const {
    std::vector<SpTree> trees;
    for (const auto& part : parts) {
      std::optional<SpTree> tree = this->tree(part);
      if (!tree) return std::nullopt;
      trees.push_back(std::move(*tree));
    }
    return combine(std::move(trees));
  }

  /// Vertices that edges connect, each part ascending, ordered by their lowest vertex.
  std::vector<std::vector<size_t>> parallel_parts(const std::vector<size_t>& vertices) const {
    std::vector<bool> is_inside(graph_.size(), false);
    for (const size_t vertex : vertices) is_inside[vertex] = true;
    UnionFind<size_t> connected(graph_.size());
    for (const size_t vertex : vertices)
      for (const size_t next : graph_.successors(static_cast<uint32_t>(vertex)))
        if (is_inside[next]) connected.join(vertex, next);
    std::map<size_t, std::vector<size_t>> by_lowest;
    for (const size_t vertex : vertices) by_lowest[connected.find(vertex)].push_back(vertex);
    std::vector<std::vector<size_t>> parts;
    for (auto& [lowest, part] : by_lowest) parts.push_back(std::move(part));
    return parts;
  }

  /// Runs of the vertices, of which each vertex follows all those of the runs before.
  std::vector<std::vector<size_t>> series_parts(const std::vector<size_t>& vertices) const {
    std::vector<std::vector<size_t>> parts;
    size_t end = vertices.size(), common = end;  // of the part; what all behind `at` follow
    for (size_t at = vertices.size(); at-- > 0;) {
      const auto leads_there = [&](size_t before) { return closure_.reaches(before, vertices[at]); };
      const auto until = vertices.begin() + static_cast<std::ptrdiff_t>(std::min(common, at));
      common = static_cast<size_t>(std::find_if_not(vertices.begin(), until, leads_there) - vertices.begin());
      if (common < at) continue;
      const auto begin = vertices.begin();
      parts.emplace_back(begin + static_cast<std::ptrdiff_t>(at), begin + static_cast<std::ptrdiff_t>(end));
      end = common = at;
    }
    std::ranges::reverse(parts);
    return parts;
  }

  /// Per vertex of the graph, the length in vertices of the longest path within the set, from the sources or from the
  /// sinks; kOutside where it is not in the set.
  std::vector<size_t> levels(const std::vector<size_t>& vertices, bool from_above) const {
    std::vector<size_t> level(graph_.size(), kOutside);
    for (const size_t vertex : vertices) level[vertex] = 0;
    const auto relax = [&](size_t above, size_t below) {
      if (from_above) level[below] = std::max(level[below], level[above] + 1);
      else level[above] = std::max(level[above], level[below] + 1);
    };
    const auto edges_of = [&](size_t vertex) {
      for (const size_t next : graph_.successors(static_cast<uint32_t>(vertex)))
        if (level[next] != kOutside) relax(vertex, next);
    };
    if (from_above) std::for_each(vertices.begin(), vertices.end(), edges_of);
    else std::for_each(vertices.rbegin(), vertices.rend(), edges_of);
    return level;
  }

  /// Per vertex of the graph, the weight of the heaviest path within the set that begins there; 0 outside of it.
  std::vector<double> paths_below(const std::vector<size_t>& vertices) const {
    std::vector<double> below(graph_.size(), 0);
    for (auto vertex = vertices.rbegin(); vertex != vertices.rend(); ++vertex) {
      double path = 0;
      for (const size_t next : graph_.successors(static_cast<uint32_t>(*vertex))) path = std::max(path, below[next]);
      below[*vertex] = path + (*weight_)[*vertex];
    }
    return below;
  }

  /// Cuts a set in two that run one after the other, at the level that makes the sum of their critical paths smallest.
  /// Example: a -> c, b -> c, b -> d becomes {a, b} before {c, d}, as if d waited for a too.
  std::vector<std::vector<size_t>> cut_prime(const std::vector<size_t>& vertices) const {
    const std::vector<double> below = paths_below(vertices);
    const auto longest = [](const std::vector<double>& paths, const std::vector<size_t>& among) {
      double length = 0;
      for (const size_t vertex : among) length = std::max(length, paths[vertex]);
      return length;
    };
    std::vector<std::vector<size_t>> best;
    double best_length = kInfinity;
    for (const bool from_above : {true, false}) {
      const std::vector<size_t> level = levels(vertices, from_above);
      size_t last = 0;
      for (const size_t vertex : vertices) last = std::max(last, level[vertex]);
      for (size_t threshold = 0; threshold < last; ++threshold) {
        std::vector<size_t> upper, lower;
        for (const size_t vertex : vertices)
          ((level[vertex] <= threshold) == from_above ? upper : lower).push_back(vertex);
        // All that follows a vertex of the lower part is in it, so its paths are those of the whole set.
        const double lower_length = longest(below, lower);
        if (lower_length >= best_length) continue;
        const double length = longest(paths_below(upper), upper) + lower_length;
        if (length >= best_length) continue;
        best = {std::move(upper), std::move(lower)};
        best_length = length;
      }
    }
    GP_CHECK(!best.empty());  // comparable vertices lie on different levels
    return best;
  }

  static constexpr size_t kOutside = std::numeric_limits<size_t>::max();

  const Dag& graph_;
  Closure closure_;
  const std::vector<double>* weight_;
};

std::vector<size_t> all_vertices(const Dag& graph) {
  std::vector<size_t> vertices(graph.size());
  for (size_t i = 0; i < vertices.size(); ++i) vertices[i] = i;
  return vertices;
}

}  // namespace

Dag transitive_reduction(const Dag& graph) {
  const Closure closure(graph);
  EdgeList kept;
  for (const auto& [from, to] : graph.edges()) {
    const auto leads_there = [&, to = to](uint32_t other) { return closure.reaches(other, to); };
    if (std::ranges::none_of(graph.successors(from), leads_there)) kept.emplace_back(from, to);
  }
  return Dag(graph.size(), std::move(kept));
}

std::optional<SpTree> decompose(const Dag& graph) {
  GP_CHECK(graph.size() > 0);
  const Dag reduced = transitive_reduction(graph);
  // Junctions of the inverse line graph: the distinct successor sets, the source, and the sink.
  constexpr size_t kSource = 0, kSink = 1;
  std::map<std::vector<uint32_t>, size_t> junction_of;
  std::vector<size_t> into(graph.size(), kSource), out_of(graph.size(), kSink);
  for (uint32_t i = 0; i < graph.size(); ++i) {
    const std::span<const uint32_t> successors = reduced.successors(i);
    if (successors.empty()) continue;
    const std::vector<uint32_t> key(successors.begin(), successors.end());
    const auto [entry, is_new] = junction_of.try_emplace(key, junction_of.size() + 2);
    out_of[i] = entry->second;
    for (const uint32_t next : successors) {
      if (into[next] != kSource && into[next] != entry->second) return std::nullopt;
      into[next] = entry->second;
    }
  }
  Reducer reducer(junction_of.size() + 2);
  for (size_t i = 0; i < graph.size(); ++i) reducer.add(into[i], out_of[i], SpTree::leaf(i));
  return reducer.run();
}

std::optional<SpTree> decompose_slowly(const Dag& graph) {
  return ByComponents(graph, nullptr).tree(all_vertices(graph));
}

SpTree make_series_parallel(const Dag& graph, const std::vector<double>& weight) {
  GP_CHECK(weight.size() == graph.size());
  return *ByComponents(graph, &weight).tree(all_vertices(graph));
}

}  // namespace graphpipe::partitioner
