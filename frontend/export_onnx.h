#pragma once
// Writes the model file again, with other weights.

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/parameter_rules.h"
#include "ir/types.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// The new elements of a tensor of the file, dense and little-endian.
struct NewTensor {
  ir::DType dtype = ir::DType::kFloat32;
  std::vector<int64_t> dims;
  std::string_view bytes;
};

/// The bytes of the model file at `path`, in which the tensors of these names, initializers or values of Constant
/// nodes, have new elements. What restore_parameters() gives the import of the file stands in it; everything else is
/// unchanged. `replaced` receives the names that were found. All tensors
/// are stored in the file itself, including external ones, which are opened as an import with this trusted root would
/// open them. Needs: a file that import_onnx accepts. Errors: kUnreadableFile, kMalformedFile, those of ExternalData;
/// kBadParameter if a tensor has another type or shape than its replacement; kUnsupportedType if the size of an
/// external tensor is unknown; kLimitExceeded beyond the 2 GiB limit of one ONNX file.
Result<std::string> export_onnx(const std::string& path, const std::string& trusted_root, const ParameterRules& rules,
                                const std::map<std::string, NewTensor>& tensors, std::set<std::string>& replaced);

}  // namespace graphpipe::frontend
