#pragma once
// Runs device programs as forked processes, as the driver does, and collects what they print and how they end.

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime::test {

struct RunEnd {
  int exit_code = -1;  // -1 where a signal ended it
  std::string output;
  /// What it wrote for its launcher to tell among them.
  std::string errors;
};

/// Starts one process per program; `arguments` are for all. `in_child` runs in each before its program.
class ProcessGroup {
 public:
  ProcessGroup(const std::vector<DeviceProgram>& programs, const std::string& folder,
               std::vector<std::string> arguments, const std::function<void(size_t rank)>& in_child = {});
  ~ProcessGroup();
  void kill_rank(size_t rank, int signal) const;
  /// Waits for all; those that still run after `seconds` are killed and have exit code -2.
  std::vector<RunEnd> wait(double seconds);

 private:
  std::vector<pid_t> pids_;
  std::string folder_;
  int run_ = 0;
};

/// The serial interpreter in a process of its own. Its output goes to `output` where that is not empty.
RunEnd run_serial_process(const std::vector<DeviceProgram>& programs, const std::string& folder,
                          std::vector<std::string> arguments, const std::string& output = "");

/// Flags of a training on the folder's data that reports as JSON and saves FOLDER/TAG.w and FOLDER/TAG.g: weights, and
/// gradients of the last step.
struct TrainingFlags {
  int64_t steps = 1;
  std::string lr, momentum;
  std::vector<std::string> words(const std::string& folder, const std::string& tag,
                                 const std::vector<std::string>& more = {}) const;
};

/// Runs all programs, each of which must end with this code; the end of rank 0.
RunEnd run_all(const std::vector<DeviceProgram>& programs, const std::string& folder,
               const std::vector<std::string>& arguments, int exit_code = 0);

std::string read_file(const std::string& path);
/// The numbers of `"name": [a, b]` in a flat JSON text.
std::vector<double> numbers_of(const std::string& json, const std::string& name);

}  // namespace graphpipe::runtime::test
