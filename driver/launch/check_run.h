#pragma once
// What a run reads beside its folder, checked before the first process starts: one error where several ranks would each
// report the same.

#include <string>

#include "driver/cli/flag_use.h"
#include "ir/plan.h"
#include "support/result.h"
#include "wire/run_options.h"

namespace graphpipe::driver {

/// What the flags of a run can mean in this folder. Errors: those of reading its table of data.
Result<RunFacts> run_facts(const std::string& folder, const ir::Plan& plan, const wire::RunOptions& run);

/// How many steps a run has: those of the options, or of their epochs of the data. Errors: those of check_run_files;
/// kUsage where they cannot be counted here.
Result<int64_t> count_steps(const std::string& folder, const wire::DataOptions& data);

/// Errors of the data (wire/check_data.h) and of the weights to start from, all of whose numbers must be finite; where
/// there are none, notes.
Diagnostics check_run_files(const std::string& folder, const wire::RunOptions& run);

}  // namespace graphpipe::driver
