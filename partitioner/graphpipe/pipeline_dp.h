#pragma once
// GraphPipe's search (ASPLOS 2025, Algorithm 1): is there a plan whose every stage takes at most t per sample?
//
// Dynamic programming over the search space from the sinks upward, because the memory of a stage follows from the
// in-flight numbers below it. For each part of a chain and each in-flight demand at its lower end it keeps the states
// that are not dominated in (devices, samples in flight, turnaround). The demands of branches meet at a fork as their
// maximum. Probing is for one t; the smallest t is found by bisection over the times per sample that some stage has.
//
// Example: a -> (b | c) -> d, each 1 s per sample, t = 1 s, micro-batches of one sample, no latency. d takes one device
// and holds 1 sample; b and c, on top of it, one device and 2 samples each; at the fork their devices add up and the
// larger of their in-flight numbers counts, so a holds 3 samples, and all take four devices. As a chain a holds 4.
//
// With `blind` memory is checked only for the fewest samples a stage can hold; a state is then a device count alone.

#include <map>
#include <optional>

#include "ir/assignment.h"
#include "partitioner/graphpipe/outside_work.h"
#include "partitioner/graphpipe/search_space.h"
#include "partitioner/graphpipe/stage_cost_table.h"
#include "partitioner/graphpipe/stage_rows.h"
#include "support/deadline.h"

namespace graphpipe::partitioner {

struct FoundStage {
  std::vector<ir::PlanNodeId> nodes;
  int devices = 1;
  Samples micro_batch{1};
  int k = 1;
  bool recompute = false;
};

struct SearchLimits {
  int devices = 1;
  /// Exactly this many stages; 0: any number.
  int stages = 0;
  /// Bytes of a device; infinity: not limited.
  double memory = 0;
  bool blind = false;
  /// Devices of a host, or of another group with fast links inside: a stage that fits into one is not across two, so
  /// that devices may stay idle. 0: none. Only the search for device counts knows it.
  int group = 0;
};

class PipelineDp {
 public:
  /// `evaluators`: one per micro-batch size that stages may have; all rounds (k times the size) are equal.
  /// The space and the evaluators outlive the search.
  PipelineDp(const SearchSpace& space, std::vector<StageEvaluator*> evaluators, Samples batch, Deadline& deadline);

  /// A plan with every stage at or below t and within the limits, or nothing: with the fewest devices, then with the
  /// fewest samples in flight at its sources. Nothing, too, once the deadline has passed.
  std::optional<std::vector<FoundStage>> probe(double t, const SearchLimits& limits);

  /// The smallest t, of those that a stage has, at which probe finds a plan, and the plan. `guess` is where to start
  /// (a bound is good). Nothing where there is none at any t up to `max_t`.
  struct Answer {
    double t = 0;
    std::vector<FoundStage> stages;
  };
  std::optional<Answer> smallest(double guess, double max_t, const SearchLimits& limits);

  /// A lower estimate of the memory that is missing: the least that any stage refused for memory alone has lacked since
  /// the last probe, bytes; infinity where none was refused.
  double smallest_shortfall() const { return shortfall_; }

 private:
  using Row = StageRow<StageOption>;
  using Part = BlockPart;
  struct State {
    int devices = 0, stages = 0;
    cost::InFlightDemand in_flight;
    int back_pointer = -1;
  };
  using Frontier = std::vector<State>;
  /// How a state came about: a stage on top of `below`, or two parts side by side.
  struct BackPointer {
    const Row* row = nullptr;
    int column = 0;
    const StageOption* option = nullptr;
    int below = -1, beside = -1;
  };
  using DemandKey = std::pair<int64_t, double>;
  /// What may lie below the rest of a parallel element: the state below the element, or the stage that took a tail.
  struct Below {
    Part tail;
    Frontier states;
  };
  /// What a stage with this head of a parallel element meets.
  struct Headed {
    Part head;
    Frontier states;
  };
  struct ChainStates {
    std::vector<Frontier> at;                // by position
    std::vector<std::vector<Headed>> heads;  // by position of the parallel element
  };

  const Row& row(RowKind kind, int chain, int element, const Part& part);
  void fill(Row& row);

  /// What a part of the graph may have in a plan within the limits.
  struct Allowed {
    int devices = 0, stages = 0;
  };
  Allowed allowed(int chain, int first, int last) const;
  /// Adds the states that a stage makes on top of those below; blind, only those with the fewest devices.
  void place(Frontier& frontier, const Row& row, size_t column, const Frontier& belows, const Allowed& limit);
  void place_blind(Frontier& frontier, const Row& row, size_t column, const Frontier& belows, const Allowed& limit);
  static State on_top_of(const State& below, const StageOption& option);
  /// Whether the stage has the memory for so many samples in flight; notes what it lacks.
  bool fits(const StageOption& option, int64_t samples);
  void remember(Frontier& frontier, const State& state, const Row& row, size_t column, const StageOption& option,
                const State& below);
  bool dominates(const State& a, const State& b) const;
  /// Adds the state unless one that dominates it is there; removes those that it dominates. Returns it where it stands.
  State* insert_non_dominated(Frontier& frontier, const State& state) const;
  /// Two parts beside each other, still without a back pointer.
  State join(const State& a, const State& b) const;
  void set_back_pointers(State& both, const State& a, const State& b);
  Frontier join(const Frontier& a, const Frontier& b, const Allowed& limit);

  const std::vector<Frontier>& solve_chain(int chain, int end, const cost::InFlightDemand& below);
  void solve_position(int chain, int end, int i, ChainStates& states);
  void solve_block(int chain, int end, int i, ChainStates& states);
  std::vector<Below> find_tails(int chain, int end, int i, const ChainStates& states);
  void add_heads(int chain, int end, int i, ChainStates& states);
  Frontier solve_branches(int chain, int element, int first, int last, const cost::InFlightDemand& below);
  Frontier solve_rest(int chain, int element, const Part& tail, const Part& head, const State& below,
                      const Allowed& limit);
  std::vector<Part> parts_of(int chain, int element) const;
  std::vector<FoundStage> trace_back(int back_pointer) const;
  const SearchElement& element(int chain, int index) const;

  const SearchSpace& space_;
  std::vector<StageEvaluator*> evaluators_;
  Samples batch_;
  Deadline& deadline_;
  OutsideWork outside_;
  bool quantizes_turnarounds_;
  StageRows<StageOption> rows_;

  // Of the current probe.
  double t_ = 0;
  SearchLimits limits_;
  double shortfall_ = 0;
  std::vector<BackPointer> back_pointers_;
  std::map<std::tuple<int, int, DemandKey>, std::vector<Frontier>> chain_memo_;
  std::map<std::tuple<int, int, int, int, DemandKey>, Frontier> branch_memo_;
};

}  // namespace graphpipe::partitioner
