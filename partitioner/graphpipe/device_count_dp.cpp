#include "partitioner/graphpipe/device_count_dp.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "partitioner/graphpipe/first_that_works.h"
#include "support/integer_math.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

constexpr int kManyBranches = 16, kFewBranches = 2;
constexpr size_t kMaxGrouped = 32;
constexpr int kMaxDeviceCuts = 24;
/// Once the interval is this narrow, bisection goes on over the times that stages really have.
constexpr double kNarrow = 1.002;

}  // namespace

DeviceCountDp::DeviceCountDp(const SearchSpace& space, StageEvaluator& evaluator, Samples micro_batch,
                             const SearchLimits& limits, Deadline& deadline)
    : space_(space),
      evaluator_(evaluator),
      micro_batch_(micro_batch),
      limits_(limits),
      deadline_(deadline),
      outside_(space, {&evaluator}),
      shortfall_(kInfinity) {}

const SearchElement& DeviceCountDp::element(int chain, int index) const {
  return chain_at(chain).elements[static_cast<size_t>(index)];
}

// --- Rows ---

/// The options of the evaluator's stage that fit the memory, as a staircase: more devices, less time. `all` becomes
/// false where an option takes too long.
std::vector<DeviceCountDp::Choice> DeviceCountDp::staircase(bool& all) {
  std::vector<Choice> stairs;
  for (size_t i = 0; i < evaluator_.counts(); ++i) {
    bool is_short = evaluator_.compute_per_sample(i) <= fill_limit_;
    for (const bool recompute : evaluator_.forms()) {
      if (!is_short) break;
      const StageOption option = evaluator_.option_at(i, recompute);
      if (option.devices > limits_.devices) break;
      is_short = option.time_per_sample <= fill_limit_;
      if (!is_short) break;
      const double lacking = option.memory(micro_batch_.count) - limits_.memory;
      if (lacking > 0) {
        shortfall_ = std::min(shortfall_, lacking);
        continue;
      }
      if (stairs.empty() || option.time_per_sample < stairs.back().time_per_sample)
        stairs.push_back({option.time_per_sample, option.time_across, option.latency, option.devices, recompute});
      break;
    }
    all = all && is_short;
  }
  return stairs;
}

void DeviceCountDp::fill(Row& row) {
  evaluator_.clear();
  evaluator_.add(row_start(space_, row.key));
  const int steps = row_steps(space_, row.key);
  bool all = true;
  for (int column = 0; column <= steps; ++column) {
    if (column > 0) evaluator_.add(row_step(space_, row.key, column));
    if (evaluator_.min_time_per_sample() > fill_limit_ || deadline_.passed()) return;
    row.columns.push_back(staircase(all));
  }
  if (all) row.limit = kInfinity;
}

const DeviceCountDp::Row& DeviceCountDp::row(RowKind kind, int chain, int element, const Part& part) {
  return rows_.at({kind, chain, element, part}, fill_limit_, [this](Row& row) { fill(row); });
}

// --- Cells ---

bool DeviceCountDp::better(const Cell& a, const Cell& b) {
  return a.devices != b.devices ? a.devices < b.devices : a.latency < b.latency;
}

/// Puts the stage of this column on top of `below` and remembers it if that is the best so far.
void DeviceCountDp::place(Cell& best, BackPointer& how, const Row& row, size_t column, const Cell& below) const {
  if (below.devices >= best.devices) return;
  const std::vector<Choice>& stairs = row.columns[column];
  auto choice =
      std::partition_point(stairs.begin(), stairs.end(), [&](const Choice& c) { return c.time_per_sample > t_; });
  // Where it begins a group, what it feeds is in others. A branch is solved as if it stood alone in its groups.
  const auto is_across = [&] { return begins_group(below.devices, choice->devices); };
  while (choice != stairs.end() && is_across() && choice->time_across > t_) ++choice;
  if (choice == stairs.end()) return;
  const Cell cell{end_after(below.devices, choice->devices), below.latency + choice->latency, -1};
  if (!feasible(cell) || !better(cell, best)) return;
  best = cell;
  how = {.row = &row,
         .column = static_cast<int>(column),
         .choice = &*choice,
         .is_across = is_across(),
         .below = below.back_pointer};
}

