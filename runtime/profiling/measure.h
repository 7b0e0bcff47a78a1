#pragma once
// The parts of the profiling program (profile.h).

#include <chrono>
#include <functional>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/profiling/profile.h"
#include "runtime/program.h"
#include "runtime/transport/channel.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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
/// At 1, 2, 4, ... samples and at the plan's batch. Before each, and before what follows them, it calls `meet`, so that
/// processes that measure the same model do about the same at the same time.
ModelMeasurement measure_model(const DeviceProgram& program, std::span<const MarkRow> marks, const Device& device,
                               const wire::RunOptions& options, const std::function<void()>& meet);

/// a + b * bytes, seconds.
struct MessageSeconds {
  double constant = 0, per_byte = 0;
};
/// Steps, of several items where messages are measured; the median counts, or the fastest if `fastest`.
struct MessageRounds {
  int warm_ups = 5, steps = 31;
  bool fastest = false;
};
/// Seconds of one item's four actions (F and B of two empty stages that exchange nothing): the executor's own overhead.
double measure_bare_item(const Device& device, MessageRounds rounds = {});
/// What a send or a receive costs its device in compute time, each. `bare`: measure_bare_item().
MessageSeconds measure_messages_of_one(const Device& device, double bare, MessageRounds rounds = {});
/// The one-way cost between this rank and the other of two, excluding `busy`, the sender's compute time. Both ranks
/// call it; only the first one's result is valid.
MessageSeconds measure_link(const Device& device, Store& store, int32_t rank, bool may_spin, double bare,
                            const MessageSeconds& busy, MessageRounds rounds = {});

/// Seconds per byte to add a chunk that has just arrived to one that was in memory (collectives/ring_all_reduce.h).
double measure_additions(const Device& device);
/// The same, in an all-reduce between this rank and the other of two, of more gradients than caches hold: what it takes
/// beside its messages, which cost `link` and `busy`. Both ranks call it; only the first one's result is valid.
double measure_additions_of_two(const Device& device, Store& store, int32_t rank, bool may_spin,
                                const MessageSeconds& link, const MessageSeconds& busy, MessageRounds rounds = {});

}  // namespace graphpipe::runtime
