#pragma once
// --metrics: a row per step, stage and replica: time computing and waiting, bytes sent, peak memory.

#include <optional>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/executor/channels.h"
#include "runtime/executor/stage_meter.h"
#include "runtime/training/record_file.h"
#include "runtime/training/step_observer.h"

namespace graphpipe::runtime {

/// Runs on every rank; rank 0 writes the file: step, stage, replica, device, busy_seconds, waiting_seconds, bytes_sent
/// (to other ranks, reductions included), peak_bytes (of the device in the step: stages on one device share it). Rows
/// are ordered by step, then rank, then stage.
class StageMetrics : public StepObserver {
 public:
  StageMetrics(std::string path, int32_t rank, StageMeter& meter, Channels& channels, Device& device)
      : path_(std::move(path)), rank_(rank), meter_(meter), channels_(channels), device_(device) {}

  void before_step(int64_t step) override;
  std::vector<std::byte> tell() override;
  void hear(std::span<const std::vector<std::byte>> of_ranks) override;
  Request after_step(const StepFacts& facts) override;

  /// Peak over all steps: the device's own peak is reset at each.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Row {
    StageNumbers numbers;
    int64_t bytes_sent = 0, peak_bytes = 0;
    int32_t device = 0;
  };

  std::string path_;
  int32_t rank_;
  StageMeter& meter_;
  Channels& channels_;
  Device& device_;
  int64_t peak_bytes_ = 0;
  std::optional<RecordFile> file_;  // rank 0's
  std::vector<Row> rows_;           // of the step, on rank 0
};

}  // namespace graphpipe::runtime
