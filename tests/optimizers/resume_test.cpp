// A training that was interrupted has the bits of one that was not: every optimizer, under every policy, however the
// data are read.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/optimizers/scheduled_chain.h"
#include "tests/runtime/run_programs.h"
#include "tests/support/case_count.h"
#include "wire/optimizers.h"

using namespace graphpipe;
using namespace graphpipe::runtime::test;
using tests::PolicyCase;

namespace {

using Words = std::vector<std::string>;

/// Two epochs and a half of 19 samples in steps of 8, and what has a state besides weights and moments.
constexpr int kSamples = 19, kInterrupted = 4, kSteps = 10;
const Words kTraining = {"--lr", "0.01", "--lr-schedule", "cosine:10", "--warmup", "2", "--ema", "0.9"};
const std::vector<Words> kReadings = {{"--last-batch", "wrap"},
                                      {"--shuffle", "--last-batch", "wrap"},
                                      {"--shuffle", "--last-batch", "drop"},
                                      {"--shuffle", "--last-batch", "pad"}};

class Folder {
 public:
  explicit Folder(int stages) : path_(make_chain_folder(stages, kSamples)) {}
  Folder(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class Training {
 public:
  Training(const PolicyCase& c, const char* optimizer, Words words)
      : plan_(
            {.stages = c.chain.stages, .micro_batch = 1, .micro_batches = 8, .optimizer = optimizer, .has_table = true},
            tests::schedule_of(c.chain)),
        folder_(c.chain.stages),
        words_(std::move(words)) {}

  void check(bool with_pipeline) const {
    run_serial(kSteps, "whole", {});
    run_serial(kInterrupted, "first", {"--checkpoint", folder_.file("checkpoints")});
    CHECK((read_file(folder_.file("first")) != read_file(folder_.file("whole"))));
    run_serial(kSteps, "second", {"--resume", folder_.file("checkpoints")});
    check_same("second");
    if (!with_pipeline) return;
    run_pipeline(kInterrupted, "first", {"--checkpoint", folder_.file("of-pipeline")});
    run_pipeline(kSteps, "third", {"--resume", folder_.file("of-pipeline")});
    check_same("third");
  }

 private:
  Words words(int steps, const std::string& tag, const Words& more) const {
    Words all = {"--data", folder_.path(),    "--steps",    std::to_string(steps),     "--json",
                 "--save", folder_.file(tag), "--save-ema", folder_.file(tag + ".ema")};
    for (const Words* part : {&kTraining, &words_, &more}) all.insert(all.end(), part->begin(), part->end());
    return all;
  }

  void run_serial(int steps, const std::string& tag, const Words& more) const {
    const RunEnd end = run_serial_process(plan_.programs(), folder_.path(), words(steps, tag, more));
    CAPTURE(end.errors);
    REQUIRE(end.exit_code == 0);
  }

  void run_pipeline(int steps, const std::string& tag, const Words& more) const {
    for (const RunEnd& end : ProcessGroup(plan_.programs(), folder_.path(), words(steps, tag, more)).wait(60)) {
      CAPTURE(end.errors);
      REQUIRE(end.exit_code == 0);
    }
  }

  void check_same(const std::string& tag) const {
    for (const char* kind : {"", ".ema"}) {
      const std::string expected = read_file(folder_.file(std::string("whole") + kind));
      CHECK(expected.size() > 100);
      CHECK((read_file(folder_.file(tag + kind)) == expected));
    }
  }

  runtime::test::ChainPlan plan_;
  Folder folder_;
  Words words_;
};

}  // namespace

TEST_CASE("four steps and six more are ten, bit by bit: every optimizer, policy and order of the data") {
  const auto optimizers = wire::optimizers();
  size_t turn = 0;
  for (const PolicyCase& c : tests::policy_cases()) {
    CAPTURE(c.chain.policy);
    CAPTURE(c.mode);
    for (size_t optimizer = 0; optimizer < optimizers.size(); ++optimizer)
      for (size_t reading = 0; reading < kReadings.size(); ++reading) {
        const bool is_in_turn = reading == (turn / optimizers.size() + optimizer) % kReadings.size();
        if (!is_in_turn && !tests::all_cases()) continue;
        CAPTURE(std::string(optimizers[optimizer].name));
        CAPTURE(kReadings[reading].back());
        Words words = kReadings[reading];
        if (std::string(optimizers[optimizer].name) == "sgd")
          words.insert(words.end(), {"--momentum", "0.9", "--nesterov"});
        // Processes take their time: each policy has them once.
        Training(c, optimizers[optimizer].name, words).check(is_in_turn && optimizer == turn % optimizers.size());
      }
    ++turn;
  }
}
