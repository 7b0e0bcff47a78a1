// Every optimizer under every policy: twenty steps are PyTorch's where the step is synchronous, and those of the
// papers' recurrences, in PyTorch, where updates are delayed (tests/data/make_policy_references.py).

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "runtime/io/safetensors.h"
#include "tests/optimizers/scheduled_chain.h"
#include "tests/runtime/run_programs.h"
#include "wire/optimizers.h"

using namespace graphpipe;
using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;
using tests::policy_cases;
using tests::PolicyCase;

namespace {

constexpr int64_t kRecordedSteps = 20, kRecordedBatch = 8;
/// Relative to a tensor's largest number and the largest loss: what float32 rounds, over 20 updates and over up to 160.
constexpr double kRounding = 5e-6, kManyRoundings = 4e-5;

struct RecordedRun {
  std::vector<std::string> flags;
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
};
using RunKey = std::tuple<int, std::string, std::string>;  // stages, mode, optimizer

std::vector<double> rest_of(std::istringstream& words) {
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

const std::map<RunKey, RecordedRun>& recorded_runs() {
  static const std::map<RunKey, RecordedRun> kRuns = [] {
    std::map<RunKey, RecordedRun> runs;
    std::ifstream file(GRAPHPIPE_SOURCE_DIR "/tests/data/policy_references.txt");
    RecordedRun* run = nullptr;
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string kind, mode, name;
      int stages = 0;
      words >> kind;
      if (kind == "case") {
        words >> stages >> mode >> name;
        run = &runs[{stages, mode, name}];
        for (std::string word; words >> word;) run->flags.push_back(word);
      } else if (kind == "losses") {
        run->losses = rest_of(words);
      } else if (kind == "weight") {
        words >> name;
        run->weights[name] = rest_of(words);
      }
    }
    return runs;
  }();
  return kRuns;
}

double largest(const std::vector<double>& numbers) {
  double max_magnitude = 0;
  for (const double number : numbers) max_magnitude = std::max(max_magnitude, std::abs(number));
  return max_magnitude;
}

/// Relative to the largest number that is expected.
double difference(const std::vector<double>& numbers, const std::vector<double>& expected) {
  REQUIRE(numbers.size() == expected.size());
  double worst = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    REQUIRE(std::isfinite(numbers[i]));
    worst = std::max(worst, std::abs(numbers[i] - expected[i]));
  }
  return worst / largest(expected);
}

std::vector<double> numbers_in_file(const Safetensors& file, const std::string& name) {
  const TensorPlace* place = file.find(name);
  REQUIRE(place != nullptr);
  const at::Tensor tensor = file.view(*place);
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

/// A case with one optimizer, in a folder of its own.
class PolicyRun {
 public:
  PolicyRun(const PolicyCase& c, const char* optimizer)
      : recorded_(recorded_runs().at({c.chain.stages, c.mode, optimizer})),
        delayed_(c.mode != "synchronous"),
        plan_({.stages = c.chain.stages,
               .micro_batch = 1,
               .micro_batches = kRecordedBatch,
               .optimizer = optimizer,
               .has_table = true},
              tests::schedule_of(c.chain)),
        folder_(make_chain_folder(c.chain.stages, kRecordedSteps * kRecordedBatch)) {}
  PolicyRun(const PolicyRun&) = delete;
  ~PolicyRun() { std::filesystem::remove_all(folder_); }

  void check_interpreter() const {
    const RunEnd end = run_serial_process(plan_.programs(), folder_, words("serial"));
    CAPTURE(end.errors);
    REQUIRE(end.exit_code == 0);
    CHECK(difference(numbers_of(end.output, "losses"), recorded_.losses) < kRounding / 5);
    const Safetensors file(folder_ + "/serial");
    for (const auto& [name, weight] : recorded_.weights) {
      CAPTURE(name);
      CHECK(difference(numbers_in_file(file, name), weight) < (delayed_ ? kManyRoundings : kRounding));
    }
  }

  /// After check_interpreter().
  void check_pipeline() const {
    for (const RunEnd& end : ProcessGroup(plan_.programs(), folder_, words("pipeline")).wait(60)) {
      CAPTURE(end.errors);
      CHECK(end.exit_code == 0);
    }
    CHECK(read_file(folder_ + "/pipeline") == read_file(folder_ + "/serial"));
  }

 private:
  std::vector<std::string> words(const std::string& tag) const {
    std::vector<std::string> all = {"--data", folder_,  "--steps",          std::to_string(kRecordedSteps),
                                    "--json", "--save", folder_ + "/" + tag};
    all.insert(all.end(), recorded_.flags.begin(), recorded_.flags.end());
    return all;
  }

  const RecordedRun& recorded_;
  bool delayed_;
  ChainPlan plan_;
  std::string folder_;
};

}  // namespace

TEST_CASE(
    "twenty steps of every optimizer under every policy are PyTorch's, and the pipeline's bits the interpreter's") {
  std::set<RunKey> seen;
  const auto optimizers = wire::optimizers();
  size_t turn = 0;
  for (const PolicyCase& c : policy_cases()) {
    CAPTURE(c.chain.policy);
    CAPTURE(c.mode);
    // Processes take their time: each policy has them with one optimizer, in turn.
    const std::string_view with_pipeline = optimizers[turn++ % optimizers.size()].name;
    for (const wire::OptimizerEntry& optimizer : optimizers) {
      CAPTURE(std::string(optimizer.name));
      seen.insert({c.chain.stages, c.mode, std::string(optimizer.name)});
      const PolicyRun run(c, optimizer.name);
      run.check_interpreter();
      if (optimizer.name == with_pipeline) run.check_pipeline();
    }
  }
  CHECK(seen.size() == recorded_runs().size());
}

TEST_CASE("the recorded runs of one optimizer differ by far more than rounding from mode to mode") {
  for (const auto& [key, run] : recorded_runs())
    for (const auto& [other_key, other] : recorded_runs()) {
      const auto& [stages, mode, optimizer] = key;
      const auto& [other_stages, other_mode, other_optimizer] = other_key;
      if (stages != other_stages || optimizer != other_optimizer || mode == other_mode) continue;
      CAPTURE(mode);
      CAPTURE(other_mode);
      CAPTURE(optimizer);
      CHECK(difference(run.weights.at("w0"), other.weights.at("w0")) > 50 * kManyRoundings);
    }
}
