#pragma once
// What a run trains on, and for how long.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/padding.h"
#include "wire/run/flag.h"
#include "wire/sample_order.h"

namespace graphpipe::wire {

struct DataOptions {
  /// Folder with the inputs and labels (wire/data_folder.h); empty: synthetic data.
  std::string folder;
  /// Socket of a program that feeds the batches instead (docs/data-protocol.md); empty: none.
  std::string feed;
  int64_t steps = 1;
  /// How often the data are read, in place of `steps`; 0: `steps` says how long the run is.
  int64_t epochs = 0;
  /// Whether each epoch has an order of its own, and what becomes of the samples at its end that fill no batch.
  bool shuffle = false;
  LastBatch last_batch = LastBatch::kWrap;
  /// Folder with data to evaluate on; empty: none. After how many steps, besides the last one; 0: after that alone.
  std::string eval_folder;
  int64_t eval_every = 0;
  /// What fills up samples that are smaller than the plan's, of both.
  std::vector<Padding> paddings;
  /// Of dropout, synthetic data and the order of samples. Absent: the plan's.
  std::optional<uint64_t> seed;
  /// What an earlier run has saved, to start from; empty: the generated folder's weights.
  std::string weights;

  bool operator==(const DataOptions&) const = default;
};

std::vector<RunFlag> data_flags();

}  // namespace graphpipe::wire
