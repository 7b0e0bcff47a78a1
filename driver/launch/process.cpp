#include "driver/launch/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "support/descriptor.h"
#include "support/signal_echo.h"
#include "wire/problem_line.h"
#include "wire/rank_words.h"

namespace graphpipe::driver {
namespace {

using Clock = std::chrono::steady_clock;

// Lock-free atomics may be written by a signal handler.
std::atomic<int> g_signal = 0;
std::atomic<int> g_interrupts = 0;
std::atomic<bool> g_interrupted = false, g_checkpoint_requested = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
SignalEcho g_interrupt_echo;

void remember_signal(int signal) {
  if (g_interrupt_echo.take() == SignalKind::kEcho) return;
  g_signal = signal;
  ++g_interrupts;
  g_interrupted = true;
}
void remember_checkpoint_request(int) { g_checkpoint_requested = true; }

void catch_signal(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

Diagnostic cannot_start(const Command& command, int error) {
  const bool lacks_descriptors = error == EMFILE || error == ENFILE;
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(command.arguments.front()),
                    .message = text("the program cannot be started: ", std::strerror(error)),
                    .hint = lacks_descriptors ? "raise the limit of open files (ulimit -n)"
                                              : "check that it is installed and on PATH"};
}

struct Child {
  pid_t pid = -1;
  int output = -1;  // read end of its standard output
  std::string pending;
  bool ended = false;
  bool suspended = false;  // by SIGSTOP, for example
  Clock::time_point ended_at = {};
  Ending ending;
  bool own_group = false;
};

void note_ending(Child& child, int status) {
  child.ended = true;
  child.ended_at = Clock::now();
  if (WIFEXITED(status)) child.ending.exit_code = WEXITSTATUS(status);
  else child.ending.signal = WTERMSIG(status);
}

// Between fork and exec only async-signal-safe calls are allowed, so everything is prepared before.
[[noreturn]] void become(const Command& command, const std::vector<char*>& arguments,
                         const std::vector<char*>& variables, int output, bool join_errors, int failure, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  // A terminal's Ctrl-C and its end reach the whole group; the launcher decides what follows.
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGUSR1, SIG_IGN);  // one that comes before the program listens must not end it
  if (command.own_group) setpgid(0, 0);
  dup2(output, STDOUT_FILENO);
  if (join_errors) dup2(output, STDERR_FILENO);
  for (int descriptor : command.inherited_descriptors) fcntl(descriptor, F_SETFD, 0);
  const bool moved = command.working_folder.empty() || chdir(command.working_folder.c_str()) == 0;
  if (moved) execvpe(arguments.front(), arguments.data(), variables.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failure, &error, sizeof(error));
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& item : texts) out.push_back(item.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::map<std::string, std::string> variables;
  const auto put = [&](const std::string& item) { variables[item.substr(0, item.find('='))] = item; };
  for (char** item = environ; *item != nullptr; ++item) put(*item);
  for (const std::string& item : additions) put(item);
  std::vector<std::string> out;
  for (auto& [name, item] : variables) out.push_back(item);
  return out;
}

Result<Child> start(const Command& command, bool join_errors) {
  int output[2], failure[2];
  if (pipe2(output, O_CLOEXEC) != 0) return cannot_start(command, errno);
  if (pipe2(failure, O_CLOEXEC) != 0) {
    close(output[0]);
    close(output[1]);
    return cannot_start(command, errno);
  }
  std::vector<std::string> argument_texts = command.arguments;
  std::vector<std::string> variable_texts = environment_with(command.environment);
  const std::vector<char*> arguments = pointers(argument_texts), variables = pointers(variable_texts);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(command, arguments, variables, output[1], join_errors, failure[1], parent);
  const int fork_error = errno;
  close(output[1]);
  close(failure[1]);
  int error = 0;
  const bool failed = pid < 0 || read(failure[0], &error, sizeof(error)) == sizeof(error);
  close(failure[0]);
  if (failed) {
    if (pid > 0) waitpid(pid, nullptr, 0);
    close(output[0]);
    return cannot_start(command, pid < 0 ? fork_error : error);
  }
  return Child{.pid = pid,
               .output = output[0],
               .pending = {},
               .ended = false,
               .suspended = false,
               .ended_at = {},
               .ending = {},
               .own_group = command.own_group};
}

// To the end, or until this process is asked to end.
std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t count = 1; count != 0 && !g_interrupted;) {
    pollfd ready{.fd = descriptor, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 100) <= 0) continue;
    count = read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno != EINTR) break;
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

