// Schedules of the learning rate against PyTorch's, and the words of groups.

#include "wire/learning_rate.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "wire/run_options.h"

using namespace graphpipe;
using namespace graphpipe::wire;

namespace {

RunOptions options_of(const std::vector<std::string>& words) {
  RunOptions options;
  CHECK(parse_run_options(words, options) == "");
  return options;
}

LearningRate rate_of(const std::vector<std::string>& words) {
  const Result<LearningRate> rate = LearningRate::of(options_of(words).optimizer);
  REQUIRE(rate.ok());
  return *rate;
}

class TextFile {
 public:
  explicit TextFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / ("graphpipe-rates-" + std::to_string(getpid()))).string()) {
    std::ofstream(path_) << text;
  }
  TextFile(const TextFile&) = delete;
  ~TextFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("schedules of the learning rate are PyTorch's") {
  std::ifstream file(GRAPHPIPE_SOURCE_DIR "/tests/data/optimizer_references.txt");
  size_t schedules = 0;
  std::vector<std::string> flags;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "schedule") flags.assign(std::istream_iterator<std::string>(words), {});
    if (kind != "factors") continue;
    ++schedules;
    const LearningRate rate = rate_of(flags);
    CAPTURE(line);
    int64_t step = 0;
    for (double expected = 0; words >> expected; ++step)
      CHECK(rate.factor(step) == doctest::Approx(expected).epsilon(1e-12));
    CHECK(step == 30);
  }
  CHECK(schedules == 7);
}

TEST_CASE("a file gives the factor from a step on, and wrong lines are named") {
  const TextFile good("# rates\n2 0.5\n\n4 0.25 # later\n");
  const LearningRate rate = rate_of({"--lr-file", good.path()});
  CHECK(rate.factor(0) == 1);
  CHECK(rate.factor(1) == 0.5);
  CHECK(rate.factor(2) == 0.5);
  CHECK(rate.factor(3) == 0.25);
  CHECK(rate.factor(1000) == 0.25);
  for (const char* wrong : {"1 0.5\n0 1\n", "1 0.5\n1 0.5\n", "x 1\n", "1\n", "1 2 3\n", "1 -1\n", "1 nan\n"}) {
    CAPTURE(wrong);
    const TextFile bad(wrong);
    const Result<LearningRate> found = LearningRate::of(options_of({"--lr-file", bad.path()}).optimizer);
    REQUIRE_FALSE(found.ok());
    CHECK(found.problems().front().message.find("line") != std::string::npos);
  }
  CHECK_FALSE(LearningRate::of(options_of({"--lr-file", "/nowhere"}).optimizer).ok());
}

TEST_CASE("words that are no schedule, no group and no number of steps are refused with their flag") {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--lr-schedule", "cosine"},
                                             {"--lr-schedule", "cosine:0"},
                                             {"--lr-schedule", "step:5"},
                                             {"--lr-schedule", "linear:5,x"},
                                             {"--lr-schedule", "wave:5"},
                                             {"--group", "lr=1"},
                                             {"--group", "a:"},
                                             {"--group", "a:lr"},
                                             {"--group", "a:lr=1,lr=2"},
                                             {"--group", "a:momentum=1"},
                                             {"--group", "a\nb:lr=1"},
                                             {"--no-decay", "biases"},
                                             {"--accumulate", "0"},
                                             {"--accumulate", "4", "--steps", "3"},
                                             {"--ema", "1"},
                                             {"--nesterov"},
                                             {"--save-ema", "x"},
                                             {"--ema", "0.5"},
                                             {"--loss-scale", "3"},
                                             {"--loss-scale", "-2"},
                                             {"--loss-scale-growth", "0"}}) {
    CAPTURE(wrong.back());
    RunOptions options;
    CHECK(parse_run_options(wrong, options).find(wrong[0]) != std::string::npos);
  }
  RunOptions options;
  CHECK(parse_run_options({"--lr-schedule", "cosine:10", "--warmup", "10"}, options).find("--warmup") == 0);
  options = {};
  CHECK(parse_run_options({"--accumulate", "4", "--steps", "3", "--checkpoint", "x"}, options) == "");
  options = {};
  CHECK(parse_run_options({"--lr-file", "x", "--warmup", "3"}, options).find("--lr-file") == 0);
}

TEST_CASE("groups travel one by one, whatever their patterns hold") {
  const RunOptions options = options_of({"--group", "onnx::MatMul_1:lr=0.5,weight-decay=0", "--group", "a=b,*:lr=1",
                                         "--no-decay", "norms-and-biases", "--accumulate", "3", "--steps", "3", "--ema",
                                         "0.5", "--save-ema", "x", "--clip-value", "2", "--lr-schedule", "step:5,0.1"});
  REQUIRE(options.optimizer.groups.size() == 2);
  CHECK(options.optimizer.groups[0].pattern == "onnx::MatMul_1");
  CHECK(options.optimizer.groups[1].learning_rate == 1.0);
  CHECK_FALSE(options.optimizer.groups[1].weight_decay.has_value());
  RunOptions again;
  CHECK(parse_run_options(to_arguments(options), again) == "");
  CHECK(again == options);
}
