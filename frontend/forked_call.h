#pragma once
// Runs a function in a forked copy of this process: a crash in it, or its hunger for memory or time, ends the copy and
// nothing else. The copy shares the memory of this process until one of them writes to it, so what the function reads
// costs nothing.
//
// Only the calling thread lives on in the copy. A lock that another thread holds at that moment stays held there, so
// the function must not need any but the allocator's, which the C library hands over released.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "support/descriptor.h"

namespace graphpipe::frontend {

struct ForkLimits {
  /// Address space beyond what this process has already.
  int64_t memory_bytes = int64_t{1} << 30;
  /// Processor time. A copy that sleeps is ended after ten times as much on the clock.
  int64_t cpu_seconds = 10;
  /// A longer answer is not read to its end.
  int64_t answer_bytes = int64_t{1} << 30;
};

/// Tells the caller which step the function has come to, so that it can be named where the function does not return.
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

/// The copy writes nothing to the standard streams and leaves no core file: what it holds is the user's. A failed
/// GP_CHECK in it is one here.
ForkedAnswer call_forked(const ForkLimits& limits, const std::function<std::string(const StepMarker&)>& function);

/// One copy for many calls, for programs that make thousands: a fork costs more than most of the calls. A copy that
/// does not answer is replaced by a new one at the next call, as is one that has answered kMaxCalls: what earlier calls
/// have broken in it does not live on for long. Not for several threads.
class ForkedServer {
 public:
  /// Gets the request's bytes.
  using Function = std::string (*)(std::string_view request, const StepMarker& mark);
  static constexpr int kMaxCalls = 2000;

  explicit ForkedServer(Function function) : function_(function) {}
  ForkedServer(const ForkedServer&) = delete;
  ForkedServer& operator=(const ForkedServer&) = delete;
  ~ForkedServer() { stop(); }
  /// Endings and limits as those of call_forked.
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
