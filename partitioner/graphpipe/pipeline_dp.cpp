#include "partitioner/graphpipe/pipeline_dp.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "partitioner/graphpipe/first_that_works.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

/// Parts of a graph are searched again for each demand that may lie below them, and the turnarounds of all sums of
/// stages would make thousands of them. In spaces of more elements than this, turnarounds are rounded up to a multiple
/// of one sixteenth of a round, which can only overestimate the samples in flight.
constexpr size_t kMaxElementsForExactInFlight = 20;
constexpr double kPartsOfRound = 16;

std::pair<int64_t, double> key_of(const cost::InFlightDemand& in_flight) {
  return {in_flight.samples, in_flight.turnaround};
}

}  // namespace

PipelineDp::PipelineDp(const SearchSpace& space, std::vector<StageEvaluator*> evaluators, Samples batch,
                       Deadline& deadline)
    : space_(space),
      evaluators_(std::move(evaluators)),
      batch_(batch),
      deadline_(deadline),
      outside_(space, {evaluators_.begin(), evaluators_.end()}),
      quantizes_turnarounds_(space.elements() > kMaxElementsForExactInFlight) {}

const SearchElement& PipelineDp::element(int chain, int index) const {
  return space_.chains[static_cast<size_t>(chain)].elements[static_cast<size_t>(index)];
}

// --- Rows: what stages cost ---

void PipelineDp::fill(Row& row) {
  const int steps = row_steps(space_, row.key);
  std::vector<std::vector<StageOption>> columns;
  bool all = true;
  for (StageEvaluator* evaluator : evaluators_) {
    evaluator->clear();
    evaluator->add(row_start(space_, row.key));
    for (int column = 0; column <= steps; ++column) {
      if (column > 0) evaluator->add(row_step(space_, row.key, column));
      if (evaluator->min_time_per_sample() > row.limit || deadline_.passed()) {
        all = false;
        break;
      }
      if (static_cast<int>(columns.size()) <= column) columns.resize(static_cast<size_t>(column) + 1);
      all = evaluator->options(row.limit, columns[static_cast<size_t>(column)]) && all;
    }
  }
  row.columns = std::move(columns);
  if (all) row.limit = kInfinity;
}

const PipelineDp::Row& PipelineDp::row(RowKind kind, int chain, int element, const Part& part) {
  return rows_.at({kind, chain, element, part}, t_, [this](Row& row) { fill(row); });
}

// --- States ---

PipelineDp::Allowed PipelineDp::allowed(int chain, int first, int last) const {
  const int devices = outside_.max_devices(chain, first, last, t_, limits_.devices);
  const int stages = limits_.stages > 0 ? limits_.stages : limits_.devices;
  return {.devices = devices, .stages = stages - (outside_.any(chain, first, last) ? 1 : 0)};
}

void PipelineDp::place(Frontier& frontier, const Row& row, size_t column, const Frontier& belows,
                       const Allowed& limit) {
  if (limits_.blind) return place_blind(frontier, row, column, belows, limit);
  for (const State& below : belows)
    for (const StageOption& option : row.columns[column]) {
      State state = on_top_of(below, option);
      // Options ascend in devices.
      if (state.devices > limit.devices || state.stages > limit.stages) break;
      if (option.time_per_sample > t_) continue;
      const std::span<const cost::InFlightDemand> readers(&below.in_flight, below.in_flight.samples > 0 ? 1 : 0);
      state.in_flight = cost::in_flight_demand(option.in_flight, readers, t_, batch_.count);
      if (quantizes_turnarounds_) {
        const double step = static_cast<double>(state.in_flight.round) / kPartsOfRound;
        state.in_flight.turnaround = std::ceil(state.in_flight.turnaround / step) * step;
      }
      if (fits(option, state.in_flight.samples)) remember(frontier, state, row, column, option, below);
    }
}

/// What is below does not decide which option it is: the first that is fast enough and fits has the fewest devices.
void PipelineDp::place_blind(Frontier& frontier, const Row& row, size_t column, const Frontier& belows,
                             const Allowed& limit) {
  if (belows.empty()) return;
  const int devices = limit.devices - std::ranges::min_element(belows, {}, &State::devices)->devices;
  const std::vector<StageOption>& options = row.columns[column];
  const auto option = std::ranges::find_if(options, [&](const StageOption& each) {
    return each.devices <= devices && each.time_per_sample <= t_ &&
           fits(each, std::min(each.in_flight.round(), batch_.count));
  });
  if (option == options.end()) return;
  for (const State& below : belows) {
    const State state = on_top_of(below, *option);
    if (state.devices <= limit.devices && state.stages <= limit.stages)
      remember(frontier, state, row, column, *option, below);
  }
}

