#pragma once
// The same question as graphpipe/pipeline_dp.h, for large graphs: is there a plan whose every stage takes at most t per
// sample? Memory is asked of each stage alone, with the fewest samples that it can hold; a part of the graph is then
// worth the fewest devices that cover it, and of those the shortest pipeline latency (warm-up and drain).
//
// With that the parts of a parallel element add up, so a probe looks at each pair of a stage's ends once. Chains of
// equal shape are solved once. Rows of costs are kept from probe to probe as staircases: more devices, less time.
//
// Where stages keep to groups of devices (SearchLimits::group), those that stay idle before a new group is begun count
// too.
//
// Example: a -> b with 3 and 2 s per sample and no reduction. At t = 2.5 s one stage of both takes 2 devices, two
// stages take 2 + 1; the 2 are kept. At t = 2 s both forms take 3 devices, and the one with the shorter latency is
// kept.
//
// The space is that of search_space.h; where a parallel element has more than 16 branches a stage above or below it
// takes at most two whole ones, and one beside it at most 32; of a branch with more than 24 elements a stage above or
// below takes a part that ends at one of 24 even places.

#include <array>
#include <map>
#include <optional>

#include "partitioner/graphpipe/outside_work.h"
#include "partitioner/graphpipe/pipeline_dp.h"
#include "partitioner/graphpipe/stage_rows.h"

namespace graphpipe::partitioner {

class DeviceCountDp {
 public:
  /// Of `limits` stages and blind are not looked at. All outlive the search.
  DeviceCountDp(const SearchSpace& space, StageEvaluator& evaluator, Samples micro_batch, const SearchLimits& limits,
                Deadline& deadline);

  struct Answer {
    /// The largest time per sample of a stage.
    double t = 0;
    std::vector<FoundStage> stages;
  };
  /// With the fewest devices, then the shortest pipeline latency. Nothing, too, once the deadline has passed.
  std::optional<Answer> probe(double t);
  /// The smallest t at which there is a plan; `bound` is below it. Nothing where there is none at any t up to `max_t`.
  std::optional<Answer> smallest(double bound, double max_t);
  /// The least that a stage lacked which was refused for memory alone, bytes; infinity where none was.
  double smallest_shortfall() const { return shortfall_; }

 private:
  struct Choice {
    double time_per_sample = 0, time_across = 0, latency = 0;
    int devices = 0;
    bool recompute = false;
  };
  using Row = StageRow<Choice>;
  using Part = BlockPart;
  struct Cell {
    int devices = 0;
    double latency = 0;
    int back_pointer = -1;
  };
  /// What a cell is made of: a stage on `below`, or two parts beside each other, or (`rename`) `below` solved for one
  /// chain and meant for another.
  struct BackPointer {
    const Row* row = nullptr;
    int column = 0;
    const Choice* choice = nullptr;
    bool is_across = false;
    int below = -1, beside = -1;
    bool rename = false;
    int from = 0, to = 0;
  };
  /// A part that a stage below a parallel element took, with the rest of its branch and all below; or nothing of it.
  struct Lower {
    Part part;
    Cell cell;
  };
  struct Upper {
    Part part;
    Cell cell;
  };
  struct Chain {
    std::vector<Cell> at;                   // by position: from there to the end
    std::vector<std::vector<Upper>> heads;  // by position of the parallel element: all but the head, and all below
  };
  struct Cover {
    std::vector<std::vector<Cell>> at;  // whole branches [first, last) beside each other
  };

  const Row& row(RowKind kind, int chain, int element, const Part& part);
  void fill(Row& row);
  std::vector<Choice> staircase(bool& all);

  bool feasible(const Cell& cell) const { return cell.devices <= limits_.devices; }
  /// The most devices that stages within elements [first, last) may have, for the work outside.
  int allowed(int chain, int first, int last) const {
    return outside_.max_devices(chain, first, last, t_, limits_.devices);
  }
  Cell nothing() const { return {.devices = limits_.devices + 1, .latency = 0, .back_pointer = -1}; }
  static bool better(const Cell& a, const Cell& b);
  void place(Cell& best, BackPointer& how, const Row& row, size_t column, const Cell& below) const;
  void commit(Cell& best, BackPointer& how);
  Cell joined(const Cell& a, const Cell& b);
  Cell beside(const Cell& a, const Cell& b);
  /// The numbers of two cells beside each other or on top of each other, without a back pointer.
  Cell sum(const Cell& a, const Cell& b, bool stacked) const;
  /// Devices up to the end of what takes so many, after others: it begins with a new group unless it fits into the rest
  /// of the last one, or they filled it.
  int end_after(int others, int devices) const;
  /// Whether that is so.
  bool begins_group(int others, int devices) const;
  Cell stacked(const Cell& above, const Cell& below);
  Cell renamed(Cell cell, int from, int to);

  /// From element `end` down so many devices are taken: of a group that what is fed has begun, or none.
  const Chain& solve(int chain, int end, int taken = 0);
  void solve_position(int chain, int end, int i, Chain& states);
  void solve_block(int chain, int end, int i, Chain& states);
  const Cover& cover(int chain, int element);
  /// The branch's elements [from, to), on their own.
  Cell piece_of_branch(int branch, int from, int to);
  /// The same on top of what it feeds, and in the same group as far as there is room.
  Cell piece_on(const Cell& below, int branch, int from, int to);
  /// For each branch the best of its parts that the stage below a parallel element takes, with the rest of the branch.
  std::vector<Lower> with_rest_of_branch(const std::vector<int>& branches, const std::vector<Lower>& cut_below);
  std::vector<Part> parts_of(int chain, int element) const;
  std::vector<Lower> lowers(int chain, int end, int i, const Chain& states, const std::vector<Part>& parts);
  /// Stages of the block whose topmost one ends within a branch, at part.cut; `cut_below` may have the rest of the same
  /// branch.
  Cell head_within(int chain, int i, const Part& part, const std::vector<Lower>& cut_below, const Cell& without_branch);
  Cell all_but(const Cover& cover, int branches, const std::vector<Lower>& lowers, int first, int last);
  const SearchChain& chain_at(int chain) const { return space_.chains[static_cast<size_t>(chain)]; }
  const SearchElement& element(int chain, int index) const;
  std::vector<FoundStage> trace_back(int back_pointer, double& t) const;

  const SearchSpace& space_;
  StageEvaluator& evaluator_;
  Samples micro_batch_;
  SearchLimits limits_;
  Deadline& deadline_;
  OutsideWork outside_;
  StageRows<Choice> rows_;
  double fill_limit_ = 0;
  double shortfall_ = 0;

  // Of the current probe.
  double t_ = 0;
  std::vector<BackPointer> back_pointers_;
  std::map<std::array<int, 3>, Chain> chains_;
  std::map<std::pair<int, int>, Cover> covers_;
};

}  // namespace graphpipe::partitioner
