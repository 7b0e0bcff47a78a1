// Step 4 of the planner `auto`: the search again where the request is narrower.
//
// A search that is free to choose micro-batch, stages and devices spends its local search on the few starts that look
// best, of all sizes together; one that is told the size spends all of it there, and may end in a better plan. So the
// free one runs those too: what `--micro-batch 128` finds, `--micro-batch auto` finds.

#include <algorithm>
#include <map>
#include <set>

#include "cost/lower_bound.h"
#include "partitioner/auto/climb.h"
#include "partitioner/auto/planner.h"
#include "partitioner/candidates.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

namespace {

/// Nodes times devices: the time of a search grows with both, from milliseconds to seconds. Up to the first all numbers
/// of stages are searched one by one, up to the second all micro-batch sizes and fewer devices, up to the third the
/// sizes beside the best plan's; up to the last, and above the first, what lies beside the best plan in both.
constexpr size_t kMaxWorkOfStages = 400, kMaxWorkOfSizes = 2'000, kMaxWork = 8'000, kMaxWorkBeside = 40'000;
/// How much worse than the best plan known a plan may look and still be a start of the local search.
constexpr double kStartSlack = 1.25;
/// The searches beside the best plan begin again where the step has become shorter by this much.
constexpr double kWorthARound = 0.995;
/// Micro-batch sizes whose best plans the last local search starts from, on graphs whose sizes are all searched.
constexpr size_t kSimulatedStarts = 4;

class NarrowedSearch {
 public:
  explicit NarrowedSearch(const PlanRequest& request)
      : request_(request), work_(request.graph->nodes.size() * request.cluster->devices.size()) {}

  Result<PlanAnswer> run() {
    Result<PlanAnswer> first = search_as_asked(request_);
    if (!request_.thorough || work_ > kMaxWorkBeside || !request_.replicas.empty()) return first;
    if (!first.ok() && first.problems().front().code != Code::kNoFeasiblePlan) return first;
    if (first.ok()) best_ = *first;
    if (work_ <= kMaxWork && !request_.micro_batch && !request_.micro_batch_per_stage) each_micro_batch();
    if (work_ <= kMaxWorkOfStages && !request_.stages) each_number_of_stages();
    if (work_ <= kMaxWorkOfSizes) fewer_devices();
    if (!best_) return first;
    for (double before = kInfinity; step() < kWorthARound * before && !is_over();) {
      before = step();
      if (work_ > kMaxWorkOfStages) beside_the_best();
      by_simulation();
    }
    set_own_terms(request_, *best_);  // the narrower searches have bounds of their own
    best_->search_seconds = watch_.seconds();
    return std::move(*best_);
  }

 private:
  double step() const { return best_ ? best_->candidates.front().step_seconds : kInfinity; }
  bool is_over() const {
    return watch_.seconds() >= request_.time_limit || (request_.cancel != nullptr && request_.cancel->load());
  }

  PlanRequest narrower() const {
    PlanRequest narrow = request_;
    narrow.time_limit = std::max(0.0, request_.time_limit - watch_.seconds());
    narrow.known_step = std::min(request_.known_step, kStartSlack * step());
    return narrow;
  }

  void take(const PlanRequest& narrow) {
    if (is_over()) {
      if (best_) best_->complete = false;
      return;
    }
    Result<PlanAnswer> answer = search_as_asked(narrow);
    if (!answer.ok()) return;
    merge_answers(best_, std::move(*answer));
  }

  /// All work in micro-batches of at most so many samples, spread over all devices.
  double bound_of(Samples micro_batch) const {
    double seconds = 0;
    for (const ir::PlanNode& node : request_.graph->nodes)
      seconds += cost::cheapest_seconds_per_sample(node, micro_batch);
    return seconds * static_cast<double>(request_.graph->batch.count) /
           static_cast<double>(request_.cluster->devices.size());
  }

  Samples smallest_micro_batch(const PlanCandidate& candidate) const {
    Samples smallest = request_.graph->batch;
    for (const ir::StageChoice& choice : candidate.assignment.choice) smallest = std::min(smallest, choice.micro_batch);
    return smallest;
  }

  /// That of the best plan. Requires one.
  Samples known_micro_batch() const { return smallest_micro_batch(best_->candidates.front()); }

  /// Whether a size is one of those that are searched alone: every one, or half and twice that of the best plan.
  bool is_worth_a_search(Samples size) const {
    if (work_ <= kMaxWorkOfSizes || !best_) return true;
    const int64_t known = known_micro_batch().count;
    return size.count != known && size.count <= 2 * known && 2 * size.count >= known;
  }

  void each_micro_batch() {
    std::vector<Samples> sizes = micro_batch_sizes(request_);
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      if (bound_of(*size) >= step()) return;  // smaller ones have larger bounds
      if (!is_worth_a_search(*size)) continue;
      PlanRequest narrow = narrower();
      narrow.micro_batch = *size;
      take(narrow);
    }
  }