// What starts one process for all commands: it has everything that they are to have.
struct Forks {
  Command first;
  std::vector<wire::RankWords> ranks;
  std::vector<Descriptor> read_ends;   // of their outputs
  std::vector<Descriptor> write_ends;  // until the process has them
  Descriptor ours, its;                // the two ends of the talk with it
  Descriptor go_read, go_write;        // of what lets its ranks go
};

Result<Forks> prepare_forks(const std::vector<Command>& commands) {
  Forks forks{
      .first = {.arguments = {commands.front().arguments.front()}, .environment = commands.front().environment}};
  int talk[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk) != 0) return cannot_start(commands.front(), errno);
  forks.ours = Descriptor(talk[0]);
  forks.its = Descriptor(talk[1]);
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) return cannot_start(commands.front(), errno);
  forks.go_read = Descriptor(go[0]);
  forks.go_write = Descriptor(go[1]);
  forks.first.environment.push_back(text(wire::kRanksVariable, "=", talk[1]));
  forks.first.inherited_descriptors = {talk[1], go[0]};
  for (const Command& command : commands) {
    int output[2];
    if (pipe2(output, O_CLOEXEC) != 0) return cannot_start(command, errno);
    forks.read_ends.emplace_back(output[0]);
    forks.write_ends.emplace_back(output[1]);
    forks.ranks.push_back({command.arguments, output[1], go[0], command.inherited_descriptors});
    std::vector<int>& inherited = forks.first.inherited_descriptors;
    inherited.push_back(output[1]);
    inherited.insert(inherited.end(), command.inherited_descriptors.begin(), command.inherited_descriptors.end());
  }
  return forks;
}

// The ids of the processes that it has started; none where it has failed without a word. Errors: what it says.
Result<std::vector<pid_t>> ask_for_ranks(Forks& forks) {
  const std::string words = wire::rank_words_text(forks.ranks);
  forks.its = {};
  for (size_t sent = 0; sent < words.size();) {
    const ssize_t count = send(forks.ours.get(), words.data() + sent, words.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) break;
    sent += count < 0 ? 0 : static_cast<size_t>(count);
  }
  shutdown(forks.ours.get(), SHUT_WR);
  std::vector<pid_t> ids;
  const std::string told = read_all(forks.ours.get());
  for (const std::string_view line : split(told, "\n")) {
    if (const std::optional<Diagnostic> problem = wire::parse_problem_line(line)) return *problem;
    if (pid_t id = 0; read_number(line, id)) ids.push_back(id);
  }
  return ids;
}

void wait_for(Child& child) {
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR)
    if (g_interrupted) kill(child.pid, SIGKILL);
  note_ending(child, status);
}

// Needs: this process is the subreaper of what its children leave behind. Where the program does not come to start the
// ranks it is the only child, which has ended.
Result<std::vector<Child>> start_forks(const std::vector<Command>& commands) {
  GP_TRY(Forks forks, prepare_forks(commands));
  GP_TRY(Child first, start(forks.first, false));
  const Descriptor its_output(first.output);  // nobody reads it
  first.output = -1;
  forks.write_ends.clear();
  const Result<std::vector<pid_t>> ids = ask_for_ranks(forks);
  const bool are_all = ids.ok() && ids->size() == commands.size();
  if (!are_all && g_interrupted) kill(first.pid, SIGKILL);
  wait_for(first);
  std::vector<Child> children;
  if (!ids) return ids.problems();
  if (!are_all) {
    children.push_back(std::move(first));
    return children;
  }
  for (size_t i = 0; i < ids->size(); ++i) {
    Child& child = children.emplace_back();
    child.pid = (*ids)[i];
    child.output = forks.read_ends[i].release();
  }
  const std::string go(children.size(), '!');
  [[maybe_unused]] const ssize_t written = write(forks.go_write.get(), go.data(), go.size());
  return children;
}

// Also hands over what is left of a last line.
void close_output(Child& child, size_t index, const LineHandler& on_line) {
  if (!child.pending.empty() && on_line) on_line(index, child.pending);
  close(child.output);
  child.output = -1;
}

