#pragma once
// The model file again, with other weights.

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/types.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// The elements that a tensor of the file gets, dense and little-endian.
struct NewTensor {
  ir::DType dtype = ir::DType::kFloat32;
  std::vector<int64_t> dims;
  std::string_view bytes;
};

/// The bytes of the model file at `path` where the tensors of these names, initializers or values of Constant nodes,
/// have new elements; all else is as it was. `replaced` gets the names that were found. All tensors lie in the file
/// itself, those too that lay in files beside it, which are opened as an import with this trusted root opens them.
/// Needs: a file that import_onnx accepts. Errors: kUnreadableFile, kMalformedFile, those of ExternalData;
/// kBadParameter where a tensor has another type or shape than its new one; kUnsupportedType where it is not known how
/// many bytes lie beside the model; kLimitExceeded beyond the 2 GiB that one
/// ONNX file can hold.
Result<std::string> export_onnx(const std::string& path, const std::string& trusted_root,
                                const std::map<std::string, NewTensor>& tensors, std::set<std::string>& replaced);

}  // namespace graphpipe::frontend
