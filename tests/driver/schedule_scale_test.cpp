// The time of `check` and of `schedule --dag` grows with the number of actions, about as that number does.

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/driver/ask.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

namespace fs = std::filesystem;

class ScaleFolder {
 public:
  ScaleFolder() : path_((fs::temp_directory_path() / "graphpipe-scale-XXXXXX").string()) {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  ~ScaleFolder() { fs::remove_all(path_); }
  ScaleFolder(const ScaleFolder&) = delete;
  ScaleFolder& operator=(const ScaleFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Processor time, the shorter of two runs: others may have the caches.
double seconds_of(const std::vector<std::string>& words) {
  double shortest = 1e9;
  for (int round = 0; round < 2; ++round) {
    const std::clock_t start = std::clock();
    const Answer answer = ask(words);
    shortest = std::min(shortest, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
  }
  return shortest;
}

/// What is eight times as long takes 8 times the time, a little more with trees and caches; 64 times if it is
/// quadratic.
constexpr int kTimes = 8;
constexpr double kMaxTimes = 24;

std::string number_list(const std::vector<int>& numbers) {
  std::string list;
  for (const int number : numbers) list += (list.empty() ? "" : ",") + std::to_string(number);
  return "[" + list + "]";
}

/// A stage graph of which each stage reads `predecessors(stage)`.
template <typename Predecessors>
void write_dag(const std::string& path, int stages, Predecessors predecessors) {
  std::string lists;
  for (int stage = 0; stage < stages; ++stage)
    lists += (stage == 0 ? "" : ",") + number_list(predecessors(stage, stages));
  std::ofstream(path) << R"({"predecessors": [)" << lists << R"(], "micro_batches": 8})";
}

std::vector<int> chain(int stage, int) { return stage == 0 ? std::vector<int>{} : std::vector<int>{stage - 1}; }
std::vector<int> two_before(int stage, int) {
  return stage < 2 ? chain(stage, 0) : std::vector<int>{stage - 2, stage - 1};
}
std::vector<int> fan(int stage, int stages) {
  if (stage < stages - 1) return stage == 0 ? std::vector<int>{} : std::vector<int>{0};
  std::vector<int> all;
  for (int before = 1; before < stages - 1; ++before) all.push_back(before);
  return all;
}

}  // namespace

TEST_CASE("check of eight times the rows takes about eight times the time") {
  const ScaleFolder folder;
  for (const std::string format : {"csv", "ir"}) {
    CAPTURE(format);
    std::vector<double> seconds;
    for (const int micro_batches : {1250, kTimes * 1250}) {
      REQUIRE(ask({"schedule", "--ranks", "8", "--micro-batches", std::to_string(micro_batches), "--format", format,
                   "-o", folder / "schedule", "-q"})
                  .code == 0);
      seconds.push_back(seconds_of({"check", folder / "schedule"}));
    }
    CHECK(seconds[1] < kMaxTimes * seconds[0]);
  }
}

TEST_CASE("a schedule for eight times the stages takes about eight times the time") {
  const ScaleFolder folder;
  for (const auto& shape : {chain, two_before, fan}) {
    std::vector<double> seconds;
    for (const int stages : {300, kTimes * 300}) {
      write_dag(folder / "dag.json", stages, shape);
      seconds.push_back(seconds_of({"schedule", "--dag", folder / "dag.json", "-o", folder / "schedule", "-q"}));
    }
    CAPTURE(seconds[0]);
    CHECK(seconds[1] < kMaxTimes * seconds[0]);
  }
}
