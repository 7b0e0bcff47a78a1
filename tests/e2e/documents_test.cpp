// What the documents tell a new user to type is typed here.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "driver/cli/commands.h"
#include "driver/launch/process.h"
#include "files/cluster.h"

using namespace graphpipe;

namespace {

namespace fs = std::filesystem;

const std::string kSource = GRAPHPIPE_SOURCE_DIR;
const std::string kBuild = GRAPHPIPE_BINARY_DIR;

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

void type(std::string command, const std::string& folder) {
  CAPTURE(command);
  REQUIRE(command.starts_with("graphpipe "));
  const auto finished =
      driver::run_and_collect({.arguments = {"sh", "-c", kBuild + "/bin/" + command}, .working_folder = folder});
  REQUIRE(finished.ok());
  CAPTURE(finished->output);
  CHECK(finished->ending.ok());
}

// The command lines of the fenced blocks of a page, continuations joined.
std::vector<std::string> commands_of(const std::string& page) {
  std::ifstream file(page);
  REQUIRE(file.good());
  std::vector<std::string> commands;
  std::string line;
  bool in_block = false, continued = false;
  while (std::getline(file, line)) {
    if (line.starts_with("```")) in_block = !in_block;
    if (!in_block || (!continued && !line.starts_with("graphpipe "))) continue;
    std::string& command = continued ? commands.back() : commands.emplace_back();
    continued = line.ends_with("\\");
    command += continued ? line.substr(0, line.size() - 1) : line;
  }
  return commands;
}

// A command of a "console" block, and the lines of its output that the page shows.
struct Exchange {
  std::string command;
  std::vector<std::string> shown;
};

std::vector<Exchange> exchanges_of(const std::string& page) {
  std::ifstream file(page);
  REQUIRE(file.good());
  std::vector<Exchange> exchanges;
  bool in_block = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) in_block = line == "```console";
    else if (in_block && line.starts_with("$ ")) exchanges.push_back({line.substr(2), {}});
    else if (in_block) exchanges.back().shown.push_back(line);
  }
  return exchanges;
}

// Whether the line is as shown, where "..." stands for anything.
bool is_as_shown(const std::string& line, const std::string& shown) {
  size_t at = 0, from = 0;
  while (true) {
    const size_t gap = shown.find("...", from);
    const std::string part = shown.substr(from, gap - from);
    const size_t found = line.find(part, at);
    if (found == std::string::npos || (from == 0 && found != 0)) return false;
    at = found + part.size();
    if (gap == std::string::npos) return part.empty() || line.ends_with(part);
    from = gap + 3;
  }
}

}  // namespace

TEST_CASE("the journey of docs/architecture.md: its commands work, and their output has the lines that it shows") {
  const std::vector<Exchange> exchanges = exchanges_of(kSource + "/docs/architecture.md");
  REQUIRE(exchanges.size() >= 5);
  fs::create_directories(kBuild + "/e2e");
  for (const Exchange& exchange : exchanges) {
    std::string command = exchange.command;
    replace_all(command, "build/", kBuild + "/e2e/");
    CAPTURE(command);
    const std::string path = "PATH='" + kBuild + "/bin':\"$PATH\"; ";
    const auto finished =
        driver::run_and_collect({.arguments = {"sh", "-c", path + command}, .working_folder = kSource});
    REQUIRE(finished.ok());
    CAPTURE(finished->output);
    CHECK(finished->ending.ok());
    std::istringstream lines(finished->output);
    std::string line;
    for (const std::string& shown : exchange.shown) {
      bool found = shown == "...";
      while (!found && std::getline(lines, line)) found = is_as_shown(line, shown);
      CHECK_MESSAGE(found, shown);
    }
  }
}

TEST_CASE("the commands of the README and of docs/") {
  // A run goes on from the checkpoints of an earlier one.
  fs::create_directories(kBuild + "/e2e");
  for (const fs::directory_entry& entry : fs::directory_iterator(kBuild + "/e2e"))
    if (entry.path().filename().string().starts_with("typed-")) fs::remove_all(entry.path());
  for (const char* page : {"README.md", "docs/files.md", "docs/training.md", "docs/watching.md", "docs/migration.md"}) {
    CAPTURE(page);
    const std::vector<std::string> commands = commands_of(kSource + "/" + page);
    REQUIRE_FALSE(commands.empty());
    for (std::string command : commands) {
      replace_all(command, "build/", kBuild + "/e2e/typed-");
      type(command, kSource);
    }
  }
}

TEST_CASE("the cluster file of docs/files.md is one, and is what --devices means") {
  std::ifstream file(kSource + "/docs/files.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const size_t begin = text.find("{\n  \"schema\": \"graphpipe.cluster/1\"");
  REQUIRE(begin != std::string::npos);
  const auto cluster = files::parse_cluster(text.substr(begin, text.find("```", begin) - begin));
  REQUIRE(cluster.ok());
  ir::Cluster equal = ir::equal_devices(2);
  REQUIRE(cluster->devices.size() == 2);
  for (const ir::DeviceId id : {ir::DeviceId(0), ir::DeviceId(1)}) {
    equal.devices[id].name = cluster->devices[id].name;
    equal.devices[id].host = cluster->devices[id].host;
  }
  CHECK(*cluster == equal);
}

TEST_CASE("every verb's example works, in the order of the verbs") {
  const fs::path folder = kBuild + "/e2e/verbs";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy(kSource + "/tests/data/models/resnet/model.onnx", folder / "model.onnx");
  fs::copy(kSource + "/tests/data/models/resnet/data", folder / "data");
  std::ofstream(folder / "sweep.toml") << "[flags]\nmodel = \"model.onnx\"\nloss = \"cross_entropy:logits,label\"\n"
                                          "[axes]\ndevices = [1, 2]\n";
  for (const driver::CommandEntry& row : driver::all_commands()) type(std::string(row.example), folder);
  CHECK(fs::exists(folder / "weights.safetensors"));
}
