#include "partitioner/pipedream/one_level_dp.h"

#include <algorithm>
#include <cmath>

#include "partitioner/pipedream/fewest_devices.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

/// Windows are a little wider than exact numbers would make them, so that rounding does not close them.
constexpr double kRowRounding = 1e-11;
/// Once the threshold is within this factor of the bound, the search is exact.
constexpr double kClose = 1.01;
constexpr size_t kMaxValues = 40'000'000;

}  // namespace

int OneLevelDp::needed(double seconds, double max_seconds) const {
  if (seconds <= 0) return 1;
  const double devices = std::ceil(seconds / (max_seconds * (1 + kRowRounding)));
  return devices >= limits_.devices ? std::max(limits_.devices, 1) + (devices > limits_.devices ? 1 : 0)
                                    : std::max(1, static_cast<int>(devices));
}

bool OneLevelDp::fits(size_t from, size_t to, int used, int replicas) const {
  if (!checks_memory()) return true;
  const int copies = copies_held(limits_.model.memory, limits_.devices - used, replicas);
  return copies * (sets_.outputs(from, to) + sets_.weights(from, to)) <= limits_.memory;
}

void OneLevelDp::open_windows(double max_seconds) {
  const size_t count = sets_.size(), last = count - 1;
  low_.assign(count, 0);
  high_.assign(count, -1);
  traffic_replicas_.assign(count, 1);
  offsets_.assign(count, 0);
  high_[0] = 0;
  size_t values = 1;
  for (size_t set = 1; set < count; ++set) {
    low_[set] = needed(sets_.seconds(set), max_seconds);
    high_[set] = set == last ? limits_.devices : limits_.devices - needed(sets_.seconds(set, last), max_seconds);
    if (set == last && !limits_.use_fewer) low_[set] = std::max(low_[set], limits_.devices);
    traffic_replicas_[set] = needed(2 * sets_.leaving(set) / limits_.bandwidth, max_seconds);
    const int spread = limits_.replication ? limits_.devices - 1 : 1;
    if (set != last && traffic_replicas_[set] > spread) high_[set] = -1;
    offsets_[set] = values;
    if (low_[set] <= high_[set]) values += static_cast<size_t>(high_[set] - low_[set] + 1);
  }
  values_.assign(std::min(values, kMaxValues), kInfinity);
  if (values > kMaxValues) {  // the tables would not fit: no pipeline is found, which proves nothing
    high_.assign(count, -1);
    return;
  }
  values_[0] = 0;
  alive_.assign(1, 0);
}

void OneLevelDp::extend(size_t from, size_t to, int min_replicas, int max_replicas, double max_seconds) {
  for (int d = min_replicas; d <= max_replicas; ++d) {
    const double seconds = stage_seconds(from, to, d);
    if (!(seconds <= max_seconds)) continue;
    const int begin = std::max(low_[from], low_[to] - d), end = std::min(high_[from], high_[to] - d);
    for (int before = begin; before <= end; ++before) {
      if (!fits(from, to, before + d, d)) continue;
      double& best = value(to, before + d);
      const double found = std::max(value(from, before), seconds);
      if (!(found < best)) continue;
      if (found <= good_ && best > good_) --open_;
      best = found;
    }
  }
}

void OneLevelDp::reach(size_t to, double max_seconds) {
  const double earliest = sets_.seconds(to) - max_seconds * (1 + kRowRounding) * high_[to];
  auto start = std::ranges::lower_bound(alive_, earliest, {}, [&](size_t set) { return sets_.seconds(set); });
  const int own = to + 1 == sets_.size() ? 1 : traffic_replicas_[to];
  const double inverse = 1 / (max_seconds * (1 + kRowRounding));
  open_ = high_[to] - low_[to] + 1;
  for (auto from = start; from != alive_.end() && open_ > 0; ++from) {
    const int max_replicas = limits_.replication ? high_[to] - low_[*from] : std::min(1, high_[to] - low_[*from]);
    const double work = sets_.seconds(*from, to) * inverse;
    if (work > max_replicas) continue;
    int min_replicas = std::max({1, static_cast<int>(std::ceil(work)), low_[to] - high_[*from]});
    if (*from != 0) min_replicas = std::max({min_replicas, own, traffic_replicas_[*from]});
    if (min_replicas > max_replicas || !sets_.includes(to, *from)) continue;
    ++pairs_;
    extend(*from, to, min_replicas, max_replicas, max_seconds);
  }
  checks_ += alive_.end() - start;
  double smallest = kInfinity;
  for (int used = low_[to]; used <= high_[to]; ++used) {
    if (limits_.use_fewer && used > low_[to]) value(to, used) = std::min(value(to, used), value(to, used - 1));
    smallest = std::min(smallest, value(to, used));
  }
  if (smallest < kInfinity) alive_.push_back(to);
}