  int max_stages() const {
    return static_cast<int>(std::min(request_.cluster->devices.size(), request_.graph->nodes.size()));
  }

  void each_number_of_stages() {
    for (int stages = 1; stages <= max_stages(); ++stages) {
      PlanRequest narrow = narrower();
      narrow.stages = stages;
      take(narrow);
    }
  }

  using Shape = std::pair<int, Samples>;  // stages, micro-batch; the plan's own where the request leaves it open

  /// Half to twice as many stages as the best plan has, in micro-batches of its size, and its stages in half and twice
  /// that; on a small graph in one or two micro-batches more or fewer, on a large one no other stages than one more
  /// or less.
  std::vector<Shape> shapes_beside() const {
    const auto& choice = best_->candidates.front().assignment.choice;
    const auto known = static_cast<int>(choice.size());
    const Samples size = known_micro_batch();
    const bool is_large = work_ > kMaxWork;
    const int first = is_large ? known - 1 : known / 2, last = is_large ? known + 1 : 2 * known;
    std::vector<Shape> shapes{{known, size}};
    for (int stages = std::max(1, first); !request_.stages && stages <= std::min(last, max_stages()); ++stages)
      shapes.push_back({stages, size});
    if (request_.micro_batch || request_.micro_batch_per_stage) return shapes;
    for (const Samples other : micro_batch_sizes(request_))
      if (other != size && other.count <= 2 * size.count && 2 * other.count >= size.count)
        shapes.push_back({known, other});
    if (work_ > kMaxWorkOfSizes) return shapes;
    for (const Samples other : sizes_beside(request_.graph->batch, size)) shapes.push_back({known, other});
    return shapes;
  }

  /// A search of fixed stages and size is fast, and finds plans that a free one, which looks at many of both, passes
  /// over. It goes on from the best that it finds.
  void beside_the_best() {
    for (double before = kInfinity; best_ && step() < before && !is_over();) {
      before = step();
      for (const Shape& shape : shapes_beside()) {
        if (!tried_.insert(shape).second) continue;
        PlanRequest narrow = narrower();
        narrow.stages = shape.first;
        if (!narrow.micro_batch_per_stage) narrow.micro_batch = shape.second;
        take(narrow);
      }
    }
  }

  void fewer_devices() {
    for (size_t count = request_.cluster->devices.size() / 2; count > 0; count /= 2) {
      if (request_.stages && static_cast<size_t>(*request_.stages) > count) return;
      ir::Cluster part = *request_.cluster;
      part.devices.resize(count);
      if (min_step_of_plans(request_, part) >= step()) return;
      PlanRequest narrow = narrower();
      narrow.cluster = &part;
      take(narrow);
    }
  }

  bool is_new_start(const ir::Assignment& assignment) {
    if (std::ranges::find(climbed_, assignment) != climbed_.end()) return false;
    climbed_.push_back(assignment);
    return true;
  }

  void climb_by_simulation(const PlanRequest& request, const ir::Assignment& start) {
    if (is_over()) return;
    Deadline deadline(std::max(0.0, request_.time_limit - watch_.seconds()), request_.cancel);
    Candidates found(request_);
    found.add(climb_from(request, start, deadline));
    if (Result<PlanAnswer> answer = found.answer(true, 0); answer.ok()) merge_answers(best_, std::move(*answer));
  }

  /// The best plan of each of a few sizes that are searched alone, and the best of all.
  std::map<Samples, ir::Assignment> starts_by_simulation() const {
    const Samples known = known_micro_batch();
    std::map<Samples, ir::Assignment> starts{{known, best_->candidates.front().assignment}};
    if (work_ > kMaxWorkOfSizes || request_.micro_batch || request_.micro_batch_per_stage) return starts;
    const std::vector<Samples> sizes = micro_batch_sizes(request_);
    for (const PlanCandidate& candidate : best_->candidates) {
      if (starts.size() == kSimulatedStarts || candidate.step_seconds > kStartSlack * step()) break;
      const Samples size = smallest_micro_batch(candidate);
      if (std::ranges::find(sizes, size) != sizes.end()) starts.try_emplace(size, candidate.assignment);
    }
    return starts;
  }

  /// The local search once more, by the request's own yardstick; also as a request for the size of a start has it.
  void by_simulation() {
    if (!request_.evaluate) return;
    for (const auto& [size, start] : starts_by_simulation()) {
      if (!is_new_start(start)) continue;
      climb_by_simulation(request_, start);
      PlanRequest narrow = request_;
      narrow.micro_batch = size;
      if (!request_.micro_batch && !request_.micro_batch_per_stage) climb_by_simulation(narrow, start);
    }
  }

  const PlanRequest& request_;
  const size_t work_;
  const Stopwatch watch_;
  std::optional<PlanAnswer> best_;
  std::set<Shape> tried_;
  std::vector<ir::Assignment> climbed_;
};

}  // namespace

Result<PlanAnswer> plan_auto(const PlanRequest& request) { return NarrowedSearch(request).run(); }

}  // namespace graphpipe::partitioner
