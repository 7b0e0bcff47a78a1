// On the example models the memory that a plan was accepted with bounds that of its schedule, and this bounds what the
// code of its stages is counted to take.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>

#include "cost/lower_bound.h"
#include "cost/memory.h"
#include "driver/pipeline/pipeline.h"
#include "driver/verbs/generate.h"
#include "tests/driver/ask.h"
#include "tests/support/case_count.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;

TEST_CASE("example models: the planner's memory is at least the schedule's bound, and within 25 % of it") {
  const std::pair<const char*, const char*> models[] = {{"clip_like", "contrastive:similarity"},
                                                        {"dlrm", "bce:logit,click"},
                                                        {"gpt2_like", "cross_entropy:logits,label"},
                                                        {"mmt", "cross_entropy:logits,label"},
                                                        {"resnet", "cross_entropy:logits,label"}};
  for (const auto& [name, loss] : models)
    for (const int64_t stages : {1, 2, 4}) {
      CAPTURE(name);
      CAPTURE(stages);
      driver::Options options;
      options.model.model = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/" + name + "/model.onnx";
      options.training.loss = loss;
      options.plan.planner = "equal-split";
      options.plan.devices = options.plan.stages = stages;
      options.plan.micro_batch = "2";
      // Stages of two samples each; a flag that a model has nothing for is refused.
      if (name == std::string("clip_like")) options.training.contrastive = "micro-batch";
      if (name == std::string("resnet")) options.model.batchnorm = "micro-batch";
      const auto made = driver::make_pipeline(options);
      REQUIRE(made.ok());
      // The numbers that the policy settled on: stages are on devices of their own, in order.
      IdMap<ir::StageId, Samples> numbers;
      for (const int items : scheduler::peak_in_flight(made->built.schedule, true))
        numbers.push_back(Samples(2 * items));
      const auto planned = cost::peak_memory(made->stages, made->plan.cluster, numbers);
      const auto bounds =
          scheduler::memory_of(made->stages, made->built.schedule,
                               {.optimizer_state_per_weight_byte = made->priced.optimizer_state_per_weight_byte});
      Bytes counted;
      for (const scheduler::DeviceMemory& memory : made->built.memory) counted += memory.peak;
      CHECK(counted >= cost::memory_bound(made->priced, 1).all);
      for (size_t p = 0; p < made->built.memory.size(); ++p) {
        CAPTURE(p);
        CHECK(made->built.memory[p].peak <= bounds[p].peak);
        const Bytes peak = bounds[p].peak;
        const Bytes said = planned[made->built.schedule.programs[p].device];
        CHECK(said >= peak);
        CHECK(static_cast<double>(said.count) <= 1.25 * static_cast<double>(peak.count));
      }
    }
}

namespace {

/// So many numbers, as ONNX's text form has them.
std::string zeros(size_t count) {
  std::string numbers = "0";
  for (size_t i = 1; i < count; ++i) numbers += ",0";
  return "{" + numbers + "}";
}

}  // namespace

TEST_CASE("a plan that does not fit with its code's memory makes way for one that does") {
  const testing::TemporaryFolder folder;
  folder.write("model.onnx",
               testing::parse_onnx_text("g (float[N,8] x) => (float[N,4] out) <float[8,256] a = " + zeros(2048) +
                                        ", float[256,8] b = " + zeros(2048) + ", float[8,8] c = " + zeros(64) +
                                        ", float[8,4] d = " + zeros(32) +
                                        R"(> {
    p = MatMul(x, a)
    q = Relu(p)
    r = MatMul(q, b)
    s = Relu(r)
    t = MatMul(s, c)
    u = Relu(t)
    out = MatMul(u, d)
  })")
                   .SerializeAsString());
  driver::Options options;
  options.model.model = folder / "model.onnx";
  options.training.loss = "cross_entropy:out,label";
  options.training.batch = 64;
  options.training.optimizer = "adam";
  options.plan.cluster = "default";
  options.plan.devices = 4;
  options.plan.memory = 40'000;
  const auto made = driver::make_pipeline(options);
  REQUIRE(made.ok());
  for (const scheduler::DeviceMemory& memory : made->built.memory) CHECK(memory.peak <= Bytes(40'000));
}

TEST_CASE("a plan is found that fits by its code, far down among those of the search with more memory") {
  driver::Options options;
  options.model.model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/resnet/model.onnx";
  options.training.loss = "cross_entropy:logits,label";
  options.training.batch = 16;
  options.plan.devices = 4;
  options.plan.cluster = "default";
  options.plan.memory = 299021;
  const auto made = driver::make_pipeline(options);
  for (const Diagnostic& problem : made.problems()) MESSAGE(to_line(problem));
  REQUIRE(made.ok());
  for (const scheduler::DeviceMemory& device : made->built.memory) CHECK(device.peak <= Bytes(299021));
}

TEST_CASE("where only code that is counted fits, exhaustive search is not behind itself with a size that is said") {
  const testing::TemporaryFolder folder;
  std::string weights, nodes, read = "x";
  const size_t widths[] = {256, 64, 512, 64, 16};
  for (size_t i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i), rows = std::to_string(widths[i]), columns = std::to_string(widths[i + 1]);
    weights += text(i > 0 ? ", " : "", "float[", rows, ",", columns, "] w", n, " = ", zeros(widths[i] * widths[i + 1]),
                    ", float[", columns, "] b", n, " = ", zeros(widths[i + 1]));
    nodes += text("g", n, " = Gemm(", read, ", w", n, ", b", n, ")\n");
    if (i < 3) nodes += text("r", n, " = Relu(g", n, ")\n");
    read = "r" + n;
  }
  folder.write("model.onnx",
               testing::parse_onnx_text(text("g (float[N,256] x) => (float[N,16] g3) <", weights, "> {\n", nodes, "}"))
                   .SerializeAsString());
  const auto step_with = [&](const char* micro_batch) {
    driver::Options options;
    options.model.model = folder / "model.onnx";
    options.training.loss = "mse:g3,y";
    options.training.batch = 64;
    options.plan.planner = "exhaustive";
    options.plan.cluster = "default";
    options.plan.devices = 3;
    options.plan.memory = 430'000;
    options.plan.micro_batch = micro_batch;
    const auto made = driver::make_pipeline(options);
    return made.ok() ? made->built.step_seconds() : std::numeric_limits<double>::infinity();
  };
  const double free = step_with("auto");
  for (const char* size : {"1", "2", "4"}) {
    CAPTURE(size);
    CHECK(free <= step_with(size) * (1 + 1e-9));
  }
}

