#pragma once
// What rank 0 writes about every step to the files that a user follows: a table (--log) and TensorBoard
// (--tensorboard).

#include <optional>

#include "runtime/training/event_file.h"
#include "runtime/training/record_file.h"
#include "runtime/training/step_observer.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// One row per step: step, loss, seconds, samples_per_second, gradient_norm, anomaly. Unknown values are null. Only
/// rank 0 creates one. Files are opened before the first step; those of a run that resumes from a later step than the
/// first are continued (record_file.h).
class StepLog : public StepObserver {
 public:
  explicit StepLog(std::string path) : path_(std::move(path)) {}
  void before_step(int64_t step) override;
  Request after_step(const StepFacts& facts) override;

 private:
  std::string path_;
  std::optional<RecordFile> file_;
};

/// The same numbers as scalars under "train/".
class TensorBoardLog : public StepObserver {
 public:
  explicit TensorBoardLog(std::string folder) : folder_(std::move(folder)) {}
  void before_step(int64_t step) override;
  Request after_step(const StepFacts& facts) override;

 private:
  std::string folder_;
  std::optional<GrowingFile> file_;
};

}  // namespace graphpipe::runtime
