#pragma once
// What a run prints on stdout: with --json one flat object, else one line per step.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/diagnostic.h"

namespace graphpipe::wire {

/// The block of memory in which what steps allocate has fixed places.
struct ArenaUse {
  /// As large as it is, and as the plan said; 0: it said nothing.
  int64_t bytes = 0, planned_bytes = 0;
  /// Steps that it served, and those of them that allocated anything elsewhere too.
  int64_t steps = 0, fallback_steps = 0;
  /// In the last step that it served: allocations elsewhere, and page faults of the thread that computes.
  int64_t fallbacks = 0, page_faults = 0;
};

/// How many functions of stages a GPU's last whole step called, and how many of these ran as CUDA graphs.
struct GraphUse {
  int64_t calls = 0, graphs = 0;
};

/// What a parameter server has measured: how many updates were made between the weights that a gradient was computed at
/// and its own update.
struct Staleness {
  /// The largest age that it allowed, and that there was.
  int64_t bound = 0, largest = 0;
  /// Over all updates of the run, so many.
  double mean = 0;
  int64_t updates = 0;
};

struct RunResult {
  std::string plan;       // digest
  std::string transport;  // "serial" for the serial interpreter
  int devices = 1;
  /// Whether all steps ran; a run that is asked to end keeps a checkpoint and ends early.
  bool complete = true;
  /// Samples of the last step; 0: not known.
  int64_t step_samples = 0;
  /// The number of the first step that the lists below tell of, from 1: a resumed run goes on counting.
  int64_t first_step = 1;
  /// Per step, before its update: the sum over the items' shares in sample order. Empty where the plan has no loss.
  std::vector<double> losses;
  /// Wall-clock seconds of each step on rank 0.
  std::vector<double> step_seconds;
  /// Global gradient norm per step, before clipping; empty where no norm was asked for.
  std::vector<double> gradient_norms;
  /// What the loss was multiplied with for its gradients, per step; empty where nothing is scaled.
  std::vector<double> loss_scales;
  /// Steps that made no update, because of an anomaly or of gradients that overflow at their loss scale.
  std::vector<int64_t> skipped_steps;
  /// After which steps the data of --eval-data were evaluated, and their loss.
  std::vector<int64_t> eval_steps;
  std::vector<double> eval_losses;
  /// None of the labels of --eval-data counts, so that there is no mean loss: eval_losses are not numbers.
  bool eval_counts_nothing = false;
  /// Most bytes held by tensors at one time, per device.
  std::vector<int64_t> peak_bytes;
  /// Per device, what its arena did for steps (runtime/executor/step_arena.h); empty where nothing has one.
  std::vector<ArenaUse> arenas;
  /// Per device; empty where nothing records graphs.
  std::vector<GraphUse> graphs;
  /// Where a parameter server made the updates; its device is the last one above.
  std::optional<Staleness> staleness;
  /// What is wrong with the results of a run that ended well.
  Diagnostics problems;
};

/// {"schema": "graphpipe.run/1", "tool_version": ..., "complete": true, ..., "losses": [...], ...} and a newline.
/// Numbers that are not finite become null.
std::string to_json(const RunResult& result);

/// "step 3 of 5 loss 2.3025851 (0.012 s, 667 samples/s, 1 s left)", with ", loss scale 65536" before the time left
/// where it is scaled: the last step of the result, and the number of the last one that the run is asked for. What is
/// left is reckoned from the last steps' mean.
std::string step_line(const RunResult& result, int64_t steps);
/// Whether such a line is one of these.
bool is_step_line(std::string_view line);
/// "evaluation after step 3: loss 2.3025851": the last one of the result.
std::string eval_line(const RunResult& result);
/// "device 0 peak 1.25 MiB" and a newline, per device; with an arena that served steps also its size, how many steps
/// allocated elsewhere, and what the last one did; on GPUs that record graphs, what they run.
std::string peak_lines(const RunResult& result);
/// "parameter server: 120 updates, each 3.02 updates late on average and at most 5 (allowed: 6)" and a newline; empty
/// where there is none.
std::string staleness_line(const RunResult& result);

}  // namespace graphpipe::wire
