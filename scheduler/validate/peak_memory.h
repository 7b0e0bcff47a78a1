#pragma once
// The most memory that each device holds at once. scheduler/memory keeps a balance through the list, action by action;
// here each thing has a lifetime, and what lives at the same time is added up.

#include <vector>

#include "scheduler/validate/check_tables.h"

namespace graphpipe::scheduler::check {

struct PeakMemory {
  Bytes bytes;
  /// The first action of the program that runs with so much.
  size_t position = 0;
};

/// Per program. Needs: tables that all checks but the one of memory have passed.
std::vector<PeakMemory> peak_memory(const Tables& tables, const MemoryOptions& options);

}  // namespace graphpipe::scheduler::check
