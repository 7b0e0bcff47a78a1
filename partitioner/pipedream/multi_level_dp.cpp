#include "partitioner/pipedream/multi_level_dp.h"

#include <algorithm>
#include <cmath>

#include "support/units.h"

namespace graphpipe::partitioner {

namespace {
/// What rounding may add to a bottleneck times the units of all levels.
constexpr double kLevelRounding = 1e-9;

// target[i] = min(target[i], max(source[i], seconds)): the inner loop of the search, in blocks that the compiler turns
// into vectors.
void relax(double* __restrict target, const double* __restrict source, double seconds, size_t count) {
  constexpr size_t kStep = 4;
  size_t i = 0;
  for (; i + kStep <= count; i += kStep)
    for (size_t lane = i; lane < i + kStep; ++lane) {
      const double slowest = source[lane] > seconds ? source[lane] : seconds;
      target[lane] = slowest < target[lane] ? slowest : target[lane];
    }
  for (; i < count; ++i) target[i] = std::min(target[i], std::max(source[i], seconds));
}

}  // namespace

MultiLevelDp::MultiLevelDp(const PricedDownsets& sets, const LevelLimits& limits, Deadline& deadline)
    : sets_(sets), limits_(limits), deadline_(deadline), count_(sets.size()), below_(sets.size()) {
  for (uint32_t to = 1; to < count_; ++to)
    for (uint32_t from = 0; from < to; ++from)
      if (sets_.includes(to, from)) below_[to].push_back(from);
  double links = 1, units_around = 1;
  useful_.resize(limits_.levels.size());
  for (size_t level = limits_.levels.size(); level > 0; --level) {
    useful_[level - 1] = limits_.max_seconds * units_around * (1 + kLevelRounding);
    units_around *= limits_.levels[level - 1].count;
  }
  for (const auto& level : limits_.levels) {
    links_.push_back(links);
    links = limits_.model.links_of_all_levels ? links * level.count : level.count;
  }
}

double MultiLevelDp::table_bytes(size_t downsets, const LevelLimits& limits) {
  int widest = 1;
  for (const auto& level : limits.levels) widest = std::max(widest, level.count);
  const double pairs = static_cast<double>(downsets) * static_cast<double>(downsets);
  return 8 * pairs * (widest + 2 + static_cast<double>(limits.levels.size())) + 4 * pairs / 2;
}

double MultiLevelDp::work(size_t downsets, const LevelLimits& limits) {
  double steps = 0;
  const auto n = static_cast<double>(downsets);
  for (size_t level = 0; level + 1 < limits.levels.size(); ++level) {
    const double m = limits.levels[level].count;
    steps += n * n * n / 6 * (limits.replication ? m * m / 2 : m);
  }
  return steps;
}

MultiLevelDp::Table MultiLevelDp::work_table() const {
  Table table(count_ * count_, kInfinity);
  for (size_t to = 1; to < count_; ++to)
    for (const uint32_t from : below_[to]) table[from * count_ + to] = sets_.seconds(from, to);
  return table;
}

// `is_first`: the stage begins its pipeline. `is_last`: it ends its pipeline, so that what leaves it is charged at the
// level outside.
double MultiLevelDp::stage_seconds(size_t level, const Table& inner, size_t from, size_t to, int replicas,
                                   bool is_first, bool is_last) const {
  const CostModel& rule = limits_.model;
  const double d = replicas, bandwidth = limits_.levels[level].bandwidth;
  const double wide = is_first || rule.parallel_links_everywhere ? links_[level] : 1;
  const double reduction = rule.reduction_factor * (d - 1) * sets_.weights(from, to) / (d * bandwidth * wide);
  double seconds = (at(inner, from, to) + reduction) / d;
  if (is_first) return seconds;
  double bytes = sets_.leaving(from);
  if (!is_last || rule.group_end_pays_twice) bytes = std::max(bytes, sets_.leaving(to));
  return std::max(seconds, 2 * bytes / (bandwidth * d));
}

bool MultiLevelDp::fits(size_t level, size_t from, size_t to, int used, int replicas) const {
  if (limits_.model.memory == MemoryRule::kNone || !std::isfinite(limits_.memory)) return true;
  const int copies = copies_held(limits_.model.memory, limits_.levels[level].count - used, replicas);
  return copies * (sets_.outputs(from, to) + sets_.weights(from, to)) <= limits_.memory;
}

// All pipelines that end with the stage (from, to), for all starts at once. `middle` [to][used][start] holds the best
// pipelines that other stages may follow, `ending` [to][start] the best whole ones. What is not nested is infinite
// everywhere.
void MultiLevelDp::combine(size_t level, const Table& inner, size_t from, size_t to, std::vector<double>& middle,
                           Table& ending) const {
  const int units = limits_.levels[level].count;
  const auto width = static_cast<size_t>(units) + 1;
  const int largest = limits_.replication ? units - 1 : std::min(1, units - 1);
  const double* before = middle.data() + from * width * count_;
  double* after = middle.data() + to * width * count_;
  for (int d = 1; d <= largest; ++d) {
    const double seconds = stage_seconds(level, inner, from, to, d, false, false);
    const double at_end = stage_seconds(level, inner, from, to, d, false, true);
    if (at_end > useful_[level]) continue;
    for (int used = d + 1; used <= units && seconds <= useful_[level]; ++used)
      if (fits(level, from, to, used, d))
        relax(after + static_cast<size_t>(used) * count_, before + static_cast<size_t>(used - d) * count_, seconds,
              from);
    if (fits(level, from, to, units, d))
      relax(ending.data() + to * count_, before + static_cast<size_t>(units - d) * count_, at_end, from);
  }
}

bool MultiLevelDp::next_table(size_t level, const Table& inner, Table& outer) {
  const int units = limits_.levels[level].count;
  const auto width = static_cast<size_t>(units) + 1;
  std::vector<double> middle(count_ * count_ * width, kInfinity);
  Table ending(count_ * count_, kInfinity);
  for (size_t to = 1; to < count_; ++to) {
    if (deadline_.passed()) return false;
    double* rows = middle.data() + to * width * count_;
    for (const uint32_t from : below_[to]) {
      for (int d = 1; d <= (limits_.replication ? units : 1); ++d) {
        if (!fits(level, from, to, d, d)) continue;
        rows[static_cast<size_t>(d) * count_ + from] = stage_seconds(level, inner, from, to, d, true, false);
        double& whole = ending[to * count_ + from];
        if (d == units || limits_.use_fewer)
          whole = std::min(whole, stage_seconds(level, inner, from, to, d, true, true));
      }
    }
    // The pipelines up to each `from` are complete: it was a `to` before.
    for (const uint32_t from : below_[to])
      if (from != 0) combine(level, inner, from, to, middle, ending);
    for (size_t used = 2; used < width && limits_.use_fewer; ++used)
      relax(rows + used * count_, rows + (used - 1) * count_, 0, to);
  }
  middle.clear();
  middle.shrink_to_fit();
  outer.assign(count_ * count_, kInfinity);
  for (size_t to = 1; to < count_; ++to)
    for (const uint32_t from : below_[to]) at(outer, from, to) = ending[to * count_ + from];
  return true;
}

MultiLevelDp::Row MultiLevelDp::row(size_t level, size_t first, size_t target) const {
  const int units = limits_.levels[level].count;
  const auto width = static_cast<size_t>(units) + 1;
  const Table& inner = tables_[level];
  Row row{.middle = std::vector<double>(count_ * width, kInfinity), .end = std::vector<double>(width, kInfinity)};
  const auto place = [&](size_t from, size_t to, bool is_end, double* values) {
    const bool is_first = from == first;
    for (int d = 1; d <= (limits_.replication ? units : 1); ++d) {
      const double seconds = stage_seconds(level, inner, from, to, d, is_first, is_end);
      if (is_first) {
        if (fits(level, from, to, d, d)) values[d] = std::min(values[d], seconds);
        continue;
      }
      for (int used = d + 1; used <= units; ++used)
        if (fits(level, from, to, used, d))
          values[used] =
              std::min(values[used], std::max(row.middle[from * width + static_cast<size_t>(used - d)], seconds));
    }
    for (int used = 2; used <= units && limits_.use_fewer; ++used)
      values[used] = std::min(values[used], values[used - 1]);
  };
  for (size_t to = first + 1; to <= target; ++to) {
    if (to != target && !sets_.includes(target, to)) continue;
    for (const uint32_t from : below_[to])
      if (from == first || (from > first && sets_.includes(from, first))) {
        if (to == target) place(from, to, true, row.end.data());
        else place(from, to, false, row.middle.data() + to * width);
      }
  }
  return row;
}

std::vector<PipelineStage> MultiLevelDp::stages_of(size_t level, size_t first, size_t target) const {
  const int units = limits_.levels[level].count;
  const auto width = static_cast<size_t>(units) + 1;
  const Row found = row(level, first, target);
  const Table& inner = tables_[level];
  std::vector<PipelineStage> stages;
  size_t to = target;
  int used = units;
  while (to != first) {
    const bool is_end = to == target;
    const auto value = [&](int devices) {
      return is_end ? found.end[static_cast<size_t>(devices)] : found.middle[to * width + static_cast<size_t>(devices)];
    };
    const double goal = value(used);
    if (limits_.use_fewer && used > 1 && value(used - 1) <= goal) {
      --used;
      continue;
    }
    const auto take = [&](size_t from, int d) {
      const bool is_first = from == first;
      if ((is_first && used != d) || (!is_first && used <= d) || !fits(level, from, to, used, d)) return false;
      const double before = is_first ? 0 : found.middle[from * width + static_cast<size_t>(used - d)];
      if (std::max(before, stage_seconds(level, inner, from, to, d, is_first, is_end)) > goal) return false;
      stages.insert(stages.begin(), {from, to, d});
      to = from;
      used -= d;
      return true;
    };
    bool done = false;
    const std::vector<uint32_t>& below = below_[to];
    for (size_t i = 0; i < below.size() && !done; ++i)
      if (below[i] == first || (below[i] > first && sets_.includes(below[i], first)))
        for (int d = 1; d <= (limits_.replication ? units : 1) && !done; ++d) done = take(below[i], d);
    GP_CHECK(done);
  }
  return stages;
}

// Appends the stages of a group and returns how many they are.
int MultiLevelDp::unfold(size_t level, size_t first, size_t target, FoundLevels& found) const {
  int count = 0;
  for (const PipelineStage& stage : stages_of(level, first, target)) {
    if (level == 0) {
      found.stages.push_back(stage);
      ++count;
      continue;
    }
    const auto begin = static_cast<int>(found.stages.size());
    const int inside = unfold(level - 1, stage.from, stage.to, found);
    found.groups.push_back(
        {.level = static_cast<int>(level), .first = begin, .count = inside, .replicas = stage.replicas});
    count += inside;
  }
  return count;
}

std::optional<FoundLevels> MultiLevelDp::best() {
  tables_ = {work_table()};
  for (size_t level = 0; level + 1 < limits_.levels.size(); ++level) {
    Table outer;
    if (!next_table(level, tables_.back(), outer)) return std::nullopt;
    tables_.push_back(std::move(outer));
  }
  for (const auto& below : below_) pairs_ += static_cast<int64_t>(below.size());
  const size_t top = limits_.levels.size() - 1, last = count_ - 1;
  const double seconds = row(top, 0, last).end[static_cast<size_t>(limits_.levels[top].count)];
  if (seconds == kInfinity) return std::nullopt;
  FoundLevels found{.seconds = seconds};
  unfold(top, 0, last, found);
  std::ranges::stable_sort(found.groups, {}, &StageGroup::level);
  return found;
}

}  // namespace graphpipe::partitioner
