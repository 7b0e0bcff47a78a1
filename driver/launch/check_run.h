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

/// `run` with the number of its steps in place of epochs, which the data of `read` say. Errors: those of
/// check_run_files; kUsage where they cannot be counted here, or where flags do not go together with this number.
Result<wire::RunOptions> in_steps(const std::string& folder, wire::RunOptions run, const wire::DataOptions& read);

/// Errors of the data (wire/check_data.h) and of the weights to start from, all of whose numbers must be finite; where
/// there are none, notes.
Diagnostics check_run_files(const std::string& folder, const wire::RunOptions& run);

}  // namespace graphpipe::driver
