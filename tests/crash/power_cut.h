#pragma once
// What a folder may look like after a power cut: what was flushed is there, all else may be lost.

#include <random>
#include <string>
#include <vector>

#include "tests/crash/disk_events.h"

namespace crash {

/// Takes back renames that no flush of their folder followed, the last ones first and as many as chance says, and cuts,
/// clears or removes files whose bytes were not flushed.
void lose_what_was_not_flushed(const std::string& folder, const std::vector<DiskEvent>& journal, std::mt19937& random);

}  // namespace crash
