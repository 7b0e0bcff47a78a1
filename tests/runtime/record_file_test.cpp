// The files that a run is followed by: tables that grow, and TensorBoard's events.

#include "runtime/training/record_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "runtime/error.h"
#include "runtime/training/event_file.h"
#include "runtime/training/loss_limit.h"
#include "tests/runtime/run_programs.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;
using graphpipe::Code;

namespace {

/// A folder of its own for one test.
struct RecordFolder {
  RecordFolder() {
    char name[] = "/tmp/graphpipe_records_XXXXXX";
    path = mkdtemp(name);
  }
  ~RecordFolder() { std::filesystem::remove_all(path); }
  std::string file(const char* name) const { return path + "/" + name; }
  std::string path;
};

const std::vector<std::string> kRecordColumns{"step", "loss", "note"};
constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("a row is in the file when it is written, as JSON or as CSV by the file's name") {
  const RecordFolder folder;
  RecordFile json(folder.file("log.jsonl"), kRecordColumns);
  json.append({int64_t{1}, 0.1, Cell()});
  CHECK(read_file(folder.file("log.jsonl")) == "{\"step\": 1, \"loss\": 0.1, \"note\": null}\n");
  json.append({int64_t{2}, kUndefined, "it says \"no\"\n"});
  CHECK(read_file(folder.file("log.jsonl")) ==
        "{\"step\": 1, \"loss\": 0.1, \"note\": null}\n"
        "{\"step\": 2, \"loss\": null, \"note\": \"it says \\\"no\\\"\\u000a\"}\n");
  RecordFile csv(folder.file("log.csv"), kRecordColumns);
  csv.append({int64_t{1}, 0.1, Cell()});
  csv.append({int64_t{2}, kUndefined, "it says \"no\", twice"});
  CHECK(read_file(folder.file("log.csv")) == "step,loss,note\n1,0.1,\n2,nan,\"it says \"\"no\"\", twice\"\n");
}

TEST_CASE("a file that a run writes is refused to another, which leaves it as it is") {
  const RecordFolder folder;
  const std::string path = folder.file("log.csv");
  std::optional<RecordFile> first(std::in_place, path, kRecordColumns);
  first->append({int64_t{1}, 0.1, Cell()});
  const std::string before = read_file(path);
  for (const int64_t keep_until : {0, 1}) {
    CAPTURE(keep_until);
    Code code = Code::kInternal;
    try {
      const RecordFile second(path, kRecordColumns, keep_until);
    } catch (const RunError& error) {
      code = error.diagnostic().code;
    }
    CHECK(code == Code::kEnvironment);
    CHECK(read_file(path) == before);
  }
  first.reset();
  const RecordFile third(path, kRecordColumns);
  CHECK(read_file(path) == "step,loss,note\n");
  const RecordFile nowhere("/dev/null", kRecordColumns), also_nowhere("/dev/null", kRecordColumns);
}

TEST_CASE("a run that goes on keeps the rows of the steps before it, and writes the others again") {
  const RecordFolder folder;
  for (const char* name : {"log.jsonl", "log.csv"}) {
    CAPTURE(name);
    {
      RecordFile first(folder.file(name), kRecordColumns);
      for (int64_t step = 1; step <= 5; ++step) first.append({step, 0.5, "first"});
    }
    // Killed while it wrote.
    std::ofstream(folder.file(name), std::ios::app) << "{\"step\": 6, \"lo";
    RecordFile(folder.file(name), kRecordColumns, 3).append({int64_t{4}, 0.25, "again"});
    const std::string text = read_file(folder.file(name));
    CHECK(text.find("first") != std::string::npos);
    const bool is_csv = std::string(name).ends_with(".csv");
    CHECK(std::count(text.begin(), text.end(), '\n') == (is_csv ? 5 : 4));
    CHECK(text.ends_with(is_csv ? "\n4,0.25,\"again\"\n" : "{\"step\": 4, \"loss\": 0.25, \"note\": \"again\"}\n"));
    CHECK(text.find("\"lo\n") == std::string::npos);
    // From the start it begins anew.
    RecordFile(folder.file(name), kRecordColumns).append({int64_t{1}, 1.5, "new"});
    CHECK(read_file(folder.file(name)).find("first") == std::string::npos);
  }
}

TEST_CASE("a run goes on with no file that is not its own") {
  const RecordFolder folder;
  for (const std::string words : {"step,other\n1,2\n", "my notes\n", "{\"steps\": 1}\n"}) {
    CAPTURE(words);
    std::ofstream(folder.file("log.csv")) << words;
    try {
      RecordFile(folder.file("log.csv"), kRecordColumns, 3);
      FAIL("it went on");
    } catch (const RunError& error) {
      CHECK(error.diagnostic().code == Code::kUsage);
    }
    CHECK(read_file(folder.file("log.csv")) == words);
  }
}

TEST_CASE("a row that finds no room is an error") {
  if (access("/dev/full", W_OK) != 0) return;
  const RecordFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.file("full.jsonl"));
  RecordFile file(folder.file("full.jsonl"), kRecordColumns);
  CHECK_THROWS_AS(file.append({int64_t{1}, 0.1, Cell()}), RunError);
}

