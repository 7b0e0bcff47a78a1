#pragma once
// The profiling program: the cost of operators, actions, messages and the optimizer on this machine.
//
// A process measures the operators in place: in the functions of a single stage that holds the whole model, driven by
// the executor, with up to four items per step and a stopwatch between the operators. So caches, branch predictors and
// the allocator are as cold or warm as in training. A second process does the same at the same time, since devices of
// one host share its memory: what streams weights that fit in no cache takes longer beside another than alone. The sum
// of gradients is measured as the all-reduce of two replicas. The time of a step outside its operators, as a function
// of its number of actions, gives the constant part of a step and the cost of an action. Two processes exchange
// messages between two stages without operators for latency and bandwidth; one process does the same with itself for
// the compute time of a message. All numbers are medians over steps, after a warm-up, on pinned cores.
//
// On a GPU (--device cuda) the stopwatch is the GPU's: an operator lasts from the end of what was queued before it to
// its own end, so one that takes longer to launch than to run is charged for its launch. Messages pass through the
// host.

#include <cstdint>
#include <span>

#include "runtime/main.h"

namespace graphpipe::runtime {

/// What a mark of the generated functions ends (marks.h).
struct MarkRow {
  int32_t node = 0;
  /// 0 forward, 1 input gradient, 2 weight gradient: the kind of function that runs it.
  int32_t phase = 0;
  /// How many times one item passes it.
  int32_t passes = 1;
};

/// The main function of a profiling program. Needs: `program` has one stage. --steps is the largest number of timed
/// steps of each size. Started as one rank it measures no link; of two ranks the first one prints. Lines on stdout,
/// seconds and bytes, "-" where a node has no such pass:
///   op NODE SAMPLES FORWARD INPUT_GRADIENT WEIGHT_GRADIENT
///   link LATENCY SECONDS_PER_BYTE
///   runtime STEP ACTION MESSAGE MESSAGE_BYTE UPDATE_TENSOR UPDATE_BYTE ADD_BYTE
[[noreturn]] int run_profile(const LinkedProgram& program, std::span<const MarkRow> marks, int argc, char** argv);

}  // namespace graphpipe::runtime
