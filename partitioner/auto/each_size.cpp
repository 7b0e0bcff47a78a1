// Where the micro-batch size is free, the planner `auto` also runs the searches that requests for one size get.
//
// A search over all sizes at once climbs from a few starts, those that look best among all sizes; a search for one size
// spends all its climbs on that size and may end in a better plan. So that `--micro-batch auto` finds whatever
// `--micro-batch 128` finds, the search over all sizes is followed by one for each size: they begin with a size in the
// middle and go outward, and those whose first plans are near the best go on. Then come sizes near the best that are
// not powers of two, and last all of it for as many stages as the best plan has.

#include <algorithm>
#include <memory>
#include <set>

#include "cost/lower_bound.h"
#include "partitioner/auto/climb.h"
#include "partitioner/auto/narrowed.h"
#include "partitioner/auto/planner.h"
#include "partitioner/candidates.h"
#include "partitioner/several_searches.h"
#include "support/run_tasks.h"

namespace graphpipe::partitioner {

namespace {

/// Limits on nodes times devices. Up to the first no size is skipped because its neighbours are far from the best; up
/// to the second sizes are tried that are not powers of two.
constexpr size_t kMaxWorkOfAllSizes = 2'000, kMaxWorkOfOddSizes = 8'000;
/// Up to this, numbers of stages beside the best plan's are searched with all sizes too.
constexpr size_t kMaxWorkOfNeighbours = 400;
/// After this many sizes in a row that are far behind, no larger (or smaller) ones are tried.
constexpr int kMaxFarSizes = 2;
/// Searches that go on at once. It is fixed, whatever the number of threads, because it decides which results each
/// search knows.
constexpr size_t kAtOnce = 2;

class EachSize {
 public:
  /// `known` outlives the search.
  EachSize(const PlanRequest& request, KnownAnswers& known)
      : known_(known), whole_(request, known), is_small_(work_of(request) <= kMaxWorkOfAllSizes) {}

  Result<PlanAnswer> run() {
    whole_.begin();
    begin_each();
    go_on(0);
    for (double before = kInfinity; whole_.step() < before && !whole_.is_over();) {
      before = whole_.step();
      whole_.go_on(before);
      if (whole_.best() && work_of(whole_.request()) <= kMaxWorkOfOddSizes) beside_the_best();
    }
    if (whole_.best() && !whole_.request().stages) with_stages_fixed();
    return whole_.answer();
  }

 private:
  using Search = std::unique_ptr<NarrowedSearch>;

  /// A lower bound on the step of plans with micro-batches of this size.
  double bound_of(Samples size) const {
    const PlanRequest& request = whole_.request();
    return cost::min_work(*request.graph, size) / static_cast<double>(request.cluster->devices.size());
  }

  /// Begins the searches of these sizes. Returns the steps that they find.
  std::vector<double> begin(const std::vector<Samples>& sizes) {
    const size_t first = searches_.size();
    for (const Samples size : sizes) {
      PlanRequest narrow = whole_.narrower();
      narrow.micro_batch = size;
      searches_.push_back(std::make_unique<NarrowedSearch>(std::move(narrow), known_));
      begun_.insert(size);
    }
    run_tasks(sizes.size(), whole_.request().threads, [&](size_t i) { searches_[first + i]->begin(); });
    std::vector<double> steps;
    for (size_t i = first; i < searches_.size(); ++i) {
      if (searches_[i]->best()) whole_.add(*searches_[i]->best());
      steps.push_back(searches_[i]->step());
    }
    return steps;
  }

  void begin_each() {
    const std::vector<Samples> sizes = micro_batch_sizes(whole_.request());
    // About four micro-batches for each device.
    const int64_t middle =
        whole_.request().graph->batch.count / (4 * static_cast<int64_t>(whole_.request().cluster->devices.size()));
    size_t above = 0;
    while (above < sizes.size() && sizes[above].count <= middle) ++above;
    size_t below = above;              // [below, above) have begun
    int far_above = 0, far_below = 0;  // in a row
    while (!whole_.is_over()) {
      std::vector<Samples> wave;
      const bool goes_down = below > 0 && far_below < kMaxFarSizes && bound_of(sizes[below - 1]) < whole_.step();
      const bool goes_up = above < sizes.size() && far_above < kMaxFarSizes;
      if (goes_down) wave.push_back(sizes[--below]);
      if (goes_up) wave.push_back(sizes[above++]);
      if (wave.empty()) return;
      const std::vector<double> steps = begin(wave);
      const auto count = [&](int far, double step) {
        return !is_small_ && step > kFarBehind * whole_.step() ? far + 1 : 0;
      };
      if (goes_down) far_below = count(far_below, steps.front());
      if (goes_up) far_above = count(far_above, steps.back());
    }
  }

  /// Whether a search has gone on from the same stages on the same devices, with another size: where replicas of all
  /// divide each micro-batch, all sizes take about as long, and what is around them is the same.
  bool is_around_known(const NarrowedSearch& search) {
    if (is_small_ || !search.best()) return false;
    ir::Assignment cut = search.best()->candidates.front().assignment;
    for (ir::StageChoice& choice : cut.choice) choice.micro_batch = Samples(1);
    if (std::ranges::find(cuts_, cut) != cuts_.end()) return true;
    cuts_.push_back(std::move(cut));
    return false;
  }

