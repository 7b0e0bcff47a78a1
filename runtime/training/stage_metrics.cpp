#include "runtime/training/stage_metrics.h"

#include <algorithm>

#include "runtime/collectives/gather.h"

namespace graphpipe::runtime {

void StageMetrics::before_step(int64_t step) {
  if (rank_ == 0 && !file_)
    file_.emplace(path_,
                  std::vector<std::string>{"step", "stage", "replica", "device", "busy_seconds", "waiting_seconds",
                                           "bytes_sent", "peak_bytes"},
                  step);
  device_.reset_peak();
}

std::vector<std::byte> StageMetrics::tell() {
  const int64_t peak = device_.peak_bytes();
  peak_bytes_ = std::max(peak_bytes_, peak);
  const std::map<StagePlace, int64_t> sent = channels_.take_sent_bytes();
  std::vector<Row> rows;
  for (const StageNumbers& numbers : meter_.take()) {
    const auto bytes = sent.find({numbers.stage, numbers.replica});
    rows.push_back({.numbers = numbers,
                    .bytes_sent = bytes == sent.end() ? 0 : bytes->second,
                    .peak_bytes = peak,
                    .device = rank_});
  }
  return to_bytes(rows);
}

void StageMetrics::hear(std::span<const std::vector<std::byte>> of_ranks) {
  rows_.clear();
  for (const std::vector<std::byte>& bytes : of_ranks)
    for (const Row& row : from_bytes<Row>(bytes)) rows_.push_back(row);
}

Request StageMetrics::after_step(const StepFacts& facts) {
  // The reported data cover all steps since the last drain.
  if (!facts.drains) return {};
  for (const Row& row : rows_)
    file_->append({facts.step + 1, int64_t{row.numbers.stage}, int64_t{row.numbers.replica}, int64_t{row.device},
                   row.numbers.busy, row.numbers.waiting, row.bytes_sent, row.peak_bytes});
  return {};
}

}  // namespace graphpipe::runtime
