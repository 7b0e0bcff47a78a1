#pragma once
// What the main functions of all programs share: arguments, the watch on the launcher, threads, and the one place
// where exceptions end, LibTorch's included.

#include <functional>
#include <string>

#include "runtime/io/data.h"
#include "runtime/loss.h"
#include "wire/result_lines.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// Parses the arguments, prepares LibTorch and runs `body` without autograd. Prints what goes wrong on stderr, with the
/// words of `where` (what the program was doing) added to LibTorch's own. Returns the exit code.
int run_main(const PlanTable& plan, int argc, char** argv, const std::function<void(const wire::RunOptions&)>& body,
             const std::function<std::string()>& where);

/// Refuses, before any work, files that could not be written after it (kEnvironment), and those that the run or its
/// folder needs (kUsage). Throws RunError.
void check_outputs(const wire::RunOptions& options, const std::string& folder);

/// The stall time-out in seconds: what the options say, else wire::kStallTimeout or five times as long as the plan's
/// longest action is expected to take, whatever is more.
double stall_seconds(const PlanTable& plan, const wire::RunOptions& options);

std::unique_ptr<Data> open_data(const wire::RunOptions& options);

/// Adds the loss of a step, where the plan has one, to a result that holds its seconds; one line on stderr where the
/// options ask for it.
void note_step(const wire::RunOptions& options, std::vector<LossShare> shares, wire::RunResult& result);
/// The result on stdout.
void print_result(const wire::RunOptions& options, const wire::RunResult& result);

}  // namespace graphpipe::runtime
