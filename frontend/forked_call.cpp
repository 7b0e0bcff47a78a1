#include "frontend/forked_call.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>

#include "support/check.h"

namespace graphpipe::frontend {
namespace {

using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// What the copy writes: kStep and the step, any number of times; then kText and the answer, or kNoMemory.
constexpr char kStep = 's', kText = 't', kNoMemory = 'm';
/// GP_CHECK's exit code.
constexpr int kDefect = 70;

void limit(decltype(RLIMIT_AS) resource, int64_t value) {
  rlimit bounds{};
  getrlimit(resource, &bounds);
  bounds.rlim_cur = std::min(static_cast<rlim_t>(value), bounds.rlim_max);
  setrlimit(resource, &bounds);
}

/// The address space in use; 0 where it cannot be told.
int64_t address_space() {
  long long pages = 0;
  FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lld", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

void forget_signals() {
  // A terminal's Ctrl-C reaches the whole group. The process that waits decides what it means.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  signal(SIGXCPU, SIG_DFL);
  // Whoever waits for us learns of a crash; handlers of this process would report it as their own.
  if (!kSanitized)
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(number, SIG_DFL);
}

void apply(const ForkLimits& limits) {
  prctl(PR_SET_DUMPABLE, 0);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, limits.cpu_seconds);
  // Sanitizers reserve most of the address space, and their reports should be seen.
  if (kSanitized) return;
  const int64_t used = address_space();
  if (used > 0) limit(RLIMIT_AS, used + limits.memory_bytes);
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (nowhere >= 0) dup2(nowhere, stream);
}

bool write_all(int to, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = write(to, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes += written;
    count -= static_cast<size_t>(written);
  }
  return true;
}

[[noreturn]] void be_the_copy(int answer, pid_t parent, const ForkLimits& limits,
                              const std::function<std::string(const StepMarker&)>& function) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  forget_signals();
  apply(limits);
  const auto mark = [answer](uint8_t step) {
    const char bytes[] = {kStep, static_cast<char>(step)};
    write_all(answer, bytes, sizeof(bytes));
  };
  bool sent = false;
  try {
    const std::string text = function(mark);
    sent = write_all(answer, &kText, 1) && write_all(answer, text.data(), text.size());
  } catch (const std::bad_alloc&) {
    sent = write_all(answer, &kNoMemory, 1);
  }
  _exit(sent ? 0 : 1);
}

/// Reads what the copy says, until it ends, its time is over or it says too much.
class Listener {
 public:
  Listener(int from, const ForkLimits& limits)
      : from_(from), limits_(limits), deadline_(Clock::now() + std::chrono::seconds(10 * limits.cpu_seconds)) {}

  /// Returns whether the end of the answer was seen.
  bool listen() {
    char buffer[65536];
    while (true) {
      const int64_t left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0) return false;
      pollfd descriptor{.fd = from_, .events = POLLIN, .revents = 0};
      if (poll(&descriptor, 1, static_cast<int>(std::min<int64_t>(left, 60'000))) <= 0) continue;
      const ssize_t count = read(from_, buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return count == 0;
      heard_.append(buffer, static_cast<size_t>(count));
      if (heard_too_much()) return false;
    }
  }

  bool heard_too_much() const { return static_cast<int64_t>(heard_.size()) > limits_.answer_bytes; }

  /// The steps and the answer in what was heard. Without an answer the ending stays kCrashed.
  ForkedAnswer take() {
    ForkedAnswer answer;
    size_t at = 0;
    while (at + 1 < heard_.size() && heard_[at] == kStep) {
      answer.step = static_cast<uint8_t>(heard_[at + 1]);
      at += 2;
    }
    if (at < heard_.size() && heard_[at] == kNoMemory) answer.ending = ForkedAnswer::Ending::kOutOfMemory;
    if (at < heard_.size() && heard_[at] == kText) {
      answer.ending = ForkedAnswer::Ending::kAnswered;
      heard_.erase(0, at + 1);
      answer.text = std::move(heard_);
    }
    return answer;
  }

 private:
  int from_;
  const ForkLimits& limits_;
  Clock::time_point deadline_;
  std::string heard_;
};

/// How the process ended; 0 where this cannot be learned because SIGCHLD is ignored.
int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 0;
  return status;
}

ForkedAnswer listen_to(pid_t child, int from, const ForkLimits& limits) {
  Listener listener(from, limits);
  const bool whole = listener.listen(), too_much = listener.heard_too_much();
  if (!whole) kill(child, SIGKILL);
  const int status = wait_for(child);
  GP_CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == kDefect));
  ForkedAnswer answer = listener.take();
  if (whole && WIFEXITED(status) && WEXITSTATUS(status) == 0) return answer;
  using Ending = ForkedAnswer::Ending;
  answer.text.clear();
  answer.ending = Ending::kCrashed;
  if (!whole) answer.ending = too_much ? Ending::kOutOfMemory : Ending::kOutOfTime;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) answer.ending = Ending::kOutOfTime;
  return answer;
}

ForkedAnswer not_started() {
  ForkedAnswer answer;
  answer.ending = ForkedAnswer::Ending::kNotStarted;
  answer.error = errno;
  return answer;
}

}  // namespace

ForkedAnswer call_forked(const ForkLimits& limits, const std::function<std::string(const StepMarker&)>& function) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return not_started();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    be_the_copy(ends[1], parent, limits, function);
  }
  ForkedAnswer answer = child < 0 ? not_started() : ForkedAnswer{};
  close(ends[1]);
  if (child > 0) answer = listen_to(child, ends[0], limits);
  close(ends[0]);
  return answer;
}

}  // namespace graphpipe::frontend