/// Stores the back pointer that `place` remembered, and links the cell to it.
void DeviceCountDp::commit(Cell& best, BackPointer& how) {
  if (how.row == nullptr) return;
  back_pointers_.push_back(how);
  best.back_pointer = static_cast<int>(back_pointers_.size()) - 1;
  how = {};
}

bool DeviceCountDp::begins_group(int others, int devices) const {
  const int used = limits_.group > 0 ? others % limits_.group : 0;
  return limits_.group > 0 && (used == 0 || used + devices > limits_.group);
}

int DeviceCountDp::end_after(int others, int devices) const {
  return (begins_group(others, devices) ? round_up(others, limits_.group) : others) + devices;
}

DeviceCountDp::Cell DeviceCountDp::sum(const Cell& a, const Cell& b, bool stacked) const {
  return {std::min(end_after(a.devices, b.devices), end_after(b.devices, a.devices)),
          stacked ? a.latency + b.latency : std::max(a.latency, b.latency), -1};
}

DeviceCountDp::Cell DeviceCountDp::joined(const Cell& a, const Cell& b) {
  Cell both = sum(a, b, false);
  both.back_pointer = std::max(a.back_pointer, b.back_pointer);
  if (a.back_pointer < 0 || b.back_pointer < 0) return both;
  back_pointers_.push_back({.below = a.back_pointer, .beside = b.back_pointer});
  both.back_pointer = static_cast<int>(back_pointers_.size()) - 1;
  return both;
}

DeviceCountDp::Cell DeviceCountDp::beside(const Cell& a, const Cell& b) {
  return feasible(sum(a, b, false)) ? joined(a, b) : nothing();
}

DeviceCountDp::Cell DeviceCountDp::stacked(const Cell& above, const Cell& below) {
  Cell both = beside(above, below);
  if (feasible(both)) both.latency = above.latency + below.latency;
  return both;
}

DeviceCountDp::Cell DeviceCountDp::renamed(Cell cell, int from, int to) {
  if (from == to || cell.back_pointer < 0) return cell;
  back_pointers_.push_back({.below = cell.back_pointer, .rename = true, .from = from, .to = to});
  cell.back_pointer = static_cast<int>(back_pointers_.size()) - 1;
  return cell;
}

// --- Chains ---

const DeviceCountDp::Chain& DeviceCountDp::solve(int chain, int end, int taken) {
  const auto found = chains_.find({chain, end, taken});
  if (found != chains_.end()) return found->second;
  Chain states;
  states.at.assign(static_cast<size_t>(end) + 1, nothing());
  states.heads.resize(static_cast<size_t>(end));
  states.at[static_cast<size_t>(end)] = {.devices = taken};
  for (int i = end; i-- > 0;)
    if (!deadline_.passed()) solve_position(chain, end, i, states);
  return chains_[{chain, end, taken}] = std::move(states);
}

void DeviceCountDp::solve_position(int chain, int end, int i, Chain& states) {
  const size_t at = static_cast<size_t>(i);
  const int max_devices = allowed(chain, i, end);
  if (max_devices < 1) return;
  Cell here = nothing();
  BackPointer how;
  const Row& interval = row(RowKind::kInterval, chain, i, Part{});
  for (size_t column = 0; column < interval.columns.size() && i + static_cast<int>(column) < end; ++column)
    place(here, how, interval, column, states.at[at + column + 1]);
  for (int j = i + 1; j < end; ++j)
    for (const Upper& headed : states.heads[static_cast<size_t>(j)]) {
      const Row& head = row(RowKind::kHead, chain, j, headed.part);
      const size_t column = static_cast<size_t>(j - i);
      if (column < head.columns.size()) place(here, how, head, column, headed.cell);
    }
  commit(here, how);
  states.at[at] = here;
  if (!element(chain, i).branches.empty()) solve_block(chain, end, i, states);
  // What is fed lies outside, where its devices of a shared group are counted already.
  const int taken = states.at[static_cast<size_t>(end)].devices;
  if (states.at[at].devices > max_devices + taken) states.at[at] = nothing();
}

