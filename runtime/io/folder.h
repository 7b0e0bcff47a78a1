#pragma once
// The generated folder that a program belongs to: its manifest and its weights.

#include <string>

namespace graphpipe::runtime {

/// The nearest folder that holds a manifest, from that of the running executable upwards (three levels); `given` is
/// used instead if it is not empty. Throws RunError (kUnreadableFile).
std::string find_folder(const std::string& given);

/// How much of a folder a rank checks against the manifest: rank 0 all files, the first rank of another host its copy
/// of the weights, the others only the size of the weights that they will map.
enum class FolderCheck { kAllFiles, kWeights, kSizeOfWeights };

/// Rejects a folder whose manifest belongs to another plan, or whose files differ from it.
void check_manifest(const std::string& folder, const std::string& plan_digest, FolderCheck check);

/// Identifies the folder's weights, the model's parameters and constants, by the manifest: the same for every plan of a
/// model. The digest of their file, or of all digests if there are several files. Throws RunError (kMalformedFile).
std::string weights_digest(const std::string& folder);

}  // namespace graphpipe::runtime
