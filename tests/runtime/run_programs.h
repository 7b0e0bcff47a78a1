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

std::string read_file(const std::string& path);
/// The numbers of `"name": [a, b]` in a flat JSON text.
std::vector<double> numbers_of(const std::string& json, const std::string& name);

}  // namespace graphpipe::runtime::test
