#pragma once
// How a run is watched while it trains, and what becomes of a step that goes wrong.

#include <cstdint>
#include <string>
#include <vector>

#include "wire/run/flag.h"

namespace graphpipe::wire {

/// Losses that a median is of, and how many it needs before a loss is compared with it.
inline constexpr int64_t kLossWindow = 32, kFewestLosses = 8;

struct WatchOptions {
  /// One row per step, as it happens: JSON Lines or CSV by the ending of the name (.jsonl, .csv).
  std::string log;
  /// One row per step, stage and replica: what it computed, waited, sent and held. Endings as of the log.
  std::string metrics;
  /// Takes an event file of this run.
  std::string tensorboard;
  /// What becomes of a step whose loss is NaN, infinite or too large, or whose gradients are not finite: "end" ends the
  /// run, "skip" leaves the weights as they were and goes on.
  std::string on_anomaly = "end";
  /// A loss is too large where it is more than so many times the median of the last ones; 0: none is.
  double max_loss_factor = 0;

  bool operator==(const WatchOptions&) const = default;
  bool skips() const { return on_anomaly == "skip"; }
};

std::vector<RunFlag> watch_flags();

}  // namespace graphpipe::wire
