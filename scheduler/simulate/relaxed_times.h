#pragma once
// The times of a compute order where no message waits for a link: a small part of what a simulation costs, for searches
// that try many orders of the same actions.
//
// An action starts when its device is free and its data are there; a message takes its own time and latency, whatever
// else its link carries. Reductions start when all their members are done. The step is never longer than the simulated
// one (simulate.h), and as long where no two messages meet on a link and none keeps its device busy.

#include <optional>

#include "scheduler/lowering/items.h"
#include "scheduler/simulate/durations.h"

namespace graphpipe::scheduler {

class RelaxedTimes {
 public:
  struct Score {
    Ticks makespan;
    /// Sum of the ends of all actions.
    Ticks ends;
    auto operator<=>(const Score&) const = default;
  };

  /// Needs: an order that insert_transfers takes, without actions of updates.
  RelaxedTimes(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute, double ticks_per_second);

  /// Actions of the order.
  size_t size() const { return nodes_.size(); }
  /// As std::rotate of these actions of a program's list. Needs: overlapped pairs stay together.
  void rotate(size_t program, size_t first, size_t middle, size_t last);
  /// Nothing where the order waits forever.
  std::optional<Score> score();

 private:
  using NodeIndex = int32_t;
  struct Node {
    Ticks length;
    /// What runs right before it, whether its data are there or not.
    Ticks recompute;
    int32_t program = 0;
    /// Its reduction group, or -1.
    int32_t group = -1;
    int32_t first_edge = 0, needs = 0;
    bool overlaps_next = false;
  };
  struct Edge {
    NodeIndex to = -1;
    Ticks delay;
  };
  struct Run {
    size_t next = 0;
    Ticks free;
  };

  void add_nodes(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute, const ItemTable& items,
                 double ticks_per_second);
  void add_edges(const StageGraph& graph, const ir::Cluster& cluster, const ItemTable& items, double ticks_per_second);
  void add_ends(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute, double ticks_per_second);
  void advance(size_t program);
  void finish(NodeIndex node, Ticks end);

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;  // by the node that they leave; those of a node end where the next one's begin
  std::vector<std::vector<NodeIndex>> lists_;
  /// Per item its forward and its backward, or the input-gradient half of it; -1: it has none.
  std::vector<NodeIndex> forward_of_, backward_of_;
  std::vector<Ticks> begins_, updates_;  // per program: its start, and its optimizer steps
  IdMap<StageId, int> group_of_;
  std::vector<Ticks> reduction_lengths_;
  /// Per program the groups that it contributes to.
  std::vector<std::vector<int32_t>> groups_;

  // Of one evaluation.
  std::vector<Ticks> ready_, contributed_;
  std::vector<int32_t> missing_;
  std::vector<Run> runs_;
  std::vector<size_t> woken_;
  Ticks ends_;
};

}  // namespace graphpipe::scheduler
