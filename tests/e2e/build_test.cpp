// What `graphpipe build` compiles is what was generated, where it lies now, and nothing goes on after it has ended.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "driver/launch/process.h"
#include "tests/e2e/background_run.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;
namespace fs = std::filesystem;

namespace {

constexpr const char* kGraphpipe = GRAPHPIPE_BINARY_DIR "/bin/graphpipe";

std::string new_folder(const std::string& name) {
  const std::string folder = work_folder(name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::string generated(const std::string& folder) {
  make_plan(read_reference("dlrm"), folder + "/plan.json", {"--devices", "1", "--stages", "1"});
  graphpipe_output({"generate", folder + "/plan.json", "-o", folder + "/out", "--quiet"});
  return folder + "/out";
}

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

// The message of a verb that is expected to refuse.
std::string refusal(const std::vector<std::string>& words, int code) {
  std::vector<std::string> arguments{kGraphpipe};
  arguments.insert(arguments.end(), words.begin(), words.end());
  const auto finished = driver::run_and_collect({.arguments = arguments});
  REQUIRE(finished.ok());
  CAPTURE(finished->output);
  CHECK(finished->ending.exit_code == code);
  return finished->output;
}

bool says(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

// Running compilers that have been told of this folder.
std::vector<pid_t> compilers_of(const std::string& folder) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::ostringstream read;
    read << file.rdbuf();  // a process that has ended meanwhile cannot be read, which an iterator would throw
    const std::string words = read.str();
    const std::string program = words.substr(0, words.find('\0'));
    if (program.ends_with("cc1plus") && words.find(folder) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::vector<pid_t> wait_for_compilers(const std::string& folder) {
  for (int round = 0; round < 6000; ++round) {
    if (std::vector<pid_t> found = compilers_of(folder); !found.empty()) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

// The file that CMake writes once about the compiler, and reads at every build.
std::string found_of_compiler(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder + "/build/CMakeFiles"))
    if (const fs::path file = entry.path() / "CMakeCXXCompiler.cmake"; fs::exists(file)) return file;
  FAIL("CMake has no such file");
  return {};
}

}  // namespace

TEST_CASE("build and compile that are asked to terminate take their compilers with them, and nobody joins in before") {
  const std::string folder = new_folder("build.terminated");
  const std::string out = generated(folder), model = read_reference("dlrm").folder + "/model.onnx";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"build", out},
        {"compile", model, "--loss", "bce:logit,click", "--devices", "1", "--stages", "1", "-o", folder + "/second"}}) {
    CAPTURE(words.front());
    std::vector<std::string> arguments = {"/usr/bin/env", "CCACHE_DISABLE=1", kGraphpipe};
    arguments.insert(arguments.end(), words.begin(), words.end());
    BackgroundRun build(arguments, folder + "/talk");
    const std::vector<pid_t> compilers = wait_for_compilers(words.back());
    REQUIRE_FALSE(compilers.empty());
    CHECK(says(refusal({"build", words.back()}, 5), "another graphpipe is writing into it"));
    CHECK(says(refusal({"generate", folder + "/plan.json", "-o", words.back()}, 5), "another graphpipe"));
    kill(build.pid(), SIGTERM);
    CHECK(build.wait(15) == 128 + SIGTERM);
    CHECK(all_gone(compilers, 1));
    CHECK(compilers_of(words.back()).empty());
    CHECK(says(build.talk(), "start the same command again"));
  }
}

TEST_CASE("with ccache, stages that another folder has compiled are not compiled again") {
  if (std::system("ccache --version > /dev/null") != 0) return;  // it is the user's choice to have it
  const std::string folder = new_folder("build.cached"), other = new_folder("build.cached_too");
  const std::string cache = "CCACHE_DIR=" + folder + "/objects";
  const auto hits = [&] {
    const auto stats = driver::run_and_collect({.arguments = {"ccache", "--print-stats"}, .environment = {cache}});
    REQUIRE(stats.ok());
    int sum = 0;
    for (const char* kind : {"direct_cache_hit\t", "preprocessed_cache_hit\t"}) {
      const size_t at = stats->output.find(kind);
      REQUIRE(at != std::string::npos);
      sum += std::stoi(stats->output.substr(at + std::string(kind).size()));
    }
    return sum;
  };
  const auto built = [&](const std::string& out) {
    const auto finished =
        driver::run_and_collect({.arguments = {kGraphpipe, "build", out, "--quiet"}, .environment = {cache}});
    REQUIRE(finished.ok());
    REQUIRE(finished->ending.ok());
  };
  built(generated(folder));
  CHECK(hits() == 0);
  const std::string second = generated(other);
  built(second);
  CHECK(hits() >= 3);  // the stage, its programs and theirs
  CHECK(losses_of(graphpipe_output({"run", second, "--steps", "2", "--json"})) ==
        losses_of(graphpipe_output({"run", folder + "/out", "--steps", "2", "--json"})));
  // Where it cannot write, there or further down, there is the compiler alone.
  append(folder + "/file", "");
  fs::create_directories(folder + "/broken");
  append(folder + "/broken/tmp", "");
  for (int digit = 0; digit < 16; ++digit) append(folder + "/broken/" + "0123456789abcdef"[digit], "");
  for (const char* place : {"/file/objects", "/broken"}) {
    fs::remove_all(second + "/build");
    const auto finished = driver::run_and_collect(
        {.arguments = {kGraphpipe, "build", second, "--quiet"}, .environment = {"CCACHE_DIR=" + folder + place}});
    REQUIRE(finished.ok());
    CAPTURE(finished->output);
    CHECK(finished->ending.ok());
  }
  // What the compiler itself says no to it is asked once.
  fs::remove_all(second + "/build");
  const auto refused = driver::run_and_collect(
      {.arguments = {kGraphpipe, "build", second, "--quiet"}, .environment = {cache, "CXXFLAGS=-Dforward=0"}});
  REQUIRE(refused.ok());
  CHECK(refused->ending.exit_code == 5);
  const std::string log = read_text(second + "/build.log"), stopped = "ninja: build stopped";
  CHECK(log.find(stopped) != std::string::npos);
  CHECK(log.find(stopped) == log.rfind(stopped));
}

TEST_CASE("a compiled folder is rebuilt where it was copied to, and programs and sources are those that were made") {
  const std::string folder = new_folder("build.changed");
  const std::string first = generated(folder), out = folder + "/copy";
  graphpipe_output({"build", first});
  const std::string hardened =
      "python3 '" GRAPHPIPE_SOURCE_DIR "/tests/scripts/hardened_test.py' '" + first + "/build/device'";
  CHECK(std::system(hardened.c_str()) == 0);
  const std::string losses = graphpipe_output({"run", first, "--steps", "2", "--json"});
  fs::copy(first, out, fs::copy_options::recursive);
  append(out + "/vector", "#error this is no header of the folder\n");
  graphpipe_output({"build", out});
  CHECK(read_text(out + "/build/CMakeCache.txt").find(fs::canonical(out).string()) != std::string::npos);
  CHECK(losses_of(graphpipe_output({"run", out, "--steps", "2", "--json"})) == losses_of(losses));

  SUBCASE("a program that was changed after the build does not start") {
    append(out + "/build/device", "x");
    CHECK(says(refusal({"run", out}, 3), "not the one that was built"));
    fs::remove(out + "/build/device.sha256");
    CHECK(says(refusal({"run", out}, 5), "has not recorded"));
    fs::remove(out + "/build/device");
    graphpipe_output({"build", out});
    graphpipe_output({"run", out});
  }
  SUBCASE("changed and added sources are named, and nothing is compiled") {
    append(out + "/CMakeLists.txt", "message(STATUS hello)\n");
    append(out + "/stages/more.cpp", "int more;\n");
    const std::string message = refusal({"build", out}, 3);
    CHECK(says(message, "CMakeLists.txt"));
    CHECK(says(message, "more.cpp"));
  }
  SUBCASE("what CMake remembers of another build is forgotten") {
    append(out + "/build/CMakeCache.txt", "CMAKE_PROJECT_INCLUDE:FILEPATH=/nowhere/planted.cmake\n");
    graphpipe_output({"build", out});
    CHECK(read_text(out + "/build/CMakeCache.txt").find("planted") == std::string::npos);
    // What it has found out of the compiler it would run as well, without its cache too.
    for (const bool with_cache : {true, false}) {
      const std::string found = found_of_compiler(out);
      append(found, "message(FATAL_ERROR planted)\n");
      if (!with_cache) fs::remove(out + "/build/CMakeCache.txt");
      graphpipe_output({"build", out});
      CHECK(read_text(found).find("planted") == std::string::npos);
    }
  }
  SUBCASE("the log of a build goes through no link and into no pipe") {
    fs::remove(out + "/build.log");
    append(folder + "/mine", "kept");
    fs::create_symlink(folder + "/mine", out + "/build.log");
    graphpipe_output({"build", out});
    CHECK(read_text(folder + "/mine") == "kept");
    fs::remove(out + "/build.log");
    REQUIRE(mkfifo((out + "/build.log").c_str(), 0600) == 0);
    graphpipe_output({"build", out});
    CHECK(fs::is_regular_file(out + "/build.log"));
    fs::remove(out + "/build.log");
    fs::create_directories(out + "/build.log/taken");
    CHECK(says(refusal({"build", out}, 5), "build.log"));
  }
}
