#pragma once
// The steady-state period of alternating lists, from their cycles of waits (docs/schedules.md, section 4.3): every
// cycle of the dependency graph over successive micro-batches takes some seconds and spans some micro-batches; the
// largest ratio is the period. On series-parallel graphs the in-flight rule makes it the target; elsewhere there are
// cycles over two forks and two joins that no single path down and up shows.
//
// Example: stages a and b of F = B = 1 s. Fa, Fb, Bb, Ba, and the Fa that is n micro-batches later: 4 s that span n
// micro-batches, 4 s for each where a holds one and 2 s where it holds two.

#include "cost/stage_cost.h"

namespace graphpipe::cost {

/// Whether the cycles are exact here: equal micro-batches, k = 1, no replicas under round robin, one stage per device,
/// every stage with a backward.
bool has_cycle_form(const ir::StageGraph& graph);

/// Seconds per sample in the steady state in which stage s holds samples[s]. Needs has_cycle_form and numbers of at
/// least one micro-batch that do not deadlock.
double cycle_period(const ir::StageGraph& graph, const IdMap<ir::StageId, StageCost>& costs,
                    const IdMap<ir::StageId, Samples>& samples);

/// Raises the numbers, one micro-batch at a time, if a cycle takes longer than `period` seconds per sample, until none
/// does; never above the batch. Returns them unchanged without has_cycle_form.
IdMap<ir::StageId, Samples> raise_to_period(const ir::StageGraph& graph, const IdMap<ir::StageId, StageCost>& costs,
                                            double period, IdMap<ir::StageId, Samples> samples);

}  // namespace graphpipe::cost
