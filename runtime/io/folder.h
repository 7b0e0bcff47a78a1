#pragma once
// The generated folder that a program belongs to: its manifest and its weights.

#include <string>

namespace graphpipe::runtime {

/// The nearest folder, from that of the running executable upwards (three levels), that holds a manifest; `given` is
/// taken instead where it is not empty. Throws RunError (kUnreadableFile).
std::string find_folder(const std::string& given);

/// How much of a folder a rank compares with the manifest: rank 0 all files, the first rank of another host its copy of
/// the weights, the others no more than the size of the weights that they will map.
enum class FolderCheck { kAllFiles, kWeights, kSizeOfWeights };

/// Refuses a folder whose manifest is of another plan, or whose files differ from it.
void check_manifest(const std::string& folder, const std::string& plan_digest, FolderCheck check);

/// What the manifest says of the folder's weights, the model's parameters and constants: the same for every plan of a
/// model. The digest of their file; of all digests where they lie in several. Throws RunError (kMalformedFile).
std::string weights_digest(const std::string& folder);

}  // namespace graphpipe::runtime
