#pragma once
// Schedule files: "graphpipe.schedule/1", the JSON mapping of files/schema/schedule.proto.

#include <string>
#include <string_view>

#include "ir/schedule.h"
#include "support/result.h"

namespace graphpipe::files {

struct ScheduleFile {
  /// SHA-256 of the plan it was made for; empty for a bare schedule study.
  std::string plan_digest;
  ir::Schedule schedule;
  bool operator==(const ScheduleFile&) const = default;
};

/// Ends in a newline, and parse_schedule_file(print_schedule_file(s)) == s.
std::string print_schedule_file(const ScheduleFile& file);
/// Reports every bad field with its path (kBadSchedule; kMalformedFile and kLimitExceeded for the form). Whether the
/// schedule is right is for scheduler/check_schedule.
Result<ScheduleFile> parse_schedule_file(std::string_view text);

Result<ScheduleFile> read_schedule_file(const std::string& path);
/// Atomic.
Status write_schedule_file(const std::string& path, const ScheduleFile& file);

}  // namespace graphpipe::files
