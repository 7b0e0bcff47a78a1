#pragma once
// A strict reader of one ONNX TensorProto, as ONNX's test data folders hold them: input_0.pb, output_0.pb. Dense
// tensors of the types that plans support, stored in the file itself, with exactly as many elements as the dims
// require.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime {

struct StoredTensor {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;  // dense, little-endian
};

/// Throws RunError (kMalformedFile); `path` appears in the message.
StoredTensor read_tensor_proto(std::span<const std::byte> file, const std::string& path);

}  // namespace graphpipe::runtime
