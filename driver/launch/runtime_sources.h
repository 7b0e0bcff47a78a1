#pragma once
// The runtime's own sources, for folders that must build where GraphPipe is not installed.

#include <vector>

#include "codegen/source_file.h"
#include "support/result.h"

namespace graphpipe::driver {

/// The files that the installed runtime keeps under share/graphpipe/bundle, as runtime/... of a generated folder.
/// Errors: kEnvironment where the runtime is not installed.
Result<std::vector<codegen::SourceFile>> runtime_sources();

}  // namespace graphpipe::driver
