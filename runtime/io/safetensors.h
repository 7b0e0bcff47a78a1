#pragma once
// safetensors: 8 bytes of header length, a JSON header, then the tensors' bytes without gaps, little-endian. The reader
// is strict and maps the file, so that only what is accessed is read; the writer keeps the tensors in the given order.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "support/mapped_file.h"

namespace graphpipe::runtime {

struct TensorPlace {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> dims;
  size_t offset = 0;  // in the file
  size_t bytes = 0;
  size_t file = 0;  // index among the files opened together
  /// Whether the file has other hard links, through which others may write to it.
  bool is_shared = false;
};

/// Reads a whole file's header. Throws RunError (kMalformedFile).
std::map<std::string, TensorPlace> read_safetensors_header(std::span<const std::byte> file, const std::string& name);

class Safetensors {
 public:
  explicit Safetensors(const std::string& path) : Safetensors(std::vector{path}) {}
  /// Several files as one; if two of them hold a name, the first one's tensor wins. Throws RunError: kUnreadableFile,
  /// kMalformedFile.
  explicit Safetensors(const std::vector<std::string>& paths);
  /// All weights of a generated folder: those of its safetensors file, and those in the model's own data files
  /// (wire/weight_parts.h). Throws as above.
  static Safetensors of_folder(const std::string& folder);
  /// Null if there is no such tensor.
  const TensorPlace* find(const std::string& name) const;
  /// A tensor backed by the mapping: never write to it, and keep this object alive.
  at::Tensor view(const TensorPlace& place) const;
  const std::map<std::string, TensorPlace>& tensors() const { return tensors_; }

 private:
  std::vector<MappedFile> files_;
  std::map<std::string, TensorPlace> tensors_;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Passes the file's bytes to `write`, piece by piece.
void write_safetensors(const std::function<void(std::span<const std::byte>)>& write,
                       const std::vector<NamedTensor>& tensors);
/// Writes an OutputFile. Throws RunError (kEnvironment).
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace graphpipe::runtime
