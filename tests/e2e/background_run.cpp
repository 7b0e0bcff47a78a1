#include "tests/e2e/background_run.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

namespace graphpipe::tests {
namespace {

/// Empty where there is no such file: a process that ended has none.
std::string read_if_there(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool within(double seconds, const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool is_gone(pid_t process) {
  const std::string status = read_if_there("/proc/" + std::to_string(process) + "/stat");
  const size_t name_end = status.rfind(')');
  return name_end == std::string::npos || status.compare(name_end, 3, ") Z") == 0;
}

}  // namespace

BackgroundRun::BackgroundRun(const std::vector<std::string>& arguments, std::string talk)
    : talk_file_(std::move(talk)) {
  std::vector<std::string> words = arguments;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int out = open(talk_file_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  REQUIRE(out >= 0);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execvp(argv.front(), argv.data());
    _exit(127);
  }
  close(out);
  REQUIRE(pid_ > 0);
  setpgid(pid_, pid_);  // whoever comes first
}

BackgroundRun::~BackgroundRun() {
  for (pid_t process : seen_)
    if (!is_gone(process)) kill(process, SIGKILL);
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::vector<pid_t> BackgroundRun::devices() const {
  std::istringstream list(
      read_if_there("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children"));
  seen_.clear();
  // Not the one that starts them (runtime/launch/fork_ranks.h), whose number a rank would have.
  for (pid_t process = 0; list >> process;)
    if (const std::string name = read_if_there("/proc/" + std::to_string(process) + "/comm");
        name.starts_with("device") && name != "device\n")
      seen_.push_back(process);
  return seen_;
}

std::string BackgroundRun::talk() const { return read_if_there(talk_file_); }

bool BackgroundRun::says(const std::string& part, double seconds) const {
  return within(seconds, [&] { return talk().find(part) != std::string::npos; });
}

int BackgroundRun::wait(double seconds) {
  int status = 0;
  ended_ = within(seconds, [&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended_) return -1000;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool all_gone(const std::vector<pid_t>& processes, double seconds) {
  return within(seconds, [&] {
    for (pid_t process : processes)
      if (!is_gone(process)) return false;
    return true;
  });
}

}  // namespace graphpipe::tests
