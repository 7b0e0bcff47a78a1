#pragma once
// The command line's words about the model, parsed once.

#include "driver/cli/options.h"
#include "ir/model_spec.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Whether the policy of this name trains nothing; false for unknown names.
bool runs_forwards_only(const std::string& policy);

/// What the flags ask for. Without --batchnorm the mode is that of training, or of evaluation where the policy trains
/// nothing. Errors: kUsage for a loss or a binding that is none; kUnreadableFile for --parameters.
Result<ir::ModelSpec> model_spec(const Options& options);

/// Puts what a plan was made with into the options that no flag has set, but for --parameters, of which the plan holds
/// the text and not the file.
void take_model_flags(const ir::ModelSpec& of_plan, Options& options);

/// One error (kBadPlan) for each flag by which two specs of one model differ: a plan that was made with one of them
/// numbers other nodes than one that was made with the other.
Diagnostics spec_differences(const ir::ModelSpec& of_plan, const ir::ModelSpec& now);
Diagnostic other_option(std::string_view flag, const std::string& of_plan, const std::string& now);

}  // namespace graphpipe::driver
