#pragma once
// The parts of the profiling program (profile.h).

#include <vector>

#include "runtime/profiling/profile.h"
#include "runtime/transport/channel.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

double median(std::vector<double> values);

/// Seconds of every mark for one item of `samples` samples.
struct MarkSeconds {
  int64_t samples = 0;
  std::vector<double> seconds;
};

struct ModelMeasurement {
  std::vector<MarkSeconds> marks;
  double step = 0, action = 0;
  double update_tensor = 0, update_byte = 0;
};
/// At 1, 2, 4, ... samples and at the plan's batch.
ModelMeasurement measure_model(const DeviceProgram& program, std::span<const MarkRow> marks,
                               const wire::RunOptions& options);

/// a + b * bytes, seconds.
struct MessageSeconds {
  double constant = 0, per_byte = 0;
};
/// Seconds of one item's four actions (F and B of two empty stages that exchange nothing): the executor's own cost.
double measure_bare_item();
/// What a send or a receive takes of the compute of its device, each. `bare`: measure_bare_item().
MessageSeconds measure_messages_of_one(double bare);
/// One way between this rank and the other of two, beside `busy`, what the sender's compute spends on it. Both ranks
/// call it; the first one's answer is right.
MessageSeconds measure_link(Store& store, int32_t rank, bool may_spin, double bare, const MessageSeconds& busy);

}  // namespace graphpipe::runtime
