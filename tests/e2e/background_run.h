#pragma once
// A `graphpipe run` that goes on while the test does something to it.

#include <sys/types.h>

#include <string>
#include <vector>

namespace graphpipe::tests {

class BackgroundRun {
 public:
  /// Starts it, looked up on PATH, in a process group of its own, as a shell does; `talk` is the file that takes all
  /// that it prints.
  BackgroundRun(const std::vector<std::string>& arguments, std::string talk);
  BackgroundRun(const BackgroundRun&) = delete;
  BackgroundRun& operator=(const BackgroundRun&) = delete;
  /// Kills what still runs.
  ~BackgroundRun();

  pid_t pid() const { return pid_; }
  /// The processes that it started, in that order: the devices.
  std::vector<pid_t> devices() const;
  std::string talk() const;
  /// Whether `part` is printed within so many seconds.
  bool says(const std::string& part, double seconds) const;
  /// The exit code, or -signal where one ended it, or -1000 where it still runs after so many seconds.
  int wait(double seconds);

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string talk_file_;
  mutable std::vector<pid_t> seen_;
};

/// Whether all of them are gone, or nothing but an entry that its parent has not collected, within so many seconds.
bool all_gone(const std::vector<pid_t>& processes, double seconds);

}  // namespace graphpipe::tests
