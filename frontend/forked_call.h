#pragma once
// Runs a function in a forked copy of this process: a crash in it, or excessive use of memory or time, ends only the
// copy. The copy shares the memory of this process copy-on-write, so what the function reads costs nothing.
//
// Only the calling thread exists in the copy. A lock that another thread holds at that moment stays held there, so the
// function must not need any lock except the allocator's, which the C library releases.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "support/descriptor.h"

namespace graphpipe::frontend {

struct ForkLimits {
  /// Address space beyond what this process already uses.
  int64_t memory_bytes = int64_t{1} << 30;
  /// CPU time. A copy that sleeps is killed after ten times as much wall-clock time.
  int64_t cpu_seconds = 10;
  /// Longer answers are not read to their end.
  int64_t answer_bytes = int64_t{1} << 30;
};

/// Tells the caller which step the function has reached, so that it can be named if the function does not return.
using StepMarker = std::function<void(uint8_t step)>;

struct ForkedAnswer {
  enum class Ending : uint8_t {
    kAnswered,
    kCrashed,
    kOutOfMemory,
    kOutOfTime,
    kNotStarted,  // no process could be made; `error` says why
  };
  Ending ending = Ending::kCrashed;
  /// What the function returned; empty for all endings but kAnswered.
  std::string text;
  /// The last step that was marked.
  uint8_t step = 0;
  /// errno of kNotStarted.
  int error = 0;
};

/// The copy writes nothing to the standard streams and leaves no core file: it holds the user's data. A failed GP_CHECK
/// in it also fails here.
ForkedAnswer call_forked(const ForkLimits& limits, const std::function<std::string(const StepMarker&)>& function);

/// One copy for many calls, for programs that make thousands: a fork costs more than most of the calls. A copy that
/// does not answer is replaced by a new one at the next call, as is one that has answered kMaxCalls: damage from
/// earlier calls does not persist for long. Not thread-safe.
class ForkedServer {
 public:
  /// Receives the request's bytes.
  using Function = std::string (*)(std::string_view request, const StepMarker& mark);
  static constexpr int kMaxCalls = 2000;

  explicit ForkedServer(Function function) : function_(function) {}
  ForkedServer(const ForkedServer&) = delete;
  ForkedServer& operator=(const ForkedServer&) = delete;
  ~ForkedServer() { stop(); }
  /// Endings and limits as for call_forked.
  ForkedAnswer call(const ForkLimits& limits, std::string_view request);

 private:
  bool start();
  void stop();

  Function function_;
  pid_t child_ = -1;
  int calls_ = 0;
  Descriptor line_;
};

}  // namespace graphpipe::frontend
