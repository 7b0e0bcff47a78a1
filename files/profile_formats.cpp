#include "files/profile_formats.h"

#include <algorithm>

#include "files/dnn_partitioning_profile.h"
#include "files/pipedream_profile.h"
#include "files/piper_profile.h"

namespace graphpipe::files {
namespace {

// One line per format.
constexpr ProfileFormatEntry kProfileFormats[] = {
    {"pipedream", read_pipedream_profile},
    {"piper", read_piper_profile},
    {"dnn-partitioning", read_dnn_partitioning_profile},
};

}  // namespace

std::span<const ProfileFormatEntry> profile_formats() { return kProfileFormats; }

const ProfileFormatEntry* find_profile_format(std::string_view name) {
  const auto* found = std::ranges::find(kProfileFormats, name, &ProfileFormatEntry::name);
  return found == std::end(kProfileFormats) ? nullptr : found;
}

}  // namespace graphpipe::files
