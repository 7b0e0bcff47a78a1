// `schedule --dag` and `check` at the largest sizes that they take. How their time grows is measured by
// bench/schedule_scale.py.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/driver/ask.h"
#include "tests/support/case_count.h"

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

TEST_CASE("schedules of ten thousand stages are written and pass the check") {
  const ScaleFolder folder;
  constexpr int kMaxStages = 10'000;
  const auto shapes = {two_before, fan, chain};
  for (const auto& shape : std::span(shapes).first(case_count(2, shapes.size()))) {
    write_dag(folder / "dag.json", kMaxStages, shape);
    const Answer written =
        ask({"schedule", "--dag", folder / "dag.json", "--format", "ir", "-o", folder / "schedule", "-q"});
    CAPTURE(written.err);
    REQUIRE(written.code == 0);
    CHECK(ask({"check", folder / "schedule"}).code == 0);
  }
}

TEST_CASE("one stage more than ten thousand is refused") {
  const ScaleFolder folder;
  write_dag(folder / "dag.json", 10'001, chain);
  const Answer refused = ask({"schedule", "--dag", folder / "dag.json", "-o", folder / "schedule", "-q"});
  CHECK(refused.code == 3);
  CHECK(refused.err.find("10000") != std::string::npos);
}

TEST_CASE("a schedule of 160,000 rows passes the check") {
  const ScaleFolder folder;
  for (const std::string format : {"csv", "ir"}) {
    CAPTURE(format);
    REQUIRE(ask({"schedule", "--ranks", "8", "--micro-batches", "10000", "--format", format, "-o", folder / "schedule",
                 "-q"})
                .code == 0);
    CHECK(ask({"check", folder / "schedule"}).code == 0);
  }
}
