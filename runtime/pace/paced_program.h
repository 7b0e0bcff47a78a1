#pragma once
// A rank's program in the executor's format, made from a pace plan instead of generated code: stages without functions,
// values of the plan's sizes.

#include <deque>
#include <vector>

#include "runtime/pace/paced_transport.h"
#include "runtime/program.h"
#include "wire/pace_plan.h"

namespace graphpipe::runtime {

class PacedProgram {
 public:
  /// `plan` must outlive it.
  PacedProgram(const wire::PacePlan& plan, int32_t rank);
  PacedProgram(const PacedProgram&) = delete;
  PacedProgram& operator=(const PacedProgram&) = delete;

  DeviceProgram program() const;
  const PlanTable& table() const { return table_; }
  /// The duration in the scaled plan, by action.
  int64_t nanoseconds(size_t action) const;
  int64_t start_nanoseconds() const;
  /// The size of the largest value or gradient of this rank's stages.
  int64_t largest_bytes() const;
  /// How long messages between ranks take, by channel of `specs`. What ranks tell each other in addition to the plan's
  /// messages takes no time. Throws RunError (kMalformedFile) if the plan has no route for a tensor's channel.
  std::vector<ChannelPace> paces(const std::vector<ChannelSpec>& specs) const;

 private:
  void add_stage(int32_t stage);
  void add_tables();
  TensorRow dims(int64_t factor, int64_t samples_power);
  int64_t sent(int64_t bytes) const;
  int64_t gradient_elements(int64_t bytes) const;
  /// Bytes in the plan per byte that such a message has: small messages are not shortened as much as the rest.
  double planned_of_sent(const ChannelKey& key) const;

  const wire::PacePlan& plan_;
  int32_t rank_;
  std::deque<std::vector<DimRow>> dim_lists_;
  std::vector<StageRow> stages_;
  std::vector<EdgeRow> edges_;
  std::vector<PlacementRow> places_;
  std::vector<GroupRow> groups_;
  std::vector<wire::ActionRow> actions_;
  std::deque<std::vector<BoundaryRow>> boundaries_;
  std::deque<std::vector<ParamRow>> params_;
  std::deque<std::vector<int32_t>> inputs_;
  std::deque<StageEntry> entries_;
  std::vector<const StageEntry*> held_;
  PlanTable table_;
};

}  // namespace graphpipe::runtime