  /// Goes on with the searches from number `first` on, the best first.
  void go_on(size_t first) {
    std::vector<NarrowedSearch*> order;
    for (size_t i = first; i < searches_.size(); ++i) order.push_back(searches_[i].get());
    std::ranges::stable_sort(order, {}, &NarrowedSearch::step);
    std::erase_if(order, [&](const NarrowedSearch* search) { return is_around_known(*search); });
    for (size_t next = 0; next < order.size() && !whole_.is_over(); next += kAtOnce) {
      const double known = whole_.step();
      run_tasks(std::min(kAtOnce, order.size() - next), whole_.request().threads,
                [&](size_t i) { order[next + i]->go_on(known); });
      for (size_t i = next; i < std::min(next + kAtOnce, order.size()); ++i)
        if (order[i]->best()) whole_.add(*order[i]->best());
    }
  }

  /// Searches with as many stages as the best plan has, at each of the sizes and at those within a factor of two of the
  /// best: such a search is fast and finds plans that one with a free number of stages misses.
  void search_stages_in(std::vector<Samples> sizes) {
    const int64_t size = whole_.micro_batch().count;
    for (const Samples other : micro_batch_sizes(whole_.request()))
      if (other.count <= 2 * size && 2 * other.count >= size) sizes.push_back(other);
    const int stages = whole_.stages();
    std::erase_if(sizes, [&](Samples other) { return !shapes_.emplace(stages, other).second; });
    for (size_t next = 0; next < sizes.size(); next += kSearchesAtOnce) {
      std::vector<PlanRequest> searches;
      for (size_t i = next; i < std::min(next + kSearchesAtOnce, sizes.size()); ++i) {
        searches.push_back(whole_.narrower());
        searches.back().stages = stages;
        searches.back().micro_batch = sizes[i];
      }
      whole_.take(searches);
    }
  }

  void beside_the_best() {
    const Samples batch = whole_.request().graph->batch, size = whole_.micro_batch();
    std::vector<Samples> sizes = neighbouring_sizes(batch, size);
    sizes.push_back(size);
    search_stages_in(sizes);
    std::erase_if(sizes, [&](Samples other) { return begun_.contains(other); });
    const size_t first = searches_.size();
    begin(sizes);
    go_on(first);
  }

  /// What a request for as many stages as the best plan has finds, on small graphs also for one more and one less:
  /// sizes that look far behind with a free number of stages need not be with this one.
  void with_stages_fixed() {
    const size_t work = work_of(whole_.request());
    if (work > kMaxWorkOfOddSizes) return;
    const int best = whole_.stages();
    std::vector<int> numbers{best};
    if (work <= kMaxWorkOfNeighbours) numbers.insert(numbers.end(), {best - 1, best + 1});
    for (const int stages : numbers) {
      if (whole_.is_over() || stages < 1 || stages > whole_.max_stages()) continue;
      PlanRequest narrow = whole_.narrower();
      narrow.stages = stages;
      if (Result<PlanAnswer> answer = EachSize(narrow, known_).run(); answer.ok()) whole_.add(std::move(*answer));
    }
  }

  KnownAnswers& known_;
  NarrowedSearch whole_;
  const bool is_small_;
  std::vector<Search> searches_;
  std::set<Samples> begun_;
  std::set<std::pair<int, Samples>> shapes_;  // searched
  std::vector<ir::Assignment> cuts_;          // that searches have gone on from, without their sizes
};

/// Sizes that may differ need not: the best plan of one size for all is where the search for them begins.
Result<PlanAnswer> plan_sizes_that_differ(const PlanRequest& request, KnownAnswers& known) {
  const Stopwatch watch;
  PlanRequest equal = request;
  equal.micro_batch_per_stage = false;
  equal.time_limit /= 2;
  Result<PlanAnswer> of_equal = EachSize(equal, known).run();
  NarrowedSearch search(with_time_left(request, watch), known);
  if (of_equal.ok()) search.add(std::move(*of_equal));
  search.begin();
  search.go_on(kInfinity);
  Result<PlanAnswer> answer = search.answer();
  if (answer.ok()) answer->search_seconds = watch.seconds();
  return answer;
}

/// All that is searched but stages that keep to hosts, where a size or a number of stages is asked for.
Result<PlanAnswer> search_narrower(const PlanRequest& request) {
  if (!request.thorough || !request.replicas.empty() || work_of(request) > kMaxWork) return search_as_asked(request);
  KnownAnswers known;
  if (request.micro_batch) {
    NarrowedSearch search(request, known);
    search.begin();
    search.go_on(kInfinity);
    return search.answer();
  }
  return request.micro_batch_per_stage ? plan_sizes_that_differ(request, known) : EachSize(request, known).run();
}

}  // namespace

Result<PlanAnswer> plan_auto(const PlanRequest& request) {
  const Stopwatch watch;
  Result<PlanAnswer> answer = search_narrower(request);
  if (!is_narrow(request) || request.cluster->levels.size() < 2) return answer;
  std::optional<PlanAnswer> best;
  PlanRequest rest = with_time_left(request, watch);
  if (rest.time_limit <= 0 || (request.cancel != nullptr && request.cancel->load())) return answer;
  if (answer.ok()) {
    rest.known_step = std::min(rest.known_step, answer->candidates.front().step_seconds);
    best = std::move(*answer);
  }
  for (Result<PlanAnswer>& other : search_within_groups(rest))
    if (other.ok()) merge_answers(best, std::move(*other));
  if (!best) return answer;
  set_own_objectives(request, *best);
  best->search_seconds = watch.seconds();
  return std::move(*best);
}

}  // namespace graphpipe::partitioner
