#pragma once
// An MLP of any number of stages, one layer each, as generated code would write it, with asynchronous schedules:
//
//   stage s < P-1: h_{s+1} = tanh(h_s W_s^T + b_s)      h [B,6]
//   stage P-1:     y = h W^T;  loss = sum((y - t)^2) / (6 n)      n the samples of an update of the last stage
//
// and the same training in plain loops, which knows nothing of stages, schedules or messages.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime::test {

enum class Versions {
  kStashing,      // a forward reads what its stage has made so far; its backward reads the same (PipeDream)
  kVerticalSync,  // all stages read the version that the first one read
  kTwoBuffers,    // the version before the newest (PipeDream-2BW): update u + 1 uses gradients at version u - 1
  kFlush,         // one update, at the end
};

struct ChainShape {
  int stages = 3;
  int64_t micro_batch = 2;
  int64_t micro_batches = 6;
  /// Steps that the schedule is of; the micro-batches are those of all.
  int64_t batches = 1;
  Versions versions = Versions::kStashing;
  /// Micro-batches of an update of a stage with one replica; ignored by kFlush.
  int64_t per_update = 1;
  /// Replicas by stage, round robin; missing ones are 1. A stage with R of them has updates of R micro-batches, except
  /// where `every_item`, which makes a parameter server of them: each applies every item's update.
  std::vector<int> replicas;
  bool every_item = false;
  bool split_backward = false;
  bool recompute = false;
  /// No backwards and no steps.
  bool forward_only = false;
  const char* optimizer = "sgd";
  /// The first stage's matrix counts as a table of rows that ids look up.
  bool has_table = false;
};

/// Where the stages lie and what the devices do, instead of the schedules above.
struct ChainSchedule {
  std::vector<StageRow> stages;
  std::vector<PlacementRow> placement;
  std::vector<std::vector<wire::ActionRow>> actions;  // by device
  std::vector<wire::SampleRange> loss_updates;
};

/// Owns all tables of a plan.
class ChainPlan {
 public:
  explicit ChainPlan(const ChainShape& shape);
  /// Of the shape: stages, micro-batches, optimizer and table.
  ChainPlan(const ChainShape& shape, ChainSchedule schedule);
  ChainPlan(const ChainPlan&) = delete;
  const std::vector<DeviceProgram>& programs() const { return programs_; }
  std::vector<wire::ActionRow>& actions(int32_t device) { return actions_[static_cast<size_t>(device)]; }

  /// The weight version that each micro-batch reads, by stage.
  const std::vector<std::vector<int32_t>>& versions() const { return versions_; }
  /// Samples of each update of a stage.
  std::vector<wire::SampleRange> updates(int stage) const;

 private:
  void fill_tables();
  int replicas(int stage) const;
  int64_t per_update(int stage) const;
  int32_t device(int stage, int replica) const;
  void name_versions();
  std::vector<wire::ActionRow> list_of(int stage, int replica) const;
  void add_step(int stage, int replica, int64_t update, std::vector<wire::ActionRow>& list) const;
  void add_item(int stage, int replica, int64_t micro_batch, bool backward, std::vector<wire::ActionRow>& list) const;
  void add_transfer(wire::ActionOp op, int stage, int replica, int64_t micro_batch,
                    std::vector<wire::ActionRow>& list) const;
  wire::ActionRow row(wire::ActionOp op, int stage, int replica, int64_t micro_batch) const;
  int64_t warm_up(int stage) const;
  int64_t ring(int stage) const;

  ChainShape shape_;
  std::vector<std::string> names_;
  std::vector<std::vector<ParamRow>> params_;
  std::vector<std::vector<BoundaryRow>> boundaries_;
  std::vector<StageEntry> entries_;
  std::vector<StageRow> stages_;
  std::vector<EdgeRow> edges_;
  std::vector<PlacementRow> placement_;
  std::vector<wire::SampleRange> loss_updates_;
  PlanTable table_;
  std::vector<std::vector<int32_t>> versions_;
  std::vector<std::vector<wire::ActionRow>> actions_;  // by device
  std::vector<std::vector<const StageEntry*>> held_;   // by device
  std::vector<DeviceProgram> programs_;
};

/// Writes manifest, weights (fixed numbers) and data into a new folder.
std::string make_chain_folder(int stages, int64_t samples);

/// The weights after `steps` steps of SGD with momentum, by name: micro-batch after micro-batch, each with the versions
/// that `plan` names, no pipeline.
std::map<std::string, std::vector<float>> train_plainly(const ChainShape& shape, const ChainPlan& plan, int64_t steps,
                                                        double learning_rate, double momentum);
/// The same with another update: of a parameter's float64 numbers, in place, by their mean gradient.
using PlainUpdate = std::function<void(int stage, size_t parameter, at::Tensor& weight, const at::Tensor& gradient)>;
std::map<std::string, std::vector<float>> train_plainly(const ChainShape& shape, const ChainPlan& plan, int64_t steps,
                                                        const PlainUpdate& update);

}  // namespace graphpipe::runtime::test
