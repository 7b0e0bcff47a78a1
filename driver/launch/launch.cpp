#include "driver/launch/launch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "driver/launch/process.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

// Owns a listening socket on the loopback interface; rank 0 inherits it, so no port is guessed and none is raced for.
class LoopbackListener {
 public:
  LoopbackListener() {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (socket_ < 0 || bind(socket_, generic, length) != 0 || listen(socket_, 64) != 0 ||
        getsockname(socket_, generic, &length) != 0)
      return;
    port_ = ntohs(address.sin_port);
  }
  LoopbackListener(const LoopbackListener&) = delete;
  LoopbackListener& operator=(const LoopbackListener&) = delete;
  ~LoopbackListener() {
    if (socket_ >= 0) close(socket_);
  }
  int descriptor() const { return socket_; }
  int port() const { return port_; }

 private:
  int socket_ = -1;
  int port_ = -1;
};

Status check_program(const std::string& path) {
  if (access(path.c_str(), X_OK) == 0) return Ok{};
  return Diagnostic{.code = Code::kEnvironment,
                    .origin = ModelText(path),
                    .message = "the program is missing or cannot be run",
                    .hint = "run `graphpipe build` on the folder first"};
}

// The exit code of the child that failed for a reason of its own, before those that lost a peer.
int outcome_code(const std::vector<Ending>& endings) {
  if (interrupted()) return 128 + interrupting_signal();
  int code = wire::kExitOk;
  for (const Ending& ending : endings) {
    if (ending.signal != 0) return wire::kExitPeerFailed;
    if (ending.exit_code != 0 && (code == wire::kExitOk || code == wire::kExitPeerFailed)) code = ending.exit_code;
  }
  return code;
}

void report_failures(const std::vector<Ending>& endings) {
  if (interrupted()) return;  // they ended because we asked them to
  for (size_t i = 0; i < endings.size(); ++i)
    if (endings[i].signal != 0)
      std::cerr << "graphpipe: device " << i << " was ended by signal " << endings[i].signal << "\n";
}

// One process for each of the programs (their paths), in the order of their ranks.
Result<RunOutcome> launch(const std::string& folder, const std::vector<std::string>& programs,
                          const wire::RunOptions& options, bool echo) {
  const LoopbackListener listener;
  if (listener.port() < 0) {
    return Diagnostic{.code = Code::kEnvironment,
                      .message = "no port can be opened on the loopback interface",
                      .hint = "check the limits on sockets and that the loopback interface is up"};
  }
  std::vector<Command> commands;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    wire::RunOptions own = options;
    own.folder = std::filesystem::absolute(folder).string();
    own.rank = static_cast<int>(rank);
    own.world_size = static_cast<int>(programs.size());
    own.master_address = "127.0.0.1";
    own.master_port = listener.port();
    own.parent = getpid();
    own.listen_fd = rank == 0 ? listener.descriptor() : -1;
    Command command;
    command.arguments = {programs[rank]};
    GP_TRY_VOID(check_program(command.arguments.front()));
    for (std::string& argument : wire::to_arguments(own)) command.arguments.push_back(std::move(argument));
    command.inherited_descriptor = own.listen_fd;
    commands.push_back(std::move(command));
  }
  RunOutcome outcome;
  const auto on_line = [&](size_t child, std::string_view line) {
    if (child != 0) return;
    outcome.report += line;
    outcome.report += '\n';
    if (echo) std::cout << line << std::endl;
  };
  const double grace_seconds = options.stall_timeout.value_or(wire::kStallTimeout) + 5;
  GP_TRY(const std::vector<Ending> endings, run_processes(commands, grace_seconds, on_line));
  report_failures(endings);
  outcome.exit_code = outcome_code(endings);
  return outcome;
}

}  // namespace

Result<wire::RunOptions> to_run_options(const RunOptions& options, const ir::Plan& plan, bool json) {
  wire::RunOptions out;
  out.data = options.data.empty() ? "" : std::filesystem::absolute(options.data).string();
  out.steps = options.steps;
  out.learning_rate = options.learning_rate;
  out.momentum = options.momentum;
  out.weight_decay = options.weight_decay;
  char* end = nullptr;
  out.beta1 = std::strtod(options.betas.c_str(), &end);
  const bool comma = *end == ',';
  if (comma) out.beta2 = std::strtod(end + 1, &end);
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  if (!comma || *end != '\0' || !is_beta(out.beta1) || !is_beta(out.beta2)) {
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText("--betas"),
                      .message = text("expected two numbers in [0, 1), found ", quoted(ModelText(options.betas))),
                      .hint = "write them as 0.9,0.999"};
  }
  out.epsilon = options.epsilon;
  out.clip_norm = options.clip_norm;
  out.seed = plan.seed;
  out.save = options.save.empty() ? "" : std::filesystem::absolute(options.save).string();
  out.trace = options.trace.empty() ? "" : std::filesystem::absolute(options.trace).string();
  out.save_gradients = options.save_gradients.empty() ? "" : std::filesystem::absolute(options.save_gradients).string();
  out.save_outputs = options.save_outputs.empty() ? "" : std::filesystem::absolute(options.save_outputs).string();
  out.weights = options.weights.empty() ? "" : std::filesystem::absolute(options.weights).string();
  out.stall_timeout = options.stall_timeout;
  out.device = options.device;
  out.transport = options.transport;
  out.json = json;
  return out;
}

Result<RunOutcome> launch_devices(const std::string& folder, int device_count, const wire::RunOptions& options,
                                  bool echo) {
  std::vector<std::string> programs;
  for (int device = 0; device < device_count; ++device)
    programs.push_back(folder + "/build/device" + std::to_string(device));
  return launch(folder, programs, options, echo);
}

Result<RunOutcome> launch_profile(const std::string& folder, int ranks, const wire::RunOptions& options) {
  return launch(folder, std::vector<std::string>(static_cast<size_t>(ranks), folder + "/build/profile"), options,
                false);
}

Result<RunOutcome> launch_program(const std::string& program, int ranks, const wire::RunOptions& options) {
  const std::string folder = std::filesystem::path(program).parent_path().string();
  return launch(folder, std::vector<std::string>(static_cast<size_t>(ranks), program), options, false);
}

Result<RunOutcome> launch_serial(const std::string& folder, const wire::RunOptions& options) {
  wire::RunOptions own = options;
  own.folder = std::filesystem::absolute(folder).string();
  own.parent = getpid();
  Command command;
  command.arguments = {folder + "/build/serial"};
  GP_TRY_VOID(check_program(command.arguments.front()));
  for (std::string& argument : wire::to_arguments(own)) command.arguments.push_back(std::move(argument));
  RunOutcome outcome;
  const auto on_line = [&](size_t, std::string_view line) { outcome.report += std::string(line) + "\n"; };
  GP_TRY(const std::vector<Ending> endings, run_processes({command}, 5, on_line));
  report_failures(endings);
  outcome.exit_code = outcome_code(endings);
  return outcome;
}

}  // namespace graphpipe::driver