/// Every part of a parallel element that a stage above or below it may take.
std::vector<DeviceCountDp::Part> DeviceCountDp::parts_of(int chain, int index) const {
  const auto& branches = element(chain, index).branches;
  const int count = static_cast<int>(branches.size());
  const int longest = count > kManyBranches ? kFewBranches : count - 1;
  std::vector<Part> parts;
  for (int first = 0; first < count; ++first)
    for (int last = first + 1; last <= std::min(count, first + longest); ++last) parts.push_back({first, last, 0});
  for (int branch = 0; branch < count; ++branch) {
    const int size = static_cast<int>(chain_at(branches[static_cast<size_t>(branch)]).elements.size());
    const int cuts = std::min(size - 1, kMaxDeviceCuts);
    for (int i = 1; i <= cuts; ++i) parts.push_back({branch, branch + 1, cuts == size - 1 ? i : i * size / (cuts + 1)});
  }
  return parts;
}

DeviceCountDp::Cell DeviceCountDp::piece_of_branch(int branch, int from, int to) {
  const int shape = chain_at(branch).shape;
  return renamed(solve(shape, to).at[static_cast<size_t>(from)], shape, branch);
}

DeviceCountDp::Cell DeviceCountDp::piece_on(const Cell& below, int branch, int from, int to) {
  const int taken = limits_.group > 0 ? below.devices % limits_.group : 0;
  if (taken == 0) return stacked(piece_of_branch(branch, from, to), below);
  const int shape = chain_at(branch).shape;
  Cell piece = renamed(solve(shape, to, taken).at[static_cast<size_t>(from)], shape, branch);
  if (!feasible(piece)) return nothing();
  piece.devices -= taken;
  Cell both = joined(piece, below);
  both.devices = piece.devices + below.devices;
  both.latency = piece.latency + below.latency;
  return feasible(both) ? both : nothing();
}

/// Whole branches [first, last), for all pairs: each branch on its own, or several as one stage.
const DeviceCountDp::Cover& DeviceCountDp::cover(int chain, int index) {
  const auto found = covers_.find({chain, index});
  if (found != covers_.end()) return found->second;
  const auto& branches = element(chain, index).branches;
  const size_t count = branches.size();
  const int max_devices = allowed(chain, index, index + 1);
  Cover made;
  made.at.assign(count + 1, std::vector<Cell>(count + 1, nothing()));
  std::vector<Cell> alone;
  for (int branch : branches)
    alone.push_back(piece_of_branch(branch, 0, static_cast<int>(chain_at(branch).elements.size())));
  for (size_t first = count + 1; first-- > 0;) {
    made.at[first][first] = {};
    for (size_t last = first + 1; last <= count; ++last) {
      Cell best = beside(alone[first], made.at[first + 1][last]);
      for (size_t next = first + 2; next <= std::min(last, first + kMaxGrouped); ++next) {
        const Row& group = row(RowKind::kGroup, chain, index, {static_cast<int>(first), static_cast<int>(next), 0});
        if (group.columns.empty()) break;
        Cell together = nothing();
        BackPointer how;
        place(together, how, group, 0, {});
        if (!feasible(together) || !better(sum(together, made.at[next][last], false), best)) continue;
        commit(together, how);
        best = beside(together, made.at[next][last]);
      }
      if (best.devices <= max_devices) made.at[first][last] = best;
    }
  }
  return covers_[{chain, index}] = std::move(made);
}

/// What may lie below a parallel element: the stages from its end on, or a stage that also takes a part of the element.
std::vector<DeviceCountDp::Lower> DeviceCountDp::lowers(int chain, int end, int i, const Chain& states,
                                                        const std::vector<Part>& parts) {
  std::vector<Lower> found{{Part{}, states.at[static_cast<size_t>(i) + 1]}};
  if (i + 1 == end) return found;
  for (const Part& part : parts) {
    const Row& tail = row(RowKind::kTail, chain, i, part);
    Cell best = nothing();
    BackPointer how;
    for (size_t column = 1; column < tail.columns.size() && i + static_cast<int>(column) < end; ++column)
      place(best, how, tail, column, states.at[static_cast<size_t>(i) + column + 1]);
    commit(best, how);
    if (feasible(best)) found.push_back({part, best});
  }
  return found;
}

