#pragma once
// Schedule files: "graphpipe.schedule/1", the JSON mapping of files/schema/schedule.proto, or the same message in the
// binary form of Protocol Buffers; and the lists of actions in the answer of `graphpipe schedule --format json`.

#include <string>
#include <string_view>

#include "ir/schedule.h"
#include "support/result.h"

namespace graphpipe::files {

struct ScheduleFile {
  /// SHA-256 of the plan it was made for; empty for a standalone schedule.
  std::string plan_digest;
  ir::Schedule schedule;
  bool operator==(const ScheduleFile&) const = default;
};

/// Ends in a newline, and parse_schedule_file(print_schedule_file(s)) == s.
std::string print_schedule_file(const ScheduleFile& file);
/// Reports every bad field with its path (kBadSchedule; kMalformedFile and kLimitExceeded for the form). Whether the
/// schedule is right is for scheduler/check_schedule.
Result<ScheduleFile> parse_schedule_file(std::string_view text);

/// The binary form: about a fifth of the JSON, up to 32 MiB. The same promises and errors.
std::string print_schedule_binary(const ScheduleFile& file);
Result<ScheduleFile> parse_schedule_binary(std::string_view bytes);
/// Whether bytes begin as print_schedule_binary writes them, which no text does.
bool is_schedule_binary(std::string_view bytes);

/// A JSON object with "programs": per device, from 0, the list of its actions as ir::print_action writes them;
/// "policy", "slots" (per stage) and "starts" (per program, in ticks) where they are known; without "slots" those that
/// the actions name are dropped.
/// Other members are not read. Errors: kMalformedFile with the device and the number of each entry that is no action,
/// kLimitExceeded.
Result<ir::Schedule> parse_schedule_lists(std::string_view text);
/// Whether text is a JSON object whose "schema" does not name a schedule file but that has such lists.
bool is_schedule_lists(std::string_view text);

}  // namespace graphpipe::files
