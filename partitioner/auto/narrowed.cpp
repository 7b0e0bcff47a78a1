#include "partitioner/auto/narrowed.h"

#include <algorithm>
#include <array>

#include "partitioner/auto/climb.h"
#include "partitioner/auto/planner.h"
#include "partitioner/candidates.h"
#include "partitioner/several_searches.h"
#include "support/run_tasks.h"

namespace graphpipe::partitioner {

namespace {

/// Limits on nodes times devices. Up to the first every number of stages is searched, and up to the second fewer
/// devices. Around the best plan, half to twice its number of stages are searched up to the third, one more and one
/// less above it.
constexpr size_t kMaxWorkOfStages = 400, kMaxWorkOfDevices = 2'000, kMaxWorkOfTwice = 8'000;
/// A search with a free size finally climbs from the best plans of this many sizes, up to this amount of work.
constexpr size_t kMaxStarts = 4, kMaxWorkOfStarts = 4'000;
/// The searches around the best plan run again if the step has fallen below this share of what it was.
constexpr double kWorthARound = 0.995;
/// A search goes on if its step is within the first factor of a known one; it climbs by simulation, which gains less,
/// within the second.
constexpr double kWorthGoingOn = 1.06, kWorthSimulating = 1.02;
/// After this many numbers of stages in a row that are far behind, no more (or fewer) stages are tried.
constexpr int kMaxFarStages = 3;

Samples smallest_micro_batch(const ir::Assignment& assignment) {
  Samples smallest = assignment.choice.begin()->micro_batch;
  for (const ir::StageChoice& choice : assignment.choice) smallest = std::min(smallest, choice.micro_batch);
  return smallest;
}

}  // namespace

size_t work_of(const PlanRequest& request) { return request.graph->nodes.size() * request.cluster->devices.size(); }

Samples NarrowedSearch::micro_batch() const { return smallest_micro_batch(best_->candidates.front().assignment); }

int NarrowedSearch::stages() const { return static_cast<int>(best_->candidates.front().assignment.choice.size()); }

bool NarrowedSearch::is_over() const {
  return watch_.seconds() >= request_.time_limit || (request_.cancel != nullptr && request_.cancel->load());
}

PlanRequest NarrowedSearch::narrower() const {
  PlanRequest narrow = with_time_left(request_, watch_);
  narrow.known_step = std::min(request_.known_step, kStartSlack * step());
  return narrow;
}

void NarrowedSearch::add(PlanAnswer answer) { merge_answers(best_, std::move(answer)); }

void NarrowedSearch::begin() {
  Result<PlanAnswer> found = known_.of(request_);
  if (found.ok()) add(std::move(*found));
  else refusals_ = found.problems();
}

void NarrowedSearch::go_on(double known) {
  const bool is_refused = !best_ && !refusals_.empty() && refusals_.front().code != Code::kNoFeasiblePlan;
  if (is_refused || (best_ && step() > kWorthGoingOn * known)) return;
  if (work_ <= kMaxWorkOfStages && !request_.stages) each_number_of_stages();
  if (work_ <= kMaxWorkOfDevices) fewer_devices();
  const bool is_one_size = request_.micro_batch || request_.micro_batch_per_stage;
  for (double before = kInfinity; best_ && step() < kWorthARound * before && !is_over();) {
    before = step();
    if (is_one_size && work_ > kMaxWorkOfStages) beside_the_best();
    if (step() <= kWorthSimulating * known) by_simulation();
  }
}

Result<PlanAnswer> NarrowedSearch::answer() {
  if (!best_) return refusals_;
  if (is_over()) best_->complete = false;
  set_own_objectives(request_, *best_);  // the bounds of the narrower searches do not hold for all plans
  best_->search_seconds = watch_.seconds();
  return std::move(*best_);
}

std::vector<double> NarrowedSearch::take(const std::vector<PlanRequest>& narrower) {
  std::vector<Result<PlanAnswer>> answers(narrower.size(), Diagnostic{.code = Code::kInterrupted});
  run_tasks(narrower.size(), request_.threads, [&](size_t i) {
    if (!is_over()) answers[i] = known_.of(narrower[i]);
  });
  std::vector<double> steps;
  for (Result<PlanAnswer>& answer : answers) {
    steps.push_back(answer.ok() ? answer->candidates.front().step_seconds : kInfinity);
    if (answer.ok()) add(std::move(*answer));
  }
  return steps;
}

int NarrowedSearch::max_stages() const {
  return static_cast<int>(std::min(request_.cluster->devices.size(), request_.graph->nodes.size()));
}

void NarrowedSearch::search_stages(const std::vector<int>& numbers) {
  std::vector<PlanRequest> searches;
  for (const int stages : numbers) {
    if (!tried_.try_emplace(stages, kInfinity).second) continue;
    searches.push_back(narrower());
    searches.back().stages = stages;
  }
  const std::vector<double> steps = take(searches);
  for (size_t i = 0; i < steps.size(); ++i) tried_[*searches[i].stages] = steps[i];
}

void NarrowedSearch::each_number_of_stages() {
  std::vector<int> numbers;
  for (int stages = 1; stages <= max_stages(); ++stages) {
    numbers.push_back(stages);
    if (numbers.size() < kSearchesAtOnce && stages < max_stages()) continue;
    search_stages(numbers);
    numbers.clear();
  }
}

void NarrowedSearch::search_stages_beyond(int known) {
  const bool is_large = work_ > kMaxWorkOfTwice;
  const int fewest = std::max(1, is_large ? known - 1 : known / 2);
  const int limit = std::min(max_stages(), is_large ? known + 1 : 2 * known);
  struct Direction {
    int step = 1, far = 0;
  };
  std::array<Direction, 2> directions{Direction{-1}, Direction{1}};
  for (int distance = 1; distance <= limit; ++distance) {
    std::vector<int> numbers;
    for (const Direction& direction : directions)
      if (const int stages = known + distance * direction.step;
          direction.far < kMaxFarStages && stages >= fewest && stages <= limit)
        numbers.push_back(stages);
    if (numbers.empty()) return;
    search_stages(numbers);
    for (const int stages : numbers) {
      Direction& direction = directions[stages > known ? 1 : 0];
      direction.far = tried_[stages] > kFarBehind * step() ? direction.far + 1 : 0;
    }
  }
}

/// A search with a fixed number of stages and a fixed size is fast and finds plans that a free one misses. It is
/// repeated around each better plan that it finds.
void NarrowedSearch::beside_the_best() {
  for (double before = kInfinity; step() < before && !is_over();) {
    before = step();
    const int known = stages();
    search_stages({known});
    if (request_.stages) return;
    search_stages_beyond(known);
  }
}

void NarrowedSearch::fewer_devices() {
  for (size_t count = request_.cluster->devices.size() / 2; count > 0; count /= 2) {
    if (request_.stages && static_cast<size_t>(*request_.stages) > count) return;
    const ir::Cluster part = ir::first_devices(*request_.cluster, static_cast<int>(count));
    if (min_step_of_plans(request_, part) >= step()) return;
    PlanRequest narrow = narrower();
    narrow.cluster = &part;
    take({narrow});
  }
}

/// The best plan. On smaller graphs with a free size also the best plan of each of a few other sizes, since after the
/// climb another one may be best.
std::map<Samples, ir::Assignment> NarrowedSearch::starts_by_simulation() const {
  std::map<Samples, ir::Assignment> starts{{micro_batch(), best_->candidates.front().assignment}};
  if (work_ > kMaxWorkOfStarts || request_.micro_batch || request_.micro_batch_per_stage) return starts;
  const std::vector<Samples> sizes = micro_batch_sizes(request_);
  for (const PlanCandidate& candidate : best_->candidates) {
    if (starts.size() == kMaxStarts || candidate.step_seconds > kStartSlack * step()) break;
    const Samples size = smallest_micro_batch(candidate.assignment);
    if (std::ranges::find(sizes, size) != sizes.end()) starts.try_emplace(size, candidate.assignment);
  }
  return starts;
}

/// The local search once more, by the request's `evaluate`: with the size free, and with the size of the start, as a
/// request for that size climbs.
void NarrowedSearch::by_simulation() {
  if (!request_.evaluate) return;
  std::vector<std::pair<PlanRequest, ir::Assignment>> climbs;
  for (const auto& [size, start] : starts_by_simulation()) {
    if (is_over() || std::ranges::find(climbed_, start) != climbed_.end()) continue;
    climbed_.push_back(start);
    climbs.emplace_back(request_, start);
    if (request_.micro_batch || request_.micro_batch_per_stage) continue;
    climbs.emplace_back(request_, start);
    climbs.back().first.micro_batch = size;
  }
  std::vector<Result<PlanAnswer>> answers(climbs.size(), Diagnostic{.code = Code::kInterrupted});
  run_tasks(climbs.size(), request_.threads,
            [&](size_t i) { answers[i] = climb_by_simulation(climbs[i].first, climbs[i].second); });
  for (Result<PlanAnswer>& answer : answers)
    if (answer.ok()) add(std::move(*answer));
}

Result<PlanAnswer> NarrowedSearch::climb_by_simulation(const PlanRequest& request, const ir::Assignment& start) const {
  Deadline deadline(with_time_left(request_, watch_).time_limit, request_.cancel);
  Candidates found(request_);
  found.add(climb_from(request, start, deadline));
  return found.answer(true, 0);
}

}  // namespace graphpipe::partitioner