/// Everything but the branches [first, last): what is below, with or without a part, and the other branches whole.
DeviceCountDp::Cell DeviceCountDp::all_but(const Cover& cover, int branches, const std::vector<Lower>& lowers,
                                           int first, int last) {
  const auto covered = [&](int from, int to) -> const Cell& {
    return cover.at[static_cast<size_t>(from)][static_cast<size_t>(to)];
  };
  // The branches in ascending order: a gap, a part taken out, a gap, a part taken out, a gap.
  const auto gaps = [&](const Part& part) {
    std::array<std::pair<int, int>, 2> out{{{part.first, part.last}, {first, last}}};
    if (part.none()) out[0] = {first, first};
    std::sort(out.begin(), out.end());
    return std::array<const Cell*, 3>{&covered(0, out[0].first), &covered(out[0].second, out[1].first),
                                      &covered(out[1].second, branches)};
  };
  Cell best = nothing();
  const Lower* chosen = nullptr;
  for (const Lower& lower : lowers) {
    const Part& part = lower.part;
    if (!part.none() && part.first < last && first < part.last) continue;
    const auto open = gaps(part);
    const Cell cell = sum(sum(sum(*open[0], *open[1], false), *open[2], false), lower.cell, true);
    if (!feasible(cell) || !better(cell, best)) continue;
    best = cell;
    chosen = &lower;
  }
  if (chosen == nullptr) return nothing();
  const auto open = gaps(chosen->part);
  return stacked(beside(beside(*open[0], *open[1]), *open[2]), chosen->cell);
}

void DeviceCountDp::solve_block(int chain, int end, int i, Chain& states) {
  const auto& branches = element(chain, i).branches;
  const int count = static_cast<int>(branches.size());
  const Cover& whole = cover(chain, i);
  const std::vector<Part> parts = parts_of(chain, i);
  const std::vector<Lower> cut_below = lowers(chain, end, i, states, parts);
  // Counted with the rest of its branch, only the best cut of each branch matters for everything outside the branch.
  std::vector<Lower> full;
  std::ranges::copy_if(cut_below, std::back_inserter(full), [](const Lower& lower) { return lower.part.cut == 0; });
  std::ranges::copy(with_rest_of_branch(branches, cut_below), std::back_inserter(full));
  Cell& here = states.at[static_cast<size_t>(i)];
  const Cell on_its_own = all_but(whole, count, full, 0, 0);
  if (better(on_its_own, here)) here = on_its_own;
  if (i == 0) return;
  const auto keep = [&](const Part& part, const Cell& cell) {
    if (feasible(cell)) states.heads[static_cast<size_t>(i)].push_back({part, cell});
  };
  std::vector<Cell> without(branches.size(), nothing());
  for (int branch = 0; branch < count; ++branch)
    without[static_cast<size_t>(branch)] = all_but(whole, count, full, branch, branch + 1);
  for (const Part& part : parts) {
    if (row(RowKind::kHead, chain, i, part).columns.size() < 2) continue;
    if (part.cut == 0) {
      keep(part, part.last == part.first + 1 ? without[static_cast<size_t>(part.first)]
                                             : all_but(whole, count, full, part.first, part.last));
      continue;
    }
    keep(part, head_within(chain, i, part, cut_below, without[static_cast<size_t>(part.first)]));
  }
}

std::vector<DeviceCountDp::Lower> DeviceCountDp::with_rest_of_branch(const std::vector<int>& branches,
                                                                     const std::vector<Lower>& cut_below) {
  std::vector<Lower> best(branches.size(), Lower{Part{}, nothing()});
  const auto take = [&](size_t branch, const Lower& below, int end) {
    const Cell cell = piece_on(below.cell, branches[branch], 0, end);
    const int number = static_cast<int>(branch);
    const Part part = below.part.none() ? Part{number, number + 1, 0} : below.part;
    if (feasible(cell) && better(cell, best[branch].cell)) best[branch] = {part, cell};
  };
  for (const Lower& lower : cut_below) {
    if (lower.part.cut > 0) take(static_cast<size_t>(lower.part.first), lower, lower.part.cut);
    if (!lower.part.none() || limits_.group == 0) continue;
    // A whole branch may share a group with what it feeds, which a branch on its own does not.
    for (size_t branch = 0; branch < branches.size(); ++branch)
      take(branch, lower, static_cast<int>(chain_at(branches[branch]).elements.size()));
  }
  std::erase_if(best, [this](const Lower& lower) { return !feasible(lower.cell); });
  return best;
}

