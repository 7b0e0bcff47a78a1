#pragma once
// In-flight numbers that the simulator has confirmed. The static rule is exact for series-parallel stage graphs; over
// two forks and two joins there are cycles of waits that it does not see, and rounds that do not divide each other
// starve.

#include <functional>

#include "scheduler/policies/policies.h"

namespace graphpipe::scheduler {

/// Makes the compute order of a stage graph from in-flight numbers.
using OrderByNumbers = std::function<Schedule(const StageGraph&, const IdMap<StageId, Samples>&)>;

/// Seconds per sample in steady state: the difference of two long steps that are simulated with their transfers,
/// without what ends a step. Zero where rounds have no small common multiple, so that no steady state can be measured.
double steady_period(const PolicyRequest& request, const IdMap<StageId, Samples>& numbers, const OrderByNumbers& order);

/// Raises numbers, micro-batch by micro-batch, while the simulated period is above `period` and a raise lowers it and
/// fits the memory; then those of all stages, or of the first ones, while that makes the step 1 % shorter or more.
/// Returns the given numbers where the step's own simulated time, without updates of weights, is within 1 % of its
/// lower bound, or where the step is too short to have a steady state.
IdMap<StageId, Samples> raise_where_starved(const PolicyRequest& request, IdMap<StageId, Samples> numbers,
                                            double period, const OrderByNumbers& order);

}  // namespace graphpipe::scheduler
