#pragma once
// Piper's inputs: layers with the price of each tensor-parallel degree and of one or two variants per degree.

#include <string>
#include <string_view>

#include "ir/imported_profile.h"
#include "support/result.h"

namespace graphpipe::files {

/// Fields that the format does not have are passed over. Times are seconds; a file whose layers take more than a tenth
/// of a second each on average is read as milliseconds (ImportedProfile::time_unit_seconds says so): the format names
/// Of the variants of a degree those named `activation recomp` come last, whatever the order of the file.
/// no unit, and one of the published files is in milliseconds next to bytes per second. Errors: kMalformedFile and
/// kLimitExceeded with the path of the field, kBadProfile.
Result<ir::ImportedProfile> parse_piper_profile(std::string_view text);
/// Errors: also kUnreadableFile.
Result<ir::ImportedProfile> read_piper_profile(const std::string& path);

}  // namespace graphpipe::files
