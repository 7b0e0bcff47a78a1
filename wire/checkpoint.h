#pragma once
// What a checkpoint folder holds, as the programs write it and as tools read it. A folder of checkpoints belongs to one
// model:
//
//   graphpipe-checkpoints.txt      the mark: which model
//   step-40/                       a checkpoint: the training after 40 steps
//     checkpoint.txt               the record: everything but tensors, with the digests of the files beside it
//     stage0.weights.safetensors   parameters and running statistics, by their names
//     stage0.optimizer.safetensors the optimizer's state: "exp_avg/NAME"
//     stage0.replica1.buffers.safetensors   running statistics of other replicas than the first
//   .writing-step-50-TOKEN/        one that is being written, or was when its run died
//   .removing-...                  one that is being removed
//
// The record is text, a key and its value per line, and ends with the SHA-256 of the lines before:
//
//   graphpipe-checkpoint 1
//   model <64 hex digits>
//   plan <64 hex digits>
//   optimizer adamw
//   step 40
//   batch 32
//   seed 7
//   data <64 hex digits>
//   flag --shuffle yes
//   losses 0.5125 0.498        the last ones, which --max-loss-factor takes the median of
//   file <64 hex digits> <size in bytes> <name>
//   end <64 hex digits>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wire/manifest.h"

namespace graphpipe::wire {

inline constexpr std::string_view kCheckpointsMark = "graphpipe-checkpoints.txt";
inline constexpr std::string_view kCheckpointRecord = "checkpoint.txt";

struct CheckpointRecord {
  /// SHA-256 of the model's weights.safetensors: parameters and constants as compiled, whatever the plan.
  std::string model;
  /// PlanTable::plan_digest of the plan that wrote it.
  std::string plan;
  std::string optimizer;
  /// Steps done.
  int64_t step = 0;
  /// Samples of one; 0 in records that were written before they said it.
  int64_t batch = 0;
  uint64_t seed = 0;
  /// A digest that tells data from other data; all zeros of synthetic ones, and of a feeder that does not name its own.
  std::string data;
  /// Flags that say which samples a step takes, with their values, where they are not the defaults.
  std::vector<std::pair<std::string, std::string>> flags;
  /// Of the last steps, kLossWindow (wire/run/watch.h) at most, the oldest first; finite. Steps that were skipped have
  /// none.
  std::vector<double> losses;
  std::vector<ManifestEntry> files;
  bool operator==(const CheckpointRecord&) const = default;
};

/// "step-40".
std::string checkpoint_name(int64_t step);
/// The step of such a name; absent of other names.
std::optional<int64_t> step_of_checkpoint(std::string_view name);

/// The text up to its last line, which is the digest of what is returned here.
std::string print_checkpoint(const CheckpointRecord& record);
inline constexpr std::string_view kCheckpointEnd = "end ";

/// Reads such a text, without the last line. Refuses other versions, malformed lines, missing and repeated keys, and
/// files whose names are paths. On failure returns false and says why in `problem`.
bool parse_checkpoint(std::string_view text, CheckpointRecord& record, std::string& problem);

}  // namespace graphpipe::wire
