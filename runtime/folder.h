#pragma once
// The generated folder that a program belongs to: its manifest and its weights.

#include <string>

namespace graphpipe::runtime {

/// The nearest folder, from that of the running executable upwards (three levels), that holds a manifest; `given` is
/// taken instead where it is not empty. Throws RunError (kUnreadableFile).
std::string find_folder(const std::string& given);

/// Refuses a folder whose manifest is of another plan, or whose files differ from it: all of them with `all_files`,
/// else the weights only.
void check_manifest(const std::string& folder, const std::string& plan_digest, bool all_files);

}  // namespace graphpipe::runtime
