#pragma once
// The profiles of other projects that are read: one entry per format, by the name that --profile-format takes.

#include <span>
#include <string>
#include <string_view>

#include "ir/imported_profile.h"
#include "support/result.h"

namespace graphpipe::files {

struct ProfileFormatEntry {
  std::string_view name;
  Result<ir::ImportedProfile> (*read)(const std::string& path) = nullptr;
};

std::span<const ProfileFormatEntry> profile_formats();
/// Null where there is none of this name.
const ProfileFormatEntry* find_profile_format(std::string_view name);

}  // namespace graphpipe::files