// Hands over whole lines; at the end of the stream also what is left.
void read_lines(Child& child, size_t index, const LineHandler& on_line) {
  char buffer[65536];
  const ssize_t count = read(child.output, buffer, sizeof(buffer));
  if (count < 0 && errno == EINTR) return;
  if (count > 0) child.pending.append(buffer, static_cast<size_t>(count));
  size_t begin = 0;
  for (size_t end; (end = child.pending.find('\n', begin)) != std::string::npos; begin = end + 1)
    if (on_line) on_line(index, std::string_view(child.pending).substr(begin, end - begin));
  child.pending.erase(0, begin);
  if (count > 0) return;
  close_output(child, index, on_line);
}

// Whether it has ended just now. Notes when it is suspended or goes on.
bool reap(Child& child) {
  int status = 0;
  if (child.ended || waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.pid) return false;
  child.suspended = WIFSTOPPED(status);
  if (WIFSTOPPED(status) || WIFCONTINUED(status)) return false;
  note_ending(child, status);
  return true;
}

void signal_one(const Child& child, int signal) {
  if (!child.ended) kill(child.own_group ? -child.pid : child.pid, signal);
}

void signal_all(const std::vector<Child>& children, int signal) {
  for (const Child& child : children) signal_one(child, signal);
}

void poll_outputs(std::vector<Child>& children, const LineHandler& on_line) {
  std::vector<pollfd> descriptors;
  std::vector<size_t> owners;
  for (size_t i = 0; i < children.size(); ++i) {
    if (children[i].output < 0) continue;
    descriptors.push_back({.fd = children[i].output, .events = POLLIN, .revents = 0});
    owners.push_back(i);
  }
  poll(descriptors.data(), descriptors.size(), 20);
  for (size_t i = 0; i < descriptors.size(); ++i)
    if (descriptors[i].revents != 0) read_lines(children[owners[i]], owners[i], on_line);
}

// In seconds, from a child's end. What it wrote is read long before; only what it has started keeps its output open.
constexpr double kGraceOfOutput = 2;

// A process that a child has left behind, and that ignores SIGTERM, would keep us waiting for the end of the output for
// as long as it likes.
void close_outputs_of_ended(std::vector<Child>& children, const LineHandler& on_line) {
  const auto ended_before = Clock::now() - std::chrono::duration<double>(kGraceOfOutput);
  for (size_t i = 0; i < children.size(); ++i) {
    Child& child = children[i];
    if (!child.ended || child.output < 0 || child.ended_at > ended_before) continue;
    if (child.own_group) kill(-child.pid, SIGKILL);
    close_output(child, i, on_line);  // one that has left the group may hold it still
  }
}

void close_inherited(const Command& command) {
  for (int descriptor : command.inherited_descriptors) close(descriptor);
}

// In seconds. A child that a signal ended reports nothing for which the others should wait; and if it dies while they
// still start up, they do not notice.
constexpr double kGraceAfterKill = 0.8;

/// From one look at the children to the next, where this process is not suspended meanwhile.
constexpr std::chrono::seconds kLongPoll(1);

// Watches running children and decides when the rest must go.
class Supervisor {
 public:
  Supervisor(std::vector<Child>& children, double grace_seconds, OnInterrupt on_interrupt, double suspended_seconds)
      : children_(children),
        grace_(grace_seconds),
        suspended_seconds_(suspended_seconds),
        on_interrupt_(on_interrupt) {}

  void step() {
    for (Child& child : children_) {
      if (!reap(child)) continue;
      child.ending.order = ended_++;
      child.ending.stopped_by_us = asked_ || passed_on_;
    }
    const bool failed = std::ranges::any_of(children_, [](const Child& c) { return c.ended && !c.ending.ok(); });
    // One rank asks for all: two that see it in different steps would ask for two.
    if (g_checkpoint_requested.exchange(false))
      if (const auto running = std::ranges::find(children_, false, &Child::ended); running != children_.end())
        signal_one(*running, SIGUSR1);
    pass_interrupts_on();
    const bool killed = std::ranges::any_of(children_, [](const Child& c) { return c.ending.signal != 0; });
    if (failed && !armed_) arm(killed ? std::min(grace_, kGraceAfterKill) : grace_);
    end_suspended();
    if (!armed_ || Clock::now() < deadline_) return;
    signal_all(children_, asked_ ? SIGKILL : SIGTERM);
    asked_ = true;
    arm(1.0);
  }

 private:
  void pass_interrupts_on() {
    if (interrupted() && !passed_on_) {
      passed_on_ = true;
      signal_all(children_, SIGTERM);
      if (on_interrupt_ == OnInterrupt::kEnd) arm(2.0);
    }
    if (g_interrupts > 1 && on_interrupt_ == OnInterrupt::kKeepState) signal_all(children_, SIGKILL);
  }