TEST_CASE("CRC-32C has the values of RFC 3720, appendix B.4") {
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  std::string ascending(32, '\0');
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<char>(i);
  CHECK(crc32c(ascending) == 0x46dd794e);
}

namespace {

std::string hex_of(const std::string& bytes) {
  std::string out;
  for (const char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    out += digits;
  }
  return out;
}

}  // namespace

TEST_CASE("event records have the bytes of TensorBoard's own writer") {
  // tests/data/make_event_records.py wrote these.
  std::ifstream recorded(GRAPHPIPE_SOURCE_DIR "/tests/data/event_records.txt");
  const std::vector<std::pair<std::string, double>> one{{"train/loss", 2.25}},
      two{{"train/loss", -0.1}, {"train/seconds", 1e-30}};
  const std::string ours[] = {version_record(1.5), restart_record(1700000000.25, 300), scalars_record(2.5, 1, one),
                              scalars_record(1e9, int64_t{1} << 40, two)};
  size_t compared = 0;
  for (std::string line; std::getline(recorded, line);) {
    if (line.empty() || line[0] == '#') continue;
    CAPTURE(compared);
    REQUIRE(compared < std::size(ours));
    CHECK(hex_of(ours[compared++]) == line);
  }
  CHECK(compared == std::size(ours));
}

TEST_CASE("every run into a folder has an event file of its own, which grows record by record") {
  const RecordFolder folder;
  const GrowingFile first = make_event_file(folder.file("board")), second = make_event_file(folder.file("board"));
  first.append(version_record(1));
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(folder.file("board"))) files.push_back(file.path());
  REQUIRE(files.size() == 2);
  size_t bytes = 0;
  for (const auto& file : files) {
    CHECK(file.filename().string().starts_with("events.out.tfevents."));
    bytes += std::filesystem::file_size(file);
  }
  CHECK(bytes == version_record(1).size());
  std::ofstream(folder.file("file")) << "x";
  CHECK_THROWS_AS(make_event_file(folder.file("file")), RunError);
  // What forbids the folder is said, not what follows from its absence.
  try {
    make_event_file("/proc/self/board");
    CHECK(false);
  } catch (const RunError& error) {
    CHECK(error.diagnostic().message.find("cannot make the folder: ") == 0);
  }
}

TEST_CASE("a loss is too large by the median of those before it, whatever its sign, and not before there are some") {
  LossLimit limit(3);
  for (int64_t i = 0; i + 1 < graphpipe::wire::kFewestLosses; ++i) limit.keep(2);
  CHECK_FALSE(limit.problem(1e9));
  limit.keep(1000);  // one outlier does not move the median
  CHECK_FALSE(limit.problem(6));
  REQUIRE(limit.problem(6.01));
  CHECK(limit.problem(6.01)->find("6.01 is more than 3 times the median of the last 8, 2") != std::string::npos);
  // What is long ago counts no more.
  for (int64_t i = 0; i < graphpipe::wire::kLossWindow; ++i) limit.keep(-4);
  CHECK_FALSE(limit.problem(3.9));
  CHECK(limit.problem(4.1));
  limit.keep(kUndefined);
  CHECK_FALSE(limit.problem(3.9));
  CHECK_FALSE(LossLimit(0).problem(1e30));
  const LossLimit again(3, limit.kept());
  CHECK(again.problem(4.1) == limit.problem(4.1));
}