PipelineDp::State PipelineDp::on_top_of(const State& below, const StageOption& option) {
  return {.devices = below.devices + option.devices, .stages = below.stages + 1, .in_flight = {}, .back_pointer = -1};
}

bool PipelineDp::fits(const StageOption& option, int64_t samples) {
  const double lacking = option.memory(samples) - limits_.memory;
  if (lacking > 0) shortfall_ = std::min(shortfall_, lacking);
  return !(lacking > 0);
}

void PipelineDp::remember(Frontier& frontier, const State& state, const Row& row, size_t column,
                          const StageOption& option, const State& below) {
  State* kept = insert_non_dominated(frontier, state);
  if (kept == nullptr) return;
  back_pointers_.push_back(
      {.row = &row, .column = static_cast<int>(column), .option = &option, .below = below.back_pointer});
  kept->back_pointer = static_cast<int>(back_pointers_.size()) - 1;
}

bool PipelineDp::dominates(const State& a, const State& b) const {
  return a.devices <= b.devices && a.in_flight.samples <= b.in_flight.samples &&
         a.in_flight.turnaround <= b.in_flight.turnaround && (limits_.stages == 0 || a.stages == b.stages);
}

PipelineDp::State* PipelineDp::insert_non_dominated(Frontier& frontier, const State& state) const {
  const auto dominates_state = [&](const State& other) { return dominates(other, state); };
  if (std::ranges::any_of(frontier, dominates_state)) return nullptr;
  std::erase_if(frontier, [&](const State& other) { return dominates(state, other); });
  frontier.push_back(state);
  return &frontier.back();
}

PipelineDp::State PipelineDp::join(const State& a, const State& b) const {
  State both{.devices = a.devices + b.devices, .stages = a.stages + b.stages, .in_flight = {}, .back_pointer = -1};
  both.in_flight.samples = std::max(a.in_flight.samples, b.in_flight.samples);
  both.in_flight.turnaround = std::max(a.in_flight.turnaround, b.in_flight.turnaround);
  both.in_flight.round = std::max(a.in_flight.round, b.in_flight.round);
  return both;
}

void PipelineDp::set_back_pointers(State& both, const State& a, const State& b) {
  if (a.back_pointer < 0 || b.back_pointer < 0) {
    both.back_pointer = std::max(a.back_pointer, b.back_pointer);
    return;
  }
  back_pointers_.push_back({.below = a.back_pointer, .beside = b.back_pointer});
  both.back_pointer = static_cast<int>(back_pointers_.size()) - 1;
}

PipelineDp::Frontier PipelineDp::join(const Frontier& a, const Frontier& b, const Allowed& limit) {
  Frontier joined;
  for (const State& left : a)
    for (const State& right : b) {
      const State both = join(left, right);
      if (both.devices > limit.devices || both.stages > limit.stages) continue;
      if (State* kept = insert_non_dominated(joined, both)) set_back_pointers(*kept, left, right);
    }
  return joined;
}

// --- Chains ---

const std::vector<PipelineDp::Frontier>& PipelineDp::solve_chain(int chain, int end,
                                                                 const cost::InFlightDemand& below) {
  const auto key = std::tuple(chain, end, key_of(below));
  if (const auto found = chain_memo_.find(key); found != chain_memo_.end()) return found->second;
  ChainStates states;
  states.at.resize(static_cast<size_t>(end) + 1);
  states.heads.resize(static_cast<size_t>(end));
  states.at[static_cast<size_t>(end)] = {State{.in_flight = below}};
  for (int i = end; i-- > 0;)
    if (!deadline_.passed()) solve_position(chain, end, i, states);
  return chain_memo_[key] = std::move(states.at);
}

void PipelineDp::solve_position(int chain, int end, int i, ChainStates& states) {
  const Allowed limit = allowed(chain, i, end);
  if (limit.devices < 1 || limit.stages < 1) return;
  Frontier& here = states.at[static_cast<size_t>(i)];
  const Row& interval = row(RowKind::kInterval, chain, i, Part{});
  for (size_t column = 0; column < interval.columns.size() && i + static_cast<int>(column) < end; ++column)
    place(here, interval, column, states.at[static_cast<size_t>(i) + column + 1], limit);
  if (!element(chain, i).branches.empty()) solve_block(chain, end, i, states);
  add_heads(chain, end, i, states);
}

