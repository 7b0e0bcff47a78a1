// The one executable that any rank starts: told its rank by the environment of a launcher alone.

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "driver/launch/process.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

// A port that nobody listens on right now.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof name;
  auto* generic = reinterpret_cast<sockaddr*>(&name);
  REQUIRE(bind(fd, generic, length) == 0);
  REQUIRE(getsockname(fd, generic, &length) == 0);
  close(fd);
  return ntohs(name.sin_port);
}

struct Names {
  std::string rank, size;
  std::vector<std::string> also;  // other variables, the same for all ranks
};

struct Outcome {
  std::vector<int> exit_codes;
  std::vector<std::string> output;
};

enum class Programs : uint8_t { kOfAnyRank, kOfOneDevice };

Outcome start(const Names& names, int ranks, const std::vector<std::string>& flags,
              Programs programs = Programs::kOfAnyRank) {
  const std::string port = std::to_string(free_port());
  std::vector<driver::Command> commands;
  for (int rank = 0; rank < ranks; ++rank) {
    driver::Command command;
    command.arguments = {three_stage_folder() + "/build/device"};
    if (programs == Programs::kOfOneDevice) command.arguments.front() += std::to_string(rank);
    command.arguments.insert(command.arguments.end(), flags.begin(), flags.end());
    command.environment = {"GRAPHPIPE_SECRET=what all ranks of these tests know"};
    command.environment.insert(command.environment.end(), names.also.begin(), names.also.end());
    command.environment.insert(
        command.environment.end(),
        {names.rank + "=" + std::to_string(rank), names.size + "=" + std::to_string(ranks), "MASTER_PORT=" + port});
    commands.push_back(std::move(command));
  }
  Outcome outcome{.exit_codes = {}, .output = std::vector<std::string>(commands.size())};
  const auto endings = driver::run_processes(
      commands, 20, [&](size_t child, std::string_view line) { outcome.output[child] += std::string(line) + "\n"; });
  REQUIRE(endings.ok());
  for (const driver::Ending& ending : *endings) outcome.exit_codes.push_back(ending.exit_code);
  return outcome;
}

}  // namespace

TEST_CASE("the environments of torchrun, mpirun and srun start the ranks, with the losses of one process") {
  const std::vector<std::string> flags{"--steps", "3", "--seed", "7", "--json"};
  std::string serial;
  std::vector<std::string> arguments{three_stage_folder() + "/build/device", "--serial"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const auto ending = driver::run_processes({{.arguments = arguments}}, 5,
                                            [&](size_t, std::string_view line) { serial += std::string(line) + "\n"; });
  REQUIRE((ending.ok() && ending->front().ok()));

  for (const Names& names :
       std::vector<Names>{{"RANK", "WORLD_SIZE", {"MASTER_ADDR=127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE=False"}},
                          {"RANK", "WORLD_SIZE", {"MASTER_ADDR=localhost", "SLURM_PROCID=0", "SLURM_NTASKS=1"}},
                          {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {}},
                          // mpirun in a Slurm job: every rank sees the batch script's own number.
                          {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"SLURM_PROCID=0", "SLURM_NTASKS=1"}},
                          {"PMI_RANK", "PMI_SIZE", {}},
                          {"SLURM_PROCID", "SLURM_NTASKS", {}}}) {
    CAPTURE(names.rank);
    const Outcome outcome = start(names, 3, flags);
    CHECK(outcome.exit_codes == std::vector<int>{0, 0, 0});
    CHECK(losses_of(outcome.output[0]) == losses_of(serial));
    CHECK(outcome.output[1].empty());
    CHECK(outcome.output[2].empty());
  }
}

TEST_CASE("a wrong number of ranks is a usage error of each") {
  CHECK(start({"RANK", "WORLD_SIZE", {}}, 2, {}).exit_codes == std::vector<int>{2, 2});
  CHECK(start({"SLURM_PROCID", "SLURM_NTASKS", {}}, 4, {}).exit_codes == std::vector<int>{2, 2, 2, 2});
  CHECK(start({"GRAPHPIPE_TEST_NO_RANK", "GRAPHPIPE_TEST_NO_SIZE", {}}, 1, {}).exit_codes == std::vector<int>{2});
  CHECK(start({"RANK", "WORLD_SIZE", {"RANK=x"}}, 1, {"--help"}).exit_codes == std::vector<int>{0});
}

TEST_CASE(
    "programs with the stages of one device are built by the name of their target, and start in the order of ranks") {
  const auto built = driver::run_and_collect(
      {.arguments = {"cmake", "--build", three_stage_folder() + "/build", "--target", "devices"}});
  REQUIRE(built.ok());
  REQUIRE(built->ending.ok());
  const std::vector<std::string> flags{"--steps", "2", "--seed", "7", "--json"};
  const Names names{"RANK", "WORLD_SIZE", {}};
  const Outcome each = start(names, 3, flags, Programs::kOfOneDevice), any = start(names, 3, flags);
  CHECK(each.exit_codes == std::vector<int>{0, 0, 0});
  CHECK(losses_of(each.output[0]) == losses_of(any.output[0]));
  CHECK(start(names, 2, {}, Programs::kOfOneDevice).exit_codes == std::vector<int>{2, 2});
  CHECK(start(names, 1, {"--serial"}, Programs::kOfOneDevice).exit_codes == std::vector<int>{2});
}

TEST_CASE("ranks without a launcher of ours need a secret, and take it from a file that is the user's alone") {
  const std::string file = work_folder("launch.secret");
  std::ofstream(file) << "what all ranks of these tests know\n";
  const Names by_file{"RANK", "WORLD_SIZE", {"GRAPHPIPE_SECRET=", "GRAPHPIPE_SECRET_FILE=" + file}};
  chmod(file.c_str(), 0600);
  CHECK(start(by_file, 3, {}).exit_codes == std::vector<int>{0, 0, 0});
  chmod(file.c_str(), 0644);
  CHECK(start(by_file, 3, {}).exit_codes == std::vector<int>{2, 2, 2});
  CHECK(start({"RANK", "WORLD_SIZE", {"GRAPHPIPE_SECRET="}}, 3, {}).exit_codes == std::vector<int>{2, 2, 2});
}
