#include "scheduler/policies/raise_in_flight.h"

#include <algorithm>
#include <numeric>

#include "cost/lower_bound.h"
#include "cost/memory.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/policies/in_flight_rules.h"
#include "scheduler/simulate/simulate.h"
#include "support/digraph.h"
#include "support/integer_math.h"

namespace graphpipe::scheduler {
namespace {

/// Steps with more items are not simulated here: the search for a plan calls this often.
constexpr int64_t kMaxItems = 20000;
constexpr int kMaxSimulations = 60;
/// A step that is within this factor of its bound has nothing to gain.
constexpr double kNearBound = 1.01;
/// More samples in flight take memory: they are worth it where the step is so much shorter.
constexpr double kWorthMemory = 0.99;
/// Ticks are rounded and periods come from differences.
constexpr double kTolerance = 1e-4;

/// Raises numbers to the smallest with which no stage deadlocks with those below it (GraphPipe's deadlock inequality):
/// the orders would get that many anyway.
IdMap<StageId, Samples> without_deadlock(const StageGraph& graph, IdMap<StageId, Samples> numbers) {
  for (size_t index = numbers.size(); index-- > 0;) {
    const StageId stage(index);
    const int64_t b = graph.stages[stage].choice.micro_batch.count, round = round_of(graph.stages[stage], UseK::kYes);
    for (const StageId reader : graph.successors(stage)) {
      const int64_t min_samples =
          numbers[reader].count + round - std::gcd(round, round_of(graph.stages[reader], UseK::kYes));
      numbers[stage] = std::max(numbers[stage], Samples(round_up(min_samples, b)));
    }
  }
  return numbers;
}

int64_t items_in(const StageGraph& graph, int64_t batch) {
  int64_t items = 0;
  for (const ir::Stage& stage : graph.stages) items += batch / stage.choice.micro_batch.count;
  return items;
}

/// Seconds of a step of `batch` samples, without reductions and updates; negative if it cannot run.
double step_seconds(const PolicyRequest& request, int64_t batch, const IdMap<StageId, Samples>& numbers,
                    const OrderByNumbers& order) {
  StageGraph graph = request.graph;
  graph.batch = Samples(batch);
  const double ticks_per_second = fine_ticks_per_second(graph);
  const Result<LoweredSchedule> lowered =
      lower_transfers(graph, order(graph, numbers), {.finish_step = false, .only_what_takes_time = true});
  if (!lowered.ok()) return -1;
  const Result<Ticks> makespan =
      simulated_makespan(graph, request.cluster, *lowered, {.ticks_per_second = ticks_per_second});
  return makespan.ok() ? static_cast<double>(makespan->count) / ticks_per_second : -1;
}

int64_t largest(const IdMap<StageId, Samples>& numbers) {
  int64_t max_samples = 0;
  for (const Samples number : numbers) max_samples = std::max(max_samples, number.count);
  return max_samples;
}

/// A local search: raises in-flight numbers as long as the simulated period falls. Example: a feeds b, forwards and
/// backwards take 1 s each, messages have 1 s of latency. A micro-batch is in flight in a for 6 s, so 2 in flight make
/// a period of 3 s. A third makes it 2 s, which is the work of a stage, and the search ends.
class Raiser {
 public:
  Raiser(const PolicyRequest& request, IdMap<StageId, Samples> numbers, const OrderByNumbers& order)
      : request_(request),
        order_(order),
        numbers_(without_deadlock(request.graph, std::move(numbers))),
        reached_(measure(numbers_)) {}

  IdMap<StageId, Samples> run(double period) {
    while (reached_ > period * (1 + kTolerance) && !is_over())
      if (!raise_one() && !raise_with_ancestors()) break;
    return numbers_;
  }

 private:
  bool is_over() const { return simulations_ >= kMaxSimulations || (request_.is_over && request_.is_over()); }

  double measure(const IdMap<StageId, Samples>& numbers) {
    ++simulations_;
    return steady_period(request_, numbers, order_);
  }

  bool keep_if_faster(IdMap<StageId, Samples> candidate) {
    if (is_over()) return false;
    candidate = without_deadlock(request_.graph, std::move(candidate));
    if (cost::memory_shortfall(request_.graph, request_.cluster, candidate) > Bytes(0)) return false;
    const double period = measure(candidate);
    if (period <= 0 || period >= reached_ * (1 - kTolerance)) return false;
    numbers_ = std::move(candidate);
    reached_ = period;
    return true;
  }

  Samples raised(StageId stage) const { return numbers_[stage] + request_.graph.stages[stage].choice.micro_batch; }