/// A parallel element whose branches are stages of their own, except for what stages below and above take of it.
void PipelineDp::solve_block(int chain, int end, int i, ChainStates& states) {
  const Allowed limit = allowed(chain, i, end);
  std::vector<Part> heads{Part{}};
  for (const Part& part : parts_of(chain, i))
    if (i > 0 && row(RowKind::kHead, chain, i, part).columns.size() > 1) heads.push_back(part);
  const std::vector<Below> tails = find_tails(chain, end, i, states);
  for (const Part& head : heads) {
    Frontier met;
    for (const Below& tail : tails)
      for (const State& below : tail.states)
        for (const State& state : solve_rest(chain, i, tail.tail, head, below, limit)) insert_non_dominated(met, state);
    if (head.none())
      for (const State& state : met) insert_non_dominated(states.at[static_cast<size_t>(i)], state);
    else if (!met.empty()) states.heads[static_cast<size_t>(i)].push_back({head, std::move(met)});
  }
}

/// Every part of a parallel element that a stage may take: whole branches, but not all, and cut branches.
std::vector<PipelineDp::Part> PipelineDp::parts_of(int chain, int index) const {
  const auto& branches = element(chain, index).branches;
  const int count = static_cast<int>(branches.size());
  std::vector<Part> parts;
  for (int first = 0; first < count; ++first)
    for (int last = first + 1; last <= count; ++last)
      if (last - first < count) parts.push_back({first, last, 0});
  for (int branch = 0; branch < count; ++branch) {
    const size_t chain_id = static_cast<size_t>(branches[static_cast<size_t>(branch)]);
    const int size = static_cast<int>(space_.chains[chain_id].elements.size());
    for (int cut = 1; cut < size; ++cut) parts.push_back({branch, branch + 1, cut});
  }
  return parts;
}

std::vector<PipelineDp::Below> PipelineDp::find_tails(int chain, int end, int i, const ChainStates& states) {
  std::vector<Below> found{{Part{}, states.at[static_cast<size_t>(i) + 1]}};
  const Allowed limit = allowed(chain, i, end);
  for (const Part& part : parts_of(chain, i)) {
    const Row& tail = row(RowKind::kTail, chain, i, part);
    Below below{part, {}};
    for (size_t column = 1; column < tail.columns.size() && i + static_cast<int>(column) < end; ++column)
      place(below.states, tail, column, states.at[static_cast<size_t>(i) + column + 1], limit);
    if (!below.states.empty()) found.push_back(std::move(below));
  }
  return found;
}

/// Adds the stages of elements [i, j) that also take a head of the parallel element j.
void PipelineDp::add_heads(int chain, int end, int i, ChainStates& states) {
  const Allowed limit = allowed(chain, i, end);
  for (int j = i + 1; j < end; ++j)
    for (const Headed& headed : states.heads[static_cast<size_t>(j)]) {
      const Row& head = row(RowKind::kHead, chain, j, headed.head);
      const size_t column = static_cast<size_t>(j - i);
      if (column < head.columns.size()) place(states.at[static_cast<size_t>(i)], head, column, headed.states, limit);
    }
}

/// What is left of a parallel element without a tail and a head, on top of `below`, whose devices and back pointer the
/// results include. What they have in flight is what a stage above the element meets, or the stage with the head.
PipelineDp::Frontier PipelineDp::solve_rest(int chain, int index, const Part& tail, const Part& head,
                                            const State& below, const Allowed& limit) {
  const auto& branches = element(chain, index).branches;
  const auto id_of = [&](int branch) { return branches[static_cast<size_t>(branch)]; };
  const auto size_of = [&](int branch) {
    return static_cast<int>(space_.chains[static_cast<size_t>(id_of(branch))].elements.size());
  };
  const bool overlap = !tail.none() && !head.none() && tail.first < head.last && head.first < tail.last;
  const bool same_branch = overlap && tail.cut > 0 && head.cut > 0 && head.cut <= tail.cut;
  if (overlap && !same_branch) return {};
  // The stages on both sides are neighbours if either takes whole branches, or if both cut a branch at the same place.
  const bool touches =
      (!tail.none() && tail.cut == 0) || (!head.none() && head.cut == 0) || (same_branch && head.cut == tail.cut);
  State base = below;
  if (!touches) base.in_flight = {};
  Frontier result{base};
  if (same_branch) {
    if (head.cut < tail.cut)
      result =
          join(result, solve_chain(id_of(tail.first), tail.cut, below.in_flight)[static_cast<size_t>(head.cut)], limit);
  } else {
    if (tail.cut > 0) result = join(result, solve_chain(id_of(tail.first), tail.cut, below.in_flight).front(), limit);
    if (head.cut > 0) {
      const auto& at = solve_chain(id_of(head.first), size_of(head.first), below.in_flight);
      result = join(result, at[static_cast<size_t>(head.cut)], limit);
    }
  }
  const Part& low = head.none() || (!tail.none() && tail.first <= head.first) ? tail : head;
  const Part& high = &low == &tail ? head : tail;
  int next = 0;
  for (const Part* part : {&low, &high}) {
    if (part->none()) continue;
    if (next < part->first)
      result = join(result, solve_branches(chain, index, next, part->first, below.in_flight), limit);
    next = std::max(next, part->last);
  }
  const int count = static_cast<int>(branches.size());
  if (next < count) result = join(result, solve_branches(chain, index, next, count, below.in_flight), limit);
  return result;
}

