#pragma once
// Child processes, started from argument vectors: no shell is ever involved.

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace graphpipe::driver {

struct Command {
  std::vector<std::string> arguments;  // the program first; looked up on PATH where it has no slash
  std::string working_folder;          // empty: ours
  /// "NAME=value", added to our environment.
  std::vector<std::string> environment;
  /// Descriptors of ours that the child keeps under the same numbers. Here they are closed once it has them.
  std::vector<int> inherited_descriptors;
  /// The child leads a process group of its own: what stops it stops all that it has started, and what holds its output
  /// open for two seconds after its end is killed.
  bool own_group = false;
};

/// How a child ended.
struct Ending {
  int exit_code = 0;  // where it exited by itself
  int signal = 0;     // where a signal ended it
  /// It ended after we had asked it to: whatever its code or signal, it is no cause of anything.
  bool stopped_by_us = false;
  /// We ended it, since all children had been suspended (SIGSTOP) for too long.
  bool was_suspended = false;
  /// 0 for the first child that ended, and so on.
  size_t order = 0;
  bool ok() const { return exit_code == 0 && signal == 0; }
};

/// Calls `on_line` with each whole line that a child writes to standard output (child's index in the list).
using LineHandler = std::function<void(size_t child, std::string_view line)>;

/// What children do when this process is asked to end.
enum class OnInterrupt {
  /// They have two seconds.
  kEnd,
  /// They keep what they have, however long that takes. A second request ends them at once.
  kKeepState,
};

/// Runs the children side by side until all have ended. Each gets SIGKILL when this process dies. When one fails, the
/// others have `grace_seconds`, or less where a signal ended it, to end by themselves; then they are stopped with
/// SIGTERM and, a second later, SIGKILL. Those that have all been suspended for `suspended_seconds`, so that none could
/// tell, get SIGKILL. SIGINT and SIGTERM that reach this process are passed on as SIGTERM, SIGUSR1
/// as it is to one alone. Standard error of the children is ours. Where a process that a child has started holds
/// its output open, the output is read for two seconds after the child's end. Errors: kEnvironment where a program
/// cannot be started.
Result<std::vector<Ending>> run_processes(const std::vector<Command>& commands, double grace_seconds,
                                          const LineHandler& on_line, OnInterrupt on_interrupt = OnInterrupt::kEnd,
                                          double suspended_seconds = std::numeric_limits<double>::infinity());

/// The same for commands of one program, which starts once and forks a process for each (wire/rank_words.h); so all
/// have the first one's additions to our environment, and our working folder. While it loads, nothing but an interrupt
/// ends it. Where it fails before it has started them, that is the only ending.
Result<std::vector<Ending>> run_forks(const std::vector<Command>& commands, double grace_seconds,
                                      const LineHandler& on_line, OnInterrupt on_interrupt = OnInterrupt::kEnd,
                                      double suspended_seconds = std::numeric_limits<double>::infinity());

/// Runs one program with its output collected (both streams). Errors: kEnvironment where it cannot be started.
struct Finished {
  Ending ending;
  std::string output;
};
Result<Finished> run_and_collect(const Command& command, const LineHandler& on_line = {});

/// Whether an interrupt (Ctrl-C) or a termination request has arrived; see catch_interrupts.
bool interrupted();
/// The signal that arrived, or 0.
int interrupting_signal();
/// interrupted() as a flag, for searches that look at one.
const std::atomic<bool>& interrupt_flag();
/// From here on SIGINT and SIGTERM set interrupted() instead of ending the process.
void catch_interrupts();
/// From here on SIGUSR1 is passed on to a child of run_processes instead of ending the process.
void catch_checkpoint_requests();

}  // namespace graphpipe::driver