  /// From the sinks upward: a stage below starves those above it.
  bool raise_one() {
    for (size_t index = numbers_.size(); index-- > 0;) {
      IdMap<StageId, Samples> candidate = numbers_;
      candidate[StageId(index)] = raised(StageId(index));
      if (keep_if_faster(std::move(candidate))) return true;
    }
    return false;
  }

  /// A stage and all that feed it, directly or through others: one raise is not enough where several of them hold too
  /// few.
  bool raise_with_ancestors() {
    for (size_t index = numbers_.size(); index-- > 0;) {
      IdMap<StageId, Samples> candidate = numbers_;
      const auto predecessors = [&](StageId stage, auto visit) {
        for (const StageId above : request_.graph.predecessors(stage)) visit(above);
      };
      const std::vector<StageId> reached = reached_from(std::vector{StageId(index)}, predecessors);
      for (const StageId stage : reached) candidate[stage] = raised(stage);
      if (reached.size() > 1 && keep_if_faster(std::move(candidate))) return true;
    }
    return false;
  }

  const PolicyRequest& request_;
  const OrderByNumbers& order_;
  IdMap<StageId, Samples> numbers_;
  int simulations_ = 0;
  double reached_ = 0;
};

/// The stages that are raised together: all that have a reader, or those that read nothing.
enum class Raised : uint8_t { kAllButSinks, kSources };

IdMap<StageId, Samples> with_one_more(const StageGraph& graph, IdMap<StageId, Samples> numbers, Raised raised) {
  for (const StageId stage : graph.stage_ids()) {
    const bool is_raised =
        raised == Raised::kSources ? graph.predecessors(stage).empty() : !graph.successors(stage).empty();
    if (is_raised) numbers[stage] = std::min(graph.batch, numbers[stage] + graph.stages[stage].choice.micro_batch);
  }
  return without_deadlock(graph, std::move(numbers));
}

/// Raises numbers as long as the step gets shorter. In a step of few micro-batches the lists fill and drain for as long
/// as they alternate; numbers that keep up the period may leave gaps there.
/// Example: 32 micro-batches in a chain of eight unequal stages that send for 1 s. The rule says 14, 12, ... 2, 1,
/// which takes 180.5 s; with one more in all stages but the last it is 176 s.
IdMap<StageId, Samples> raise_for_step(const PolicyRequest& request, IdMap<StageId, Samples> numbers, double bound,
                                       const OrderByNumbers& order) {
  const auto is_over = [&] { return request.is_over && request.is_over(); };
  const auto measure = [&](const IdMap<StageId, Samples>& tried) {
    return step_seconds(request, request.graph.batch.count, tried, order);
  };
  if (is_over()) return numbers;
  double step = measure(numbers);
  for (bool improved = true; improved && step > bound;) {
    improved = false;
    for (const Raised raised : {Raised::kSources, Raised::kAllButSinks}) {
      IdMap<StageId, Samples> candidate = with_one_more(request.graph, numbers, raised);
      if (candidate == numbers || cost::memory_shortfall(request.graph, request.cluster, candidate) > Bytes(0))
        continue;
      if (is_over()) return numbers;
      const double seconds = measure(candidate);
      if (seconds <= 0 || seconds >= step * kWorthMemory) continue;
      step = seconds;
      numbers = std::move(candidate);
      improved = true;
      break;
    }
  }
  return numbers;
}

}  // namespace

double steady_period(const PolicyRequest& request, const IdMap<StageId, Samples>& numbers,
                     const OrderByNumbers& order) {
  constexpr int64_t kLongestRound = 1024;
  const std::optional<int64_t> round = common_round(request.graph, UseK::kYes, kLongestRound);
  if (!round) return 0;
  // The first half fills the pipeline; what a longer step adds is steady.
  const int64_t batch = *round * (2 * largest(numbers) / *round + 8);
  if (items_in(request.graph, 2 * batch) > kMaxItems) return 0;
  const double shorter = step_seconds(request, batch, numbers, order);
  const double longer = step_seconds(request, 2 * batch, numbers, order);
  if (shorter < 0 || longer < 0) return 0;
  return (longer - shorter) / static_cast<double>(batch);
}

IdMap<StageId, Samples> raise_where_starved(const PolicyRequest& request, IdMap<StageId, Samples> numbers,
                                            double period, const OrderByNumbers& order) {
  const int64_t batch = request.graph.batch.count;
  if (largest(numbers) >= batch || items_in(request.graph, batch) > kMaxItems) return numbers;
  if (request.is_over && request.is_over()) return numbers;
  const double bound = cost::step_bound(request.graph, request.cluster, cost::CountsUpdates::kNo).total() * kNearBound;
  if (step_seconds(request, batch, numbers, order) <= bound) return numbers;
  return raise_for_step(request, Raiser(request, std::move(numbers), order).run(period), bound, order);
}

}  // namespace graphpipe::scheduler
