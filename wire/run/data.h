#pragma once
// What a run trains on, and for how long.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/run/flag.h"

namespace graphpipe::wire {

struct DataOptions {
  /// Folder with one NAME.npy per input and label; empty: synthetic data.
  std::string folder;
  int64_t steps = 1;
  /// Of dropout and of synthetic data. Absent: the plan's.
  std::optional<uint64_t> seed;
  /// What an earlier run has saved, to start from; empty: the generated folder's weights.
  std::string weights;

  bool operator==(const DataOptions&) const = default;
};

std::vector<RunFlag> data_flags();

}  // namespace graphpipe::wire
