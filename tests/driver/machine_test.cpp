// Which machines the flags mean, and the cache of what this one was measured to do.

#include "driver/pipeline/machine.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "driver/launch/calibration.h"
#include "tests/driver/ask.h"
#include "tests/driver/fake_runtime.h"
#include "tests/driver/variable.h"

using namespace graphpipe;
using namespace graphpipe::driver;
using graphpipe::tests::FakeRuntime;
using graphpipe::tests::holds;
using graphpipe::tests::kCalibrationLines;
using graphpipe::tests::Variable;

namespace {

namespace fs = std::filesystem;

Options with_devices(int64_t devices) {
  Options options;
  options.plan.devices = devices;
  return options;
}

}  // namespace

TEST_CASE("without a cluster the devices are this machine's, measured once and then taken from the cache") {
  const FakeRuntime runtime;
  const Result<Machine> first = find_machine(with_devices(4));
  REQUIRE(first.ok());
  CHECK(first->source == MachineSource::kCalibrated);
  CHECK(holds(first->sentence, "4 processes of this machine"));
  CHECK(holds(first->sentence, "(calibrated: 96 GFLOP/s, 9 GB/s, 3 us per operator, messages 12.4 us + 6.06 GB/s)"));
  REQUIRE(first->cluster.devices.size() == 4);
  CHECK(first->cluster.devices[ir::DeviceId(3u)].compute.count == 9.6e10);
  CHECK(first->cluster.link(ir::DeviceId(0u), ir::DeviceId(3u)).latency.count == 12e-6);
  CHECK(first->cluster.devices[ir::DeviceId(3u)].weight_bandwidth.count == 7e9);
  CHECK(first->cluster.runtime.update_byte == 2e-11);
  CHECK(first->cluster.runtime.add_byte == 5e-11);
  CHECK(first->cores >= 1);
  CHECK(holds(first->sentence, "more with --devices or --threads") == (first->cores > 4));
  CHECK(runtime.starts() == 1);
  const Result<Machine> again = find_machine(with_devices(4));
  REQUIRE(again.ok());
  CHECK(again->cluster == first->cluster);
  CHECK(again->notes.empty());
  CHECK(runtime.starts() == 1);
  // Two processes stand for more; other threads, or another optimizer, are another calibration.
  REQUIRE(find_machine(with_devices(2)).ok());
  CHECK(runtime.starts() == 1);
  Options other = with_devices(2);
  other.training.threads = 2;
  REQUIRE(find_machine(other).ok());
  other.training.optimizer = "adamw";
  const Result<Machine> adamw = find_machine(other);
  REQUIRE(adamw.ok());
  CHECK(adamw->cluster.runtime.update_byte == 8e-11);
  CHECK(runtime.starts() == 3);
}

TEST_CASE("of a 16-bit precision the rate is told, and that it is lower than that of float32") {
  const FakeRuntime runtime;
  Options options = with_devices(2);
  options.training.precision = "bf16";
  const Result<Machine> fast = find_machine(options);
  REQUIRE(fast.ok());
  CHECK(holds(fast->sentence, "(calibrated: 96 GFLOP/s (320 GFLOP/s in bf16), 9 GB/s"));
  CHECK(fast->cluster.devices[ir::DeviceId(1u)].bfloat16.convolution.count == 18e10);
  CHECK(fast->cluster.devices[ir::DeviceId(1u)].bfloat16.attention.count == 9e10);
  CHECK(fast->notes.empty());
  options.training.precision = "fp16";
  const Result<Machine> slow = find_machine(options);
  REQUIRE(slow.ok());
  REQUIRE(slow->notes.size() == 1);
  CHECK(to_line(slow->notes[0]) ==
        "note[environment] '--precision fp16': matrix products reach 10 GFLOP/s in fp16 on this machine, 96 GFLOP/s in "
        "float32; leave --precision out where steps are to be short on this machine");
  // One calibration has all types.
  CHECK(runtime.starts() == 1);
}

TEST_CASE("a damaged cache, or one of another machine, is measured again and written anew") {
  const FakeRuntime runtime;
  const Result<Machine> first = find_machine(with_devices(2));
  REQUIRE(first.ok());
  const fs::path file = runtime.cache_file();
  std::ifstream stream(file);
  const std::string good((std::istreambuf_iterator<char>(stream)), {});
  std::string foreign = good;
  foreign.replace(foreign.find("cores"), 5, "hosts");
  int starts = 1;
  for (const std::string& text : {std::string(), std::string("{"), good.substr(0, good.size() / 2), foreign,
                                  std::string(100, '\0'), std::string("{\"schema\": \"graphpipe.plan/1\"}")}) {
    CAPTURE(text);
    std::ofstream(file, std::ios::trunc) << text;
    const Result<Machine> again = find_machine(with_devices(2));
    REQUIRE(again.ok());
    CHECK(again->cluster == first->cluster);
    CHECK(runtime.starts() == ++starts);
    std::ifstream written(file);
    CHECK(std::string((std::istreambuf_iterator<char>(written)), {}) == good);
  }
}

TEST_CASE("where the cache cannot be written, a note says so and the plan is made") {
  const FakeRuntime runtime;
  std::ofstream(runtime.cache) << "a file, not a folder";
  const Result<Machine> machine = find_machine(with_devices(2));
  REQUIRE(machine.ok());
  REQUIRE(machine->notes.size() == 1);
  CHECK(holds(machine->notes[0].message, "cannot be kept"));
  CHECK(machine->notes[0].severity == Severity::kNote);
}