TEST_CASE("a limit of memory refuses what the code of a plan needs more, and nothing less") {
  const std::string cluster = GRAPHPIPE_BINARY_DIR "/driver_memory_cluster.json";
  driver::Options options;
  options.model.model = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/gpt2_like/model.onnx";
  options.training.loss = "cross_entropy:logits,label";
  options.plan.planner = "graphpipe";
  options.plan.micro_batch = "4";
  options.plan.cluster = cluster;
  const auto planned_with = [&](int64_t memory) {
    std::ofstream(cluster) << text(R"({"schema": "graphpipe.cluster/1", "devices": [{"name": "d", "memory_bytes": )",
                                   memory, R"(, "flops_per_second": 5e10, "memory_bytes_per_second": 1e10,)",
                                   R"( "launch_overhead_seconds": 1e-6}]})");
    return driver::make_pipeline(options);
  };
  const auto free = planned_with(int64_t{1} << 40);
  REQUIRE(free.ok());
  const Bytes counted = free->built.memory.front().peak;
  const Bytes bound = scheduler::memory_of(free->stages, free->built.schedule, {}).front().peak;
  REQUIRE(counted < bound);
  const auto tight = planned_with(counted.count);
  REQUIRE(tight.ok());
  CHECK(tight->built.memory.front().peak <= counted);
  const auto refused = planned_with(counted.count - 1);
  REQUIRE(!refused.ok());
  CHECK(refused.problems().front().code == Code::kNoFeasiblePlan);
}

TEST_CASE("micro-batches that differ between stages are searched beside those that do not: never slower") {
  driver::Options options;
  options.model.model = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/dlrm/model.onnx";
  options.training.loss = "bce:logit,click";
  options.plan.planner = "graphpipe";
  options.plan.devices = options.plan.stages = 3;
  const auto equal = driver::make_pipeline(options);
  options.plan.micro_batch = "per-stage";
  const auto mixed = driver::make_pipeline(options);
  REQUIRE(equal.ok());
  REQUIRE(mixed.ok());
  CHECK(mixed->built.timeline.makespan <= equal->built.timeline.makespan);
}

TEST_CASE("a device without work is refused before anything is written") {
  driver::Options options;
  options.model.model = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/dlrm/model.onnx";
  options.plan.planner = "data-parallel";
  options.plan.policy = "inference";
  options.plan.devices = 2;
  auto made = driver::make_pipeline(options);
  REQUIRE(made.ok());
  // As where replicas take micro-batches in turn and there is only one.
  made->built.schedule.programs.back().actions.clear();
  const std::string folder = GRAPHPIPE_BINARY_DIR "/driver_idle_device";
  const auto written = driver::generate_folder(*made, folder, {});
  REQUIRE(!written.ok());
  CHECK(written.problems().front().code == Code::kBadPlan);
  CHECK(written.problems().front().message.find("has nothing to do") != std::string::npos);
  CHECK(!std::filesystem::exists(folder));
}

