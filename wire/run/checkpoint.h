#pragma once
// What a run keeps of itself on the way, and where it goes on from.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/run/flag.h"

namespace graphpipe::wire {

struct CheckpointOptions {
  /// The folder that takes checkpoints; empty: none are written.
  std::string folder;
  /// Steps between two of them; 0: none on the way, only at the end and where a signal asks for one.
  int64_t every_steps = 0;
  /// Minutes between two of them; 0: time asks for none.
  double every_minutes = 0;
  /// How many are kept, 1 or more; older ones are removed.
  int64_t keep = 3;
  /// The folder whose last whole checkpoint the run goes on from; empty: it starts from the first step.
  std::string resume;
  /// Goes on although the data, the seed or another flag of theirs differ from those of the checkpoint.
  bool accept_changes = false;

  bool operator==(const CheckpointOptions&) const = default;
};

std::vector<RunFlag> checkpoint_flags();

}  // namespace graphpipe::wire
