#pragma once
// A two-stage MLP as generated code would write it: tables, stage functions, and actions of a fill-drain schedule for
// any micro-batches, replicas and placement.
//
//   stage 0: h = tanh(x W0^T + b0)      x [B,6], h [B,6]
//   stage 1: y = h W1^T;  loss = sum((y - t)^2) * scale      t [B,6], scale = 1 / (6 B)
//
// In the shared variant W0 and W1 are copies of one parameter.

#include <memory>
#include <string>
#include <vector>

#include "runtime/io/safetensors.h"
#include "runtime/program.h"

namespace graphpipe::runtime::test {

struct PlanShape {
  int64_t batch = 8;
  int64_t micro_batch[2] = {2, 2};
  int32_t replicas[2] = {1, 1};
  ReplicaMode mode = ReplicaMode::kSplit;
  bool shared = false;
  bool recompute = false;
  /// Stage 1 trains nothing: it sends gradients, and has no reduction and no step.
  bool last_frozen = false;
  /// Transposed boundary: h crosses as [6,B], so that its rows are not contiguous.
  bool batch_last = false;
  const char* optimizer = "sgd";
  /// Says where items take and leave their slots, moves them to the host between their forward and their backward,
  /// flushes the step and marks it in the trace.
  bool states_memory = false;
  /// Stage 0 changes its first weights by itself, by other amounts in each replica: what a defect or a bad memory does.
  bool drifts = false;
  /// The backward of samples 4 and more, the last ones, does not end in stage 0 before a sum of its replicas has
  /// arrived. Not for the interpreter.
  bool awaits_sums = false;
  /// Puts all stages on one device.
  bool one_device = false;
};

/// Owns all tables of a plan.
class TwoStagePlan {
 public:
  explicit TwoStagePlan(const PlanShape& shape);
  TwoStagePlan(const TwoStagePlan&) = delete;
  const std::vector<DeviceProgram>& programs() const { return programs_; }
  PlanTable& table() { return table_; }
  std::vector<wire::ActionRow>& actions(int32_t device) { return actions_[static_cast<size_t>(device)]; }

 private:
  void add_item(int32_t stage, int32_t replica, wire::SampleRange range, int32_t slot, bool backward);
  int32_t device(int32_t stage, int32_t replica) const;

  PlanShape shape_;
  StageEntry entries_[2];
  const StageEntry* held_[3];
  std::vector<StageRow> stages_;
  std::vector<EdgeRow> edges_;
  std::vector<PlacementRow> placement_;
  std::vector<GroupRow> groups_;
  PlanTable table_;
  std::vector<std::vector<wire::ActionRow>> actions_;  // by device
  std::vector<DeviceProgram> programs_;
};

/// Writes manifest, weights (fixed numbers) and data (x.npy, t.npy with `samples` rows) into a new folder.
std::string make_folder(bool shared, int64_t samples);
std::string make_folder(const std::vector<NamedTensor>& weights, int64_t samples);
/// Fixed small numbers that differ with `phase`.
at::Tensor waves(std::vector<int64_t> dims, double phase);
/// The digest that the folders are made for.
extern const char* const kFolderDigest;

}  // namespace graphpipe::runtime::test