  void end_suspended() {
    const bool all = std::ranges::all_of(children_, [](const Child& c) { return c.ended || c.suspended; });
    const Clock::time_point now = Clock::now();
    // Where we were suspended ourselves, they are about to go on as we do.
    const bool was_away = now - std::exchange(last_look_, now) > kLongPoll;
    if (!all || was_away || std::ranges::all_of(children_, &Child::ended)) last_not_suspended_ = now;
    if (std::chrono::duration<double>(now - last_not_suspended_).count() < suspended_seconds_) return;
    for (Child& child : children_) child.ending.was_suspended = child.ending.was_suspended || !child.ended;
    asked_ = true;
    signal_all(children_, SIGKILL);
  }

  void arm(double seconds) {
    armed_ = true;
    deadline_ = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  }

  std::vector<Child>& children_;
  double grace_, suspended_seconds_;
  OnInterrupt on_interrupt_;
  size_t ended_ = 0;
  bool passed_on_ = false, armed_ = false, asked_ = false;
  Clock::time_point deadline_;
  Clock::time_point last_not_suspended_ = Clock::now();  // not all that still run
  Clock::time_point last_look_ = Clock::now();
};

std::vector<Ending> supervise(std::vector<Child>& children, double grace_seconds, const LineHandler& on_line,
                              OnInterrupt on_interrupt = OnInterrupt::kEnd,
                              double suspended_seconds = std::numeric_limits<double>::infinity()) {
  Supervisor supervisor(children, grace_seconds, on_interrupt, suspended_seconds);
  const auto running = [](const Child& child) { return !child.ended || child.output >= 0; };
  while (std::ranges::any_of(children, running)) {
    poll_outputs(children, on_line);
    supervisor.step();
    close_outputs_of_ended(children, on_line);
  }
  // Nobody else would stop the processes that a failed child has started and left behind.
  for (const Child& child : children)
    if (child.own_group && !child.ending.ok()) kill(-child.pid, SIGKILL);
  std::vector<Ending> endings;
  for (const Child& child : children) endings.push_back(child.ending);
  return endings;
}

}  // namespace

Result<std::vector<Ending>> run_processes(const std::vector<Command>& commands, double grace_seconds,
                                          const LineHandler& on_line, OnInterrupt on_interrupt,
                                          double suspended_seconds) {
  std::vector<Child> children;
  for (const Command& command : commands) {
    Result<Child> child = start(command, false);
    close_inherited(command);
    if (!child) {
      for (size_t i = children.size() + 1; i < commands.size(); ++i) close_inherited(commands[i]);
      signal_all(children, SIGKILL);
      supervise(children, 0, {});
      return child.problems();
    }
    children.push_back(std::move(child).value());
  }
  return supervise(children, grace_seconds, on_line, on_interrupt, suspended_seconds);
}

Result<std::vector<Ending>> run_forks(const std::vector<Command>& commands, double grace_seconds,
                                      const LineHandler& on_line, OnInterrupt on_interrupt, double suspended_seconds) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return run_processes(commands, grace_seconds, on_line, on_interrupt, suspended_seconds);
  Result<std::vector<Child>> children = start_forks(commands);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  std::ranges::for_each(commands, close_inherited);
  if (!children) return children.problems();
  return supervise(*children, grace_seconds, on_line, on_interrupt, suspended_seconds);
}

Result<Finished> run_and_collect(const Command& command, const LineHandler& on_line) {
  Finished finished;
  GP_TRY(Child child, start(command, true));
  std::vector<Child> children;
  children.push_back(std::move(child));
  const auto collect = [&](size_t index, std::string_view line) {
    finished.output += line;
    finished.output += '\n';
    if (on_line) on_line(index, line);
  };
  finished.ending = supervise(children, 0, collect).front();
  return finished;
}

bool interrupted() { return g_signal != 0; }
int interrupting_signal() { return g_signal; }
const std::atomic<bool>& interrupt_flag() { return g_interrupted; }
void catch_interrupts() {
  catch_signal(SIGINT, remember_signal);
  catch_signal(SIGTERM, remember_signal);
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) catch_signal(SIGHUP, remember_signal);  // nohup has it ignored
}
void catch_checkpoint_requests() { catch_signal(SIGUSR1, remember_checkpoint_request); }

}  // namespace graphpipe::driver
