#pragma once
// What the main functions of all programs share: arguments, the watch on the launcher, threads, and the one place
// where exceptions end, LibTorch's included.

#include <functional>
#include <string>
#include <string_view>

#include "runtime/io/data.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// Parses the arguments, prepares LibTorch and runs `body` without autograd. Prints what goes wrong on stderr, with the
/// words of `where` (what the program was doing) added to LibTorch's own. Returns the exit code.
int run_main(const PlanTable& plan, int argc, char** argv, const std::function<void(const wire::RunOptions&)>& body,
             const std::function<std::string()>& where);

/// What LibTorch's exceptions say before the frames of the stack.
std::string first_line(std::string_view words);

/// Refuses, before any work, files that could not be written after it (kEnvironment), and those that the run or its
/// folder needs (kUsage), and asks for outputs that the plan has none of (kUsage). Throws RunError.
void check_outputs(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder);

/// The stall time-out in seconds: what the options say, else wire::kStallTimeout or five times as long as the plan's
/// longest action is expected to take, whatever is more.
double stall_seconds(const PlanTable& plan, const wire::RunOptions& options);

/// Refuses data that do not fit what the folder's plan reads, all problems at once; prints notes on them. A launcher
/// that the program belongs to has looked at .npy files before it started it. Throws RunError.
void check_data(const wire::RunOptions& options, const std::string& folder);

/// The options' seed, or the plan's.
uint64_t seed_of(const PlanTable& plan, const wire::RunOptions& options);
/// Who takes data: one of so many ranks. Those of files are read ahead where the steps are a training's.
struct DataReader {
  int rank = 0, ranks = 1;
  bool reads_ahead = false;
};
/// The data that the options name, for the generated folder's plan.
std::unique_ptr<Data> open_data(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder,
                                const DataReader& reader = {});
/// Those to evaluate on; null where the options name none.
std::unique_ptr<Data> open_eval_data(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder);

}  // namespace graphpipe::runtime
