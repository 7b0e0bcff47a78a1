// What the flags of updates mean, by trainings that must come to the same weights (docs/semantics.md, section 3).

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "runtime/device/device.h"
#include "runtime/error.h"
#include "runtime/executor/update_weights.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;

namespace {

/// A folder with data for some steps, and what runs in it leave.
class TrainingFolder {
 public:
  TrainingFolder() : path_(make_folder(false, 24)) {}
  TrainingFolder(const TrainingFolder&) = delete;
  ~TrainingFolder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

  RunEnd run(const PlanShape& shape, std::vector<std::string> words) const {
    words.insert(words.end(), {"--data", path_});
    return run_serial_process(TwoStagePlan(shape).programs(), path_, words);
  }
  /// Trains and reads what `--save` or another flag wrote.
  Safetensors train(const PlanShape& shape, const std::string& words, const std::string& flag = "--save") const {
    std::istringstream stream(words);
    std::vector<std::string> all(std::istream_iterator<std::string>(stream), {});
    all.insert(all.end(), {flag, file("trained")});
    const RunEnd end = run(shape, all);
    CAPTURE(end.errors);
    REQUIRE(end.exit_code == 0);
    return Safetensors(file("trained"));
  }

 private:
  std::string path_;
};

bool are_close(const Safetensors& a, const Safetensors& b) {
  bool close = a.tensors().size() == b.tensors().size();
  for (const auto& [name, place] : a.tensors())
    close = close && at::allclose(a.view(place), b.view(*b.find(name)), 1e-5, 1e-7);
  return close;
}

PlanShape whole(int64_t batch, const char* optimizer = "sgd") {
  return {.batch = batch, .micro_batch = {batch, batch}, .optimizer = optimizer};
}

}  // namespace

TEST_CASE("an update of several steps is one step of their samples") {
  const c10::InferenceMode no_autograd;
  const TrainingFolder folder;
  for (const std::string numbers :
       {"--lr 0.2 --momentum 0.9", "--lr 0.2 --clip-norm 0.05", "--lr 0.2 --clip-value 0.01"}) {
    CAPTURE(numbers);
    const Safetensors several = folder.train(whole(4), numbers + " --steps 6 --accumulate 3");
    const Safetensors one = folder.train(whole(12), numbers + " --steps 2");
    CHECK(are_close(several, one));
    CHECK_FALSE(are_close(several, folder.train(whole(4), numbers + " --steps 6")));
  }
  // 24 samples are a batch of 16 and one of 8, which counts half as much.
  const PlanShape shorter_last{.batch = 16, .micro_batch = {8, 4}};
  CHECK(are_close(folder.train(shorter_last, "--lr 0.2 --momentum 0.9 --steps 4 --accumulate 2 --last-batch train"),
                  folder.train(whole(24), "--lr 0.2 --momentum 0.9 --steps 2")));
  // Steps that make no whole update change nothing.
  CHECK(are_close(folder.train(whole(4), "--lr 0.2 --steps 5 --accumulate 3"),
                  folder.train(whole(4), "--lr 0.2 --steps 3 --accumulate 3")));
}

TEST_CASE("the moving average follows the weights") {
  const c10::InferenceMode no_autograd;
  const TrainingFolder folder;
  const Safetensors start(folder.file("weights.safetensors"));
  const Safetensors trained = folder.train(whole(8), "--lr 0.2 --steps 1");
  std::filesystem::rename(folder.file("trained"), folder.file("weights-after"));
  const Safetensors average = folder.train(whole(8), "--lr 0.2 --steps 1 --ema 0.75", "--save-ema");
  for (const auto& [name, place] : average.tensors()) {
    const at::Tensor before = start.view(*start.find(name)), after = trained.view(*trained.find(name));
    CHECK(at::allclose(average.view(place), before.mul(0.75).add(after, 0.25), 1e-6, 1e-8));
    CHECK_FALSE(at::equal(before, after));
  }
}

TEST_CASE("groups and schedules change what they name, and nothing else") {
  const c10::InferenceMode no_autograd;
  const TrainingFolder folder;
  const Safetensors start(folder.file("weights.safetensors"));
  const Safetensors still = folder.train(whole(8), "--lr 0.2 --steps 2 --group w*:lr=0");
  for (const auto& [name, place] : still.tensors())
    CHECK(at::equal(still.view(place), start.view(*start.find(name))) == (name[0] == 'w'));
  // Adam's first update has the size of the learning rate.
  const Safetensors half = folder.train(whole(8, "adam"), "--lr 0.1 --steps 1 --warmup 2");
  CHECK(are_close(half, folder.train(whole(8, "adam"), "--lr 0.05 --steps 1")));
}

TEST_CASE("a group that names no parameter is refused by name") {
  const TrainingFolder folder;
  const RunEnd end = folder.run(whole(8), {"--group", "nothing.*:lr=1"});
  CHECK(end.exit_code == 2);
  CHECK(end.errors.find("nothing.*") != std::string::npos);
}

TEST_CASE("a group is refused where no stage trains what it names, on one device or several") {
  const TrainingFolder folder;
  const PlanShape shape{.micro_batch = {4, 2}, .last_frozen = true};
  const RunEnd end = folder.run(shape, {"--group", "w1:lr=1"});
  CHECK(end.exit_code == 2);
  CHECK(end.errors.find("'w1' names no parameter that is trained") != std::string::npos);
  CHECK(folder.run(shape, {"--group", "w*:lr=1"}).exit_code == 0);
  const TwoStagePlan plan(shape);
  const std::vector<DeviceProgram>& devices = plan.programs();
  REQUIRE(devices.size() == 2);
  const std::vector<RunEnd> ends =
      ProcessGroup(devices, folder.path(), {"--data", folder.path(), "--group", "w1:lr=1"}).wait(60);
  CHECK(ends.front().exit_code == 2);
  CHECK(ends.front().errors.find("'w1' names no parameter that is trained") != std::string::npos);
  run_all(devices, folder.path(), {"--data", folder.path(), "--group", "w*:lr=1", "--group", "b0:lr=2"});
}

