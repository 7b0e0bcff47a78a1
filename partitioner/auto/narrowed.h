#pragma once
// Step 4 of the planner `auto`: the search again where the request is narrower.
//
// Example: 100 nodes on 16 devices, micro-batches of one size, a best plan of 4 stages. Searched are 8, 4, 2 and 1
// devices, as long as a bound leaves room, then exactly 4 stages, 3 and 2, and 5 to 8; a direction ends after three
// numbers in a row whose steps are 15 % behind.

#include <map>
#include <optional>
#include <vector>

#include "partitioner/auto/known_answers.h"
#include "partitioner/planner.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

/// How much worse than the best plan known a plan may look and still be a start of the local search.
constexpr double kStartSlack = 1.25;
/// How far behind the best plan known a part of the search is not looked at further.
constexpr double kFarBehind = 1.15;
/// Narrower searches that begin at once. It is fixed, whatever the number of threads, because it decides which results
/// each search knows.
constexpr size_t kSearchesAtOnce = 4;

/// Nodes times devices: the time of a search grows with both, from milliseconds to seconds. Above the maximum nothing
/// is searched again.
size_t work_of(const PlanRequest& request);
constexpr size_t kMaxWork = 40'000;

/// The search for one request, and with its stages and devices fixed around the best plan.
class NarrowedSearch {
 public:
  /// `known` is of the whole search, and outlives this one.
  NarrowedSearch(PlanRequest request, KnownAnswers& known)
      : request_(std::move(request)), work_(work_of(request_)), known_(known) {}

  const PlanRequest& request() const { return request_; }
  /// Of the best plan found; infinity without one.
  double step() const { return best_ ? best_->candidates.front().step_seconds : kInfinity; }
  const std::optional<PlanAnswer>& best() const { return best_; }
  /// Of the best plan's smallest. Needs: a plan.
  Samples micro_batch() const;
  /// Of the best plan. Needs: a plan.
  int stages() const;
  bool is_over() const;
  /// A request of its own with one more parameter fixed, for the time that is left.
  PlanRequest narrower() const;
  void add(PlanAnswer answer);
  /// Searches side by side, and keeps the best. Returns the steps that are found, infinity where there is none.
  std::vector<double> take(const std::vector<PlanRequest>& narrower);

  /// The search as it is asked for.
  void begin();
  /// All that is narrower, unless the step is too far behind one that is `known`.
  void go_on(double known);
  /// What was found, with the bounds of the whole request, or why there is nothing.
  Result<PlanAnswer> answer();
  /// No plan has more.
  int max_stages() const;

 private:
  void search_stages(const std::vector<int>& numbers);
  void each_number_of_stages();
  void search_stages_beyond(int known);
  void beside_the_best();
  void fewer_devices();
  std::map<Samples, ir::Assignment> starts_by_simulation() const;
  void by_simulation();
  Result<PlanAnswer> climb_by_simulation(const PlanRequest& request, const ir::Assignment& start) const;

  PlanRequest request_;
  size_t work_;
  KnownAnswers& known_;
  Stopwatch watch_;
  std::optional<PlanAnswer> best_;
  /// Why the search as it was asked for found nothing.
  Diagnostics refusals_;
  /// Steps by the number of stages that was searched.
  std::map<int, double> tried_;
  std::vector<ir::Assignment> climbed_;
};

}  // namespace graphpipe::partitioner