TEST_CASE("a measurement that fails, or says nothing of use, is an error and leaves no cache") {
  for (const auto& [lines, code] :
       {std::pair<std::string, int>{kCalibrationLines, 5},
        {"", 0},
        {"device 1e9 1e9 1e-6\\n", 0},
        {"device 1e9 1e9 1e-6\\nlink 1 1\\nruntime 1 1 1 1\\n", 0},
        {"device 1e9 1e9 1e-6\\nkernels 1e9 1e9 1e9 1e9 -1\\nweights 1e9\\nlink 1 1\\nruntime 1 1 1 1\\n", 0},
        {"device nan 1e9 1e-6\\nlink 1 1\\nruntime 1 1 1 1\\n", 0},
        {"device 1e9 1e9 1e-6\\nkernels 1e9 1e9 1e9 1e9 1e9\\nweights 1e9\\nlink 1 1\\nruntime 1 1 1\\n", 0},
        {"device 1e9 1e9 1e-6\\nkernels 1e9 1e9 1e9 1e9 1e9\\nlink 1 1\\nruntime 1 1 1 1\\n", 0},
        {"device 1e9 1e9 -1\\nlink 1 1\\nruntime 1 1 1 1\\n", 0}}) {
    CAPTURE(lines);
    const FakeRuntime runtime(lines, code);
    const Result<Machine> machine = find_machine(with_devices(2));
    REQUIRE_FALSE(machine.ok());
    CHECK(machine.problems()[0].code == Code::kEnvironment);
    CHECK(holds(machine.problems()[0].hint, "--cluster default"));
    CHECK_FALSE(fs::exists(runtime.cache));
  }
}

TEST_CASE("documented constants: asked for by name or variable, and where no runtime is installed") {
  const FakeRuntime runtime;
  fs::remove(runtime.folder / "bin/graphpipe-calibrate");
  const Result<Machine> absent = find_machine(with_devices(3));
  REQUIRE(absent.ok());
  CHECK(holds(absent->sentence, "no runtime is installed"));
  Options named = with_devices(3);
  named.plan.cluster = "default";
  const Result<Machine> by_name = find_machine(named);
  const Variable variable("GRAPHPIPE_CALIBRATION", "default");
  const Result<Machine> by_variable = find_machine(with_devices(3));
  REQUIRE(by_name.ok());
  REQUIRE(by_variable.ok());
  for (const auto* machine : {&absent, &by_name, &by_variable}) {
    CHECK((*machine)->source == MachineSource::kConstants);
    CHECK((*machine)->cluster == ir::equal_devices(3));
    CHECK((*machine)->cores == 0);
  }
  CHECK(holds(by_name->sentence, "3 equal devices (constants: 50 GFLOP/s, 10 GB/s, 1 us per operator"));
}

TEST_CASE("GRAPHPIPE_CALIBRATION names a cluster file whose first device stands for this machine") {
  const FakeRuntime runtime;
  REQUIRE(find_machine(with_devices(2)).ok());
  const fs::path file = runtime.folder / "mine.json";
  fs::copy_file(runtime.cache_file(), file);
  const Variable variable("GRAPHPIPE_CALIBRATION", file.string());
  const Result<Machine> machine = find_machine(with_devices(5));
  REQUIRE(machine.ok());
  CHECK(machine->cluster.devices.size() == 5);
  CHECK(machine->cluster.devices[ir::DeviceId(4u)].compute.count == 9.6e10);
  CHECK(runtime.starts() == 1);
  const Result<Machine> one = find_machine(with_devices(1));
  REQUIRE(one.ok());
  CHECK(holds(one->sentence, "on 1 of its ") == (one->cores > 1));
  std::ofstream(file) << "{}";
  CHECK_FALSE(find_machine(with_devices(5)).ok());
}

TEST_CASE("a mistyped preset is answered with the names of presets, a path that leads nowhere with the path") {
  Options options;
  options.plan.cluster = "defalt";
  const Result<Machine> mistyped = find_machine(options);
  REQUIRE_FALSE(mistyped.ok());
  CHECK(to_line(mistyped.problems()[0]) ==
        "error[usage] '--cluster defalt': there is no preset and no file of this name; did you mean 'default'?; name a "
        "cluster file, or one of default, summit, dgx-a100, dgx-h100");
  options.plan.cluster = "dgx-a10";
  CHECK(holds(find_machine(options).problems()[0].message, "did you mean 'dgx-a100'?"));
  options.plan.cluster = "warehouse";
  CHECK_FALSE(holds(find_machine(options).problems()[0].message, "did you mean"));
  for (const char* path : {"defalt.json", "./defalt"}) {
    options.plan.cluster = path;
    CHECK(find_machine(options).problems()[0].code == Code::kUnreadableFile);
  }
}

TEST_CASE("a preset without a number of devices is one machine of it; a file is refused more than it has") {
  Options options;
  options.plan.cluster = "dgx-a100";
  REQUIRE(find_machine(options).ok());
  CHECK(find_machine(options)->cluster.devices.size() == 8);
  options.plan.devices = 12;
  CHECK(find_machine(options)->cluster.devices.size() == 12);
  const FakeRuntime runtime;
  REQUIRE(find_machine(with_devices(2)).ok());
  options.plan.cluster = runtime.cache_file().string();
  options.plan.devices = 2;
  const Result<Machine> refused = find_machine(options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems()[0].code == Code::kUsage);
  options.plan.devices = 1;
  CHECK(find_machine(options)->source == MachineSource::kFile);
}
