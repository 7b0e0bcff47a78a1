#pragma once
// External data of tensors, opened only where the model may point.
//
// A location is relative to the model's folder and must stay beneath it, without symbolic links (openat2; if the kernel
// lacks it, no-follow opening component by component). With a trusted root, links are followed if the file they end at
// lies inside that root: stores such as the Hugging Face cache consist of links. Only regular files. A file with
// further hard links, as compiled folders create them, is an error if neither the user owns it nor everybody may read
// it, since a link may expose a file that was not meant for the model; otherwise a warning if others besides its owner
// may write to it. Offset and length are strict decimals, the range lies inside the file, and the length is exactly
// what the tensor needs.

#include <sys/stat.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "frontend/wire_scan.h"
#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// An error about one tensor or file of the model.
Diagnostic tensor_problem(Code code, const ModelText& tensor, std::string message, std::string hint);

class ExternalData {
 public:
  /// `trusted_root` may be empty.
  ExternalData(const std::string& model_path, std::string trusted_root);

  const std::string& trusted_root() const { return trusted_root_; }

  /// Checks one tensor's range. `needed` is its size in bytes by type and dims; `tensor` names it in problems.
  Result<ir::FileRange> locate(const ExternalSlot& slot, int64_t needed, const ModelText& tensor);

  /// The bytes of a small tensor that locate() has checked.
  Result<std::string> read(const ExternalSlot& slot, const ir::FileRange& range, const ModelText& tensor);

  /// A descriptor of the file at a location as written in the model; the caller closes it.
  Result<int> open(const std::string& location, const ModelText& tensor);

  /// Whether ranges of different tensors overlap without being equal; call after the last locate().
  Status check_overlaps() const;
  /// Paths in order of first use.
  const std::vector<std::string>& files() const { return files_; }
  /// Warnings.
  const Diagnostics& notes() const { return notes_; }

 private:
  Status check_hard_links(const struct stat& info, const std::string& location, const ModelText& tensor);

  /// Identifies a file whatever its path: device and inode.
  using Identity = std::pair<dev_t, ino_t>;
  struct File {
    std::string path;
    int64_t size = 0;
    Identity identity;
  };
  struct Ranges {
    std::string path;
    /// Lengths by offset.
    std::map<int64_t, int64_t> lengths;
  };

  std::string folder_;
  std::string trusted_root_;
  std::map<std::string, File> opened_;
  std::vector<std::string> files_;
  std::map<Identity, Ranges> ranges_;
  std::vector<std::string> overlapping_;
  Diagnostics notes_;
};

/// Opens a file that an import has reported as holding weights, under the same rules as the import: the model file
/// itself, or a file that may hold external data. The caller closes the descriptor.
Result<int> open_weight_file(const std::string& path, const std::string& model_path, const std::string& trusted_root);

}  // namespace graphpipe::frontend
