// The main functions of devices' programs.

#include "runtime/error.h"
#include "runtime/executor/link_programs.h"
#include "runtime/executor/run_chosen.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/main.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

const DeviceProgram& program_of_rank(const std::vector<DeviceProgram>& programs, const wire::RunOptions& options) {
  const std::optional<int32_t> rank = find_rank(options);
  if (!rank && programs.size() > 1)
    fail(Code::kUsage, text("which of the ", programs.size(), " ranks this is, neither a flag nor a launcher says"),
         "start it under torchrun, srun or mpirun, pass --rank, or use `graphpipe run`");
  const auto index = static_cast<size_t>(rank.value_or(0));
  if (index == programs.size() && options.optimizer.staleness)
    return programs.front();  // the server uses the same tables
  if (index >= programs.size())
    fail(Code::kUsage, text("started as rank ", index, ", but the plan has ", programs.size(), " devices"),
         text("start ", programs.size(), " ranks"));
  return programs[index];
}

/// Arguments that cannot be read are refused where a rank reads them.
bool asks_for_serial(int argc, char** argv) {
  wire::RunOptions options;
  return wire::parse_run_options({argv + 1, argv + argc}, options).empty() && options.launch.serial;
}

}  // namespace

int run_device(const LinkedProgram& linked, int argc, char** argv) {
  const std::vector<DeviceProgram> program = link_programs({&linked, 1});
  const auto choose = [&](const wire::RunOptions& options) -> const DeviceProgram& {
    if (options.launch.serial)
      fail(Code::kUsage, "--serial computes what all ranks do, and this program has one", "start build/device");
    return program.front();
  };
  run_chosen(*program.front().plan, choose, argc, argv);
}

int run_rank(const LinkedProgram* first, int count, int argc, char** argv) {
  GP_CHECK(count >= 1);
  if (asks_for_serial(argc, argv)) run_serial(first, count, argc, argv);
  const std::vector<DeviceProgram> programs = link_programs({first, static_cast<size_t>(count)});
  const auto choose = [&](const wire::RunOptions& options) -> const DeviceProgram& {
    return program_of_rank(programs, options);
  };
  run_chosen(*programs.front().plan, choose, argc, argv);
}

}  // namespace graphpipe::runtime