DeviceCountDp::Cell DeviceCountDp::head_within(int chain, int i, const Part& part, const std::vector<Lower>& cut_below,
                                               const Cell& without_branch) {
  const auto& branches = element(chain, i).branches;
  const Cover& whole = cover(chain, i);
  const size_t branch = static_cast<size_t>(part.first);
  const int size = static_cast<int>(chain_at(branches[branch]).elements.size());
  Cell best = stacked(piece_of_branch(branches[branch], part.cut, size), without_branch);
  // Or the stage below has the end of the same branch.
  for (const Lower& lower : cut_below) {
    if (lower.part.first != part.first || lower.part.cut < part.cut) continue;
    const Cell others = beside(whole.at[0][branch], whole.at[branch + 1][branches.size()]);
    const Cell between = piece_of_branch(branches[branch], part.cut, lower.part.cut);
    const Cell cell = sum(sum(between, others, false), lower.cell, true);
    if (feasible(cell) && better(cell, best)) best = stacked(beside(between, others), lower.cell);
  }
  return best;
}

// --- Probes ---

std::vector<FoundStage> DeviceCountDp::trace_back(int back_pointer, double& t) const {
  std::vector<FoundStage> stages;
  std::vector<int> pending{back_pointer};
  while (!pending.empty()) {
    const int at = pending.back();
    pending.pop_back();
    if (at < 0) continue;
    const BackPointer& found = back_pointers_[static_cast<size_t>(at)];
    if (found.rename) {
      // The chains have the same shape: their nodes correspond one to one.
      const auto &from = chain_at(found.from).nodes, &to = chain_at(found.to).nodes;
      std::map<ir::PlanNodeId, ir::PlanNodeId> meant;
      for (size_t i = 0; i < from.size(); ++i) meant[from[i]] = to[i];
      for (FoundStage& stage : trace_back(found.below, t)) {
        for (ir::PlanNodeId& node : stage.nodes) node = meant.at(node);
        std::sort(stage.nodes.begin(), stage.nodes.end());
        stages.push_back(std::move(stage));
      }
      continue;
    }
    pending.push_back(found.beside);
    pending.push_back(found.below);
    if (found.row == nullptr) continue;
    t = std::max(t, found.is_across ? found.choice->time_across : found.choice->time_per_sample);
    stages.push_back({.nodes = row_nodes(space_, found.row->key, found.column),
                      .devices = found.choice->devices,
                      .micro_batch = micro_batch_,
                      .recompute = found.choice->recompute});
  }
  return stages;
}

std::optional<DeviceCountDp::Answer> DeviceCountDp::probe(double t) {
  t_ = t;
  while (fill_limit_ < t) fill_limit_ = std::max(t, 2 * fill_limit_);
  back_pointers_.clear();
  chains_.clear();
  covers_.clear();
  const int root = static_cast<int>(space_.chains.size()) - 1;
  const Cell all = solve(root, static_cast<int>(space_.chains.back().elements.size())).at.front();
  if (deadline_.passed() || !feasible(all)) return std::nullopt;
  Answer answer;
  answer.stages = trace_back(all.back_pointer, answer.t);
  return answer;
}

std::optional<DeviceCountDp::Answer> DeviceCountDp::smallest(double bound, double max_t) {
  double low = std::max(bound, std::numeric_limits<double>::min());
  double t = low * 1.5;
  std::optional<Answer> best = probe(t);
  while (!best && t < max_t && !deadline_.passed()) {
    low = t;
    t = std::min(2 * t, max_t);
    best = probe(t);
  }
  if (!best) return std::nullopt;
  while (best->t > low * kNarrow && !deadline_.passed()) {
    const double middle = std::sqrt(low * best->t);
    if (auto found = probe(middle)) best = std::move(found);
    else low = middle;
  }
  // What is left to try are the times that some stage has.
  std::vector<double> times = rows_.times_between(std::min(low, best->t), best->t);
  return first_that_works(std::move(times), std::move(*best), deadline_, [this](double time) { return probe(time); });
}

}  // namespace graphpipe::partitioner