TEST_CASE("a stage goes on from the states that were written, between two updates as well") {
  const c10::InferenceMode no_autograd;
  const auto device = open_cpu();
  const TwoStagePlan plan(whole(4));
  const StageEntry& entry = *plan.programs().front().stages.front();
  const TrainingFolder folder;
  const Safetensors weights(folder.file("weights.safetensors"));
  for (const graphpipe::wire::OptimizerEntry& optimizer : graphpipe::wire::optimizers()) {
    CAPTURE(optimizer.name);
    graphpipe::wire::OptimizerOptions options{.momentum = 0.9, .accumulate = 2, .average_decay = 0.5};
    const UpdateSettings settings = update_settings(optimizer.name, options);
    const auto step = [&](StageState& state, int64_t number) {
      begin_step(state, number);
      for (size_t index : state.trainable)
        gradients_of(state, 0)[index] =
            waves(state.weights[index].sizes().vec(), static_cast<double>(number) + static_cast<double>(index));
      step_weights(state, 0, {}, false);
    };
    StageState whole_run = load_stage(entry, 0, {weights}, settings, *device);
    StageState first = load_stage(entry, 0, {weights}, settings, *device);
    for (int64_t number = 0; number < 6; ++number) step(whole_run, number);
    for (int64_t number = 0; number < 3; ++number) step(first, number);
    write_safetensors(folder.file("p"), named_parameters(first, *device));
    write_safetensors(folder.file("s"), named_optimizer_states(first, *device));
    const Safetensors parameters(folder.file("p")), file(folder.file("s"));
    const StateLookup states = [&](const std::string& name) {
      return file.find(name) == nullptr ? at::Tensor() : file.view(*file.find(name));
    };
    StageState second = load_stage(entry, 0, {weights, &parameters}, settings, *device);
    take_optimizer_states(second, states, *device);
    for (int64_t number = 3; number < 6; ++number) step(second, number);
    for (size_t index : second.trainable) {
      CHECK(at::equal(second.weights[index], whole_run.weights[index]));
      CHECK(at::equal(second.averages[index], whole_run.averages[index]));
    }
    // A run that makes an update of every step cannot take the sum of a part of one.
    const UpdateSettings other = update_settings(optimizer.name, {.momentum = 0.9});
    StageState every = load_stage(entry, 0, {weights}, other, *device);
    CHECK_THROWS_AS(take_optimizer_states(every, states, *device), RunError);
  }
}

namespace {

// A stage of bfloat16 weights of these lengths, with gradients, before its first update.
StageState stage_of_halves(const StageEntry& entry, const std::string& optimizer, const std::vector<int64_t>& lengths,
                           bool shows_used_gradients) {
  const UpdateTerms terms = update_settings(optimizer, {}).terms_of("w", 1, false);
  StageState state{.entry = &entry,
                   .shows_used_gradients = shows_used_gradients,
                   .optimizer = Optimizer(optimizer, std::vector(lengths.size(), terms), /*main_weights=*/true),
                   .gradient_factor = 0.3};
  std::vector<at::Tensor>& gradients = gradients_of(state, 0);
  for (size_t index = 0; index < lengths.size(); ++index) {
    state.trainable.push_back(index);
    state.weights.push_back(waves({lengths[index]}, static_cast<double>(index)).to(at::kBFloat16));
    gradients[index] = waves({lengths[index]}, 0.5 + static_cast<double>(index)).to(at::kBFloat16);
    state.optimizer.begin(index, state.weights[index]);
  }
  return state;
}

}  // namespace

TEST_CASE("gradients of 16 bits are float32 one after the other, and make the same weights as all at once") {
  const c10::InferenceMode no_autograd;
  count_tensor_bytes();
  const std::vector<int64_t> lengths = {8192, 16384, 12288};
  const std::vector<ParamRow> params(lengths.size());
  const StageEntry stage{.params = params};
  for (const graphpipe::wire::OptimizerEntry& optimizer : graphpipe::wire::optimizers()) {
    CAPTURE(optimizer.name);
    StageState late = stage_of_halves(stage, optimizer.name, lengths, false),
               early = stage_of_halves(stage, optimizer.name, lengths, true);
    StageState clipped_late = stage_of_halves(stage, optimizer.name, lengths, false),
               clipped_early = stage_of_halves(stage, optimizer.name, lengths, true);
    CHECK(squared_gradient_norm({}, clipped_late) == squared_gradient_norm({}, clipped_early));
    int64_t planned = 0;
    for (const int64_t length : lengths)
      planned =
          std::max(planned, update_scratch(optimizer, {.elements = length, .element = graphpipe::Bytes(2)}).count);
    const auto peak_of_step = [](StageState& state) {
      const int64_t before = tensor_bytes();
      reset_peak_tensor_bytes();
      step_weights(state, 0, {.samples = 0.3, .norm = 0.7}, false);
      return peak_tensor_bytes() - before;
    };
    CHECK(peak_of_step(late) <= planned + 1024);
    CHECK(peak_of_step(early) >= 2 * (8192 + 16384 + 12288));
    for (const size_t index : late.trainable) CHECK(at::equal(late.weights[index], early.weights[index]));
  }
}
