// A run over two hosts: two network namespaces with a cable between them, and nothing else in either. The second one
// has its own process ids too: ranks on one host share memory, ranks on several cannot.

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "driver/launch/process.h"
#include "support/text.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

constexpr const char* kAddresses[] = {"10.77.0.1", "10.77.0.2"};
constexpr const char* kPort = "29400";

bool succeeds(const std::vector<std::string>& arguments) {
  const auto endings = driver::run_processes({{.arguments = arguments}}, 5, [](size_t, std::string_view) {});
  return endings.ok() && endings->front().ok();
}

/// Both hosts, as long as it lives.
class TwoHosts {
 public:
  TwoHosts() {
    exists_ = succeeds({"ip", "netns", "add", host(0)}) && succeeds({"ip", "netns", "add", host(1)}) &&
              succeeds({"ip", "link", "add", "cable0", "netns", host(0), "type", "veth", "peer", "name", "cable1",
                        "netns", host(1)});
    for (int i = 0; i < 2 && exists_; ++i) {
      const std::string cable = text("cable", i);
      exists_ = succeeds({"ip", "-n", host(i), "addr", "add", text(kAddresses[i], "/24"), "dev", cable}) &&
                succeeds({"ip", "-n", host(i), "link", "set", cable, "up"}) &&
                succeeds({"ip", "-n", host(i), "link", "set", "lo", "up"});
    }
  }
  ~TwoHosts() {
    for (int i = 0; i < 2; ++i) succeeds({"ip", "netns", "del", host(i)});
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool exist() const { return exists_; }
  std::string host(int i) const { return text("graphpipe-", getpid(), "-", i); }

 private:
  bool exists_ = false;
};

constexpr const char* kHostName = "first-host";

// Ranks 0 to `first_ranks` - 1 on the first host, the rest of three on the second. They must have the losses of one
// process.
void run_over_both(const TwoHosts& hosts, int first_ranks, const std::string& master, const std::string& transport) {
  const std::vector<std::string> flags{"--steps", "3", "--seed", "7", "--json"};
  std::vector<driver::Command> commands;
  for (int rank = 0; rank < 3; ++rank) {
    driver::Command command;
    const bool on_first = rank < first_ranks;
    command.arguments = {"ip", "netns", "exec", hosts.host(on_first ? 0 : 1)};
    if (!on_first) command.arguments.insert(command.arguments.end(), {"unshare", "--pid", "--fork"});
    command.arguments.insert(command.arguments.end(),
                             {three_stage_folder() + "/build/device", "--transport", transport});
    command.arguments.insert(command.arguments.end(), flags.begin(), flags.end());
    command.environment = {"GRAPHPIPE_SECRET=what the ranks on both hosts know", text("RANK=", rank), "WORLD_SIZE=3",
                           text("MASTER_ADDR=", master), text("MASTER_PORT=", kPort)};
    commands.push_back(std::move(command));
  }
  commands.push_back({.arguments = {three_stage_folder() + "/build/device", "--serial"}});
  commands.back().arguments.insert(commands.back().arguments.end(), flags.begin(), flags.end());
  std::vector<std::string> output(commands.size());
  const auto endings = driver::run_processes(
      commands, 30, [&](size_t child, std::string_view line) { output[child] += std::string(line) + "\n"; });
  REQUIRE(endings.ok());
  for (const driver::Ending& ending : *endings) CHECK(ending.exit_code == 0);
  CHECK(losses_of(output[0]) == losses_of(output[3]));
}

bool are_there(const TwoHosts& hosts) {
  if (!hosts.exist())
    std::cout << "SKIP: this machine does not allow network namespaces (they need root and the program ip)\n";
  return hosts.exist();
}

// What `ip netns exec` puts in the place of a host's /etc/hosts, as long as it lives.
class HostsFile {
 public:
  HostsFile(const std::string& host, const std::string& address) : folder_("/etc/netns/" + host) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/hosts") << "127.0.0.1 localhost\n" << address << " " << kHostName << "\n";
  }
  ~HostsFile() { std::filesystem::remove_all(folder_); }
  HostsFile(const HostsFile&) = delete;
  HostsFile& operator=(const HostsFile&) = delete;

 private:
  std::string folder_;
};

}  // namespace

TEST_CASE("ranks on two hosts have the losses of one process") {
  const TwoHosts hosts;
  if (are_there(hosts)) run_over_both(hosts, 1, kAddresses[0], "tcp");
}

TEST_CASE("so have they where the first host's own name stands for a loopback address there") {
  const TwoHosts hosts;
  if (!are_there(hosts)) return;
  const HostsFile first(hosts.host(0), "127.0.1.1"), second(hosts.host(1), kAddresses[0]);
  run_over_both(hosts, 2, kHostName, "tcp");
}

TEST_CASE("so have they where two of them share memory on the first host") {
  const TwoHosts hosts;
  if (are_there(hosts)) run_over_both(hosts, 2, kAddresses[0], "auto");
}
