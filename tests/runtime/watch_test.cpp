// What a run tells while it trains, and what becomes of steps that go wrong.

#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "runtime/training/event_file.h"
#include "runtime/training/step_guard.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

/// A folder of the two-stage plan, gone at its end.
struct WatchedFolder {
  explicit WatchedFolder(int64_t samples) : path(make_folder(false, samples)), samples_(samples) {}
  ~WatchedFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }
  /// Overwrites a number of x.npy or t.npy, six to a row.
  void set(const std::string& name, int64_t row, int64_t column, float number) const {
    std::fstream out(file(name), std::ios::binary | std::ios::in | std::ios::out);
    const auto size = static_cast<int64_t>(std::filesystem::file_size(file(name)));
    out.seekp(size - (samples_ - row) * 24 + column * 4);
    out.write(reinterpret_cast<const char*>(&number), sizeof number);
  }
  std::string path;

 private:
  int64_t samples_;
};

/// Rank 0's end, or the interpreter's; all others must end like it.
RunEnd watched_run(const TwoStagePlan& plan, const WatchedFolder& folder, bool serial,
                   std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--data", folder.path, "--stall-timeout", "20"});
  if (serial) return run_serial_process(plan.programs(), folder.path, arguments);
  ProcessGroup group(plan.programs(), folder.path, arguments);
  std::vector<RunEnd> ends = group.wait(60);
  for (const RunEnd& end : ends) CHECK((end.exit_code == 0) == (ends.front().exit_code == 0));
  return ends.front();
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

double field(const std::string& line, const std::string& name) {
  const size_t at = line.find("\"" + name + "\": ");
  REQUIRE(at != std::string::npos);
  return std::strtod(line.c_str() + at + name.size() + 4, nullptr);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Events of a file, by what TFRecord says of their frames.
size_t count_events(const std::string& bytes) {
  size_t events = 0;
  for (size_t at = 0; at < bytes.size(); ++events) {
    uint64_t length = 0;
    REQUIRE(bytes.size() - at >= 16);
    std::memcpy(&length, bytes.data() + at, sizeof length);
    REQUIRE(length <= bytes.size() - at - 16);
    const auto masked_crc = [](const std::string& part) {
      const uint32_t crc = crc32c(part);
      return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
    };
    uint32_t stored[2] = {};
    std::memcpy(&stored[0], bytes.data() + at + 8, 4);
    std::memcpy(&stored[1], bytes.data() + at + 12 + length, 4);
    CHECK(stored[0] == masked_crc(bytes.substr(at, 8)));
    CHECK(stored[1] == masked_crc(bytes.substr(at + 12, length)));
    at += 16 + length;
  }
  return events;
}

constexpr float kUndefinedNumber = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("the log, TensorBoard's file and the result tell the same losses, of the pipeline and of the interpreter") {
  const TwoStagePlan plan({});
  for (const bool serial : {false, true}) {
    CAPTURE(serial);
    const WatchedFolder folder(16);
    const RunEnd end = watched_run(plan, folder, serial,
                                   {"--steps", "3", "--clip-norm", "1", "--json", "--log", folder.file("log.jsonl"),
                                    "--tensorboard", folder.file("board")});
    CAPTURE(end.errors);
    REQUIRE(end.exit_code == 0);
    const std::vector<double> losses = numbers_of(end.output, "losses"),
                              norms = numbers_of(end.output, "gradient_norms");
    const std::vector<std::string> lines = lines_of(folder.file("log.jsonl"));
    REQUIRE(lines.size() == 3);
    for (size_t i = 0; i < lines.size(); ++i) {
      CHECK(field(lines[i], "step") == static_cast<double>(i + 1));
      CHECK(field(lines[i], "loss") == losses[i]);
      CHECK(field(lines[i], "gradient_norm") == norms[i]);
      CHECK(field(lines[i], "seconds") > 0);
      CHECK(field(lines[i], "samples_per_second") * field(lines[i], "seconds") == doctest::Approx(8));
      CHECK(contains(lines[i], "\"anomaly\": null"));
    }
    for (const auto& file : std::filesystem::directory_iterator(folder.file("board")))
      CHECK(count_events(read_file(file.path())) == 4);  // the version, and one of each step
  }
}

TEST_CASE("metrics tell of every stage and step what it computed, waited, sent and held") {
  struct MetricsCase {
    PlanShape shape;
    size_t replicas;
    double sent[2];  // by each replica of stage 0 and by stage 1, in a step
  };
  // [8,6] floats cross in a step, either way. A replica sends its half of them, and round a ring of two as many bytes
  // as its 42 weights have.
  const MetricsCase cases[] = {{{}, 1, {192, 192}}, {{.micro_batch = {4, 2}, .replicas = {2, 1}}, 2, {96 + 168, 192}}};
  for (const MetricsCase& c : cases) {
    CAPTURE(c.replicas);
    const WatchedFolder folder(16);
    const TwoStagePlan plan(c.shape);
    const RunEnd end =
        watched_run(plan, folder, false, {"--steps", "2", "--json", "--metrics", folder.file("metrics.jsonl")});
    CAPTURE(end.errors);
    REQUIRE(end.exit_code == 0);
    const std::vector<std::string> rows = lines_of(folder.file("metrics.jsonl"));
    REQUIRE(rows.size() == 2 * (c.replicas + 1));
    double largest = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(rows[i]);
      const size_t device = i % (c.replicas + 1);
      const bool last = device == c.replicas;
      CHECK(field(rows[i], "step") == static_cast<double>(i / (c.replicas + 1) + 1));
      CHECK(field(rows[i], "device") == static_cast<double>(device));
      CHECK(field(rows[i], "stage") == (last ? 1 : 0));
      CHECK(field(rows[i], "replica") == (last ? 0 : static_cast<double>(device)));
      CHECK(field(rows[i], "busy_seconds") > 0);
      CHECK(field(rows[i], "waiting_seconds") >= 0);
      CHECK(field(rows[i], "bytes_sent") == c.sent[last ? 1 : 0]);
      CHECK(field(rows[i], "peak_bytes") > 0);
      if (last) largest = std::max(largest, field(rows[i], "peak_bytes"));
    }
    // The result's peak is that of the whole run although each step counts anew.
    CHECK(numbers_of(end.output, "peak_bytes").back() >= largest);
  }
  const WatchedFolder folder(16);
  const RunEnd serial = watched_run(TwoStagePlan({}), folder, true, {"--metrics", folder.file("metrics.csv")});
  CHECK(serial.exit_code == 2);
}

TEST_CASE("a skipped step leaves no trace in weights and optimizer, on any rank, and is told") {
  const PlanShape shapes[] = {
      {}, {.micro_batch = {4, 2}, .replicas = {2, 1}}, {.one_device = true}, {.shared = false, .optimizer = "adamw"}};
  for (const PlanShape& shape : shapes) {
    const TwoStagePlan plan(shape);
    // Of three steps the second has an undefined number; without it two steps train on the same samples.
    const WatchedFolder folder(16), good(8);
    folder.set("x.npy", 11, 2, kUndefinedNumber);
    std::vector<std::string> numbers{"--json", "--lr", "0.1"};
    if (shape.optimizer == std::string("sgd"))
      numbers.insert(numbers.end(), {"--momentum", "0.9", "--clip-norm", "0.5"});
    std::vector<std::string> two = numbers;
    two.insert(two.end(), {"--steps", "2", "--save", good.file("two.w")});
    REQUIRE(watched_run(plan, good, true, two).exit_code == 0);
    for (const bool serial : {false, true}) {
      CAPTURE(serial);
      std::vector<std::string> three = numbers;
      three.insert(three.end(), {"--steps", "3", "--save", folder.file("three.w"), "--on-anomaly", "skip", "--progress",
                                 "--log", folder.file("log.csv")});
      const RunEnd end = watched_run(plan, folder, serial, three);
      CAPTURE(end.errors);
      REQUIRE(end.exit_code == 0);
      CHECK(read_file(folder.file("three.w")) == read_file(good.file("two.w")));
      CHECK(numbers_of(end.output, "skipped_steps") == std::vector<double>{2});
      CHECK(contains(end.errors, "warning[check-failed]"));
      CHECK(contains(end.errors, "step 2 was skipped: the loss of step 2 is not a number (NaN), at F of samples"));
      const std::vector<std::string> rows = lines_of(folder.file("log.csv"));
      REQUIRE(rows.size() == 4);
      CHECK(rows[1].ends_with(","));
      CHECK(contains(rows[2], "is not a number"));
      CHECK(rows[3].ends_with(","));
    }
  }
}

TEST_CASE("too large a loss ends the run, or is skipped, as the user says") {
  const TwoStagePlan plan({});
  const WatchedFolder folder(8 * 12);
  for (int64_t column = 0; column < 6; ++column) folder.set("t.npy", 8 * 9 + 3, column, 1e4F);  // of step 10
  for (const bool serial : {false, true}) {
    CAPTURE(serial);
    const std::vector<std::string> arguments{"--steps", "12",    "--max-loss-factor",
                                             "50",      "--log", folder.file("log.csv")};
    const RunEnd ended = watched_run(plan, folder, serial, arguments);
    CAPTURE(ended.errors);
    CHECK(ended.exit_code == 1);
    CHECK(contains(ended.errors, "step 10: the loss "));
    CHECK(contains(ended.errors, " is more than 50 times the median of the last 9, "));
    CHECK(lines_of(folder.file("log.csv")).size() == 11);
    std::vector<std::string> skipping = arguments;
    skipping.insert(skipping.end(), {"--on-anomaly", "skip"});
    const RunEnd skipped = watched_run(plan, folder, serial, skipping);
    CHECK(skipped.exit_code == 0);
    CHECK(contains(skipped.errors, "step 10 was skipped: the loss "));
    const std::vector<std::string> rows = lines_of(folder.file("log.csv"));
    REQUIRE(rows.size() == 13);
    const auto told =
        std::ranges::count_if(rows, [](const std::string& row) { return contains(row, "more than 50 times"); });
    CHECK(told == 1);
  }
}

TEST_CASE("gradients that are not finite are named, and running statistics are put back") {
  static constexpr DimRow kThree[] = {{3, 0}};
  const ParamRow params[] = {{"weight", {ElementType::kFloat32, kThree, -1, 1}, ParamRole::kTrainable, 0},
                             {"mean", {ElementType::kFloat32, kThree, -1, 1}, ParamRole::kBuffer, -1}};
  StageEntry entry{.stage = 4, .params = params};
  StageState state{.entry = &entry,
                   .trainable = {0},
                   .weights = {at::full({3}, 1.0), at::full({3}, 2.0)},
                   .optimizer = Optimizer("sgd", std::vector<UpdateTerms>(2))};
  for (const float number : {1.0F, std::numeric_limits<float>::infinity()}) {
    CAPTURE(number);
    StepGuard guard(0);
    KeptStatistics statistics;
    statistics.keep({&state});
    guard.begin({&state}, statistics);
    state.weights[1].fill_(7);
    gradients_of(state, 0)[0] = at::full({3}, number);
    const std::string verdict = guard.decide({{0, 0.5}}, nullptr, 0);
    const bool finite = std::isfinite(number);
    CHECK(guard.skips() == !finite);
    CHECK(verdict == (finite ? "" : "the gradient of 'weight', of stage 4, is not finite"));
    CHECK(state.weights[1].const_data_ptr<float>()[0] == (finite ? 7 : 2));
    state.weights[1].fill_(2);
  }
}
