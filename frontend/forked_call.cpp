#include "frontend/forked_call.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

// What the copy writes: kStep and the step, any number of times; then kText, the size of the answer and the answer, or
// kNoMemory. A server reads requests that start with a Request.
constexpr char kStep = 's', kText = 't', kNoMemory = 'm';
constexpr size_t kTextFront = 1 + sizeof(uint64_t);
struct Request {
  uint64_t bytes = 0;
  ForkLimits limits;
};
/// GP_CHECK's exit code.
constexpr int kDefect = 70;

void limit(decltype(RLIMIT_AS) resource, int64_t value) {
  rlimit bounds{};
  getrlimit(resource, &bounds);
  bounds.rlim_cur = std::min(static_cast<rlim_t>(value), bounds.rlim_max);
  setrlimit(resource, &bounds);
}

/// Processor time that this process has used, in seconds.
int64_t used_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1;
}

/// The address space in use; 0 if it cannot be determined.
int64_t address_space() {
  long long pages = 0;
  FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lld", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

void forget_signals() {
  // A terminal's Ctrl-C reaches the whole process group. The waiting process decides what it means.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  signal(SIGXCPU, SIG_DFL);
  // The waiting process learns of a crash; handlers of this process, including those of sanitizers, would report it as
  // their own.
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(number, SIG_DFL);
}

/// Limits for what the process does from now on.
void apply(const ForkLimits& limits) {
  limit(RLIMIT_CPU, used_seconds() + limits.cpu_seconds);
  // Sanitizers reserve most of the address space.
  const int64_t used = kSanitized ? 0 : address_space();
  if (used > 0) limit(RLIMIT_AS, used + limits.memory_bytes);
}

/// The copy holds the user's data, so it prints nothing and dumps no core. Reports of sanitizers remain visible.
void keep_quiet() {
  prctl(PR_SET_DUMPABLE, 0);
  limit(RLIMIT_CORE, 0);
  if (kSanitized) return;
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

/// The receiving process may have ended.
bool send_all(int to, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t sent = send(to, bytes, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    bytes += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

bool read_all(int from, char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t got = read(from, bytes, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

void begin_as_copy(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  forget_signals();
  keep_quiet();
}

/// Calls the function and writes its answer; false if that cannot be written, or memory has run out.
bool give_answer(int to, const std::function<std::string(const StepMarker&)>& function) {
  const auto mark = [to](uint8_t step) {
    const char bytes[] = {kStep, static_cast<char>(step)};
    write_all(to, bytes, sizeof(bytes));
  };
  try {
    const std::string text = function(mark);
    char front[kTextFront] = {kText};
    const uint64_t size = text.size();
    std::memcpy(front + 1, &size, sizeof size);
    return write_all(to, front, sizeof front) && write_all(to, text.data(), text.size());
  } catch (const std::bad_alloc&) {
    write_all(to, &kNoMemory, 1);
    return false;
  }
}

[[noreturn]] void be_the_copy(int answer, pid_t parent, const ForkLimits& limits,
                              const std::function<std::string(const StepMarker&)>& function) {
  begin_as_copy(parent);
  apply(limits);
  _exit(give_answer(answer, function) ? 0 : 1);
}

[[noreturn]] void be_the_server(int line, pid_t parent, ForkedServer::Function function) {
  begin_as_copy(parent);
  Request request;
  while (read_all(line, reinterpret_cast<char*>(&request), sizeof request)) {
    std::string bytes(request.bytes, '\0');
    if (!read_all(line, bytes.data(), bytes.size())) break;
    apply(request.limits);
    if (!give_answer(line, [&](const StepMarker& mark) { return function(bytes, mark); })) _exit(1);
  }
  _exit(0);
}

/// Reads the copy's output, until the answer is complete, it ends, its time is up or it writes too much.
class Listener {
 public:
  Listener(int from, const ForkLimits& limits)
      : from_(from), limits_(limits), deadline_(Clock::now() + std::chrono::seconds(10 * limits.cpu_seconds)) {}

  /// Returns true if the answer is complete or the copy has ended; otherwise it must be killed.
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
      if (is_whole()) return true;
    }
  }

  bool heard_too_much() const { return static_cast<int64_t>(heard_.size()) > limits_.answer_bytes; }

  /// Extracts the steps and the answer. Without a complete answer the ending stays kCrashed.
  ForkedAnswer take() {
    ForkedAnswer answer;
    skip_steps();
    if (at_ > 0) answer.step = static_cast<uint8_t>(heard_[at_ - 1]);
    if (at_ < heard_.size() && heard_[at_] == kNoMemory) answer.ending = ForkedAnswer::Ending::kOutOfMemory;
    if (!is_whole()) return answer;
    answer.ending = ForkedAnswer::Ending::kAnswered;
    heard_.erase(0, at_ + kTextFront);
    answer.text = std::move(heard_);
    return answer;
  }

 private:
  void skip_steps() {
    while (at_ + 1 < heard_.size() && heard_[at_] == kStep) at_ += 2;
  }
  bool is_whole() {
    skip_steps();
    if (heard_.size() < at_ + kTextFront || heard_[at_] != kText) return false;
    uint64_t size = 0;
    std::memcpy(&size, heard_.data() + at_ + 1, sizeof size);
    return heard_.size() - at_ - kTextFront == size;
  }

  int from_;
  const ForkLimits& limits_;
  Clock::time_point deadline_;
  std::string heard_;
  size_t at_ = 0;  // position after the steps
};

/// How the process ended; 0 if that is unknown because SIGCHLD is ignored.
int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 0;
  return status;
}

/// The copy's answer. If it gives none, it has ended when this returns, and `child` is reset.
ForkedAnswer listen_to(pid_t& child, int from, const ForkLimits& limits) {
  Listener listener(from, limits);
  const bool heard = listener.listen(), too_much = listener.heard_too_much();
  ForkedAnswer answer = listener.take();
  using Ending = ForkedAnswer::Ending;
  if (heard && answer.ending == Ending::kAnswered) return answer;
  if (!heard) kill(child, SIGKILL);
  const int status = wait_for(child);
  child = -1;
  GP_CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == kDefect));
  if (!heard) answer.ending = too_much ? Ending::kOutOfMemory : Ending::kOutOfTime;
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
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    be_the_copy(ends[1], parent, limits, function);
  }
  ForkedAnswer answer = child < 0 ? not_started() : ForkedAnswer{};
  close(ends[1]);
  if (child > 0) answer = listen_to(child, ends[0], limits);
  if (child > 0) wait_for(child);
  close(ends[0]);
  return answer;
}

bool ForkedServer::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  line_ = Descriptor(ends[0]);
  const Descriptor far(ends[1]);
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ == 0) {
    close(line_.release());
    be_the_server(far.get(), parent, function_);
  }
  calls_ = 0;
  return child_ > 0;
}

void ForkedServer::stop() {
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  wait_for(child_);
  child_ = -1;
}

ForkedAnswer ForkedServer::call(const ForkLimits& limits, std::string_view request) {
  if (calls_ >= kMaxCalls) stop();
  if (child_ <= 0 && !start()) return not_started();
  ++calls_;
  const Request front{.bytes = request.size(), .limits = limits};
  // If the write fails, the copy has ended, which listen_to detects.
  if (send_all(line_.get(), reinterpret_cast<const char*>(&front), sizeof front))
    send_all(line_.get(), request.data(), request.size());
  return listen_to(child_, line_.get(), limits);
}

}  // namespace graphpipe::frontend
