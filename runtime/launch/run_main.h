#pragma once
// What the main functions of all programs share: arguments, monitoring of the launcher, threads, and the one place that
// catches exceptions, LibTorch's included.

#include <functional>
#include <string>
#include <string_view>

#include "runtime/io/data.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// Parses the arguments, prepares LibTorch and runs `body` without autograd. Prints errors on stderr, with the text of
/// `where` (what the program was doing) added to LibTorch's own. Returns the exit code.
int run_main(const PlanTable& plan, int argc, char** argv, const std::function<void(const wire::RunOptions&)>& body,
             const std::function<std::string()>& where);

/// The exit code of a program whose run has ended well, but for what was `found` in its results, which is printed, or
/// handed to the launcher.
int code_of_end(bool complete, const Diagnostics& found, bool has_launcher);

/// Prints what a run has to say beside its results and its error, or hands it to the launcher.
void tell(const Diagnostic& diagnostic, bool has_launcher);

/// Ends the process after everything is flushed, without destructors of static objects: LibTorch takes its tables of
/// operators apart there, a third of the processor time of a short run.
[[noreturn]] void end_process(int code);

/// The text of LibTorch's exceptions without the stack frames.
std::string first_line(std::string_view words);

/// Rejects, before any work, files that could not be written afterwards (kEnvironment), files that the run or its
/// folder needs (kUsage), and requests for outputs if the plan has none (kUsage). Throws RunError.
void check_outputs(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder);

/// The stall time-out in seconds: the value of the options, else the larger of wire::kStallTimeout and five times the
/// expected time of the plan's longest action.
double stall_seconds(const PlanTable& plan, const wire::RunOptions& options);

/// Rejects data that do not fit what the folder's plan reads, listing all problems; prints notes on them. A launcher
/// that belongs to the program has already checked .npy files. Throws RunError.
void check_data(const wire::RunOptions& options, const std::string& folder);

/// The options' seed, or the plan's.
uint64_t seed_of(const PlanTable& plan, const wire::RunOptions& options);
/// Who reads data: one of `ranks` ranks. Data in files are read ahead if the steps are those of a training.
struct DataReader {
  int rank = 0, ranks = 1;
  bool reads_ahead = false;
};
/// The data that the options name, for the generated folder's plan.
std::unique_ptr<Data> open_data(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder,
                                const DataReader& reader = {});
/// The evaluation data; null if the options name none.
std::unique_ptr<Data> open_eval_data(const PlanTable& plan, const wire::RunOptions& options, const std::string& folder);

}  // namespace graphpipe::runtime