/// Branches [first, last) of a parallel element beside each other: each on its own, or several as one stage.
PipelineDp::Frontier PipelineDp::solve_branches(int chain, int index, int first, int last,
                                                const cost::InFlightDemand& below) {
  const auto key = std::tuple(chain, index, first, last, key_of(below));
  if (const auto found = branch_memo_.find(key); found != branch_memo_.end()) return found->second;
  Frontier result;
  const Allowed limit = allowed(chain, index, index + 1);
  if (first + 1 == last || !deadline_.passed()) {
    const auto& branches = element(chain, index).branches;
    const int branch = branches[static_cast<size_t>(first)];
    const int size = static_cast<int>(space_.chains[static_cast<size_t>(branch)].elements.size());
    const Frontier alone = solve_chain(branch, size, below).front();
    if (first + 1 == last) result = alone;
    else if (!alone.empty()) result = join(alone, solve_branches(chain, index, first + 1, last, below), limit);
    const Frontier start{State{.in_flight = below}};
    for (int next = first + 2; next <= last; ++next) {
      const Row& group = row(RowKind::kGroup, chain, index, {first, next, 0});
      if (group.columns.empty()) break;
      Frontier together;
      place(together, group, 0, start, limit);
      if (next < last) together = join(together, solve_branches(chain, index, next, last, below), limit);
      for (const State& state : together) insert_non_dominated(result, state);
    }
  }
  return branch_memo_[key] = std::move(result);
}

// --- Probes ---

std::vector<FoundStage> PipelineDp::trace_back(int back_pointer) const {
  std::vector<FoundStage> stages;
  std::vector<int> pending{back_pointer};
  while (!pending.empty()) {
    const int at = pending.back();
    pending.pop_back();
    if (at < 0) continue;
    const BackPointer& found = back_pointers_[static_cast<size_t>(at)];
    pending.push_back(found.beside);
    pending.push_back(found.below);
    if (found.row == nullptr) continue;
    stages.push_back({.nodes = row_nodes(space_, found.row->key, found.column),
                      .devices = found.option->devices,
                      .micro_batch = Samples(found.option->in_flight.micro_batch),
                      .k = found.option->in_flight.k,
                      .recompute = found.option->recompute});
  }
  return stages;
}

std::optional<std::vector<FoundStage>> PipelineDp::probe(double t, const SearchLimits& limits) {
  t_ = t;
  limits_ = limits;
  shortfall_ = kInfinity;
  back_pointers_.clear();
  chain_memo_.clear();
  branch_memo_.clear();
  const int root = static_cast<int>(space_.chains.size()) - 1;
  const int size = static_cast<int>(space_.chains.back().elements.size());
  const Frontier& plans = solve_chain(root, size, {}).front();
  if (deadline_.passed()) return std::nullopt;
  const State* best = nullptr;
  for (const State& state : plans) {
    if (limits.stages > 0 && state.stages != limits.stages) continue;
    const auto rank = [](const State& s) { return std::tuple(s.devices, s.in_flight.samples, s.in_flight.turnaround); };
    if (best == nullptr || rank(state) < rank(*best)) best = &state;
  }
  if (best == nullptr) return std::nullopt;
  return trace_back(best->back_pointer);
}

std::optional<PipelineDp::Answer> PipelineDp::smallest(double guess, double max_t, const SearchLimits& limits) {
  // Upward in steps that grow, so that rows stay short.
  double t = std::max(guess, std::numeric_limits<double>::min());
  std::optional<std::vector<FoundStage>> found = probe(t, limits);
  for (double factor = 1.1; !found && t < max_t && !deadline_.passed(); factor = std::min(factor * 1.3, 4.0)) {
    t = std::min(t * factor, max_t);
    found = probe(t, limits);
  }
  if (!found) return std::nullopt;
  Answer answer{.t = t, .stages = std::move(*found)};
  const auto answer_at = [&](double time) -> std::optional<Answer> {
    if (auto stages = probe(time, limits)) return Answer{.t = time, .stages = std::move(*stages)};
    return std::nullopt;
  };
  return first_that_works(rows_.times_between(0, t), std::move(answer), deadline_, answer_at);
}

}  // namespace graphpipe::partitioner
