#pragma once
// When each action of a rank actually ran. Events go into memory that is reserved before the first step; after the last
// one rank 0 writes those of all ranks as one trace, with the names and lanes of a simulated schedule.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "runtime/collectives/gather.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

struct TraceEvent {
  wire::ActionRow row;
  int64_t step = 0;
  /// Nanoseconds since the rank's zero. A compute action's time starts when everything that it waits for has arrived; a
  /// message lasts from its posting to its completion, a reduction from its contribution to its result.
  int64_t start = 0, end = 0;
  /// Bytes of tensors that the rank holds before and after.
  int64_t bytes_before = 0, bytes_after = 0;
};

/// A trace of all ranks.
struct CollectedTrace {
  /// The text of a file. A rank's process is labelled "later events dropped: N" if its memory for events was full.
  std::string text;
  /// The sum of N over all ranks.
  int64_t dropped = 0;
};

/// Of one rank's trace; later events are only counted.
inline constexpr size_t kMaxEvents = size_t{1} << 20;

/// The number of events of this many steps, capped at kMaxEvents.
size_t max_events(int64_t steps, size_t actions);

class Tracer {
 public:
  /// Events beyond `capacity` are dropped and counted.
  explicit Tracer(size_t capacity);

  void begin(const wire::ActionRow& row, int64_t step, int64_t bytes);
  /// The current action has what it waited for.
  void restart();
  /// Returns the number of the event, for finish().
  size_t end(int64_t bytes);
  /// What the event started has completed only now.
  void finish(size_t event);

  /// On rank 0 the trace of all ranks, elsewhere nothing. Blocking, on all ranks.
  std::optional<CollectedTrace> collect(Gather& gather, const PlanTable& plan) const;

 private:
  int64_t now() const;

  std::chrono::steady_clock::time_point zero_;
  size_t capacity_;
  int64_t dropped_ = 0;
  std::vector<TraceEvent> events_;
  TraceEvent current_;
};

}  // namespace graphpipe::runtime
