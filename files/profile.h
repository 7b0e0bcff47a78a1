#pragma once
// Profile files: "graphpipe.profile/1", the JSON mapping of files/schema/profile.proto.

#include <string>
#include <string_view>

#include "ir/profile.h"
#include "support/result.h"

namespace graphpipe::files {

/// Ends in a newline, and parse_profile(print_profile(p)) == p.
std::string print_profile(const ir::Profile& profile);
/// Sorts operators and links. Reports every bad field with its path (kBadProfile; kMalformedFile and kLimitExceeded for
/// the form). Checked: finite numbers that are not negative, each signature and sample count once, each level once.
Result<ir::Profile> parse_profile(std::string_view text);

Result<ir::Profile> read_profile(const std::string& path);
/// Atomic.
Status write_profile(const std::string& path, const ir::Profile& profile);

}  // namespace graphpipe::files