FoundPipeline OneLevelDp::pipeline_to_the_end() {
  FoundPipeline pipeline;
  size_t to = sets_.size() - 1;
  int used = limits_.devices;
  while (to != 0) {
    const double target = std::max(value(to, used), good_);
    if (limits_.use_fewer && used > low_[to] && value(to, used - 1) <= target) {
      --used;
      continue;
    }
    bool found = false;
    for (const size_t from : alive_) {
      if (from >= to || !sets_.includes(to, from)) continue;
      const int largest = limits_.replication ? used - low_[from] : 1;
      for (int d = std::max(1, used - high_[from]); d <= largest && !found; ++d) {
        if (used - d < low_[from] || !fits(from, to, used, d)) continue;
        if (std::max(value(from, used - d), stage_seconds(from, to, d)) > target) continue;
        pipeline.stages.insert(pipeline.stages.begin(), {from, to, d});
        pipeline.seconds = std::max(pipeline.seconds, stage_seconds(from, to, d));
        to = from;
        used -= d;
        found = true;
      }
      if (found) break;
    }
    GP_CHECK(found);
  }
  return pipeline;
}

// Exact down to `good`: pipelines at or below it count as equally good.
std::optional<FoundPipeline> OneLevelDp::within(double max_seconds, double good) {
  open_windows(max_seconds);
  good_ = good;
  const size_t last = sets_.size() - 1;
  if (high_[last] < 0 || low_[last] > high_[last]) return std::nullopt;
  for (size_t set = 1; set <= last; ++set) {
    if (low_[set] > high_[set]) continue;
    if (set % 64 == 0 && ended()) return std::nullopt;
    reach(set, max_seconds);
  }
  if (!(value(last, limits_.devices) <= max_seconds)) return std::nullopt;
  return pipeline_to_the_end();
}

// Gives the devices that a pipeline leaves idle to stages that stay within `max_seconds`.
bool OneLevelDp::use_all_devices(FoundPipeline& pipeline, double max_seconds) const {
  int idle = limits_.devices;
  for (const PipelineStage& stage : pipeline.stages) idle -= stage.replicas;
  while (idle > 0 && !limits_.use_fewer) {
    PipelineStage* fastest = nullptr;
    int more = 0;
    double shortest = kInfinity;
    for (PipelineStage& stage : pipeline.stages)
      for (int k = 1; k <= (limits_.replication ? idle : 0); ++k) {
        const double seconds = stage_seconds(stage.from, stage.to, stage.replicas + k);
        if (seconds > max_seconds || seconds >= shortest) continue;
        shortest = seconds;
        fastest = &stage;
        more = k;
      }
    if (fastest == nullptr) return false;
    fastest->replicas += more;
    idle -= more;
  }
  pipeline.seconds = 0;
  for (const PipelineStage& stage : pipeline.stages)
    pipeline.seconds = std::max(pipeline.seconds, stage_seconds(stage.from, stage.to, stage.replicas));
  return true;
}

bool OneLevelDp::close_in(double& max_seconds, std::optional<FoundPipeline>& best) {
  bool is_open = true;
  // First whether anything is better at all, since the best known often is the best; then in the middle of the
  // interval; and so in turns.
  for (bool top = true; is_open && bound_ > 0 && bound_ < max_seconds && !ended(); top = !top) {
    const double trial =
        top ? std::nextafter(max_seconds, 0.0) : std::sqrt(bound_) * std::sqrt(std::min(max_seconds, bound_ * 4));
    FewestDevices fewest(sets_, limits_, deadline_);
    auto pipeline = fewest.within(trial);
    checks_ += fewest.checks();
    pairs_ += fewest.pairs();
    if (fewest.ended()) break;
    if (!pipeline) {
      bound_ = top ? max_seconds : trial;
    } else if (use_all_devices(*pipeline, trial)) {
      max_seconds = pipeline->seconds;
      best = std::move(pipeline);
    } else {
      is_open = false;
    }
  }
  return bound_ >= max_seconds;
}

std::optional<FoundPipeline> OneLevelDp::best(double max_seconds, double bound) {
  bound_ = bound;
  if (bound_ >= max_seconds) return std::nullopt;
  std::optional<FoundPipeline> best;
  // Memory depends on the devices behind a stage, which the fewest devices up to it do not determine.
  if (!checks_memory() && close_in(max_seconds, best)) return best;
  // Whether some pipeline stays within a threshold is quick to tell; the exact search then has little room left.
  while (bound_ > 0 && max_seconds > bound_ * kClose && !ended()) {
    const double trial = std::sqrt(bound_) * std::sqrt(std::min(max_seconds, bound_ * 4));
    auto pipeline = within(trial, trial);
    if (ended() || values_.size() >= kMaxValues) return pipeline ? pipeline : best;
    if (pipeline) {
      best = std::move(pipeline);
      max_seconds = best->seconds;
    } else {
      bound_ = trial;
    }
  }
  auto pipeline = ended() ? std::nullopt : within(max_seconds, bound_);
  if (pipeline) bound_ = pipeline->seconds;
  else if (!best && !ended() && values_.size() < kMaxValues) bound_ = std::max(bound_, max_seconds);
  return pipeline ? pipeline : best;
}

}  // namespace graphpipe::partitioner
