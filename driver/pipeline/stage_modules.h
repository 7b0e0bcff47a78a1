#pragma once
// Which modules of the PyTorch module a model was exported from lie in which stage (docs/files.md, Module).

#include <string>
#include <vector>

#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

/// For each stage the outermost modules whose operators all lie in it; empty lists where no side file says which
/// operators come from which module. Errors: of the side file.
Result<std::vector<std::vector<std::string>>> stage_modules(const Pipeline& pipeline);

/// Those of one stage, where the pipeline knows them.
std::vector<std::string> modules_in(const Pipeline& pipeline, ir::StageId stage);

}  // namespace graphpipe::driver