TEST_CASE("a limit of memory that the fastest plan just keeps to changes nothing") {
  const std::pair<const char*, const char*> models[] = {{"gpt2_like", "cross_entropy:logits,label"},
                                                        {"mmt", "cross_entropy:logits,label"}};
  for (const auto& [name, loss] : std::span(models).first(tests::case_count(1, std::size(models))))
    for (const char* planner : {"auto", "graphpipe", "sequential"}) {
      CAPTURE(name);
      CAPTURE(planner);
      driver::Options options;
      options.model.model = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/" + name + "/model.onnx";
      options.training.loss = loss;
      options.training.batch = 32;
      options.plan.planner = planner;
      options.plan.cluster = "default";
      options.plan.devices = 3;
      options.plan.stages = 3;
      const auto free = driver::make_pipeline(options);
      REQUIRE(free.ok());
      Bytes peak;
      for (const scheduler::DeviceMemory& memory : free->built.memory) peak = std::max(peak, memory.peak);
      options.plan.memory = static_cast<double>(peak.count);
      const auto limited = driver::make_pipeline(options);
      for (const Diagnostic& problem : limited.problems()) MESSAGE(to_line(problem));
      REQUIRE(limited.ok());
      CHECK(limited->built.step_seconds() == free->built.step_seconds());
    }
}

TEST_CASE("planners that keep all activations recompute them where nothing fits otherwise") {
  driver::Options options;
  options.model.model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/gpt2_like/model.onnx";
  options.training.loss = "cross_entropy:logits,label";
  options.training.batch = 32;
  options.plan.planner = "equal-split";
  options.plan.policy = "gpipe";  // holds all micro-batches
  options.plan.micro_batch = "1";
  options.plan.cluster = "default";
  options.plan.devices = options.plan.stages = 2;
  const auto made_with = [&](const char* recompute, double memory) {
    options.plan.recompute = recompute;
    options.plan.memory = memory;
    return driver::make_pipeline(options);
  };
  const auto peak = [](const auto& made) {
    return std::ranges::max(made->built.memory, {}, &scheduler::DeviceMemory::peak).peak.count;
  };
  const auto recomputing = [](const auto& made) {
    return std::ranges::count(made->plan.assignment.choice, true, &ir::StageChoice::recompute);
  };
  const auto kept = made_with("never", 0), again = made_with("always", 0), free = made_with("auto", 0);
  REQUIRE(kept.ok());
  REQUIRE(again.ok());
  REQUIRE(free.ok());
  CHECK(recomputing(kept) == 0);
  CHECK(recomputing(again) == 2);
  CHECK(recomputing(free) == 0);
  REQUIRE(2 * peak(again) < peak(kept));
  const double little = static_cast<double>(peak(again) + (peak(kept) - peak(again)) / 8);
  CHECK_FALSE(made_with("never", little).ok());
  const auto limited = made_with("auto", little), least = made_with("auto", static_cast<double>(peak(again)));
  REQUIRE(limited.ok());
  CHECK(recomputing(limited) == 2);
  REQUIRE(least.ok());  // the bounds that searches go by are above what the code takes
  CHECK(recomputing(least) == 2);
}

TEST_CASE("where it is left to the planner whether to recompute, its plan is not slower than where it is said") {
  driver::Options options;
  options.model.model = GRAPHPIPE_SOURCE_DIR "/tests/data/models/gpt2_like/model.onnx";
  options.training.loss = "cross_entropy:logits,label";
  options.training.batch = 32;
  options.plan.cluster = "default";
  options.plan.devices = 4;
  const auto step = [&](const char* recompute) {
    options.plan.recompute = recompute;
    const auto made = driver::make_pipeline(options);
    return made.ok() ? made->built.step_seconds() : std::numeric_limits<double>::infinity();
  };
  for (const auto& [planner, memory] : {std::pair("pipedream", 100'000), std::pair("pipedream", 150'000),
                                        std::pair("sequential", 120'000), std::pair("graphpipe", 200'000)}) {
    CAPTURE(planner);
    CAPTURE(memory);
    options.plan.planner = planner;
    options.plan.memory = memory;
    CHECK(step("auto") <= std::min(step("never"), step("always")) * (1 + 1e-9));
  }
}

TEST_CASE(
    "where memory limits plans, auto is not behind itself with stages that are said, nor behind a planner it asks") {
  const std::vector<std::string> request{"plan",      tests::example_model("dlrm"),
                                         "--loss",    "bce:logit,click",
                                         "--cluster", "default",
                                         "--devices", "2",
                                         "--batch",   "16"};
  const auto step_with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), request.begin(), request.end());
    more.insert(more.end(), {"--json", "-q"});
    const Answer answer = ask(more);
    return answer.code == 0 ? answer.object()["simulated_step"].get<double>() : kInfinity;
  };
  for (const char* memory : {"49688", "44458", "30000"}) {
    CAPTURE(memory);
    const double free = step_with({"--memory", memory});
    CHECK(free <= step_with({"--memory", memory, "--stages", "2"}) * (1 + 1e-9));
    for (const char* planner : {"data-parallel", "graphpipe", "piper"}) {
      CAPTURE(planner);
      CHECK(free <= step_with({"--memory", memory, "--planner", planner}) * (1 + 1e-9));
    }
  }
}
