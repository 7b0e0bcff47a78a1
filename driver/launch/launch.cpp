#include "driver/launch/launch.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <set>
#include <utility>

#include "driver/launch/build_folder.h"
#include "driver/launch/check_program.h"
#include "driver/launch/process.h"
#include "support/memory_limit.h"
#include "support/terminal_line.h"
#include "wire/exit_codes.h"
#include "wire/problem_line.h"
#include "wire/result_lines.h"
#include "wire/secret.h"

namespace graphpipe::driver {
namespace {

// Ranks learn at once that another one has failed, and end by themselves; one that is stopped, or in a long action,
// does not.
constexpr double kGraceSeconds = 2;
// Those that keep checkpoints first finish the one that they have begun (runtime/checkpoint/checkpointer.cpp).
constexpr double kGraceSecondsToKeepState = 10;

// The loader's, where a library is missing or finds no memory, and that of a process which could not become the
// program.
constexpr int kExitNotStarted = 127;

// How the ranks meet.
struct Meeting {
  std::vector<std::vector<int>> descriptors;  // by rank
  std::string secret;
};

Diagnostic no_meeting(const char* what) {
  return Diagnostic{.code = Code::kEnvironment,
                    .message = text("the processes cannot be connected: ", what),
                    .hint = "check the limit on open files (ulimit -n)"};
}

// A connection from rank 0 to every other rank, made here and inherited: nobody else can reach them. The secret keeps
// strangers from the sockets that the ranks open themselves where they talk by TCP.
Result<Meeting> connect_ranks(size_t ranks) {
  Meeting meeting{.descriptors = std::vector<std::vector<int>>(ranks), .secret = {}};
  for (size_t rank = 1; rank < ranks; ++rank) {
    int ends[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      const char* why = std::strerror(errno);
      for (const std::vector<int>& of_rank : meeting.descriptors)
        for (int descriptor : of_rank) close(descriptor);
      return no_meeting(why);
    }
    meeting.descriptors[0].push_back(ends[0]);
    meeting.descriptors[rank].push_back(ends[1]);
  }
  std::array<unsigned char, 32> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return no_meeting("the system gives no random numbers");
  for (unsigned char byte : random) {
    meeting.secret += "0123456789abcdef"[byte >> 4];
    meeting.secret += "0123456789abcdef"[byte & 15];
  }
  return meeting;
}

// Whether a child failed for a reason of its own, rather than by what another one did.
bool is_cause(const Ending& ending) { return ending.signal != 0 || ending.exit_code != wire::kExitPeerFailed; }

// The exit code of the first child that failed for a reason of its own, else of the first that lost contact with
// another one.
int outcome_code(const std::vector<Ending>& endings) {
  if (interrupted()) return 128 + interrupting_signal();
  const Ending* first = nullptr;
  for (const Ending& ending : endings) {
    if (ending.ok() || ending.stopped_by_us) continue;
    const auto rank = [](const Ending& e) { return std::pair(!is_cause(e), e.order); };
    if (first == nullptr || rank(ending) < rank(*first)) first = &ending;
  }
  if (first == nullptr)
    return std::ranges::any_of(endings, &Ending::was_suspended) ? wire::kExitPeerFailed : wire::kExitOk;
  if (first->exit_code == kExitNotStarted) return wire::kExitEnvironment;
  return first->signal != 0 ? static_cast<int>(wire::kExitPeerFailed) : first->exit_code;
}

// Of the endings that the programs could not tell of.
Diagnostics unheard_failures(const std::vector<Ending>& endings) {
  if (interrupted()) return {};  // they ended because we asked them to
  Diagnostics failures;
  const auto add = [&](std::string message, std::string hint) {
    failures.push_back({.code = Code::kPeerFailed, .message = std::move(message), .hint = std::move(hint)});
  };
  if (std::ranges::any_of(endings, &Ending::was_suspended))
    add("all devices that still ran were suspended (SIGSTOP) for longer than the stall time-out, and were ended",
        "see who suspended them, or pass a longer --stall-timeout");
  for (size_t i = 0; i < endings.size(); ++i) {
    const int signal = endings[i].signal;
    if (endings[i].exit_code == kExitNotStarted)
      failures.push_back({.code = Code::kEnvironment,
                          .message = text("device ", i, " did not start: a library cannot be found, or not loaded"),
                          .hint = "see what is said of it above; " + memory_hint()});
    if (signal == 0 || endings[i].stopped_by_us) continue;
    const bool is_cut = signal == SIGBUS;  // data and weights are mapped files
    add(text("device ", i, " was ended by signal ", signal,
             is_cut              ? ": a file that it was reading was cut short, or its disk failed"
             : signal == SIGABRT ? ": it gave itself up, as programs do that find no memory before they begin"
                                 : ""),
        is_cut              ? "check the files of the run"
        : signal == SIGABRT ? "see what is said of it above; " + memory_hint()
                            : "where it is 9, see whether this host's memory ran out");
  }
  return failures;
}

void add_unheard_failures(const std::vector<Ending>& endings, RunOutcome& outcome) {
  for (Diagnostic& failure : unheard_failures(endings)) outcome.problems.push_back(std::move(failure));
}

// On GPUs each rank starts by itself: what CUDA's libraries keep does not outlive a fork.
bool may_fork(size_t ranks, const wire::RunOptions& options) { return ranks > 1 && options.launch.device == "cpu"; }

// So many processes of the program (its path), which are told their ranks; `run` starts them.
Result<RunOutcome> launch(const std::string& folder, const std::string& program, size_t ranks,
                          const wire::RunOptions& options, bool echo, decltype(run_processes)& run) {
  GP_TRY(const Meeting meeting, connect_ranks(ranks));
  std::vector<Command> commands;
  for (size_t rank = 0; rank < ranks; ++rank) {
    wire::RunOptions own = options;
    own.launch.folder = folder.empty() ? "" : std::filesystem::absolute(folder).string();
    own.launch.rank = static_cast<int>(rank);
    own.launch.world_size = static_cast<int>(ranks);
    own.launch.rendezvous_fds = meeting.descriptors[rank];
    own.launch.parent = getpid();
    Command command;
    command.arguments = {program};
    for (std::string& argument : wire::to_arguments(own)) command.arguments.push_back(std::move(argument));
    command.environment = {text(wire::kSecretVariable, "=", meeting.secret)};
    command.inherited_descriptors = own.launch.rendezvous_fds;
    commands.push_back(std::move(command));
  }
  RunOutcome outcome;
  TerminalLine steps(STDOUT_FILENO);
  std::set<std::string, std::less<>> told;
  const auto on_line = [&](size_t child, std::string_view line) {
    if (std::optional<Diagnostic> problem = wire::parse_problem_line(line)) {
      if (told.emplace(line).second) outcome.problems.push_back(*std::move(problem));
      return;
    }
    if (child != 0) return;
    outcome.report += line;
    outcome.report += '\n';
    if (!echo) return;
    if (wire::is_step_line(line)) return steps.show(line);
    steps.say(line);
  };
  const bool keeps_state = !options.checkpoint.folder.empty();
  // A single device keeps nobody waiting: whoever has suspended it may let it go on.
  const double suspended_seconds =
      ranks > 1 ? options.launch.stall_timeout.value_or(wire::kStallTimeout) : std::numeric_limits<double>::infinity();
  GP_TRY(const std::vector<Ending> endings,
         run(commands, keeps_state ? kGraceSecondsToKeepState : kGraceSeconds, on_line,
             keeps_state ? OnInterrupt::kKeepState : OnInterrupt::kEnd, suspended_seconds));
  steps.end();
  if (steps.failed()) std::cout.setstate(std::ios::failbit);  // where the program's end looks for it
  add_unheard_failures(endings, outcome);
  // Causes before what they led to, however the lines of the ranks met, and what is left behind them.
  const auto place = [](const Diagnostic& problem) {
    return std::pair(problem.severity == Severity::kNote, problem.code == Code::kPeerFailed);
  };
  std::ranges::stable_sort(outcome.problems, {}, place);
  outcome.exit_code = outcome_code(endings);
  return outcome;
}

// The same, as forks where they may be.
Result<RunOutcome> launch_ranks(const std::string& folder, const std::string& program, size_t ranks,
                                const wire::RunOptions& options, bool echo) {
  return launch(folder, program, ranks, options, echo, may_fork(ranks, options) ? run_forks : run_processes);
}

}  // namespace

wire::RunOptions for_programs(const wire::RunOptions& options, const ir::Plan& plan, bool json) {
  wire::RunOptions out = options;
  for (const wire::RunFlag& flag : wire::run_flags()) {
    const std::string path = flag.is_path ? flag.write(options) : "";
    if (!path.empty()) flag.read(std::filesystem::absolute(path).string(), out);
  }
  out.data.seed = options.data.seed.value_or(plan.seed);
  out.output.json = json;
  return out;
}

Result<RunOutcome> launch_devices(const std::string& folder, int device_count, const wire::RunOptions& options,
                                  bool echo) {
  const std::string program = folder + "/build/device";
  GP_TRY_VOID(check_built_program(program));
  const size_t servers = options.optimizer.staleness ? 1 : 0;
  return launch_ranks(folder, program, static_cast<size_t>(device_count) + servers, options, echo);
}

Result<RunOutcome> launch_profile(const std::string& folder, int ranks, const wire::RunOptions& options) {
  const std::string program = folder + "/build/profile";
  GP_TRY_VOID(check_built_program(program));
  return launch_ranks(folder, program, static_cast<size_t>(ranks), options, false);
}

Result<RunOutcome> launch_program(const std::string& name, int ranks, const wire::RunOptions& options) {
  GP_TRY(const std::string program, runtime_program(installed_runtime(), name));
  return launch(options.launch.folder, program, static_cast<size_t>(ranks), options, false, run_processes);
}

Result<RunOutcome> launch_paced(const std::string& folder, int ranks, const wire::RunOptions& options) {
  GP_TRY(const std::string program, runtime_program(installed_runtime(), "graphpipe-pace"));
  return launch_ranks(folder, program, static_cast<size_t>(ranks), options, false);
}

Result<RunOutcome> launch_serial(const std::string& folder, const wire::RunOptions& options) {
  wire::RunOptions own = options;
  own.launch.folder = std::filesystem::absolute(folder).string();
  own.launch.parent = getpid();
  own.launch.serial = true;
  Command command;
  command.arguments = {folder + "/build/device"};
  GP_TRY_VOID(check_built_program(command.arguments.front()));
  for (std::string& argument : wire::to_arguments(own)) command.arguments.push_back(std::move(argument));
  RunOutcome outcome;
  const auto on_line = [&](size_t, std::string_view line) {
    if (std::optional<Diagnostic> problem = wire::parse_problem_line(line))
      outcome.problems.push_back(*std::move(problem));
    else outcome.report += std::string(line) + "\n";
  };
  GP_TRY(const std::vector<Ending> endings, run_processes({command}, 5, on_line));
  add_unheard_failures(endings, outcome);
  outcome.exit_code = outcome_code(endings);
  return outcome;
}

}  // namespace graphpipe::driver
